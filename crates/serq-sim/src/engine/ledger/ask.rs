//! The predicates, asked of whoever could break them now.

use super::sum::close;
use super::{Broken, Ledger, Place, Read, bits};
use crate::engine::Engine;
use crate::engine::invariant::Invariant;
use crate::pool::Pool;
use crate::session::{Session, Status};
use crate::stage::Kind;

impl Engine<'_> {
    /// The first predicate that what happened since the last call has broken, and where.
    pub(in crate::engine) fn newly_broken(&mut self) -> Option<Broken> {
        self.ledger.take(&mut self.w);
        let mut list = std::mem::take(&mut self.ledger.list);
        self.ledger.suspects.sessions.take(&mut list);
        let mut found = list.iter().find_map(|s| self.broken_session(*s as usize));
        self.ledger.suspects.pools.take(&mut list);
        found = found.or_else(|| list.iter().find_map(|p| self.broken_pool(*p as usize)));
        self.ledger.suspects.stages.take(&mut list);
        found = found.or_else(|| list.iter().find_map(|i| self.broken_stage(*i as usize)));
        self.ledger.suspects.jobs.take(&mut list);
        found = found.or_else(|| list.iter().find_map(|j| self.broken_job(*j as usize)));
        self.ledger.list = list;
        found = found.or_else(|| self.lost_read()).or_else(|| self.late_bound());
        found.or_else(|| {
            (!self.ready.is_empty()).then(|| (Invariant::InstantSettled, String::new()))
        })
    }

    fn broken_session(&self, at: usize) -> Option<Broken> {
        let (s, of) = (self.w.sessions.get(at)?, &self.ledger.sessions[at]);
        let which = if s.is_alive() && s.has_frames_outside() {
            Invariant::FramesBelongToHolds
        } else if s.is_alive() && s.has_claims_outside() {
            Invariant::ClaimsBelongToHolds
        } else if !stands(s, &of.stands) {
            Invariant::WaitersStandInQueues
        } else if !(match s.status {
            Status::Stepping { stage } => of.steps == [stage],
            _ => of.steps.is_empty(),
        }) {
            Invariant::SteppersAreCounted
        } else if s.is_alive() && !s.minded.iter().all(|lease| self.is_minded(at, *lease)) {
            Invariant::LeasesEnd
        } else {
            return None;
        };
        Some((which, format!("session {}", s.serial)))
    }

    /// Whether an engine minds a lease as the session's.
    pub(in crate::engine) fn is_minded(&self, s: usize, (id, stage): (u64, u32)) -> bool {
        let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return false };
        let serial = self.w.sessions[s].serial;
        let mut leases = step.duty.leases.iter();
        leases.any(|l| (l.id, l.session as usize, l.serial) == (id, s, serial))
    }

    fn broken_pool(&mut self, at: usize) -> Option<Broken> {
        let (p, of) = (self.w.pools.get(at)?, &mut self.ledger.pools[at]);
        let said = || format!("pool {}: {}", self.c.pool_name(at), p.said());
        if let Some(what) = of.broken.take() {
            return Some((Invariant::SharedBlocks, format!("{}, {what}", said())));
        }
        let mut numbers = Vec::new();
        of.suspects.take(&mut numbers);
        if p.is_over_cap() {
            return Some((Invariant::Capacity, said()));
        }
        if let Some(shared) = &p.shared {
            let has = |h: u32| {
                let owner = of.owners.get(h as usize).copied().unwrap_or_default();
                let owners = owner.shares + owner.deferred;
                let alloc = owner.shares == 0 || owner.alloc == shared.alloc(h);
                (owners == u32::from(shared.is_open(h)) && alloc).then_some(()).ok_or(owner)
            };
            if p.used != shared.used() {
                return Some((Invariant::UsedIsHeldAndLeased, said()));
            }
            if let Some((h, owner)) = numbers.into_iter().find_map(|h| Some((h, has(h).err()?))) {
                let which = match (shared.is_open(h), owner.shares + owner.deferred) {
                    (false, 1..) => Invariant::NoReadAfterFree,
                    _ => Invariant::UsedIsHeldAndLeased,
                };
                let text =
                    format!("{}, holder {h} has {} units: {owner:?}", said(), shared.alloc(h));
                return Some((which, text));
            }
        } else if !close(p.used, of.held.value()) {
            let text = format!("{}, held {}", said(), of.held.value());
            return Some((Invariant::UsedIsHeldAndLeased, text));
        }
        let entries = of.cached.value() + p.cache.anonymous;
        if !close(p.cache.total, entries) {
            return Some((Invariant::CachedIsEntries, format!("{}, entries {entries}", said())));
        }
        if p.holders != of.holders {
            let text = format!("{}, holders {} and {}", said(), p.holders, of.holders);
            return Some((Invariant::HoldersAreOwned, text));
        }
        (p.queue.len() != of.standing).then(|| (Invariant::WaitersStandInQueues, said()))
    }

    fn broken_stage(&self, at: usize) -> Option<Broken> {
        let (s, of) = (self.w.stages.get(at)?, &self.ledger.stages[at]);
        let name = || self.c.stage_name(at);
        if s.present as usize != of.population {
            let text = format!("stage {}: {} and {}", name(), of.population, s.present);
            return Some((Invariant::PopulationIsJobs, text));
        }
        let Kind::Step(step) = &s.kind else { return None };
        let order = step.residents.iter().map(|j| self.w.jobs[*j as usize].admission);
        if !order.is_sorted() || step.residents.len() != of.population {
            return Some((Invariant::ResidentsInOrder, name()));
        }
        self.broken_duty(at, &step.duty)
    }

    fn broken_job(&self, at: usize) -> Option<Broken> {
        let (job, of) = (self.w.jobs.get(at)?, &self.ledger.jobs[at]);
        let n = of.under_way.value();
        if (job.flying - n).abs() > 1e-6 && (job.alive || job.flying > 0.0 || n > 0.0) {
            let text = format!("job {at}: {} and {n}", job.flying);
            return Some((Invariant::UnderWayIsScheduled, text));
        }
        let lost = of.rows > 0 && self.computes_in_nothing(at as u32);
        lost.then(|| (Invariant::NoReadAfterFree, format!("job {at}")))
    }

    /// Blocks that an iteration of a fenced engine computes in and that were given back.
    pub(super) fn lost_read(&self) -> Option<Broken> {
        if !self.ledger.fenced {
            return None;
        }
        for (i, of) in self.ledger.stages.iter().enumerate() {
            let lost = of.reads.iter().find(|(_, read)| {
                let Read { pool, holder, generation } = **read;
                let shared = self.w.pools[pool as usize].shared.as_ref();
                shared.is_none_or(|s| !s.is_open(holder) || s.generation(holder) != generation)
            });
            if let Some((job, read)) = lost {
                let text = format!("stage {}: job {job:?}, {read:?}", self.c.stage_name(i));
                return Some((Invariant::NoReadAfterFree, text));
            }
        }
        None
    }

    /// A lease that is past its bound.
    fn late_bound(&self) -> Option<Broken> {
        let first = self.ledger.bounds.keys().next()?;
        let text = || format!("a bound at {}", f64::from_bits(*first));
        (Some(*first) < bits(self.w.now)).then(|| (Invariant::LeasesEnd, text()))
    }
}

