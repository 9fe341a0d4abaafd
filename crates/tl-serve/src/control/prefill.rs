//! One `Prefill` from request to answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tl_api::openai::Kind;
use tl_engine::kv_transfer::{
    KV_FORMAT, KvTransport, MAX_HANDLE_ID, TransferError, TransferStats, transfer_held,
};
use tl_kv::Held;
use tl_proto::engine::v1::{KvHandle, PrefillRequest, PrefillResponse, TopLogprob};
use tokio::time::Instant;
use tonic::{Code, Status};
use tracing::Instrument;

use super::serve::Control;
use super::{PrefillBackend, PrefillJob, PrefillOutcome, TopToken, sampling_from_proto};

/// Bound of the release that undoes a push whose answer was lost.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// A request that has passed every check.
struct Checked {
    job: PrefillJob,
    handle_id: String,
    target: String,
}

impl<B: PrefillBackend> Control<B> {
    pub(super) async fn run_prefill(
        &self,
        request: PrefillRequest,
        kind: Kind,
    ) -> Result<PrefillResponse, Status> {
        let received = Instant::now();
        let Checked { job, handle_id, target } = self.check(request, kind, received)?;
        let entry = self.pending.enter(&job.request_id);
        let deadline = job.deadline;
        let request_id = job.request_id.clone();
        let prompt_tokens = job.prompt_ids.len();

        let work = async {
            let outcome = self.service.backend.prefill(job).await?;
            let ttft = received.elapsed();
            self.deliver(outcome, &handle_id, &target, prompt_tokens, ttft).await
        };
        let expiry = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        // Whichever comes first drops the others, and with them what they hold.
        tokio::select! {
            biased;
            done = work => done,
            () = entry.cancelled() => Err(Status::cancelled("the prefill was cancelled")),
            () = expiry => {
                self.service.backend.cancel(&request_id).await;
                Err(Status::deadline_exceeded("the deadline passed before the blocks were delivered"))
            }
        }
    }

    fn check(&self, request: PrefillRequest, kind: Kind, now: Instant) -> Result<Checked, Status> {
        if !self.service.may_prefill() {
            return Err(Status::failed_precondition(format!(
                "this engine's role is {}, not prefill",
                self.service.roles.join(" and ")
            )));
        }
        if request.prompt_ids.is_empty() {
            return Err(Status::invalid_argument("prompt_ids is empty"));
        }
        if request.decode_target.is_empty() {
            return Err(Status::invalid_argument("decode_target is empty"));
        }
        if let Some(why) = self.targets.refuse(&request.decode_target) {
            return Err(Status::permission_denied(why));
        }
        let deadline = match deadline_of(request.deadline_unix_ms, now) {
            Deadline::None => None,
            Deadline::At(at) => Some(at),
            Deadline::Past => {
                return Err(Status::deadline_exceeded("deadline_unix_ms has passed already"));
            }
        };
        let (sampling, seed, max_new_tokens) = sampling_from_proto(request.sampling.as_ref())?;
        if request.request_id.len() > MAX_HANDLE_ID {
            return Err(Status::invalid_argument(format!(
                "request_id of {} bytes, at most {MAX_HANDLE_ID}",
                request.request_id.len()
            )));
        }
        let handle_id = if request.request_id.is_empty() {
            unguessable_id()?
        } else {
            request.request_id.clone()
        };
        let (stop, logprobs) = request.sampling.map(|s| (s.stop, s.logprobs)).unwrap_or_default();
        let job = PrefillJob {
            request_id: handle_id.clone(),
            model: request.model,
            kind,
            prompt_ids: request.prompt_ids,
            sampling,
            seed,
            max_new_tokens,
            stop,
            logprobs: usize::try_from(logprobs).unwrap_or(0),
            priority: request.priority,
            deadline,
        };
        Ok(Checked { job, handle_id, target: request.decode_target })
    }

