//! Carries out one [`Attempt`]: the calls, the waits, and the guards.
//!
//! A driver is a task of its own and outlives the client that asked: when the receiver of its
//! messages goes, it tells the engines, gives back what may wait there, and ends. It watches
//! for that in every wait.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tl_api::handoff::{DecodeCall, HandoffRecord, plain_call};
use tl_api::headers::random_hex;
use tl_api::openai::{ChunkPart, Usage};
use tl_proto::engine::v1::PrefillResponse;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::handover::{Job, Out, RouteInfo, combined_usage, ends_without_token, first_part};
use super::shared::{Ask, Engaged, Load, Routed, Shared};
use super::stream::{DecodeStream, Item};
use crate::attempt::{Action, Attempt, DecodeFailure, End, Fact, First, PrefillFailure};
use crate::registry::Slot;
use crate::route::{Blocked, Pick, Skipped};

/// How long a prefill that was cancelled may take to say so.
const LEAVE_GRACE: Duration = Duration::from_secs(5);

struct Current {
    /// What the blocks on the decode engine are named; empty when nothing was handed over.
    handle: String,
    /// Until the prefill has answered.
    prefill: Option<Engaged>,
    decode: Pick,
    load: Option<Load>,
    prefill_pick: Option<Pick>,
    record: Option<HandoffRecord>,
    /// The first token is an end of text, which is not part of the answer.
    empty: bool,
}

type Prefilling =
    Pin<Box<dyn Future<Output = Result<PrefillResponse, (PrefillFailure, String)>> + Send>>;
type Opening =
    Pin<Box<dyn Future<Output = Result<reqwest::Response, (DecodeFailure, String)>> + Send>>;

