//! From a trace file to types. A file that contradicts itself is refused: whatever is compared with it
//! must be able to trust it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serq_sim::content::{Chain, Segment};
use thiserror::Error;

use super::raw;
use super::run::{Run, Scheduled, Side, Step, What};
use super::scenario::{Engine, Mode, OnFailure, Policy, Request, Scenario};

/// A prompt longer than this is a mistake in the file.
const LONGEST_PROMPT: u64 = 10_000_000;

/// In `prompt_parts` a pair `[s, n]` stands for the tokens from `1000 s` on.
const PART: u64 = 1000;

/// The answer of request `i` begins with token `1000 (1000 + i)`.
const ANSWERS: u64 = 1000;

/// A scenario and what vLLM's schedulers did with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub name: String,
    pub about: String,
    /// The version of vLLM that made it.
    pub vllm: String,
    /// Ticks until nothing happened any more.
    pub ticks: u64,
    pub scenario: Scenario,
    pub run: Run,
    pub end: BTreeMap<Side, End>,
    /// Engine and tick: tokens delivered, request by request.
    pub delivered: BTreeMap<(u64, Side), Vec<(String, u64)>>,
}

/// An engine after its last step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct End {
    /// Free blocks.
    pub free: u64,
    /// Requests it still knows.
    pub unfinished: Vec<String>,
    /// Leases that ran out.
    #[serde(rename = "num_kv_expired_reqs")]
    pub expired: u64,
    /// Reads that were notified after that.
    #[serde(rename = "num_notifications_after_expiry")]
    pub late: u64,
    #[serde(rename = "num_failed_transfers")]
    pub failed: u64,
}

/// A file that is no trace.
#[derive(Debug, Error)]
#[error("{file}: {reason}")]
pub struct TraceError {
    /// As it was named.
    pub file: String,
    #[source]
    pub reason: Reason,
}

#[derive(Debug, Error)]
pub enum Reason {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error("not a trace of vLLM's schedulers: {0}")]
    Shape(#[from] serde_json::Error),
    /// The file says two things that cannot both be.
    #[error("{place}: {what}")]
    Meaning { place: String, what: String },
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&file, &text),
        Err(error) => Err(TraceError { file, reason: error.into() }),
    }
}

/// Reads the text of a file, called `file` in errors.
pub fn parse(file: &str, text: &str) -> Result<Trace, TraceError> {
    serde_json::from_str::<raw::File>(text)
        .map_err(Reason::from)
        .and_then(trace)
        .map_err(|reason| TraceError { file: file.to_owned(), reason })
}

fn wrong(place: impl Into<String>, what: impl Into<String>) -> Reason {
    Reason::Meaning { place: place.into(), what: what.into() }
}

fn trace(file: raw::File) -> Result<Trace, Reason> {
    let scenario = scenario(&file.scenario)?;
    let (run, delivered) = run(&file.trace, &scenario)?;
    for request in &scenario.requests {
        let recorded = file.trace.requests.get(&request.id);
        let recorded = recorded.ok_or_else(|| {
            wrong("trace.requests", format!("request {} of the scenario is missing", request.id))
        })?;
        let derived = summary(recorded, &run, &request.id);
        if *recorded != derived {
            return Err(wrong(
                format!("trace.requests.{}", request.id),
                format!("the steps say otherwise: {recorded:?} here, {derived:?} there"),
            ));
        }
    }
    Ok(Trace {
        name: file.name,
        about: file.about,
        vllm: file.trace.vllm,
        ticks: file.trace.ticks,
        scenario,
        run,
        end: file.trace.end,
        delivered,
    })
}

