//! What holds after every event, as named predicates.
//!
//! Debug and test builds check them after each of a run's first events and at every 1,024th after
//! that, since a check looks at everything.

use super::Engine;
use crate::pool::lease::Minded;
use crate::pool::queue::Who;
use crate::pool::shared::NONE;
use crate::session::{Session, Status};
use crate::stage::{Job, Kind, Stage};

/// The invariants, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invariant {
    /// Allocated and cached units of a pool never exceed its cap.
    Capacity,
    /// What a pool counts as used is what holds, leases and granted bookings have; of a shared pool,
    /// the blocks they have, each once, and those that an iteration under way may still write.
    UsedIsHeldAndLeased,
    /// What [`crate::content::invariant`] says of a shared pool.
    SharedBlocks,
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
    /// A lease that no session has ends by itself: it is told and the word is on its way, or it ends with an
    /// iteration under way, or its bound is finite. One that a session has is minded where it says.
    LeasesEnd,
    /// What jobs have under way is what iterations under way have for them.
    UnderWayIsScheduled,
    /// Blocks wait to be free only for iterations that are to be delivered.
    DeferredIsDelivered,
    /// A session that waits for steps is counted by the stage it waits for, exactly once.
    SteppersAreCounted,
    /// A deadline or shield is inside the holds it began in.
    FramesBelongToHolds,
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
        let mut numbers = vec![0usize; pools];
        for lease in self.free_leases().chain(w.abandoned.iter()) {
            held[lease.pool as usize] += lease.alloc;
            holders[lease.pool as usize] += 1;
            numbers[lease.pool as usize] += usize::from(lease.holder != NONE);
        }
        for s in w.sessions.iter().filter(|s| s.is_alive()) {
            let booked = s.bookings.iter().flat_map(|b| &b.granted);
            let claims = s.claims.iter().filter(|c| c.active).chain(booked);
            let claims = claims.map(|c| (c.pool, c.alloc, c.holder));
            let leased = s.leases.iter().map(|l| (l.pool, l.alloc, l.holder));
            for (p, alloc, holder) in claims.chain(leased) {
                held[p as usize] += alloc;
                holders[p as usize] += 1;
                numbers[p as usize] += usize::from(holder != NONE);
            }
            if s.frames.iter().any(|f| f.holds() > s.holds.len()) {
                return Some((Invariant::FramesBelongToHolds, format!("session {}", s.serial)));
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
            if let Some(shared) = &p.shared {
                let deferred = w.stages.iter().flat_map(deferred);
                let numbers = numbers[i] + deferred.filter(|d| d.1 as usize == i).count();
                if let Some(what) = shared.broken() {
                    return Some((Invariant::SharedBlocks, format!("pool {name}: {what}")));
                }
                if p.used != shared.used() || numbers != shared.count() {
                    let text = format!("{said}, {} holders, {numbers} known", shared.count());
                    return Some((Invariant::UsedIsHeldAndLeased, text));
                }
            } else if !close(p.used, held[i]) {
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
                k.is_some_and(|k| s.bookings[k].waits())
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
        if let Some(found) = self.broken_duty() {
            return Some(found);
        }
        (!self.ready.is_empty()).then(|| (Invariant::InstantSettled, String::new()))
    }

    /// Leases that engines mind, whoever has them.
    fn free_leases(&self) -> impl Iterator<Item = &Minded> {
        self.w.stages.iter().flat_map(|stage| {
            let duty = match &stage.kind {
                Kind::Step(step) => Some(&step.duty),
                _ => None,
            };
            duty.into_iter().flat_map(|d| {
                let flying = d.flying.iter().flat_map(|b| &b.ending);
                d.leases.iter().chain(d.told.iter().map(|t| &t.1)).chain(&d.ending).chain(flying)
            })
        })
    }

    /// The first invariant of what engines do beside tokens that does not hold.
    fn broken_duty(&self) -> Option<(Invariant, String)> {
        let w = &self.w;
        let mut under_way = vec![0.0; w.jobs.len()];
        let mut steppers = 0;
        for (i, stage) in w.stages.iter().enumerate() {
            let Kind::Step(step) = &stage.kind else { continue };
            let (duty, name) = (&step.duty, self.c.stage_name(i));
            if let Some(lease) = duty.leases.iter().find(|l| {
                let owner = &w.sessions[l.session as usize];
                let owned = owner.is_alive()
                    && owner.serial == l.serial
                    && owner.minded.contains(&(l.id, i as u32));
                !owned && l.until == f64::INFINITY
            }) {
                let text = format!("stage {name}: lease {} of session {}", lease.id, lease.serial);
                return Some((Invariant::LeasesEnd, text));
            }
            if duty.deferred.iter().any(|d| d.0 <= duty.delivered || d.0 > duty.latest) {
                return Some((Invariant::DeferredIsDelivered, name));
            }
            let flying = duty.flying.iter().flat_map(|b| b.rows());
            let tracks = w.plans[i].as_ref().is_some_and(|p| p.tracks);
            for (job, n) in flying.chain(step.assigned.iter().copied()).filter(|_| tracks) {
                under_way[job as usize] += n;
            }
            let flying = duty.flying.iter().flat_map(|b| &b.over);
            for run in duty.waiting.iter().chain(&duty.over).chain(flying) {
                steppers += 1;
                let status = w.sessions[run.session as usize].status;
                if status != (Status::Stepping { stage: i as u32 }) {
                    return Some((Invariant::SteppersAreCounted, name));
                }
            }
        }
        let waiting = |s: &&Session| matches!(s.status, Status::Stepping { .. });
        if w.sessions.iter().filter(waiting).count() != steppers {
            return Some((Invariant::SteppersAreCounted, "sessions".into()));
        }
        for (id, (job, n)) in w.jobs.iter().zip(under_way).enumerate() {
            if (job.flying - n).abs() > 1e-6 && (job.alive || job.flying > 0.0 || n > 0.0) {
                let text = format!("job {id}: {} and {n}", job.flying);
                return Some((Invariant::UnderWayIsScheduled, text));
            }
        }
        for s in w.sessions.iter().filter(|s| s.is_alive()) {
            let known = |(id, stage): &(u64, u32)| match &w.stages[*stage as usize].kind {
                Kind::Step(step) => step.duty.leases.iter().any(|l| l.id == *id),
                _ => false,
            };
            if !s.minded.iter().all(known) {
                return Some((Invariant::LeasesEnd, format!("session {}", s.serial)));
            }
        }
        None
    }
}

fn deferred(stage: &Stage) -> &[(u64, u32, u32)] {
    match &stage.kind {
        Kind::Step(step) => &step.duty.deferred,
        _ => &[],
    }
}
