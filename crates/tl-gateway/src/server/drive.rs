//! Carries out one [`Attempt`]: the calls, the waits, and the guards.
//!
//! A driver is a task of its own and outlives the client that asked: when the receiver of its
//! messages goes, it tells the engines, gives back what may wait there, and ends. It watches
//! for that in every wait.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use serde_json::{Value, json};
use tl_api::config::Target;
use tl_api::error::ApiError;
use tl_api::handoff::{
    Context, DecodeCall, FirstOutput, FirstToken, HandoffRecord, Resume, plain_call,
};
use tl_api::headers::random_hex;
use tl_api::openai::{
    ChunkPart, FinishReason, Generate, TokenLogprob, TopLogprob, Usage, choice_seed,
};
use tl_proto::engine::v1::{PrefillRequest, PrefillResponse, SamplingParams};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::shared::{Ask, Engaged, Load, Routed, Shared};
use super::story::Story;
use super::stream::{DecodeStream, Item};
use crate::attempt::{Action, Attempt, DecodeFailure, End, Fact, First, PrefillFailure};
use crate::registry::Slot;
use crate::route::{Blocked, Demand, Pick, Skipped};

/// How long a prefill that was cancelled may take to say so.
const LEAVE_GRACE: Duration = Duration::from_secs(5);

/// What all choices of one request share.
#[derive(Debug)]
pub(crate) struct Job {
    /// As served, one choice, streamed with usage, without seed; see [`Job::request_of`].
    pub(crate) request: Generate,
    pub(crate) context: Context,
    /// Of choice 0.
    pub(crate) seed: u64,
    pub(crate) prompt_ids: Vec<u32>,
    pub(crate) key: Vec<u8>,
    pub(crate) demand: Demand,
    pub(crate) targets: Vec<Target>,
    /// When waiting for room ends.
    pub(crate) admit_by: Instant,
    /// What is handed over leaves at once.
    pub(crate) streamed: bool,
    pub(crate) story: Arc<Story>,
}

impl Job {
    fn request_of(&self, index: u32, with_ids: bool) -> Generate {
        Generate {
            seed: Some(choice_seed(self.seed, index)),
            tl_prompt_ids: with_ids.then(|| self.prompt_ids.clone()),
            ..self.request.clone()
        }
    }
}

/// What a driver reports, with the choice's index.
#[derive(Debug)]
pub(crate) enum Out {
    /// Who serves it, before its first part and again when that changes.
    Routed(RouteInfo),
    /// More of the answer.
    Part(ChunkPart),
    /// Forget the parts so far.
    Restart,
    /// The answer is whole. The load ends when the last byte has left.
    Done { usage: Usage, load: Option<Load> },
    Failed(ApiError),
}

/// Who served a choice, for `?debug=route`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RouteInfo {
    pub(crate) prefill: Option<String>,
    pub(crate) decode: String,
    pub(crate) reason: String,
    pub(crate) blocks_sent: u32,
    pub(crate) blocks_deduped: u32,
    pub(crate) payload_bytes: u64,
    pub(crate) attempt: u32,
}