fn scenario(raw: &raw::Scenario) -> Result<Scenario, Reason> {
    let sides: &[Side] = match raw.mode {
        Mode::Colocated => &[Side::C],
        Mode::Pull | Mode::Push => &[Side::P, Side::D],
    };
    let own = |side: Side| match side {
        Side::C => raw.colocated.clone(),
        Side::P => raw.prefill.clone(),
        Side::D => raw.decode.clone(),
    };
    let mut engines = BTreeMap::new();
    for side in Side::ALL {
        let settings = own(side);
        if sides.contains(&side) {
            let settings = settings.unwrap_or_default().or(&raw.common());
            engines.insert(side, engine(side, &settings)?);
        } else if settings.is_some() {
            return Err(wrong(format!("scenario.{side}"), "this mode has no such engine"));
        }
    }
    let tick_seconds = raw.tick_seconds.unwrap_or(1.0);
    if !(tick_seconds.is_finite() && tick_seconds > 0.0) {
        return Err(wrong("scenario.tick_seconds", "a tick must take some time"));
    }
    let mut requests: Vec<Request> = Vec::with_capacity(raw.requests.len());
    // Token ids and parts can name the same tokens only if both are taken token by token.
    let by_token = raw.requests.iter().any(|r| r.prompt.is_some());
    for (index, request) in raw.requests.iter().enumerate() {
        if requests.iter().any(|r| r.id == request.id) {
            return Err(wrong(
                "scenario.requests",
                format!("two requests are called {}", request.id),
            ));
        }
        let place = || format!("scenario.requests, request {}", request.id);
        if let Some(side) = request.abort.keys().find(|side| !sides.contains(side)) {
            return Err(wrong(place(), format!("aborted on {side}, an engine this mode has not")));
        }
        requests.push(Request {
            id: request.id.clone(),
            arrive: request.arrive,
            prompt: prompt(request, by_token).map_err(|what| wrong(place(), what))?,
            answer_key: answer_key(index, by_token),
            out: request.out,
            local: request.local,
            transfer_steps: request.transfer_steps,
            transfer_fails: request.transfer_fail,
            dropped: request.drop_decode_leg,
            priority: request.priority,
            aborts: request.abort.clone(),
        });
    }
    Ok(Scenario {
        mode: raw.mode,
        engines,
        requests,
        tick_seconds,
        router_delay: raw.router_delay.unwrap_or(1),
        notification_delay: raw.notif_delay.unwrap_or(0),
        concurrent: raw.dispatch == Some(raw::Dispatch::Concurrent),
        crash: raw.crash_d_at,
        max_ticks: raw.max_ticks.unwrap_or(400),
    })
}

fn engine(side: Side, s: &raw::Settings) -> Result<Engine, Reason> {
    let bad = |name: &str, what: &str| wrong(format!("scenario, engine {side}, {name}"), what);
    let block = s.block_size.unwrap_or(4);
    if block == 0 {
        return Err(bad("block_size", "a block holds at least one token"));
    }
    let blocks = s.num_blocks.unwrap_or(64).checked_sub(1);
    let blocks = blocks.ok_or_else(|| bad("num_blocks", "one block is the null block"))?;
    let watermark = s.watermark.unwrap_or(0.0);
    if !(0.0..1.0).contains(&watermark) {
        return Err(bad("watermark", "a share is at least 0 and below 1"));
    }
    let lease = s.lease.unwrap_or(30.0);
    if !(lease.is_finite() && lease >= 0.0) {
        return Err(bad("lease", "a lease is a number of seconds"));
    }
    Ok(Engine {
        blocks,
        block,
        budget: s.max_num_batched_tokens.unwrap_or(64),
        slots: s.max_num_seqs.unwrap_or(8),
        prefix_caching: s.prefix_caching.unwrap_or(true),
        long_prefill: s.long_prefill_token_threshold.unwrap_or(0),
        whole_prompt: s.reserve_full_isl.unwrap_or(true),
        watermark,
        policy: s.policy.unwrap_or(Policy::Fcfs),
        asynchronous: s.async_scheduling.unwrap_or(false),
        on_failure: s.kv_load_failure_policy.unwrap_or(OnFailure::Fail),
        lease,
        transfer_steps: s.transfer_steps.unwrap_or(2),
        handshake_steps: s.handshake_steps.unwrap_or(0),
    })
}

