//! What runs in the next step: a state machine without threads, clocks or arithmetic.
//!
//! A step is a batch of rows. A request whose newest token alone is not computed yet *decodes* and
//! gets one row; one with more to compute *prefills* and gets a chunk of rows. `schedule` fills a
//! batch in three phases: decodes, prefills in progress, admissions, each by rank. Decodes come
//! first because somebody watches each of them; admissions last because only they can wait without
//! holding anything.
//!
//! # Why it cannot lock up
//!
//! Blocks are the one thing requests wait for while holding some of it. A decode that needs a block
//! and finds none takes it from the lowest-ranked holder (*preemption*: that one gives all its
//! blocks back and is computed again later). Ranks never change, so the highest-ranked holder is
//! never preempted for another, gets what it needs and ends; then the next is the highest. A
//! request that would not fit an empty pool is refused on arrival, so no holder can fail when it is
//! alone.
//!
//! A request that comes with its blocks (computed on another engine) holds them while it waits. It
//! is a holder like a running one: it may be preempted, it may preempt, and a request at the head
//! of the queue that does not fit does not stand in its way, since waiting would free nothing.

mod blocks;
mod chunk;
mod equal;
mod limits;
mod rank;
mod seq;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tl_kv::Held;

pub use blocks::{Blocks, Table};
pub use chunk::Chunked;
use equal::SetAside;
pub use limits::Limits;
pub use rank::{Policy, Rank};
use seq::Seq;
pub use seq::{Finish, NewSeq, Origin, SeqId};

use crate::engine::Refused;

/// The scheduler's share of the engine's configuration.
#[derive(Debug, Clone)]
pub struct SchedConfig {
    pub max_batch_tokens: usize,
    pub max_seqs: usize,
    pub prefill_chunk: usize,
    /// The most requests that wait for their first admission.
    pub max_waiting: usize,
    pub queue_deadline: Duration,
    pub policy: Policy,
    pub aging_steps: u64,
}

/// One request's part of a step: the tokens at positions `start..start + len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub id: SeqId,
    pub start: usize,
    pub len: usize,
    /// Whether the last token's logits give the next token.
    pub sample: bool,
    rank: Rank,
}

/// One step.
#[derive(Debug, Default)]
pub struct Batch {
    pub rows: Vec<Row>,
    /// Tokens in all rows together; at most `max_batch_tokens`.
    pub tokens: usize,
    /// Requests that run for the first time, with the prompt tokens their cached prefix covers.
    pub admitted: Vec<(SeqId, usize)>,
    /// Requests that gave their blocks up in this step.
    pub preempted: Vec<SeqId>,
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Computed, nothing to sample.
    Computed,
    /// Computed and a token sampled; `stop` if it is a stop id.
    Token { token: u32, stop: bool },
}

/// How a request left the scheduler after a step. Its blocks are back, unless they are in
/// `HandOver`.
#[derive(Debug)]
pub enum Ended {
    Finished { id: SeqId, reason: Finish, generated: usize },
    HandOver { id: SeqId, held: Held, hashes: Vec<u64>, cached_tokens: usize },
}

/// Why a request was taken out by `expire`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// It waited longer than `queue_deadline`.
    Queue { waited: Duration },
    /// Its own deadline passed.
    Deadline,
}

/// Totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub preemptions: u64,
    pub prefix_lookups: u64,
    pub prefix_query_tokens: u64,
    pub prefix_hit_tokens: u64,
    /// Prompt positions computed here for requests that brought their KV along.
    pub resumed_prompt_tokens: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Scheduler {
    cfg: SchedConfig,
    limits: Limits,
    blocks: Blocks,
    waiting: BTreeMap<Rank, Seq>,
    running: BTreeMap<Rank, Seq>,
    ranks: HashMap<SeqId, Rank>,
    /// Waiting requests that have not run yet.
    fresh: usize,
    arrivals: u64,
    /// Calls of `schedule`: the clock of ageing.
    step: u64,
    counters: Counters,
}

