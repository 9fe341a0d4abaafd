//! What one worker's blocks are promised to.
//!
//! A beat says how many blocks were free a moment ago. Since then the gateway has sent
//! requests there (their blocks are not in the beat's count yet) and requests have ended
//! (theirs still are). So each request holds a promise of `demand` blocks, of which `landed`
//! are in use on the worker, of which `absorbed` the last beat has already subtracted:
//!
//! `room = free + credit - sum(demand - absorbed)`, within 0 to total,
//!
//! where `credit` is what requests that ended since the last beat had absorbed. Everything is
//! exact again at the next beat, so a wrong guess lives two seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A beat sent less than this after blocks landed may have been counted before.
const SETTLE: Duration = Duration::from_millis(100);

/// Names one promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Promise {
    demand: u32,
    landed: u32,
    landed_at: Option<Instant>,
    absorbed: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ledger {
    free: u32,
    total: u32,
    credit: u32,
    promises: BTreeMap<Ticket, Promise>,
}

impl Ledger {
    pub(super) fn new(free: u32, total: u32) -> Ledger {
        Ledger { free, total, credit: 0, promises: BTreeMap::new() }
    }

    pub(super) fn in_flight(&self) -> u32 {
        u32::try_from(self.promises.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn room(&self) -> u32 {
        let open: u64 =
            self.promises.values().map(|p| u64::from(p.demand.saturating_sub(p.absorbed))).sum();
        let free = u64::from(self.free) + u64::from(self.credit);
        let room = free.saturating_sub(open).min(u64::from(self.total));
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// False when there is less room. A demand of 0 is always met: it only counts the request.
    pub(super) fn reserve(&mut self, ticket: Ticket, demand: u32) -> bool {
        if demand > self.room() {
            return false;
        }
        let promise = Promise { demand, landed: 0, landed_at: None, absorbed: 0 };
        self.promises.insert(ticket, promise);
        true
    }

    pub(super) fn landed(&mut self, now: Instant, ticket: Ticket, blocks: u32) {
        if let Some(promise) = self.promises.get_mut(&ticket) {
            promise.landed = promise.landed.max(blocks.min(promise.demand));
            promise.landed_at.get_or_insert(now);
        }
    }

    pub(super) fn finish(&mut self, ticket: Ticket) {
        if let Some(promise) = self.promises.remove(&ticket) {
            self.credit = self.credit.saturating_add(promise.absorbed);
        }
    }

    pub(super) fn beat(&mut self, now: Instant, free: u32, total: u32) {
        self.free = free;
        self.total = total;
        self.credit = 0;
        for promise in self.promises.values_mut() {
            let settled =
                promise.landed_at.is_some_and(|at| now.saturating_duration_since(at) >= SETTLE);
            promise.absorbed = if settled { promise.landed } else { 0 };
        }
    }
}
