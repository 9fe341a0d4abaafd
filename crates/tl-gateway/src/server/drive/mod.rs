//! Carries out one [`Attempt`]: the calls, the waits, and the guards.
//!
//! A driver is a task of its own and outlives the client that asked: when the receiver of its
//! messages goes, it tells the engines, gives back what may wait there, and ends. It watches
//! for that in every wait.

mod decode;
mod prefill;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tl_api::handoff::HandoffRecord;
use tl_api::headers::random_hex;
use tl_api::openai::ChunkPart;
use tl_proto::engine::v1::PrefillResponse;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::handover::{FirstDecoded, Job, Out, first_part};
use super::shared::{Ask, Engaged, Load, Routed, Shared};
use super::stream::DecodeStream;
use crate::attempt::{Action, Attempt, DecodeFailure, End, Fact, PrefillFailure};
use crate::route::{Blocked, Pick, Skipped, Tried};

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
    Route(Tried),
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
            Action::Route(tried) => {
                self.current = None;
                if self.attempt.attempts() > 0 {
                    self.shared.metrics.failover();
                }
                self.waiting = Waiting::Route(tried);
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
            Action::BlameLink { prefill, decode } => {
                self.shared.blame_link(prefill, decode, &self.last_failure);
            }
            Action::PraiseLink { prefill, decode } => self.shared.praise_link(prefill, decode),
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
            Waiting::Route(tried) => {
                let ask = Ask {
                    model: self.job.request.model.clone(),
                    key: self.job.key.clone(),
                    demand: self.job.demand,
                    targets: self.job.targets.clone(),
                    tried: std::mem::take(tried),
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
                tracing::debug!(
                    prefill = %prefill.pick.id, decode = %decode.pick.id, handle, "routed"
                );
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
                tracing::debug!(decode = %engine.pick.id, alone = why.as_str(), "routed");
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

    async fn send_first(&mut self) {
        let Some(record) = self.current.as_ref().and_then(|c| c.record.as_ref()) else { return };
        let tokens = match &self.waiting {
            Waiting::Decode(stream) => stream.usage().map(|u| u.completion_tokens),
            _ => None,
        };
        let decoded = self.output.first().map(|part| FirstDecoded { part, tokens });
        let part = first_part(self.index, &record.first_output, decoded);
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
}
