//! What holds after every event, as named predicates.
//!
//! Debug and test builds ask them after every event of every run: of what the event changed by the account
//! in [`super::ledger`], which also says why that is enough. As often as the events since have paid for it,
//! [`Engine::broken_invariant`] looks at everything, with code of its own, and the account is
//! compared with a fresh one: so in a small run after every event, too, and in a large one so often that the
//! price of an event stays what it is.
//!
//! The three that a memory stands on are [`Invariant::Capacity`] with [`Invariant::UsedIsHeldAndLeased`],
//! [`Invariant::LeasesEnd`] and [`Invariant::NoReadAfterFree`].

use super::Engine;
use super::ledger::{Broken, Ledger, close};
use crate::pool::lease::Minded;
use crate::pool::queue::Who;
use crate::pool::shared::NONE;
use crate::session::{Session, Status};
use crate::stage::duty::Duty;
use crate::stage::{Job, Kind, Stage};

/// The invariants, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invariant {
    /// Allocated and cached units of a pool never exceed its cap: `used + cached <= cap`.
    Capacity,
    /// `used = held + leased`: what a pool counts as used is what holds, leases and granted bookings have; of a
    /// shared pool, the blocks they have, each once, and those that an iteration under way may still
    /// write. Each holder of blocks is one of those.
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
    /// A lease ends in one of its ways, each in finite time. One that no session has ends by itself: it is told
    /// and the word is on its way, or it ends with an iteration under way, or its bound is finite. One that a
    /// session has is minded where it says. None is past a bound that an event brings.
    LeasesEnd,
    /// No block is read after it was freed, unless the read knows. Who may read blocks of a shared pool,
    /// by a claim, a booking or a lease, has a holder there that has them. An iteration under way computes in
    /// claims that are held; where it is over before its results are seen and one was taken away
    /// meanwhile, its job knows that (it is none any more), and of a fenced engine the blocks
    /// are still held.
    NoReadAfterFree,
    /// What jobs have under way is what iterations under way have for them.
    UnderWayIsScheduled,
    /// Blocks wait to be free only for iterations that are to be delivered.
    DeferredIsDelivered,
    /// A session that waits for steps is counted by the stage it waits for, exactly once.
    SteppersAreCounted,
    /// A deadline or shield is inside the holds it began in.
    FramesBelongToHolds,
    /// The account of changes is what a fresh one would be.
    Account,
}

/// Events of a run after each of which everything is looked at, unless that is more than so many things.
const FIRST: u64 = 40;
const FEW: usize = 2_000;
/// Things that each event pays for, and what it costs to look at none.
const PAID: usize = 4;
const BASE: usize = 200;