/// Token ids are grouped by thousands, as parts are: key and offset are quotient and remainder.
fn prompt(request: &raw::Request, by_token: bool) -> Result<Chain, String> {
    let tokens: Box<dyn Iterator<Item = (u64, u64)> + '_> =
        match (&request.prompt, &request.prompt_parts) {
            (Some(ids), None) => Box::new(ids.iter().map(|&id| (id, 1))),
            (None, Some(parts)) => {
                if parts.iter().any(|&(s, _)| s > u64::MAX / 4 / PART) {
                    return Err("a prompt part of tokens that are no ids".to_owned());
                }
                if parts.iter().any(|&(_, n)| n > LONGEST_PROMPT) {
                    return Err(format!("a prompt part of more than {LONGEST_PROMPT} tokens"));
                }
                Box::new(parts.iter().map(|&(s, n)| (s * PART, n)))
            }
            _ => return Err("give exactly one of `prompt` and `prompt_parts`".to_owned()),
        };
    let mut chain = Chain::default();
    for (first, n) in tokens {
        let mut id = first;
        let end = first.saturating_add(n);
        while id < end {
            let (key, len) = if by_token { (id, 1) } else { (id / PART, (end - id).min(PART)) };
            chain.push(Segment { key, len });
            id += len;
        }
        if chain.len() > LONGEST_PROMPT {
            return Err(format!("a prompt of more than {LONGEST_PROMPT} tokens"));
        }
    }
    if chain.is_empty() { Err("an empty prompt".to_owned()) } else { Ok(chain) }
}

/// With prompts taken token by token, nothing else can be called what an answer is.
fn answer_key(index: usize, by_token: bool) -> u64 {
    if by_token { u64::MAX - index as u64 } else { ANSWERS + index as u64 }
}

type Delivered = BTreeMap<(u64, Side), Vec<(String, u64)>>;

fn run(record: &raw::Record, scenario: &Scenario) -> Result<(Run, Delivered), Reason> {
    let mut run = Run::default();
    let mut delivered = Delivered::new();
    for request in &scenario.requests {
        run.events.insert(request.id.clone(), Vec::new());
    }
    let mut last: Option<(u64, Side)> = None;
    for step in &record.steps {
        let at = (step.t, step.side);
        let place = || format!("trace.steps, tick {}, engine {}", step.t, step.side);
        let Some(engine) = scenario.engines.get(&step.side) else {
            return Err(wrong(place(), "this mode has no such engine"));
        };
        if last.is_some_and(|last| last >= at) {
            return Err(wrong(place(), "steps must come in order, one per tick and engine"));
        }
        last = Some(at);
        for park in &step.park {
            let tokens = park.local.saturating_add(park.remote);
            let blocks = tokens.div_ceil(u64::from(engine.block));
            if park.blocks != blocks {
                let what = format!("request {} is parked with {} blocks", park.id, park.blocks);
                return Err(wrong(place(), format!("{what}; its tokens need {blocks}")));
            }
        }
        if let Some(id) = ids(step).find(|&id| !run.events.contains_key(id)) {
            return Err(wrong(place(), format!("request {id} is none of the scenario's")));
        }
        events(step, &mut run);
        if !step.tokens.is_empty() {
            delivered.insert(at, step.tokens.clone());
        }
        run.steps.insert(at, state(step));
    }
    for (side, end) in &record.end {
        let last =
            run.steps.iter().rev().find_map(|(at, step)| step.free.filter(|_| at.1 == *side));
        if last.is_some_and(|last| last != end.free) {
            return Err(wrong(
                format!("trace.end.{side}"),
                "other free blocks than after its last step",
            ));
        }
    }
    run.settle();
    Ok((run, delivered))
}

