//! What holds after every event, as named predicates.
//!
//! Debug and test builds check them after each of a run's first events and at every 1,024th after
//! that, since a check looks at everything.

use super::Engine;
use crate::pool::booking::{Booking, State};
use crate::pool::queue::Who;
use crate::session::{Session, Status};
use crate::stage::{Job, Kind};

/// The invariants, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invariant {
    /// Allocated and cached units of a pool never exceed its cap.
    Capacity,
    /// What a pool counts as used is what holds, leases and granted bookings have.
    UsedIsHeldAndLeased,
    /// What a pool counts as cached is what its entries have.
    CachedIsEntries,
    /// A pool counts one holder per active claim, lease and granted booking.
    HoldersAreOwned,
    /// A waiting session stands in the queue its status names, exactly once; so does a waiting booking.
    WaitersStandInQueues,
    /// A stage's population is the jobs that name it.
    PopulationIsJobs,
    /// Residents stand in order of admission.
    ResidentsInOrder,
    /// Nobody is ready once an instant has settled.
    InstantSettled,
    /// A session's claims belong to its holds, innermost last.
    ClaimsBelongToHolds,
}

#[cfg(debug_assertions)]
const FIRST: u64 = 5_000;
#[cfg(debug_assertions)]
const EVERY: u64 = 1024;

impl Engine<'_> {
    #[cfg(debug_assertions)]
    pub(crate) fn check_invariants(&self) {
        if self.handled > FIRST && !self.handled.is_multiple_of(EVERY) {
            return;
        }
        if let Some((which, what)) = self.broken_invariant() {
            panic!("invariant {which:?} broken at time {}: {what}", self.w.now);
        }
    }

    /// The first invariant that does not hold, and where.
    pub(crate) fn broken_invariant(&self) -> Option<(Invariant, String)> {
        let w = &self.w;
        let pools = w.pools.len();
        let (mut held, mut holders) = (vec![0.0; pools], vec![0usize; pools]);
        for s in w.sessions.iter().filter(|s| s.is_alive()) {
            let claims = s.claims.iter().filter(|c| c.active).map(|c| (c.pool, c.alloc));
            let booked = s.bookings.iter().flat_map(Booking::granted).map(|c| (c.pool, c.units));
            let leased = s.leases.iter().map(|l| (l.pool, l.alloc));
            for (p, alloc) in claims.chain(leased).chain(booked) {
                held[p as usize] += alloc;
                holders[p as usize] += 1;
            }
            let firsts = s.holds.iter().map(|h| h.first as usize);
            if !firsts.clone().is_sorted() || firsts.clone().any(|f| f > s.claims.len()) {
                return Some((Invariant::ClaimsBelongToHolds, format!("session {}", s.serial)));
            }
        }
        for (i, p) in w.pools.iter().enumerate() {
            let name = self.c.pool_name(i);
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(1.0);
            let entries: f64 = p.cache.iter().map(|(_, e)| e.size).sum::<f64>() + p.cache.anonymous;
            let said =
                format!("pool {name}: used {}, cached {}, cap {}", p.used, p.cache.total, p.cap);
            if p.used + p.cache.total > p.cap + 1e-6 * p.cap.max(1.0) {
                return Some((Invariant::Capacity, said));
            }
            if !close(p.used, held[i]) {
                return Some((Invariant::UsedIsHeldAndLeased, format!("{said}, held {}", held[i])));
            }
            if !close(p.cache.total, entries) {
                return Some((Invariant::CachedIsEntries, format!("{said}, entries {entries}")));
            }
            if p.holders != holders[i] {
                let text = format!("{said}, holders {} and {}", p.holders, holders[i]);
                return Some((Invariant::HoldersAreOwned, text));
            }
            let books = |s: &Session| {
                let k = s.is_alive().then(|| s.booking(i as u32)).flatten();
                k.is_some_and(|k| s.bookings[k].state == State::Waiting)
            };
            let waits = |s: &Session| s.status == Status::Queued { pool: i as u32 };
            let queued = |who: Who| match who {
                Who::Session(s) => waits(&w.sessions[s as usize]),
                Who::Booking(s) => books(&w.sessions[s as usize]),
            };
            let count = |s: &Session| usize::from(waits(s)) + usize::from(books(s));
            let waiting: usize = w.sessions.iter().map(count).sum();
            if !p.queue.iter().all(queued) || waiting != p.queue.len() {
                return Some((Invariant::WaitersStandInQueues, said));
            }
        }
        for (i, s) in w.stages.iter().enumerate() {
            let here = |j: &&Job| j.alive && j.stages().any(|s| s as usize == i);
            let jobs = w.jobs.iter().filter(here).count();
            if jobs != s.present as usize {
                let text = format!("stage {}: {jobs} and {}", self.c.stage_name(i), s.present);
                return Some((Invariant::PopulationIsJobs, text));
            }
            if let Kind::Step(step) = &s.kind {
                let order = step.residents.iter().map(|j| w.jobs[*j as usize].admission);
                if !order.is_sorted() || step.residents.len() != jobs {
                    return Some((Invariant::ResidentsInOrder, self.c.stage_name(i)));
                }
            }
        }
        (!self.ready.is_empty()).then(|| (Invariant::InstantSettled, String::new()))
    }
}
