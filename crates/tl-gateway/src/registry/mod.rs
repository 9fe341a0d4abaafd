//! Which engines there are, how loaded they are, and what the gateway has promised them.
//!
//! A pure state machine: beats, outcomes and the time come in, answers go out. It keeps the
//! latest status of each worker id; a worker whose last beat is `miss_limit` intervals old is
//! gone. What the gateway itself knows goes beyond the beats, which are up to 2 s old: the
//! requests it has in flight, the blocks it has reserved ([`Ledger`](ledger::Ledger)), and
//! which workers failed it ([`Breaker`](breaker::Breaker)) and which ways between two of them
//! ([`Links`](links::Links)).
//!
//! A new life of a worker (another incarnation, another address, or a return after eviction)
//! is a new slot: whatever was counted for the old life is forgotten, and a guard of the old
//! life that ends later touches nothing.

pub mod breaker;
pub mod ledger;
pub mod links;
pub mod pairing;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use tl_proto::control::v1::WorkerStatus;

use breaker::Breaker;
use ledger::{Ledger, Ticket};
use links::Links;
pub use validate::{BeatError, WorkerInfo, WorkerRole};

/// Interval at which every engine beats.
pub const BEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How long a new worker takes to reach its full share.
pub const RAMP: Duration = Duration::from_secs(10);
/// Share of a worker that has just come.
const RAMP_START: f64 = 0.1;
/// Models that were served once and are remembered, so that "gone" differs from "unknown".
const MAX_KNOWN_MODELS: usize = 1024;

/// Names one life of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u64);

/// A live worker. See [`Registry::live`].
#[derive(Debug, Clone)]
pub struct Worker {
    pub slot: Slot,
    pub info: WorkerInfo,
    /// Longest sequence, once the engine has said so.
    pub max_context: Option<u32>,
    pub first_seen: Instant,
    pub last_beat: Instant,
    pub breaker: Breaker,
    /// An operator wants no more work there.
    drained: bool,
    ledger: Ledger,
}

impl Worker {
    /// Requests this gateway has in flight there and those the worker said are queued.
    pub fn load(&self) -> u64 {
        u64::from(self.in_flight()) + u64::from(self.info.queue_depth)
    }

    pub fn in_flight(&self) -> u32 {
        self.ledger.in_flight()
    }

    /// Blocks that nothing has been promised of.
    pub fn room(&self) -> u32 {
        self.ledger.room()
    }

    /// From [`RAMP_START`] to 1 over [`RAMP`].
    pub fn share(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.first_seen).as_secs_f64();
        (age / RAMP.as_secs_f64()).clamp(RAMP_START, 1.0)
    }

    /// It takes no more work, by its own word or by an operator's.
    pub fn is_draining(&self) -> bool {
        self.info.draining || self.drained
    }

    /// May be given new work.
    pub fn is_routable(&self, now: Instant) -> bool {
        !self.is_draining() && self.breaker.admits(now)
    }
}

/// What a beat changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A known life beat again.
    Same,
    /// A new life; `replaced` are the ids of others that had its address.
    Joined { replaced: Vec<String> },
    /// It began or stopped draining.
    Draining(bool),
}

/// What a beat is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    pub slot: Slot,
    pub change: Change,
    pub route_epoch: u64,
    /// The worker shall drain.
    pub drain: bool,
}

#[derive(Debug, Clone)]
pub struct Registry {
    limit: Duration,
    workers: BTreeMap<String, Worker>,
    known_models: BTreeMap<String, Instant>,
    /// Models an operator has drained: who serves them and who comes to.
    drained_models: BTreeSet<String>,
    links: Links,
    next_slot: u64,
    next_ticket: u64,
    epoch: u64,
}

impl Registry {
    /// A worker is dropped when its last beat is `miss_limit` intervals old.
    pub fn new(miss_limit: u32) -> Registry {
        Registry {
            limit: BEAT_INTERVAL * miss_limit.max(1),
            workers: BTreeMap::new(),
            known_models: BTreeMap::new(),
            drained_models: BTreeSet::new(),
            links: Links::default(),
            next_slot: 0,
            next_ticket: 0,
            epoch: 0,
        }
    }

