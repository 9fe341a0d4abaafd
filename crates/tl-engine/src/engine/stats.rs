//! What an engine says about itself, without asking its thread.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::sched::{Counters, Scheduler};

/// A snapshot. Its fields are read one by one while the engine runs, so they may be a step apart.
#[derive(Debug, Clone, Copy)]
pub struct EngineStats {
    /// Requests that wait, preempted ones included.
    pub queued: usize,
    pub running: usize,
    /// Tokens of the latest step; 0 when idle.
    pub batch_tokens: usize,
    /// Steps computed.
    pub steps: u64,
    pub preemptions: u64,
    /// Cached blocks given up for an allocation.
    pub evictions: u64,
    pub prefix_lookups: u64,
    /// Tokens of the sequences that were looked up.
    pub prefix_query_tokens: u64,
    /// Those of them that the prefix cache had.
    pub prefix_hit_tokens: u64,
    /// Prompt positions computed here for requests that came with their KV: none, one for each that
    /// came without its first token, more only after a preemption.
    pub resumed_prompt_tokens: u64,
    /// Requests taken that came with their KV.
    pub remote_prefill_total: u64,
    /// When a step last ended, a request last left, or the first one came to an idle engine.
    pub last_progress: Instant,
    pub draining: bool,
    pub stopped: bool,
}

impl EngineStats {
    /// Whether there is work and none of it has moved for `after`.
    pub fn stalled(&self, now: Instant, after: Duration) -> bool {
        self.queued + self.running > 0 && now.saturating_duration_since(self.last_progress) > after
    }

    /// Hit tokens over looked-up tokens, 0 before the first lookup.
    pub fn prefix_hit_ratio(&self) -> f64 {
        match self.prefix_query_tokens {
            0 => 0.0,
            n => self.prefix_hit_tokens as f64 / n as f64,
        }
    }
}

/// The live values. Gauges are set from the scheduler's state, never counted up and down, so that
/// no path can leave one behind; `queued` is the exception, and there a guard counts.
#[derive(Debug)]
pub(super) struct Gauges {
    started: Instant,
    /// Places taken in the queue; see `door::Place`.
    pub(super) places: AtomicUsize,
    requeued: AtomicUsize,
    running: AtomicUsize,
    batch_tokens: AtomicUsize,
    steps: AtomicU64,
    preemptions: AtomicU64,
    evictions: AtomicU64,
    prefix_lookups: AtomicU64,
    prefix_query_tokens: AtomicU64,
    prefix_hit_tokens: AtomicU64,
    resumed_prompt_tokens: AtomicU64,
    pub(super) remote_prefill_total: AtomicU64,
    progress_us: AtomicU64,
    pub(super) draining: AtomicBool,
    pub(super) stopped: AtomicBool,
}

impl Gauges {
    pub(super) fn new() -> Gauges {
        Gauges {
            started: Instant::now(),
            places: AtomicUsize::new(0),
            requeued: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            batch_tokens: AtomicUsize::new(0),
            steps: AtomicU64::new(0),
            preemptions: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            prefix_lookups: AtomicU64::new(0),
            prefix_query_tokens: AtomicU64::new(0),
            prefix_hit_tokens: AtomicU64::new(0),
            resumed_prompt_tokens: AtomicU64::new(0),
            remote_prefill_total: AtomicU64::new(0),
            progress_us: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn publish(&self, sched: &Scheduler, evictions: u64) {
        let Counters {
            preemptions,
            prefix_lookups,
            prefix_query_tokens,
            prefix_hit_tokens,
            resumed_prompt_tokens,
        } = sched.counters();
        self.requeued.store(sched.requeued(), Ordering::Relaxed);
        self.running.store(sched.running(), Ordering::Relaxed);
        self.preemptions.store(preemptions, Ordering::Relaxed);
        self.prefix_lookups.store(prefix_lookups, Ordering::Relaxed);
        self.prefix_query_tokens.store(prefix_query_tokens, Ordering::Relaxed);
        self.prefix_hit_tokens.store(prefix_hit_tokens, Ordering::Relaxed);
        self.resumed_prompt_tokens.store(resumed_prompt_tokens, Ordering::Relaxed);
        self.evictions.store(evictions, Ordering::Relaxed);
    }

    pub(super) fn batch(&self, tokens: usize) {
        self.batch_tokens.store(tokens, Ordering::Relaxed);
    }

    pub(super) fn step_done(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.progress();
    }

    pub(super) fn progress(&self) {
        let us = self.started.elapsed().as_micros() as u64;
        self.progress_us.store(us, Ordering::Relaxed);
    }

    pub(super) fn has_work(&self) -> bool {
        self.places.load(Ordering::Relaxed)
            + self.requeued.load(Ordering::Relaxed)
            + self.running.load(Ordering::Relaxed)
            > 0
    }

    pub(super) fn snapshot(&self) -> EngineStats {
        let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let total = |n: &AtomicU64| n.load(Ordering::Relaxed);
        EngineStats {
            queued: count(&self.places) + count(&self.requeued),
            running: count(&self.running),
            batch_tokens: count(&self.batch_tokens),
            steps: total(&self.steps),
            preemptions: total(&self.preemptions),
            evictions: total(&self.evictions),
            prefix_lookups: total(&self.prefix_lookups),
            prefix_query_tokens: total(&self.prefix_query_tokens),
            prefix_hit_tokens: total(&self.prefix_hit_tokens),
            resumed_prompt_tokens: total(&self.resumed_prompt_tokens),
            remote_prefill_total: total(&self.remote_prefill_total),
            last_progress: self.started + Duration::from_micros(total(&self.progress_us)),
            draining: self.draining.load(Ordering::Relaxed),
            stopped: self.stopped.load(Ordering::Relaxed),
        }
    }
}