enum Waiting {
    Nothing,
    Route { exclude: Vec<Slot>, avoid: Vec<Slot>, alone_allowed: bool },
    Prefill(Prefilling),
    Open { opening: Opening, first_by: Instant },
    Decode(DecodeStream),
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    job: Arc<Job>,
    index: u32,
    out: mpsc::Sender<(u32, Out)>,
    attempt: Attempt,
    current: Option<Current>,
    waiting: Waiting,
    /// The latest output, not handed over.
    output: Vec<ChunkPart>,
    /// What `Blame` says in the log.
    last_failure: String,
    gone: bool,
    landed: u32,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        job: Arc<Job>,
        index: u32,
        out: mpsc::Sender<(u32, Out)>,
    ) -> Driver {
        let attempt = Attempt::new(&job.request.model, job.streamed, shared.config.max_attempts);
        Driver {
            shared,
            job,
            index,
            out,
            attempt,
            current: None,
            waiting: Waiting::Nothing,
            output: Vec::new(),
            last_failure: String::new(),
            gone: false,
            landed: 0,
        }
    }

    /// Until the end of the choice.
    pub(crate) async fn run(mut self) {
        let mut queue: VecDeque<Action> = self.attempt.start().into();
        loop {
            while let Some(action) = queue.pop_front() {
                self.carry_out(action).await;
            }
            if self.attempt.has_ended() {
                return;
            }
            let fact = self.wait().await;
            if fact == Fact::ClientGone {
                self.gone = true;
            }
            queue.extend(self.attempt.on(fact));
        }
    }

    fn note(&self, note: impl FnOnce() -> Value) {
        self.job.story.note(self.index, note);
    }

    async fn carry_out(&mut self, action: Action) {
        match action {
            Action::Route { exclude, avoid, alone_allowed } => {
                self.current = None;
                if self.attempt.attempts() > 0 {
                    self.shared.metrics.failover();
                }
                self.waiting = Waiting::Route { exclude, avoid, alone_allowed };
            }
            Action::Prefill { handle, .. } => self.begin_prefill(handle),
            Action::CancelPrefill { handle, .. } => self.cancel_prefill(handle),
            Action::Decode { .. } => self.begin_decode(),
            Action::ServeAlone { .. } => self.begin_alone(),
            Action::SendFirst => self.send_first().await,
            Action::SendDecoded => {
                for part in std::mem::take(&mut self.output) {
                    self.send(Out::Part(ChunkPart { index: self.index, ..part })).await;
                }
            }
            Action::Restart => self.send(Out::Restart).await,
            Action::StopDecode => self.waiting = Waiting::Nothing,
            Action::Release { handle, .. } => self.release(handle),
            Action::Blame(slot) => self.shared.blame(slot, &self.last_failure),
            Action::Praise(slot) => self.shared.praise(slot),
            Action::End(end) => self.end(end).await,
        }
    }

    /// Hands a message over. A client that takes nothing for the stall bound is gone.
    async fn send(&mut self, message: Out) {
        let bound = Duration::from_millis(self.shared.config.stall_timeout_ms);
        let sent = tokio::time::timeout(bound, self.out.send((self.index, message))).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.gone = true;
        }
    }

    async fn wait(&mut self) -> Fact {
        let leaving = self.gone;
        if leaving && !matches!(self.waiting, Waiting::Prefill(_)) {
            return Fact::ClientGone;
        }
        match &mut self.waiting {
            Waiting::Nothing => Fact::ClientGone,
            Waiting::Route { exclude, avoid, alone_allowed } => {
                let ask = Ask {
                    model: self.job.request.model.clone(),
                    key: self.job.key.clone(),
                    demand: self.job.demand,
                    targets: self.job.targets.clone(),
                    exclude: std::mem::take(exclude),
                    avoid: std::mem::take(avoid),
                    alone_allowed: *alone_allowed,
                    deadline: self.job.admit_by,
                };
                let admit = self.shared.fleet.admit(self.shared.policy(), ask);
                let (found, skipped) = tokio::select! {
                    biased;
                    () = self.out.closed() => return Fact::ClientGone,
                    routed = admit => routed,
                };
                self.routed(found, &skipped)
            }
            Waiting::Prefill(prefilling) => {
                let answer = if leaving {
                    tokio::time::timeout(LEAVE_GRACE, prefilling).await.unwrap_or_else(|_| {
                        Err((PrefillFailure::Deadline, "still there after a cancel".into()))
                    })
                } else {
                    tokio::select! {
                        biased;
                        () = self.out.closed() => return Fact::ClientGone,
                        answer = prefilling => answer,
                    }
                };
                self.waiting = Waiting::Nothing;
                self.prefill_answered(answer)
            }
            Waiting::Open { opening, first_by } => {
                let first_by = *first_by;
                let opened = tokio::select! {
                    biased;
                    () = self.out.closed() => return Fact::ClientGone,
                    opened = opening => opened,
                };
                self.opened(opened, first_by)
            }
            Waiting::Decode(stream) => {
                let item = tokio::select! {
                    biased;
                    () = self.out.closed() => return Fact::ClientGone,
                    item = stream.next() => item,
                };
                let outputs = stream.outputs();
                self.decoded(item, outputs)
            }
        }
    }

    fn routed(&mut self, found: Result<Routed, Blocked>, skipped: &[Skipped]) -> Fact {
        self.waiting = Waiting::Nothing;
        let skips = || -> Value {
            skipped.iter().map(|s| json!({"worker": s.id, "why": s.why.to_string()})).collect()
        };
        self.landed = 0;
        match found {
            Ok(Routed::Pair { prefill, decode }) => {
                let handle = match random_hex::<16>() {
                    Ok(handle) => handle,
                    Err(error) => {
                        tracing::error!(%error, "no randomness for a handle id");
                        return Fact::NotRouted(Blocked::NoWorker);
                    }
                };
                self.note(|| {
                    json!({
                        "event": "routed",
                        "prefill": prefill.pick.id, "prefill_reason": prefill.pick.reason.as_str(),
                        "decode": decode.pick.id, "decode_reason": decode.pick.reason.as_str(),
                        "blocks": decode.pick.blocks, "passed_over": skips(),
                    })
                });
                let fact = Fact::RoutedPair {
                    prefill: prefill.pick.slot,
                    decode: decode.pick.slot,
                    handle: handle.clone(),
                };
                self.current = Some(Current {
                    handle,
                    prefill_pick: Some(prefill.pick.clone()),
                    prefill: Some(prefill),
                    decode: decode.pick,
                    load: Some(decode.load),
                    record: None,
                    empty: false,
                });
                fact
            }
            Ok(Routed::Alone { engine, why }) => {
                self.note(|| {
                    json!({
                        "event": "routed", "decode": engine.pick.id,
                        "decode_reason": engine.pick.reason.as_str(), "alone": why.as_str(),
                        "blocks": engine.pick.blocks, "passed_over": skips(),
                    })
                });
                if why != crate::route::Alone::Unified {
                    self.shared.metrics.decode_alone();
                }
                let fact = Fact::RoutedAlone { engine: engine.pick.slot };
                self.current = Some(Current {
                    handle: String::new(),
                    prefill: None,
                    prefill_pick: None,
                    decode: engine.pick,
                    load: Some(engine.load),
                    record: None,
                    empty: false,
                });
                fact
            }
            Err(why) => {
                self.note(|| {
                    let why = format!("{why:?}");
                    json!({"event": "not routed", "why": why, "passed_over": skips()})
                });
                Fact::NotRouted(why)
            }
        }
    }

    fn begin_prefill(&mut self, handle: String) {
        let Some(current) = &self.current else { return };
        let Some(prefill) = &current.prefill_pick else { return };
        let timeout = Duration::from_millis(self.shared.config.prefill_timeout_ms);
        let message =
            self.job.prefill_request(self.index, handle, prefill, &current.decode, timeout);
        let shared = self.shared.clone();
        let address = prefill.grpc_address.clone();
        let traceparent = self.job.context.traceparent.clone();
        self.waiting = Waiting::Prefill(Box::pin(async move {
            shared.peers.prefill(&address, message, traceparent.as_deref(), timeout).await
        }));
    }

    fn prefill_answered(
        &mut self,
        answer: Result<PrefillResponse, (PrefillFailure, String)>,
    ) -> Fact {
        let Some(current) = &mut self.current else { return Fact::ClientGone };
        // The prefill engine has done its part.
        current.prefill = None;
        let failed = |driver: &mut Driver, failure: PrefillFailure, why: String| {
            let means = format!("{failure:?}");
            let request_id = &driver.job.context.request_id;
            tracing::info!(%request_id, %means, %why, "prefill failed");
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

    fn route_info(&self, response: &PrefillResponse) -> RouteInfo {
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

    fn cancel_prefill(&mut self, handle: String) {
        let Some(current) = &self.current else { return };
        let Some(prefill) = &current.prefill_pick else { return };
        let address = prefill.grpc_address.clone();
        let shared = self.shared.clone();
        self.note(|| json!({"event": "prefill cancelled"}));
        self.shared.tasks.spawn(async move { shared.peers.cancel(&address, &handle).await });
    }

    fn release(&mut self, handle: String) {
        let Some(current) = &self.current else { return };
        let address = current.decode.kv_address.clone();
        if address.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        self.note(|| json!({"event": "handle released", "decode": current.decode.id}));
        self.shared.tasks.spawn(async move { shared.peers.release(&address, &handle).await });
    }

    fn begin_decode(&mut self) {
        let Some(record) = self.current.as_ref().and_then(|c| c.record.as_ref()) else { return };
        let call = record.resume.to_call();
        self.open(call);
    }

    fn begin_alone(&mut self) {
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

    fn open(&mut self, call: DecodeCall) {
        let Some(current) = &self.current else { return };
        let timeout = Duration::from_millis(self.shared.config.first_byte_timeout_ms);
        let address = current.decode.http_address.clone();
        let shared = self.shared.clone();
        self.waiting = Waiting::Open {
            opening: Box::pin(async move { shared.peers.open(&address, call, timeout).await }),
            first_by: Instant::now() + timeout,
        };
    }

    fn opened(
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

    fn decode_failed(&mut self, failure: DecodeFailure, why: String) -> Fact {
        let means = match &failure {
            DecodeFailure::Client(_) => "client's mistake",
            DecodeFailure::Full => "full",
            DecodeFailure::Handle => "handle unknown",
            DecodeFailure::Fault => "fault",
        };
        self.note(|| json!({"event": "decode failed", "means": means, "why": why}));
        tracing::info!(request_id = %self.job.context.request_id, means, %why, "decode failed");
        self.last_failure = why;
        Fact::DecodeFailed(failure)
    }

    fn decoded(&mut self, item: Item, outputs: u64) -> Fact {
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
    fn note_landed(&mut self, tokens: u64) {
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

    async fn send_first(&mut self) {
        let Some(record) = self.current.as_ref().and_then(|c| c.record.as_ref()) else { return };
        let part = first_part(self.index, &record.first_output, self.output.first());
        if let Some(part) = part {
            self.send(Out::Part(part)).await;
        }
    }

    async fn end(&mut self, end: End) {
        match end {
            End::Gone => {
                self.note(|| json!({"event": "client gone"}));
                self.waiting = Waiting::Nothing;
                self.current = None;
            }
            End::Failed(error) => {
                self.waiting = Waiting::Nothing;
                self.note(|| json!({"event": "failed", "status": error.status.as_u16()}));
                self.current = None;
                self.send(Out::Failed(error)).await;
            }
            End::FinishedByPrefill | End::FinishedByDecode => {
                let usage = self.usage();
                let tokens = usage.completion_tokens;
                self.note(|| json!({"event": "finished", "completion_tokens": tokens}));
                let load = self.current.take().and_then(|c| c.load);
                self.send(Out::Done { usage, load }).await;
            }
        }
        if let Waiting::Decode(stream) = std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            // Its connection is used again only after it was read to its end.
            self.shared.tasks.spawn(stream.drain());
        }
    }

    fn usage(&self) -> Usage {
        let decoded = match &self.waiting {
            Waiting::Decode(stream) => stream.usage().or_else(|| {
                let request_id = &self.job.context.request_id;
                tracing::warn!(%request_id, "the engine sent no usage");
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