    /// Moves the blocks of an outcome, unless there is nothing to decode, and answers.
    async fn deliver(
        &self,
        outcome: PrefillOutcome,
        handle_id: &str,
        target: &str,
        prompt_tokens: usize,
        ttft: Duration,
    ) -> Result<PrefillResponse, Status> {
        // Every field, so that a new one cannot be forgotten here.
        let PrefillOutcome {
            first_token,
            first_logprob,
            block_ids,
            block_hashes,
            cached_prompt_tokens,
            rng_draws,
            first_text,
            finish,
            first_top_logprobs,
            first_token_bytes,
        } = outcome;
        let held = Held::adopt(&self.service.backend.pool(), block_ids);
        let mut moved = TransferStats::default();
        let handle = if finish.is_none() {
            moved = self.push(&held, target, handle_id, &block_hashes).await?;
            Some(KvHandle {
                handle_id: handle_id.to_owned(),
                decode_target: target.to_owned(),
                n_tokens: prompt_tokens as u32,
                block_hashes,
                kv_format: KV_FORMAT,
                first_token,
                prompt_tokens: prompt_tokens as u32,
                rng_draws_consumed: rng_draws,
            })
        } else {
            None
        };
        drop(held);
        Ok(PrefillResponse {
            handle,
            first_token,
            first_logprob: first_logprob as f32,
            prompt_tokens: saturated(prompt_tokens),
            cached_prompt_tokens: saturated(cached_prompt_tokens),
            ttft_ms: ttft.as_secs_f64() * 1e3,
            first_text,
            finish_reason: finish.map(|f| f.as_str().to_owned()).unwrap_or_default(),
            first_top_logprobs: first_top_logprobs
                .into_iter()
                .map(|TopToken { id, logprob, bytes }| TopLogprob {
                    id,
                    logprob,
                    token_bytes: bytes.into(),
                })
                .collect(),
            first_logprob_f64: first_logprob,
            first_token_bytes: first_token_bytes.into(),
            kv_blocks_sent: moved.sent as u32,
            kv_blocks_deduped: moved.deduped as u32,
            kv_payload_bytes: moved.payload_bytes as u64,
        })
    }

    async fn push(
        &self,
        held: &Held,
        target: &str,
        handle_id: &str,
        hashes: &[u64],
    ) -> Result<TransferStats, Status> {
        let transport = &self.service.transport;
        let mut undo = Undo::new(transport, target, handle_id);
        let moved = transfer_held(transport.as_ref(), target, held, handle_id, hashes).await;
        match moved {
            Ok(stats) => {
                undo.disarm();
                tracing::debug!(decode = target, handle_id, ?stats, "kv blocks delivered");
                Ok(stats)
            }
            Err(error) => {
                // The decode engine said that what it has there is somebody else's.
                if error.code == Code::AlreadyExists {
                    undo.disarm();
                }
                tracing::warn!(decode = target, handle_id, %error, "kv transfer failed");
                Err(transfer_status(&error))
            }
        }
    }
}

/// The answer of `Prefill` to a failed transfer. Whatever only says that the decode
/// engine could not be heard is UNAVAILABLE, so that the gateway tries another one.
fn transfer_status(error: &TransferError) -> Status {
    let code = match error.code {
        Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => Code::Unavailable,
        other => other,
    };
    Status::new(code, format!("kv transfer: {}", error.message))
}

/// Releases the handle on the decode engine when dropped: the push that made it may
/// have completed without our hearing of it.
struct Undo {
    armed: Option<(Arc<dyn KvTransport>, String, String)>,
}

impl Undo {
    fn new(transport: &Arc<dyn KvTransport>, target: &str, handle_id: &str) -> Undo {
        Undo { armed: Some((transport.clone(), target.to_owned(), handle_id.to_owned())) }
    }

    fn disarm(&mut self) {
        self.armed = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let Some((transport, target, handle_id)) = self.armed.take() else { return };
        // Without a runtime the process is going; the lease on the other side ends it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let undo = async move {
            let release = transport.release(&target, &handle_id);
            match tokio::time::timeout(RELEASE_TIMEOUT, release).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(target, handle_id, %error, "release after a failed push");
                }
                Err(_) => tracing::debug!(target, handle_id, "release after a failed push hangs"),
            }
        };
        runtime.spawn(undo.in_current_span());
    }
}

enum Deadline {
    None,
    At(Instant),
    Past,
}

/// The wall-clock deadline of the request on the clock of this process.
fn deadline_of(unix_ms: i64, now: Instant) -> Deadline {
    let Ok(at @ 1..) = u64::try_from(unix_ms) else { return Deadline::None };
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match Duration::from_millis(at).checked_sub(wall) {
        None | Some(Duration::ZERO) => Deadline::Past,
        Some(left) => now.checked_add(left).map_or(Deadline::None, Deadline::At),
    }
}

/// A handle id for a gateway that gave none. Never derived from the request: whoever
/// knew the request could claim its blocks.
fn unguessable_id() -> Result<String, Status> {
    let mut bits = [0u8; 16];
    getrandom::fill(&mut bits).map_err(|e| Status::internal(format!("random numbers: {e}")))?;
    Ok(format!("h{:032x}", u128::from_le_bytes(bits)))
}

fn saturated(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