    /// Takes one heartbeat.
    pub fn beat(&mut self, now: Instant, status: &WorkerStatus) -> Result<Beat, BeatError> {
        let info = WorkerInfo::read(status)?;
        self.evict(now);
        self.remember_model(now, &info.model);
        if let Some(worker) = self.workers.get_mut(&info.id) {
            if worker.info.same_life(&info) {
                let was_draining = worker.info.draining;
                worker.last_beat = now;
                worker.ledger.beat(now, info.free_blocks, info.total_blocks);
                worker.info = info;
                let draining = worker.info.draining;
                let (slot, drain) = (worker.slot, worker.drained);
                let change = if was_draining == draining {
                    Change::Same
                } else {
                    self.epoch += 1;
                    Change::Draining(draining)
                };
                return Ok(Beat { slot, change, route_epoch: self.epoch, drain });
            }
        }
        let replaced: Vec<String> = self
            .workers
            .values()
            .filter(|w| w.info.id != info.id && w.info.shares_address(&info))
            .map(|w| w.info.id.clone())
            .collect();
        for id in &replaced {
            self.workers.remove(id);
        }
        self.next_slot += 1;
        self.epoch += 1;
        let slot = Slot(self.next_slot);
        let drain = self.drained_models.contains(&info.model);
        let worker = Worker {
            slot,
            max_context: None,
            first_seen: now,
            last_beat: now,
            breaker: Breaker::default(),
            drained: drain,
            ledger: Ledger::new(info.free_blocks, info.total_blocks),
            info,
        };
        self.workers.insert(worker.info.id.clone(), worker);
        self.forget_links();
        Ok(Beat { slot, change: Change::Joined { replaced }, route_epoch: self.epoch, drain })
    }

    /// The table of routes is another one.
    pub fn routes_changed(&mut self) {
        self.epoch += 1;
    }

    /// Gives nobody who serves `model`, now or later, any more work. Returns where they are told.
    pub fn drain_model(&mut self, model: &str) -> Vec<String> {
        self.epoch += 1;
        self.drained_models.insert(model.to_owned());
        let of_model = self.workers.values_mut().filter(|w| w.info.model == model);
        of_model
            .map(|worker| {
                worker.drained = true;
                worker.info.grpc_address.clone()
            })
            .collect()
    }

    /// Undoes [`Registry::drain_model`] for those who have not drained yet and those who come;
    /// whether the model was drained. An engine that has drained stays so until it is restarted.
    pub fn undrain_model(&mut self, model: &str) -> bool {
        let was = self.drained_models.remove(model);
        if was {
            self.epoch += 1;
            for worker in self.workers.values_mut().filter(|w| w.info.model == model) {
                worker.drained = false;
            }
        }
        was
    }

    /// Gives one worker no more work in this life of it. Returns where it is told.
    pub fn drain_worker(&mut self, id: &str) -> Option<String> {
        let worker = self.workers.get_mut(id)?;
        worker.drained = true;
        self.epoch += 1;
        Some(worker.info.grpc_address.clone())
    }

    /// Drops the workers that have missed their beats and returns their ids.
    pub fn evict(&mut self, now: Instant) -> Vec<String> {
        let limit = self.limit;
        let gone: Vec<String> = self
            .workers
            .values()
            .filter(|w| now.saturating_duration_since(w.last_beat) >= limit)
            .map(|w| w.info.id.clone())
            .collect();
        for id in &gone {
            self.workers.remove(id);
            self.epoch += 1;
        }
        if !gone.is_empty() {
            self.forget_links();
        }
        gone
    }

    /// The live workers, by id.
    pub fn live(&self, now: Instant) -> impl Iterator<Item = &Worker> {
        let limit = self.limit;
        self.workers.values().filter(move |w| now.saturating_duration_since(w.last_beat) < limit)
    }

    pub fn route_epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether anybody has served `model` since this gateway started.
    pub fn has_known(&self, model: &str) -> bool {
        self.known_models.contains_key(model)
    }

    /// The live worker of a slot, whatever its state.
    pub fn worker(&self, slot: Slot) -> Option<&Worker> {
        self.workers.values().find(|w| w.slot == slot)
    }

