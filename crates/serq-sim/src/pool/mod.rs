//! Counted units: who holds them, who waits, what stays cached.
//!
//! The data is here; the rules that involve sessions are the engine's, one file each:
//! [`admission`], [`claim`], [`booking`], [`release`], [`lease`], [`growth`], [`preempt`] and [`evict`]. A pool
//! shared by content keeps its blocks in [`shared`].

pub(crate) mod admission;
pub(crate) mod booking;
pub(crate) mod cache;
pub(crate) mod claim;
pub(crate) mod evict;
pub(crate) mod growth;
pub(crate) mod lease;
pub(crate) mod preempt;
pub(crate) mod queue;
pub(crate) mod release;
pub(crate) mod shared;

use std::collections::{BTreeMap, VecDeque};

use cache::Cache;
use queue::Queue;
use serq_lang::ir::CPool;
use shared::Shared;

use crate::error::EPS;
use crate::stats::{Mean, TimeAverage};

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) cap: f64,
    pub(crate) block: Option<f64>,
    /// Units allocated, to holds and leases.
    pub(crate) used: f64,
    /// Prefixes of sessions; nothing in a shared pool.
    pub(crate) cache: Cache,
    /// The blocks of a shared pool.
    pub(crate) shared: Option<Box<Shared>>,
    /// Holder records, leases included.
    pub(crate) holders: usize,
    /// Scope holds by order of admission, for a `lifo` pool that is no engine's memory: admission
    /// number of the record and session.
    pub(crate) order: BTreeMap<u64, u32>,
    pub(crate) queue: Queue,
    /// Sessions whose growth waits, in order of stalling.
    pub(crate) growers: VecDeque<u32>,
    /// Prefixes of ended sessions by serial, where a spill can still add to them.
    pub(crate) orphans: BTreeMap<u64, u32>,
    pub(crate) stats: PoolStats,
}

#[derive(Debug, Default)]
pub(crate) struct PoolStats {
    pub(crate) used: TimeAverage,
    pub(crate) cached: TimeAverage,
    pub(crate) waiting: TimeAverage,
    pub(crate) holders: TimeAverage,
    pub(crate) wait: Mean,
    /// Time from admission to release of a holder record.
    pub(crate) hold: Mean,
    pub(crate) admissions: u64,
    pub(crate) evicted_entries: u64,
    pub(crate) evicted_units: f64,
    pub(crate) preemptions: u64,
    pub(crate) spills: u64,
    pub(crate) rejected: u64,
    pub(crate) stuck: u64,
}

impl Pool {
    pub(crate) fn new(ir: &CPool, lru: bool) -> Self {
        let shared = ir.block.filter(|_| ir.shared).and_then(|b| Shared::new(ir.cap, b));
        Self {
            cap: shared.as_ref().map_or(ir.cap, Shared::free),
            block: ir.block,
            used: 0.0,
            cache: Cache::new(lru),
            shared: shared.map(Box::new),
            holders: 0,
            order: BTreeMap::new(),
            queue: Queue::default(),
            growers: VecDeque::new(),
            orphans: BTreeMap::new(),
            stats: PoolStats::default(),
        }
    }

    /// Whole blocks that cover `units`.
    pub(crate) fn round_up(&self, units: f64) -> f64 {
        match self.block {
            Some(b) => (units / b).ceil() * b,
            None => units,
        }
    }

    /// Whole blocks inside `units`.
    pub(crate) fn round_down(&self, units: f64) -> f64 {
        match self.block {
            Some(b) => (units / b).floor() * b,
            None => units,
        }
    }

    /// Whether `units` more could be allocated, all of the cache evicted if need be.
    pub(crate) fn fits(&self, units: f64) -> bool {
        self.used + units <= self.cap + EPS
    }

    /// Whether `units` more fit beside what is cached.
    pub(crate) fn has_room(&self, units: f64) -> bool {
        self.used + self.cache.total + units <= self.cap + EPS
    }

    pub(crate) fn allocate(&mut self, now: f64, units: f64) {
        self.used += units;
        self.stats.used.set(now, self.used);
    }

    pub(crate) fn free(&mut self, now: f64, units: f64) {
        // Without holders nothing is used: rounding must not pile up over a long run.
        self.used = if self.holders == 0 { 0.0 } else { (self.used - units).max(0.0) };
        self.stats.used.set(now, self.used);
    }

    /// What a shared pool counts is what its blocks say.
    pub(crate) fn note_shared(&mut self, now: f64) {
        if let Some(shared) = &self.shared {
            self.used = shared.used();
            self.stats.used.set(now, self.used);
            self.stats.cached.set(now, shared.cached());
        }
    }

    pub(crate) fn add_holder(&mut self, now: f64) {
        self.holders += 1;
        self.stats.holders.set(now, self.holders as f64);
    }

    pub(crate) fn remove_holder(&mut self, now: f64) {
        self.holders -= 1;
        self.stats.holders.set(now, self.holders as f64);
    }

    pub(crate) fn note_cached(&mut self, now: f64) {
        self.stats.cached.set(now, self.cache.total);
    }

    pub(crate) fn note_queue(&mut self, now: f64) {
        self.stats.waiting.set(now, self.queue.len() as f64);
    }

    pub(crate) fn reset_averages(&mut self, now: f64) {
        let s = &mut self.stats;
        for average in [&mut s.used, &mut s.cached, &mut s.waiting, &mut s.holders] {
            average.reset(now);
        }
    }
}