/// Every request the step names.
fn ids(step: &raw::Step) -> impl Iterator<Item = &str> {
    let plain = [
        &step.arrived,
        &step.aborted,
        &step.preempt,
        &step.recv_done,
        &step.recv_failed,
        &step.send_done,
        &step.running,
        &step.waiting,
    ];
    let plain = plain.into_iter().flatten().map(String::as_str);
    plain
        .chain(step.sched.iter().map(|(id, _, _)| id.as_str()))
        .chain(step.admit.iter().map(|a| a.id.as_str()))
        .chain(step.park.iter().map(|p| p.id.as_str()))
        .chain(step.tokens.iter().chain(&step.held).map(|(id, _)| id.as_str()))
        .chain(step.finish.iter().map(|(id, _)| id.as_str()))
        .chain(step.holding.iter().map(|(id, _, _)| id.as_str()))
}

fn events(step: &raw::Step, run: &mut Run) {
    let mut note = |id: &str, what| run.note(id, step.t, step.side, what);
    for id in &step.aborted {
        note(id, What::Aborted);
    }
    for id in &step.preempt {
        note(id, What::Preempted);
    }
    for park in &step.park {
        note(&park.id, What::Parked { local: park.local, remote: park.remote });
    }
    for admit in &step.admit {
        let cached = admit.hit;
        let what =
            if admit.resumed { What::Readmitted { cached } } else { What::Admitted { cached } };
        note(&admit.id, what);
    }
    for id in &step.recv_done {
        note(id, What::Reported);
    }
    for id in &step.recv_failed {
        note(id, What::ReadFailed);
    }
    for id in &step.send_done {
        note(id, What::Freed);
    }
    for (id, reason) in &step.finish {
        note(id, What::Finished(*reason));
    }
    for (id, _) in step.tokens.iter().filter(|(_, n)| *n > 0) {
        let first = run.events.get(id).is_none_or(|events| {
            !events.iter().any(|e| e.side == step.side && e.what == What::FirstToken)
        });
        if first {
            run.note(id, step.t, step.side, What::FirstToken);
        }
    }
}

fn state(step: &raw::Step) -> Step {
    Step {
        batch: step
            .sched
            .iter()
            .map(|(id, tokens, before)| Scheduled {
                id: id.clone(),
                tokens: *tokens,
                before: *before,
            })
            .collect(),
        running: step.running.clone(),
        waiting: step.waiting.clone(),
        holding: step.holding.iter().map(|(id, _, blocks)| (id.clone(), *blocks)).collect(),
        held: step.held.clone(),
        leases: step.lease_until.clone(),
        free_scheduled: step.free_sched,
        free: step.free,
    }
}

/// The summary of a request that its events make. What events do not tell is taken from the file's.
fn summary(recorded: &raw::Summary, run: &Run, id: &str) -> raw::Summary {
    let mut s = raw::Summary {
        arrive: recorded.arrive,
        p_arrive: recorded.p_arrive,
        d_arrive: recorded.d_arrive,
        remote_blocks: recorded.remote_blocks,
        remote_num_tokens: recorded.remote_num_tokens,
        ..raw::Summary::default()
    };
    for event in run.events.get(id).into_iter().flatten() {
        let t = event.tick;
        let d = event.side == Side::D;
        match event.what {
            What::Aborted => *(if d { &mut s.d_aborted } else { &mut s.aborted }) = Some(t),
            What::Preempted => (if d { &mut s.d_preempt } else { &mut s.preempt }).push(t),
            What::Parked { .. } => s.park = Some(t),
            What::Admitted { .. } => *(if d { &mut s.d_admit } else { &mut s.admit }) = Some(t),
            What::Readmitted { .. } => {
                // A request preempted before its first step has no other admission.
                (if d { &mut s.d_admit } else { &mut s.admit }).get_or_insert(t);
                (if d { &mut s.d_readmit } else { &mut s.readmit }).push(t);
            }
            What::Reported => s.recv_done = Some(t),
            What::ReadFailed => s.recv_failed = Some(t),
            What::FirstToken => {
                *(if d { &mut s.d_first_token } else { &mut s.first_token }) = Some(t);
            }
            What::Finished(reason) => {
                *(if d { &mut s.d_finish } else { &mut s.finish }) = Some(t);
                *(if d { &mut s.d_reason } else { &mut s.reason }) = Some(reason);
            }
            What::Freed => s.free = Some(t),
        }
    }
    s
}