struct Current {
    /// Until the prefill has answered.
    prefill: Option<Engaged>,
    decode: Pick,
    load: Option<Load>,
    prefill_pick: Option<Pick>,
    record: Option<HandoffRecord>,
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
        let attempt =
            Attempt::new(&job.request.model, job.streamed, shared.config.max_attempts);
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
                    handle,
                };
                self.current = Some(Current {
                    prefill_pick: Some(prefill.pick.clone()),
                    prefill: Some(prefill),
                    decode: decode.pick,
                    load: Some(decode.load),
                    record: None,
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
                    prefill: None,
                    prefill_pick: None,
                    decode: engine.pick,
                    load: Some(engine.load),
                    record: None,
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
        let room = prefill
            .max_context
            .map(|max| u64::from(max).saturating_sub(self.job.demand.prompt_tokens));
        let max_tokens = self.job.request.max_tokens.or(room).unwrap_or(u64::MAX);
        let sampling = &self.job.request.sampling;
        let message = PrefillRequest {
            request_id: handle,
            model: self.job.request.model.clone(),
            prompt_ids: self.job.prompt_ids.clone(),
            sampling: Some(SamplingParams {
                temperature: sampling.temperature as f32,
                top_p: sampling.top_p as f32,
                top_k: i32::try_from(sampling.top_k).unwrap_or(i32::MAX),
                min_p: sampling.min_p as f32,
                repetition_penalty: sampling.repetition_penalty as f32,
                presence_penalty: sampling.presence_penalty as f32,
                frequency_penalty: sampling.frequency_penalty as f32,
                seed: choice_seed(self.job.seed, self.index),
                max_new_tokens: i32::try_from(max_tokens.max(1)).unwrap_or(i32::MAX),
                stop: self.job.request.stop.clone(),
                logprobs: self.job.request.logprobs.unwrap_or(0) as i32,
            }),
            decode_target: current.decode.kv_address.clone(),
            deadline_unix_ms: unix_ms(timeout),
            priority: self.job.context.priority,
        };
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
            driver.note(|| json!({"event": "prefill failed", "means": format!("{failure:?}"), "why": why}));
            tracing::info!(request_id = %driver.job.context.request_id, ?failure, %why, "prefill failed");
            driver.last_failure = why;
            Fact::PrefillFailed(failure)
        };
        let response = match answer {
            Ok(response) => response,
            Err((failure, why)) => return failed(self, failure, why),
        };
        let record = self.record_of(&response);
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
        current.record = Some(record);
        self.note_landed(u64::from(landed));
        let info = self.route_info(&response);
        // Nobody else sends for this choice now, and there is room or the reader is behind.
        let _ = self.out.try_send((self.index, Out::Routed(info)));
        Fact::Prefilled(first)
    }

    /// The hand-off record, or `None` when the answer is not one to this request.
    fn record_of(&self, response: &PrefillResponse) -> Option<HandoffRecord> {
        let current = self.current.as_ref()?;
        let prefill = current.prefill_pick.as_ref()?;
        let prompt_tokens = u32::try_from(response.prompt_tokens).ok()?;
        if prompt_tokens as usize != self.job.prompt_ids.len() {
            return None;
        }
        let finish = match response.finish_reason.as_str() {
            "" => None,
            reason => Some(FinishReason::parse(reason)?),
        };
        let handle = response.handle.as_ref();
        if finish.is_none() && handle.is_none_or(|h| h.n_tokens != prompt_tokens) {
            return None;
        }
        let handle_id = handle.map(|h| h.handle_id.clone()).unwrap_or_default();
        // A peer that does not say the text of its first token: the decode engine samples
        // it again from the same draw, and its stream has the text.
        let first = prefill.extended.then(|| FirstToken {
            id: response.first_token,
            draws: handle.map_or(0, |h| h.rng_draws_consumed),
        });
        let stop_id = finish == Some(FinishReason::Stop) && response.first_token_bytes.is_empty();
        let wants_logprob = self.job.request.logprobs.is_some() && first.is_some() && !stop_id;
        Some(HandoffRecord {
            resume: Resume {
                handle_id,
                first,
                request: self.job.request_of(self.index, true),
                context: self.job.context.clone(),
            },
            first_output: FirstOutput {
                text: if first.is_some() { response.first_text.clone() } else { String::new() },
                finish,
                logprob: wants_logprob.then(|| first_logprob(response)),
                prompt_tokens,
                cached_prompt_tokens: u32::try_from(response.cached_prompt_tokens)
                    .unwrap_or(0)
                    .min(prompt_tokens),
            },
        })
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
        let FirstOutput { text, finish, logprob, prompt_tokens: _, cached_prompt_tokens: _ } =
            &record.first_output;
        let logprobs = logprob.as_ref().map(|l| vec![l.clone()]);
        if text.is_empty() && finish.is_none() && logprobs.is_none() {
            return;
        }
        let part =
            ChunkPart { index: self.index, text: text.clone(), logprobs, finish: *finish };
        self.send(Out::Part(part)).await;
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
                self.note(|| json!({"event": "finished", "completion_tokens": usage.completion_tokens}));
                let load = self.current.take().and_then(|c| c.load);
                self.send(Out::Done { usage, load }).await;
            }
        }
        if let Waiting::Decode(stream) = std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            // Its connection is used again only after it was read to its end.
            self.shared.tasks.spawn(stream.drain());
        }
    }

    /// The prompt's side from the prefill engine, which knows what its cache held; the
    /// answer's from the decode engine, whose count has the first token in it.
    fn usage(&self) -> Usage {
        let decoded = match &self.waiting {
            Waiting::Decode(stream) => stream.usage().or_else(|| {
                tracing::warn!(request_id = %self.job.context.request_id, "the engine sent no usage");
                Some(Usage {
                    prompt_tokens: self.job.demand.prompt_tokens,
                    completion_tokens: stream.outputs(),
                    cached_tokens: 0,
                })
            }),
            _ => None,
        };
        let first = self.current.as_ref().and_then(|c| c.record.as_ref()).map(|r| &r.first_output);
        match (first, decoded) {
            (Some(first), decoded) => Usage {
                prompt_tokens: first.prompt_tokens.into(),
                completion_tokens: decoded.map_or_else(|| alone_count(first), |u| u.completion_tokens),
                cached_tokens: first.cached_prompt_tokens.into(),
            },
            (None, Some(mut usage)) => {
                usage.cached_tokens = usage.cached_tokens.min(usage.prompt_tokens);
                usage
            }
            (None, None) => Usage::default(),
        }
    }
}

/// Tokens of an answer that the first token ended: an end-of-text token is not part of it.
fn alone_count(first: &FirstOutput) -> u64 {
    let empty_stop = first.finish == Some(FinishReason::Stop) && first.text.is_empty();
    u64::from(!(empty_stop && first.logprob.is_none()))
}

fn first_logprob(response: &PrefillResponse) -> TokenLogprob {
    let text = |id: u32, bytes: &[u8]| {
        if bytes.is_empty() { format!("token_id:{id}") } else { TokenLogprob::text_of(bytes) }
    };
    let known = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
    let logprob = if response.first_logprob_f64 == 0.0 {
        f64::from(response.first_logprob)
    } else {
        response.first_logprob_f64
    };
    TokenLogprob {
        token: text(response.first_token, &response.first_token_bytes),
        logprob,
        bytes: known(&response.first_token_bytes),
        top: response
            .first_top_logprobs
            .iter()
            .map(|t| TopLogprob {
                token: text(t.id, &t.token_bytes),
                logprob: t.logprob,
                bytes: known(&t.token_bytes),
            })
            .collect(),
    }
}

fn unix_ms(after: Duration) -> i64 {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + after;
    i64::try_from(at.as_millis()).unwrap_or(0)
}
