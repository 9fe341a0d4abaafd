//! A request from `submit` to its last event, beside what the scheduler knows of it.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::door::{Entry, Place, Ticket};
use super::{Event, TokenOut};
use crate::sample::{History, PURPOSE_SAMPLE, Pcg32, SampleError, Sampler, SamplingParams, stream};
use crate::sched::Table;

/// A request on its way to the engine's thread.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) entry: Entry,
    pub(super) place: Place,
    pub(super) events: UnboundedSender<Event>,
    pub(super) prompt: Arc<[u32]>,
    pub(super) sampling: SamplingParams,
    pub(super) seed: u64,
    pub(super) max_new_tokens: usize,
    pub(super) stop_ids: Vec<u32>,
    pub(super) logprobs: Option<usize>,
    pub(super) priority: i32,
    pub(super) work: Work,
    pub(super) hand_over: bool,
}

/// Where the prompt's KV is.
#[derive(Debug)]
pub(super) enum Work {
    Fresh,
    Resume { table: Table, first: Option<u32>, draws: u32 },
}

/// A request that the scheduler has. The sampler's state is here and not in the scheduler, so that
/// a preemption cannot touch it.
#[derive(Debug)]
pub(super) struct Live {
    entry: Entry,
    place: Option<Place>,
    events: UnboundedSender<Event>,
    params: SamplingParams,
    rng: Pcg32,
    draws: u32,
    /// Kept only for a request with a penalty, the one thing that looks at it.
    history: Option<History>,
    stop_ids: Vec<u32>,
    logprobs: usize,
    pub(super) max_new_tokens: usize,
    pub(super) priority: i32,
    pub(super) hand_over: bool,
}

impl Live {
    /// The request, the place of its prompt's KV, and its prompt.
    pub(super) fn new(job: Job) -> (Live, Work, Arc<[u32]>) {
        let Job {
            entry,
            place,
            events,
            prompt,
            sampling: params,
            seed,
            max_new_tokens,
            stop_ids,
            logprobs,
            priority,
            work,
            hand_over,
        } = job;
        let penalized = params.repetition_penalty != 1.0
            || params.presence_penalty != 0.0
            || params.frequency_penalty != 0.0;
        let mut live = Live {
            entry,
            place: Some(place),
            events,
            params,
            rng: stream(seed, PURPOSE_SAMPLE),
            draws: 0,
            history: penalized.then(|| History::new(&prompt)),
            stop_ids,
            logprobs: logprobs.unwrap_or(0),
            max_new_tokens,
            priority,
            hand_over,
        };
        if let Work::Resume { first: Some(first), draws, .. } = work {
            live.rng.advance_uniforms(u64::from(draws));
            live.draws = draws;
            live.note(first);
        }
        (live, work, prompt)
    }

    pub(super) fn ticket(&self) -> &Arc<Ticket> {
        self.entry.ticket()
    }

    /// Makes room for another one to wait; only the first call does.
    pub(super) fn leave_queue(&mut self) {
        self.place = None;
    }

    pub(super) fn stops_at(&self, token: u32) -> bool {
        self.stop_ids.contains(&token)
    }

    /// Chooses the next token. Nothing has been drawn when it fails.
    pub(super) fn sample(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
    ) -> Result<TokenOut, SampleError> {
        let none = History::default();
        let history = self.history.as_ref().unwrap_or(&none);
        let mut scored = sampler.score(logits, &self.params, history)?;
        let chosen = scored.sample(&mut self.rng)?;
        let top = if self.logprobs > 0 { scored.top_logprobs(self.logprobs) } else { Vec::new() };
        self.draws += chosen.draws;
        self.note(chosen.token);
        Ok(TokenOut { id: chosen.token, logprob: chosen.logprob, top, draws: self.draws })
    }

    fn note(&mut self, token: u32) {
        if let Some(history) = &mut self.history {
            history.push(token);
        }
    }

    /// An event that is not the last. Nobody may be listening any more, which the ticket says too.
    pub(super) fn send(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// The last event. Whoever has seen it finds neither the place nor the entry taken.
    pub(super) fn end(self, event: Event) {
        let Live { entry, place, events, .. } = self;
        drop(place);
        drop(entry);
        let _ = events.send(event);
    }
}