/// Whether a session's places in queues are those its status and its bookings name.
fn stands(s: &Session, places: &[Place]) -> bool {
    let queued = match s.status {
        Status::Queued { pool } => Some((pool, false)),
        _ => None,
    };
    let booked = s.bookings.iter().filter(|b| s.is_alive() && b.waits());
    let mut named = queued.into_iter().chain(booked.map(|b| (b.first(), true)));
    let mut count = 0;
    let all = named.by_ref().all(|place| {
        count += 1;
        places.contains(&place)
    });
    all && count == places.len()
}

impl Pool {
    /// Whether more is used and cached than there is.
    pub(in crate::engine) fn is_over_cap(&self) -> bool {
        self.used + self.cache.total > self.cap + 1e-6 * self.cap.max(1.0)
    }

    pub(in crate::engine) fn said(&self) -> String {
        format!("used {}, cached {}, cap {}", self.used, self.cache.total, self.cap)
    }
}

impl Session {
    pub(in crate::engine) fn has_frames_outside(&self) -> bool {
        self.frames.iter().any(|f| f.holds() > self.holds.len())
    }

    pub(in crate::engine) fn has_claims_outside(&self) -> bool {
        let mut firsts = self.holds.iter().map(|h| h.first as usize);
        !firsts.clone().is_sorted() || firsts.any(|f| f > self.claims.len())
    }
}

impl Ledger {
    /// Sizes of what is kept, for the price of looking at everything.
    pub(in crate::engine) fn size(&self, w: &crate::world::World) -> usize {
        let pool = |p: &Pool| p.queue.len() + p.shared.as_ref().map_or(0, |s| 8 * s.cap() as usize);
        let entries: usize = self.pools.iter().map(|p| p.entries.len()).sum();
        let pools: usize = w.pools.iter().map(pool).sum();
        // Who looks at everything asks every pool of every session, and every stage of every job.
        let sessions = w.sessions.len() * (2 + w.pools.len());
        sessions + w.jobs.len() * (2 + w.stages.len()) + pools + entries
    }
}
