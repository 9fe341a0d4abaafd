//! What it answers over gRPC.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tl_proto::engine::v1 as pb;
use tl_proto::engine::v1::engine_control_server::EngineControl;
use tl_proto::kv::v1 as kv;
use tl_proto::kv::v1::kv_transfer_service_server::KvTransferService;
use tonic::{Request, Status, Streaming};

use super::{Inner, Prefill};

#[tonic::async_trait]
impl EngineControl for Inner {
    async fn prefill(
        &self,
        request: Request<pb::PrefillRequest>,
    ) -> Result<tonic::Response<pb::PrefillResponse>, Status> {
        let request = request.into_inner();
        let sampling = request.sampling.unwrap_or_default();
        self.say(format!(
            "prefill ids={} seed={} max={} logprobs={}",
            request.prompt_ids.len(),
            sampling.seed,
            sampling.max_new_tokens,
            sampling.logprobs,
        ));
        assert!(request.deadline_unix_ms > 0 && self.role == "prefill");
        let step = self.prefills.lock().pop_front().unwrap_or(Prefill::Ok);
        let (token, bytes, text, finish) = match step {
            Prefill::Ok => (72, "H", "H", ""),
            Prefill::Token(token, text) => (token, text, text, ""),
            Prefill::Withheld(bytes) => (72, bytes, "", ""),
            Prefill::Ends(bytes, text, finish) => (72, bytes, text, finish),
            Prefill::Fails(code, message) => return Err(Status::new(code, message)),
            Prefill::Hangs => {
                self.cancelled.notified().await;
                return Err(Status::cancelled("cancelled"));
            }
        };
        let prompt_tokens = request.prompt_ids.len() as u32;
        let handle = finish.is_empty().then(|| {
            self.world.handles.lock().insert(request.request_id.clone());
            pb::KvHandle {
                handle_id: request.request_id,
                decode_target: request.decode_target,
                n_tokens: prompt_tokens,
                kv_format: 1,
                first_token: token,
                prompt_tokens,
                rng_draws_consumed: 1,
                ..pb::KvHandle::default()
            }
        });
        let top = pb::TopLogprob { id: token, logprob: -0.25, token_bytes: "H".into() };
        Ok(tonic::Response::new(pb::PrefillResponse {
            handle,
            first_token: token,
            first_logprob: -0.25,
            first_logprob_f64: -0.25,
            prompt_tokens: prompt_tokens as i32,
            cached_prompt_tokens: 3,
            first_text: text.into(),
            finish_reason: finish.into(),
            first_top_logprobs: vec![top; sampling.logprobs as usize],
            first_token_bytes: Bytes::from_static(bytes.as_bytes()),
            kv_blocks_sent: 2,
            kv_blocks_deduped: 1,
            kv_payload_bytes: 344,
            ..pb::PrefillResponse::default()
        }))
    }

    async fn info(
        &self,
        _: Request<pb::InfoRequest>,
    ) -> Result<tonic::Response<pb::InfoResponse>, Status> {
        let one_less = |n: u64| n.checked_sub(1);
        let failing = &self.infos_to_fail;
        if failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return Err(Status::unavailable("still loading"));
        }
        Ok(tonic::Response::new(pb::InfoResponse {
            model: "m".into(),
            max_context: self.max_context,
            ..pb::InfoResponse::default()
        }))
    }

    async fn cancel(
        &self,
        _: Request<pb::CancelRequest>,
    ) -> Result<tonic::Response<pb::CancelResponse>, Status> {
        self.say("cancel".into());
        self.cancelled.notify_one();
        Ok(tonic::Response::new(pb::CancelResponse { found: true }))
    }

    async fn drain(
        &self,
        request: Request<pb::DrainRequest>,
    ) -> Result<tonic::Response<pb::DrainResponse>, Status> {
        self.say(format!("drain {}", request.into_inner().deadline_ms));
        Ok(tonic::Response::new(pb::DrainResponse { aborted: 0 }))
    }
}

#[tonic::async_trait]
impl KvTransferService for Inner {
    async fn has_blocks(
        &self,
        _: Request<kv::HasBlocksRequest>,
    ) -> Result<tonic::Response<kv::HasBlocksResponse>, Status> {
        Err(Status::unimplemented("the gateway asks for no blocks"))
    }

    async fn push_kv(
        &self,
        _: Request<Streaming<kv::KvChunk>>,
    ) -> Result<tonic::Response<kv::KvAck>, Status> {
        Err(Status::unimplemented("the gateway pushes nothing"))
    }

    async fn release(
        &self,
        request: Request<kv::ReleaseRequest>,
    ) -> Result<tonic::Response<kv::ReleaseResponse>, Status> {
        self.say("release".into());
        self.world.handles.lock().remove(&request.into_inner().handle_id);
        Ok(tonic::Response::new(kv::ReleaseResponse {}))
    }
}