impl Engine<'_> {
    /// Panics if something does not hold.
    pub(crate) fn check_invariants(&mut self) {
        let mut found = self.newly_broken();
        self.ledger.saved += PAID;
        let price = |ledger: &Ledger| BASE + ledger.size(&self.w);
        let begins = self.handled <= FIRST && price(&self.ledger) <= FEW;
        if begins || (self.ledger.saved >= BASE && self.ledger.saved >= price(&self.ledger)) {
            found = found.or_else(|| self.look_at_everything());
        }
        self.fail(found);
    }

    /// The same of everything.
    pub(crate) fn check_everything(&mut self) {
        let found = self.newly_broken().or_else(|| self.look_at_everything());
        self.fail(found);
    }

    fn look_at_everything(&mut self) -> Option<Broken> {
        self.ledger.saved = 0;
        let differs = || Some((Invariant::Account, self.ledger.differs(&self.w)?));
        self.broken_invariant().or_else(differs)
    }

    fn fail(&self, found: Option<Broken>) {
        if let Some((which, what)) = found {
            panic!("invariant {which:?} broken at time {}: {what}", self.w.now);
        }
    }

    /// The first invariant that does not hold, and where.
    pub(crate) fn broken_invariant(&self) -> Option<Broken> {
        let w = &self.w;
        let pools = w.pools.len();
        let (mut held, mut holders) = (vec![0.0; pools], vec![0usize; pools]);
        let mut numbers = vec![Vec::new(); pools];
        let mut give = |p: u32, alloc: f64, holder: u32| {
            held[p as usize] += alloc;
            holders[p as usize] += 1;
            numbers[p as usize].extend((holder != NONE).then_some((holder, alloc)));
        };
        for lease in self.free_leases().chain(w.abandoned.iter()) {
            give(lease.pool, lease.alloc, lease.holder);
        }
        for s in w.sessions.iter().filter(|s| s.is_alive()) {
            let booked = s.bookings.iter().flat_map(|b| &b.granted);
            let claims = s.claims.iter().filter(|c| c.active).chain(booked);
            let claims = claims.map(|c| (c.pool, c.alloc, c.holder));
            let leased = s.leases.iter().map(|l| (l.pool, l.alloc, l.holder));
            claims.chain(leased).for_each(|(p, alloc, holder)| give(p, alloc, holder));
            if s.has_frames_outside() {
                return Some((Invariant::FramesBelongToHolds, format!("session {}", s.serial)));
            }
            if s.has_claims_outside() {
                return Some((Invariant::ClaimsBelongToHolds, format!("session {}", s.serial)));
            }
        }
        for (i, p) in w.pools.iter().enumerate() {
            let entries: f64 = p.cache.iter().map(|(_, e)| e.size).sum::<f64>() + p.cache.anonymous;
            let said = || format!("pool {}: {}", self.c.pool_name(i), p.said());
            if p.is_over_cap() {
                return Some((Invariant::Capacity, said()));
            }
            if let Some(shared) = &p.shared {
                let deferred = w.stages.iter().flat_map(deferred).filter(|d| d.1 as usize == i);
                let lost = numbers[i].iter().find(|(h, alloc)| shared.alloc(*h) != *alloc);
                let numbers = numbers[i].len() + deferred.count();
                if let Some(what) = shared.broken() {
                    return Some((Invariant::SharedBlocks, format!("{}, {what}", said())));
                }
                if p.used != shared.used() || numbers != shared.count() {
                    let text = format!("{}, {} holders, {numbers} known", said(), shared.count());
                    return Some((Invariant::UsedIsHeldAndLeased, text));
                }
                if let Some((holder, alloc)) = lost {
                    let text = format!("{}, {alloc} of holder {holder}", said());
                    return Some((Invariant::NoReadAfterFree, text));
                }
            } else if !close(p.used, held[i]) {
                return Some((
                    Invariant::UsedIsHeldAndLeased,
                    format!("{}, held {}", said(), held[i]),
                ));
            }
            if !close(p.cache.total, entries) {
                return Some((
                    Invariant::CachedIsEntries,
                    format!("{}, entries {entries}", said()),
                ));
            }
            if p.holders != holders[i] {
                let text = format!("{}, holders {} and {}", said(), p.holders, holders[i]);
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
                return Some((Invariant::WaitersStandInQueues, said()));
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
        if let Some(found) = self.broken_duties() {
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
    fn broken_duties(&self) -> Option<Broken> {
        let w = &self.w;
        let (mut under_way, mut rows) = (vec![0.0; w.jobs.len()], vec![0u32; w.jobs.len()]);
        let mut steppers = 0;
        for (i, stage) in w.stages.iter().enumerate() {
            let Kind::Step(step) = &stage.kind else { continue };
            let duty = &step.duty;
            if let Some(found) = self.broken_duty(i, duty) {
                return Some(found);
            }
            let flying = duty.flying.iter().flat_map(|b| b.rows());
            let tracks = w.plans[i].as_ref().is_some_and(|p| p.tracks);
            for (job, n) in flying.chain(step.assigned.iter().copied()) {
                under_way[job as usize] += if tracks { n } else { 0.0 };
                rows[job as usize] += 1;
            }
            let flying = duty.flying.iter().flat_map(|b| &b.over);
            for run in duty.waiting.iter().chain(&duty.over).chain(flying) {
                steppers += 1;
                let status = w.sessions[run.session as usize].status;
                if status != (Status::Stepping { stage: i as u32 }) {
                    return Some((Invariant::SteppersAreCounted, self.c.stage_name(i)));
                }
            }
        }
        let waiting = |s: &&Session| matches!(s.status, Status::Stepping { .. });
        if w.sessions.iter().filter(waiting).count() != steppers {
            return Some((Invariant::SteppersAreCounted, "sessions".into()));
        }
        for (id, ((job, n), rows)) in w.jobs.iter().zip(under_way).zip(rows).enumerate() {
            if (job.flying - n).abs() > 1e-6 && (job.alive || job.flying > 0.0 || n > 0.0) {
                let text = format!("job {id}: {} and {n}", job.flying);
                return Some((Invariant::UnderWayIsScheduled, text));
            }
            if rows > 0 && self.computes_in_nothing(id as u32) {
                return Some((Invariant::NoReadAfterFree, format!("job {id}")));
            }
        }
        for (at, s) in w.sessions.iter().enumerate().filter(|(_, s)| s.is_alive()) {
            let late = s.leases.iter().any(|l| l.until < w.now);
            if late || !s.minded.iter().all(|lease| self.is_minded(at, *lease)) {
                return Some((Invariant::LeasesEnd, format!("session {}", s.serial)));
            }
        }
        let late = w.abandoned.iter().find(|l| l.until < w.now || l.until == f64::INFINITY);
        late.map(|l| (Invariant::LeasesEnd, format!("lease {}", l.id)))
    }

    /// What does not hold of an engine's duties alone.
    pub(super) fn broken_duty(&self, stage: usize, duty: &Duty) -> Option<Broken> {
        let name = || format!("stage {}", self.c.stage_name(stage));
        let endless = duty.leases.iter().find(|l| {
            let owner = &self.w.sessions[l.session as usize];
            let owned = owner.is_alive()
                && owner.serial == l.serial
                && owner.minded.contains(&(l.id, stage as u32));
            !owned && l.until == f64::INFINITY
        });
        let told = duty.told.iter().find(|(at, _)| *at == f64::INFINITY).map(|(_, lease)| lease);
        if let Some(lease) = endless.or(told) {
            let text = format!("{}: lease {} of session {}", name(), lease.id, lease.serial);
            return Some((Invariant::LeasesEnd, text));
        }
        let lost = duty.deferred.iter().any(|d| d.0 <= duty.delivered || d.0 > duty.latest);
        lost.then(|| (Invariant::DeferredIsDelivered, name()))
    }

    /// Whether a job that iterations under way have tokens of computes in no claim that is held, and does not
    /// know it.
    pub(super) fn computes_in_nothing(&self, id: u32) -> bool {
        let w = &self.w;
        let job: &Job = &w.jobs[id as usize];
        if !job.alive {
            return !w.plans[job.stage as usize].as_ref().is_some_and(|plan| plan.ahead);
        }
        let Some((s, claim)) = job.session.zip(job.growing) else { return false };
        let session = &w.sessions[s as usize];
        let held = session.claims.get(claim as usize).is_some_and(|c| c.active);
        session.status != (Status::Working { job: id }) || !held
    }
}

fn deferred(stage: &Stage) -> &[(u64, u32, u32)] {
    match &stage.kind {
        Kind::Step(step) => &step.duty.deferred,
        _ => &[],
    }
}
