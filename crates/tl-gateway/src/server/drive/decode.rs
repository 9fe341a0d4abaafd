//! The decode engine's half of an attempt, alone or from a handle: its stream, and what it counts.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tl_api::handoff::{DecodeCall, plain_call};
use tl_api::openai::Usage;
use tokio::time::Instant;

use super::super::handover::{Out, RouteInfo, combined_usage};
use super::super::stream::{DecodeStream, Item};
use super::{Driver, Waiting};
use crate::attempt::{DecodeFailure, Fact};

impl Driver {
    pub(super) fn begin_decode(&mut self) {
        let Some(record) = self.current.as_ref().and_then(|c| c.record.as_ref()) else { return };
        let call = record.resume.to_call();
        self.open(call);
    }

    pub(super) fn begin_alone(&mut self) {
        let call = plain_call(&self.job.request_of(self.index, false), &self.job.context);
        if let Some(current) = &self.current {
            let info = RouteInfo {
                decode: current.decode.id.clone(),
                reason: current.decode.reason.as_str().to_owned(),
                attempt: self.attempt.attempts(),
                ..RouteInfo::default()
            };
            let _ = self.out.try_send((self.index, Out::Routed(info)));
        }
        self.open(call);
    }

    pub(super) fn open(&mut self, call: DecodeCall) {
        let Some(current) = &self.current else { return };
        let timeout = Duration::from_millis(self.shared.config.first_byte_timeout_ms);
        let address = current.decode.http_address.clone();
        let shared = self.shared.clone();
        self.waiting = Waiting::Open {
            opening: Box::pin(async move { shared.peers.open(&address, call, timeout).await }),
            first_by: Instant::now() + timeout,
        };
    }

    pub(super) fn opened(
        &mut self,
        opened: Result<reqwest::Response, (DecodeFailure, String)>,
        first_by: Instant,
    ) -> Fact {
        match opened {
            Ok(response) => {
                let chunks = response
                    .bytes_stream()
                    .map(|chunk| chunk.map_err(|e| e.without_url().to_string()));
                let stall = Duration::from_millis(self.shared.config.stall_timeout_ms);
                let kind = self.job.request.kind;
                self.waiting = Waiting::Decode(DecodeStream::new(kind, chunks, first_by, stall));
                Fact::DecodeAccepted
            }
            Err((failure, why)) => self.decode_failed(failure, why),
        }
    }

    pub(super) fn decode_failed(&mut self, failure: DecodeFailure, why: String) -> Fact {
        let means = match &failure {
            DecodeFailure::Client(_) => "client's mistake",
            DecodeFailure::Full => "full",
            DecodeFailure::Handle => "handle unknown",
            DecodeFailure::Fault => "fault",
        };
        self.note(|| json!({"event": "decode failed", "means": means, "why": why}));
        tracing::info!(means, %why, "decode failed");
        self.last_failure = why;
        Fact::DecodeFailed(failure)
    }

    pub(super) fn decoded(&mut self, item: Item, outputs: u64) -> Fact {
        match item {
            Item::Output(parts) => {
                self.output = parts;
                self.note_landed(self.job.demand.prompt_tokens + outputs);
                Fact::DecodeOutput
            }
            Item::Ended => Fact::DecodeEnded,
            Item::Failed(why) => self.decode_failed(DecodeFailure::Fault, why),
        }
    }

    /// So many positions are in use on the decode engine.
    pub(super) fn note_landed(&mut self, tokens: u64) {
        let Some(current) = &self.current else { return };
        let blocks = tokens.div_ceil(current.decode.block_tokens.max(1).into());
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        if blocks > self.landed {
            self.landed = blocks;
            if let Some(load) = &current.load {
                load.landed(blocks);
            }
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let decoded = match &self.waiting {
            Waiting::Decode(stream) => stream.usage().or_else(|| {
                tracing::warn!("the engine sent no usage");
                Some(Usage {
                    prompt_tokens: self.job.demand.prompt_tokens,
                    completion_tokens: stream.outputs(),
                    cached_tokens: 0,
                })
            }),
            _ => None,
        };
        let empty = self.current.as_ref().is_some_and(|c| c.empty);
        let first = self.current.as_ref().and_then(|c| c.record.as_ref()).map(|r| &r.first_output);
        combined_usage(first, empty, decoded)
    }
}