    fn worker_mut(&mut self, slot: Slot) -> Option<&mut Worker> {
        self.workers.values_mut().find(|w| w.slot == slot)
    }

    /// What the worker's `Info` said.
    pub fn set_max_context(&mut self, slot: Slot, max_context: u32) {
        if let Some(worker) = self.worker_mut(slot) {
            worker.max_context = Some(max_context);
        }
    }

    /// Counts a request in flight at `slot` and promises it `blocks`. `None`: the slot is gone
    /// or has less room.
    pub fn begin(&mut self, now: Instant, slot: Slot, blocks: u32) -> Option<Ticket> {
        let ticket = Ticket(self.next_ticket);
        let worker = self.worker_mut(slot)?;
        if !worker.ledger.reserve(ticket, blocks) {
            return None;
        }
        worker.breaker.entered(now);
        self.next_ticket += 1;
        Some(ticket)
    }

    /// Of a ticket's promise, `blocks` are in use by now.
    pub fn landed(&mut self, now: Instant, slot: Slot, ticket: Ticket, blocks: u32) {
        if let Some(worker) = self.worker_mut(slot) {
            worker.ledger.landed(now, ticket, blocks);
        }
    }

    /// Ends what [`Registry::begin`] began. A slot of an old life is nobody's.
    pub fn end(&mut self, slot: Slot, ticket: Ticket) {
        if let Some(worker) = self.worker_mut(slot) {
            worker.ledger.finish(ticket);
        }
    }

    /// A request there went as it should.
    pub fn succeeded(&mut self, slot: Slot) {
        if let Some(worker) = self.worker_mut(slot) {
            worker.breaker.succeeded();
        }
    }

    /// The worker failed a request: refused, reset, stalled, or broke the protocol. Says
    /// whether it left rotation by this.
    pub fn failed(&mut self, now: Instant, slot: Slot) -> bool {
        self.worker_mut(slot).is_some_and(|worker| worker.breaker.failed(now))
    }

    /// Whether a hand-off from `prefill` to `decode` may be tried now.
    pub fn link_admits(&self, now: Instant, prefill: Slot, decode: Slot) -> bool {
        self.links.admits(now, prefill, decode)
    }

    /// A hand-off from `prefill` to `decode` begins.
    pub fn link_entered(&mut self, now: Instant, prefill: Slot, decode: Slot) {
        self.links.entered(now, prefill, decode);
    }

    /// A hand-off arrived: the prefill engine works, and so does the way.
    pub fn link_succeeded(&mut self, prefill: Slot, decode: Slot) {
        self.succeeded(prefill);
        self.links.succeeded(prefill, decode);
    }

    /// A hand-off did not arrive. Says whether the way left rotation by this.
    pub fn link_failed(&mut self, now: Instant, prefill: Slot, decode: Slot) -> bool {
        // What ends after its engines did leaves nothing behind.
        let known = self.worker(prefill).is_some() && self.worker(decode).is_some();
        known && self.links.failed(now, prefill, decode)
    }

    /// What decides how it goes on while time stands still: who is there, what they were
    /// promised, who failed. For a checker that compares states (see `tl-life`).
    pub fn state(&self, out: &mut impl Hasher) {
        for (id, worker) in &self.workers {
            (id, worker.slot, worker.info.incarnation, worker.is_draining()).hash(out);
            (&worker.ledger, worker.breaker).hash(out);
        }
        self.links.hash(out);
    }

    fn forget_links(&mut self) {
        let workers = &self.workers;
        self.links.keep_only(|slot| workers.values().any(|w| w.slot == slot));
    }

    fn remember_model(&mut self, now: Instant, model: &str) {
        if let Some(seen) = self.known_models.get_mut(model) {
            *seen = now;
            return;
        }
        if self.known_models.len() >= MAX_KNOWN_MODELS {
            let oldest = self.known_models.iter().min_by_key(|(_, seen)| **seen);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.known_models.remove(&oldest);
            }
        }
        self.known_models.insert(model.to_owned(), now);
    }
}

#[cfg(test)]
pub(crate) mod tests;