impl Scheduler {
    pub fn new(blocks: Blocks, cfg: SchedConfig, max_positions: usize) -> Scheduler {
        let limits = Limits::new(&blocks, max_positions);
        Scheduler {
            cfg,
            limits,
            blocks,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            ranks: HashMap::new(),
            fresh: 0,
            arrivals: 0,
            step: 0,
            counters: Counters::default(),
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Waiting requests that have run before and were preempted.
    pub fn requeued(&self) -> usize {
        self.waiting.len() - self.fresh
    }

    /// Takes a request. On refusal the blocks it brought go back to the pool.
    pub fn add(&mut self, new: NewSeq, now: Instant) -> Result<SeqId, Refused> {
        let prompt_len = new.prompt.len();
        self.limits.check(prompt_len, new.max_new_tokens, new.hand_over)?;
        if self.fresh >= self.cfg.max_waiting {
            return Err(Refused::Full { capacity: self.cfg.max_waiting });
        }
        let mut tokens = new.prompt;
        let (table, computed, resumed) = match new.origin {
            Origin::Here => (None, 0, false),
            Origin::Elsewhere { table, first } => {
                tokens.extend(first);
                let computed = if first.is_some() { prompt_len } else { prompt_len - 1 };
                (Some(table), computed, true)
            }
        };
        let id = SeqId(self.arrivals);
        let cfg = &self.cfg;
        let rank = Rank::new(cfg.policy, new.priority, cfg.aging_steps, self.arrivals, self.step);
        self.arrivals += 1;
        self.fresh += 1;
        let seq = Seq {
            id,
            rank,
            tokens,
            prompt_len,
            max_new: new.max_new_tokens.min(self.limits.room(prompt_len, new.hand_over)),
            computed,
            chain: Vec::new(),
            table,
            hand_over: new.hand_over,
            resumed,
            admitted: None,
            deadline: new.deadline,
            waiting_since: now,
            scheduled: 0,
        };
        self.ranks.insert(id, rank);
        self.waiting.insert(rank, seq);
        Ok(id)
    }

    /// The next step. Empty when nothing can run, whether nothing is here or nothing fits.
    pub fn schedule(&mut self, now: Instant) -> Batch {
        self.step += 1;
        let mut batch = Batch::default();
        self.schedule_decodes(&mut batch, now);
        self.schedule_prefills(&mut batch);
        self.schedule_admissions(&mut batch, now);
        batch
    }

    fn schedule_decodes(&mut self, batch: &mut Batch, now: Instant) {
        let decodes: Vec<Rank> =
            self.running.values().filter(|s| s.decoding()).map(|s| s.rank).collect();
        for rank in decodes {
            if self.budget(batch) == 0 {
                break;
            }
            // One that was preempted a moment ago is no longer there.
            while let Some(seq) = self.running.get_mut(&rank) {
                let table = seq.table.as_mut().expect("a running request holds its blocks");
                if self.blocks.grow(table, seq.tokens.len()) {
                    self.push_row(batch, rank, 1);
                    break;
                }
                let victim = self.lowest_idle_holder().unwrap_or(rank);
                self.preempt(batch, victim, now);
            }
        }
    }

    fn schedule_prefills(&mut self, batch: &mut Batch) {
        let policy = Chunked { chunk: self.cfg.prefill_chunk };
        let prefills: Vec<(Rank, usize)> = self
            .running
            .values()
            .filter(|s| !s.decoding() && s.scheduled != self.step)
            .map(|s| (s.rank, s.remaining()))
            .collect();
        for (rank, remaining) in prefills {
            match policy.chunk_len(remaining, self.budget(batch)) {
                0 => break,
                len => self.push_row(batch, rank, len),
            }
        }
    }

    fn schedule_admissions(&mut self, batch: &mut Batch, now: Instant) {
        if self.running.len() >= self.cfg.max_seqs || self.budget(batch) == 0 {
            return;
        }
        let policy = Chunked { chunk: self.cfg.prefill_chunk };
        let queue: Vec<Rank> = self.waiting.keys().copied().collect();
        let mut misfit = false;
        let mut aside = SetAside::default();
        for rank in queue {
            if self.running.len() + aside.slots >= self.cfg.max_seqs || self.budget(batch) == 0 {
                break;
            }
            if self.waits_for_equal(rank) {
                let tokens = self.waiting.get(&rank).map_or(0, |s| s.tokens.len());
                aside.add(tokens.div_ceil(self.blocks.block_tokens()));
                continue;
            }
            let Some(seq) = self.waiting.get_mut(&rank) else { continue };
            let cached = if seq.table.is_some() {
                if !self.make_room_to_resume(batch, rank, now) {
                    continue;
                }
                0
            } else {
                let wants = seq.tokens.len().div_ceil(self.blocks.block_tokens());
                misfit |= aside.slots > 0 && wants + aside.blocks > self.blocks.available();
                if misfit {
                    continue;
                }
                let Some((table, cached)) = self.blocks.allocate(&seq.tokens) else {
                    misfit = true;
                    continue;
                };
                if self.blocks.prefix_cache() {
                    self.counters.prefix_lookups += 1;
                    self.counters.prefix_query_tokens += seq.tokens.len() as u64;
                    self.counters.prefix_hit_tokens += cached as u64;
                }
                seq.table = Some(table);
                seq.computed = cached;
                cached
            };
            let mut seq = self.waiting.remove(&rank).expect("looked up above");
            if seq.admitted.is_none() {
                // What a resumed request brought is no hit of this engine's cache.
                let cached = if seq.resumed { 0 } else { cached };
                seq.admitted = Some(cached);
                batch.admitted.push((seq.id, cached));
                self.fresh -= 1;
            }
            let len = policy.chunk_len(seq.remaining(), self.budget(batch));
            self.running.insert(rank, seq);
            self.push_row(batch, rank, len);
        }
    }

    /// A waiting request with blocks needs a place to write its next position: a block more, or a
    /// copy of one it may not write. Lower-ranked holders make room; without any it goes on
    /// waiting, with what it has, for those that run.
    fn make_room_to_resume(&mut self, batch: &mut Batch, rank: Rank, now: Instant) -> bool {
        loop {
            let Some(seq) = self.waiting.get_mut(&rank) else { return false };
            let Some(table) = seq.table.as_mut() else { return false };
            if self.blocks.grow(table, seq.tokens.len()) && self.blocks.own(table, seq.computed) {
                return true;
            }
            match self.lowest_idle_holder() {
                Some(victim) if victim > rank => self.preempt(batch, victim, now),
                _ => return false,
            }
        }
    }

    /// The lowest-ranked request that holds blocks and has no row in this step.
    fn lowest_idle_holder(&self) -> Option<Rank> {
        let idle = |s: &&Seq| s.table.is_some() && s.scheduled != self.step;
        let running = self.running.values().rev().find(idle).map(|s| s.rank);
        let waiting = self.waiting.values().rev().find(idle).map(|s| s.rank);
        running.max(waiting)
    }

    fn preempt(&mut self, batch: &mut Batch, rank: Rank, now: Instant) {
        let seq = match self.running.remove(&rank) {
            Some(seq) => self.waiting.entry(rank).or_insert(seq),
            None => self.waiting.get_mut(&rank).expect("a holder runs or waits"),
        };
        seq.give_up(now);
        batch.preempted.push(seq.id);
        self.counters.preemptions += 1;
    }

    fn budget(&self, batch: &Batch) -> usize {
        self.cfg.max_batch_tokens - batch.tokens
    }

    fn push_row(&mut self, batch: &mut Batch, rank: Rank, len: usize) {
        let seq = self.running.get_mut(&rank).expect("only running requests get rows");
        seq.scheduled = self.step;
        let sample = seq.computed + len == seq.tokens.len();
        batch.rows.push(Row { id: seq.id, start: seq.computed, len, sample, rank });
        batch.tokens += len;
    }

    /// A row's tokens and its request's block table.
    pub fn row(&self, row: &Row) -> (&[u32], &[u32]) {
        let seq = self.running.get(&row.rank).expect("a row's request runs until its step ends");
        let table = seq.table.as_ref().expect("a running request holds its blocks");
        (&seq.tokens[row.start..row.start + row.len], table.ids())
    }

    /// Books a step. Rows whose request was removed since are passed over; so are requests of the
    /// batch that are not listed, whose rows then count as not computed.
    pub fn on_step(&mut self, results: &[(Row, Outcome)]) -> Vec<Ended> {
        let mut ended = Vec::new();
        for (row, outcome) in results {
            let Some(seq) = self.running.get_mut(&row.rank) else { continue };
            if seq.resumed {
                let prompt = seq.prompt_len.saturating_sub(row.start).min(row.len);
                self.counters.resumed_prompt_tokens += prompt as u64;
            }
            seq.computed = row.start + row.len;
            let table = seq.table.as_mut().expect("a running request holds its blocks");
            self.blocks.computed(table, &seq.tokens[..seq.computed], &mut seq.chain);
            let Outcome::Token { token, stop } = *outcome else { continue };
            if !stop {
                seq.tokens.push(token);
            }
            let generated = seq.generated();
            let id = seq.id;
            let reason = if stop {
                Some(Finish::Stop)
            } else if generated >= seq.max_new {
                Some(Finish::Length)
            } else {
                None
            };
            if let Some(reason) = reason {
                self.remove(id);
                ended.push(Ended::Finished { id, reason, generated });
            } else if seq.hand_over {
                ended.extend(self.hand_over(id));
            }
        }
        ended
    }

    fn hand_over(&mut self, id: SeqId) -> Option<Ended> {
        let mut seq = self.take(id)?;
        let table = seq.table.take()?;
        let prompt = &seq.tokens[..seq.prompt_len];
        let held = self.blocks.release_to_owner(table, prompt, &mut seq.chain);
        let cached_tokens = seq.admitted.unwrap_or(0);
        Some(Ended::HandOver { id, held, hashes: seq.chain, cached_tokens })
    }

    /// Takes a request out, wherever it is; its blocks are back when this returns.
    pub fn remove(&mut self, id: SeqId) -> bool {
        self.take(id).is_some()
    }

    fn take(&mut self, id: SeqId) -> Option<Seq> {
        let rank = self.ranks.remove(&id)?;
        if let Some(seq) = self.running.remove(&rank) {
            return Some(seq);
        }
        let seq = self.waiting.remove(&rank)?;
        self.fresh -= usize::from(seq.admitted.is_none());
        Some(seq)
    }

    /// Takes everything out that runs.
    pub fn remove_running(&mut self) -> Vec<SeqId> {
        let ids: Vec<SeqId> = self.running.values().map(|s| s.id).collect();
        for id in &ids {
            self.remove(*id);
        }
        ids
    }

    /// Takes out what has waited or lived too long.
    pub fn expire(&mut self, now: Instant) -> Vec<(SeqId, Expired)> {
        let limit = self.cfg.queue_deadline;
        let late = |s: &Seq| s.deadline.is_some_and(|d| d <= now);
        let mut out = Vec::new();
        for s in self.waiting.values() {
            let waited = now.saturating_duration_since(s.waiting_since);
            if late(s) {
                out.push((s.id, Expired::Deadline));
            } else if waited >= limit {
                out.push((s.id, Expired::Queue { waited }));
            }
        }
        out.extend(self.running.values().filter(|s| late(s)).map(|s| (s.id, Expired::Deadline)));
        for (id, _) in &out {
            self.remove(*id);
        }
        out
    }

    /// The next moment at which `expire` may have something to do.
    pub fn next_timer(&self) -> Option<Instant> {
        let limit = self.cfg.queue_deadline;
        let queue = self.waiting.values().filter_map(|s| s.waiting_since.checked_add(limit));
        let own = self.waiting.values().chain(self.running.values()).filter_map(|s| s.deadline);
        queue.chain(own).min()
    }
}
