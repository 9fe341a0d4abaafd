//! The prefill's half of an attempt: the call, what its answer means, and undoing it.

use std::time::Duration;

use serde_json::json;
use tl_proto::engine::v1::PrefillResponse;
use tracing::Instrument;

use super::super::handover::{Out, RouteInfo, ends_without_token};
use super::{Driver, Waiting};
use crate::attempt::{Fact, First, PrefillFailure};

impl Driver {
    pub(super) fn begin_prefill(&mut self, handle: String) {
        let Some(current) = &self.current else { return };
        let Some(prefill) = &current.prefill_pick else { return };
        let timeout = Duration::from_millis(self.shared.config.prefill_timeout_ms);
        let message =
            self.job.prefill_request(self.index, handle, prefill, &current.decode, timeout);
        let shared = self.shared.clone();
        let address = prefill.grpc_address.clone();
        let job = self.job.clone();
        self.waiting = Waiting::Prefill(Box::pin(async move {
            let kind = job.request.kind;
            shared.peers.prefill(&address, message, kind, &job.context, timeout).await
        }));
    }

    pub(super) fn prefill_answered(
        &mut self,
        answer: Result<PrefillResponse, (PrefillFailure, String)>,
    ) -> Fact {
        let Some(current) = &mut self.current else { return Fact::ClientGone };
        // The prefill engine has done its part.
        current.prefill = None;
        let failed = |driver: &mut Driver, failure: PrefillFailure, why: String| {
            let means = format!("{failure:?}");
            tracing::info!(%means, %why, "prefill failed");
            driver.note(|| json!({"event": "prefill failed", "means": means, "why": why}));
            driver.last_failure = why;
            Fact::PrefillFailed(failure)
        };
        let response = match answer {
            Ok(response) => response,
            Err((failure, why)) => return failed(self, failure, why),
        };
        let extended = current.prefill_pick.as_ref().is_some_and(|p| p.extended);
        let record = self.job.record(self.index, &current.handle, extended, &response);
        let Some(record) = record else {
            let why = "the answer contradicts the request".to_owned();
            return failed(self, PrefillFailure::PrefillFault, why);
        };
        let draws = response.handle.as_ref().map_or(0, |h| h.rng_draws_consumed);
        let first = First {
            token: response.first_token,
            draws,
            has_text: !record.first_output.text.is_empty(),
            ends: record.first_output.finish.is_some(),
        };
        let landed = record.first_output.prompt_tokens;
        tracing::debug!(
            prompt_tokens = landed,
            cached = response.cached_prompt_tokens,
            blocks_sent = response.kv_blocks_sent,
            blocks_deduped = response.kv_blocks_deduped,
            "prefilled"
        );
        self.note(|| {
            json!({
                "event": "prefilled", "prompt_tokens": response.prompt_tokens,
                "cached_prompt_tokens": response.cached_prompt_tokens,
                "blocks_sent": response.kv_blocks_sent,
                "blocks_deduped": response.kv_blocks_deduped,
                "payload_bytes": response.kv_payload_bytes,
            })
        });
        let Some(current) = &mut self.current else { return Fact::ClientGone };
        current.empty = ends_without_token(&response);
        current.record = Some(record);
        self.note_landed(u64::from(landed));
        let info = self.route_info(&response);
        // Nobody else sends for this choice now, and there is room or the reader is behind.
        let _ = self.out.try_send((self.index, Out::Routed(info)));
        Fact::Prefilled(first)
    }

    pub(super) fn route_info(&self, response: &PrefillResponse) -> RouteInfo {
        let current = self.current.as_ref();
        RouteInfo {
            prefill: current.and_then(|c| c.prefill_pick.as_ref()).map(|p| p.id.clone()),
            decode: current.map(|c| c.decode.id.clone()).unwrap_or_default(),
            reason: current.map(|c| c.decode.reason.as_str().to_owned()).unwrap_or_default(),
            blocks_sent: response.kv_blocks_sent,
            blocks_deduped: response.kv_blocks_deduped,
            payload_bytes: response.kv_payload_bytes,
            attempt: self.attempt.attempts(),
        }
    }

    pub(super) fn cancel_prefill(&mut self, handle: String) {
        let Some(current) = &self.current else { return };
        let Some(prefill) = &current.prefill_pick else { return };
        let address = prefill.grpc_address.clone();
        let shared = self.shared.clone();
        self.note(|| json!({"event": "prefill cancelled"}));
        let cancel = async move { shared.peers.cancel(&address, &handle).await };
        self.shared.tasks.spawn(cancel.in_current_span());
    }

    pub(super) fn release(&mut self, handle: String) {
        let Some(current) = &self.current else { return };
        let address = current.decode.kv_address.clone();
        if address.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        self.note(|| json!({"event": "handle released", "decode": current.decode.id}));
        let release = async move { shared.peers.release(&address, &handle).await };
        self.shared.tasks.spawn(release.in_current_span());
    }
}
