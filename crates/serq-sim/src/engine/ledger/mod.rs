//! What everybody contributed to the sums of [`super::invariant`] when it was last looked at.
//!
//! A check after every event must not look at everything. Sessions, jobs, stages and pools are kept in
//! lists that note what of them was lent for change ([`crate::slots`]); queues say who joined and left, caches
//! and shared pools the same of what is in them. After an event a [`Ledger`] takes out what each of those had
//! contributed, puts in what it contributes now, and asks the predicates of what changed and of what
//! a sum or a reference that changed is about ([`ask`]).
//!
//! Why nothing is missed: a predicate reads one session, job, stage or pool, sums over all of them, and
//! what that one refers to. The first can only change by being lent for change. Of the sums only what
//! somebody was lent for contributes anything new, and who is suspected with a sum is noted where it is changed. A
//! reference goes from a session to its job, its queues, the stage it waits for and those that mind its leases;
//! each is kept in both directions here, so that either end brings the other under suspicion. Time is read only by
//! the bounds of leases, which are kept in order. The account itself is compared with a fresh
//! one, and everything looked at, whenever enough events have paid for it.

mod ask;
mod fresh;
mod sum;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::invariant::Invariant;
use crate::pool::lease::Minded;
use crate::pool::queue::Who;
use crate::pool::shared::NONE;
use crate::session::{Session, Status};
use crate::slots::Touched;
use crate::stage::step::Step;
use crate::stage::{Job, Kind};
use crate::world::World;
use sum::Sum;
pub(super) use sum::close;

/// What does not hold, and where.
pub(super) type Broken = (Invariant, String);

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sessions: Vec<OfSession>,
    jobs: Vec<OfJob>,
    stages: Vec<OfStage>,
    pools: Vec<OfPool>,
    /// Leases that only their bound ends and that no engine minds.
    abandoned: (Vec<Share>, Vec<u64>),
    /// Bounds that an event of their own brings, as the bits of a number that is not negative, and how many
    /// leases have each.
    bounds: BTreeMap<u64, u32>,
    suspects: Suspects,
    /// Whether some engine is fenced.
    fenced: bool,
    /// Buffer: numbers.
    list: Vec<u32>,
    /// Things that events since the last complete look have paid for.
    pub(super) saved: usize,
}

/// Units that somebody has of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    pool: u32,
    alloc: f64,
    holder: u32,
}

/// A place in a pool's queue: the pool, and whether it is a booking's.
type Place = (u32, bool);

#[derive(Clone, Debug, Default)]
struct OfSession {
    /// What it has in holds, bookings and leases of its own.
    shares: Vec<Share>,
    bounds: Vec<u64>,
    working: Option<u32>,
    /// What others say of it: its places in queues, the stages it is counted by as waiting for steps, and those
    /// that mind a lease of its.
    stands: Vec<Place>,
    steps: Vec<u32>,
    minders: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct OfJob {
    stages: Vec<u32>,
    /// Rows of iterations under way that are its, and the tokens in those of an engine that keeps an account.
    rows: u32,
    under_way: Sum,
}

#[derive(Clone, Debug, Default)]
struct OfStage {
    /// Jobs that name it.
    population: usize,
    /// What the leases it minds have.
    shares: Vec<Share>,
    deferred: Vec<(u32, u32)>,
    steppers: Vec<u32>,
    /// The sessions it minds leases of.
    owners: Vec<u32>,
    rows: Vec<(u32, f64)>,
    /// What iterations under way of a fenced engine compute in, by number and epoch of the job.
    reads: BTreeMap<(u32, u32), Read>,
}

/// Blocks that are computed in: the pool, the holder's number, and how many had that before.
#[derive(Clone, Copy, Debug)]
struct Read {
    pool: u32,
    holder: u32,
    generation: u32,
}

#[derive(Clone, Debug, Default)]
struct OfPool {
    held: Sum,
    holders: usize,
    /// Who says to have the blocks of each holder of a shared pool.
    owners: Vec<Owner>,
    suspects: Touched,
    standing: usize,
    entries: Vec<Option<f64>>,
    cached: Sum,
    count: usize,
    /// What is wrong with its blocks.
    broken: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Owner {
    shares: u32,
    deferred: u32,
    alloc: f64,
}

/// Of whom the predicates are to be asked.
#[derive(Debug, Default)]
struct Suspects {
    sessions: Touched,
    jobs: Touched,
    stages: Touched,
    pools: Touched,
}

impl Ledger {
    /// Takes over what changed.
    pub(super) fn take(&mut self, w: &mut World) {
        // Pools first: what is computed in is known by how often its holder's number was given out.
        self.resize(w);
        let mut list = std::mem::take(&mut self.list);
        w.pools.touched_into(&mut list);
        list.iter().for_each(|p| self.take_pool(w, *p));
        // Those that were lent here.
        w.pools.touched_into(&mut list);
        w.sessions.touched_into(&mut list);
        list.iter().for_each(|s| self.take_session(&w.sessions[*s as usize], *s));
        w.jobs.touched_into(&mut list);
        list.iter().for_each(|j| self.take_job(&w.jobs[*j as usize], *j));
        w.stages.touched_into(&mut list);
        list.iter().for_each(|i| self.take_stage(w, *i));
        self.list = list;
        self.take_abandoned(&w.abandoned);
    }

    fn resize(&mut self, w: &World) {
        fn grow<T: Clone + Default>(list: &mut Vec<T>, to: usize) {
            if list.len() < to {
                list.resize(to, T::default());
            }
        }
        grow(&mut self.sessions, w.sessions.len());
        grow(&mut self.jobs, w.jobs.len());
        grow(&mut self.stages, w.stages.len());
        grow(&mut self.pools, w.pools.len());
    }

    /// Somebody has units of a pool, or has them no more.
    fn give(&mut self, share: Share, gone: bool) {
        let Share { pool, alloc, holder } = share;
        self.suspects.pools.note(pool as usize);
        let of = &mut self.pools[pool as usize];
        of.held.add(if gone { -alloc } else { alloc });
        of.holders = if gone { of.holders - 1 } else { of.holders + 1 };
        if of.holders == 0 {
            of.held = Sum::default();
        }
        if holder != NONE {
            let owner = of.owner(holder);
            owner.shares = if gone { owner.shares - 1 } else { owner.shares + 1 };
            owner.alloc += if gone { -alloc } else { alloc };
        }
    }

    /// Blocks of a holder wait to be free, or do no more.
    fn defer(&mut self, (pool, holder): (u32, u32), gone: bool) {
        self.suspects.pools.note(pool as usize);
        let owner = self.pools[pool as usize].owner(holder);
        owner.deferred = if gone { owner.deferred - 1 } else { owner.deferred + 1 };
    }

    fn bound(&mut self, until: u64, gone: bool) {
        let leases = self.bounds.entry(until).or_default();
        *leases = if gone { *leases - 1 } else { *leases + 1 };
        if *leases == 0 {
            self.bounds.remove(&until);
        }
    }

    fn take_pool(&mut self, w: &mut World, p: u32) {
        self.suspects.pools.note(p as usize);
        let pool = &mut w.pools[p as usize];
        for (who, joined) in pool.queue.moves() {
            self.moved(p, who, joined);
        }
        let of = &mut self.pools[p as usize];
        of.keep(pool.cache.touched());
        if let Some(shared) = &mut pool.shared {
            match shared.check() {
                Ok(holders) => holders.iter().for_each(|h| of.suspects.note(*h as usize)),
                Err(what) => of.broken = Some(what),
            }
        }
    }

    fn moved(&mut self, p: u32, who: Who, joined: bool) {
        let s = who.session() as usize;
        self.suspects.sessions.note(s);
        let place = (p, matches!(who, Who::Booking(_)));
        let of = &mut self.pools[p as usize];
        let stands = &mut self.sessions[s].stands;
        if joined {
            of.standing += 1;
            stands.push(place);
        } else if remove(stands, place) {
            of.standing -= 1;
        }
    }

    fn take_session(&mut self, session: &Session, s: u32) {
        self.suspects.sessions.note(s as usize);
        let of = &mut self.sessions[s as usize];
        of.minders.iter().for_each(|i| self.suspects.stages.note(*i as usize));
        let working = match session.status {
            Status::Working { job } => Some(job),
            _ => None,
        };
        let before = std::mem::replace(&mut of.working, working);
        for job in before.into_iter().chain(working) {
            self.suspects.jobs.note(job as usize);
        }
        let alive = session.is_alive();
        let booked = session.bookings.iter().flat_map(|b| &b.granted);
        let claims = session.claims.iter().filter(|c| c.active).chain(booked);
        let claims = claims.map(|c| Share { pool: c.pool, alloc: c.alloc, holder: c.holder });
        let leases = session.leases.iter();
        let leased = leases.map(|l| Share { pool: l.pool, alloc: l.alloc, holder: l.holder });
        let shares = claims.chain(leased).filter(|_| alive);
        if !of.shares.iter().copied().eq(shares.clone()) {
            let mut list = std::mem::take(&mut of.shares);
            list.drain(..).for_each(|share| self.give(share, true));
            list.extend(shares);
            list.iter().for_each(|share| self.give(*share, false));
            self.sessions[s as usize].shares = list;
        }
        let of = &mut self.sessions[s as usize];
        let bounds = session.leases.iter().filter(|_| alive).filter_map(|l| bits(l.until));
        if !of.bounds.iter().copied().eq(bounds.clone()) {
            let mut list = std::mem::take(&mut of.bounds);
            list.drain(..).for_each(|until| self.bound(until, true));
            list.extend(bounds);
            list.iter().for_each(|until| self.bound(*until, false));
            self.sessions[s as usize].bounds = list;
        }
    }

    fn take_job(&mut self, job: &Job, j: u32) {
        self.suspects.jobs.note(j as usize);
        let of = &mut self.jobs[j as usize];
        // Its place in an order, too, is something that its stages depend on.
        of.stages.iter().for_each(|i| self.suspects.stages.note(*i as usize));
        let stages = job.stages().filter(|_| job.alive);
        if of.stages.iter().copied().eq(stages.clone()) {
            return;
        }
        for i in of.stages.drain(..) {
            self.stages[i as usize].population -= 1;
        }
        of.stages.extend(stages);
        for &i in &of.stages {
            self.stages[i as usize].population += 1;
            self.suspects.stages.note(i as usize);
        }
    }

    fn take_stage(&mut self, w: &World, i: u32) {
        let at = i as usize;
        self.suspects.stages.note(at);
        let Kind::Step(step) = &w.stages[at].kind else { return };
        let duty = &step.duty;
        let flying = duty.flying.iter().flat_map(|b| &b.ending);
        let told = duty.told.iter().map(|t| &t.1);
        let leases = duty.leases.iter().chain(told).chain(&duty.ending).chain(flying);
        self.replace(at, |of| &mut of.shares, leases.map(share), Self::give);
        let deferred = duty.deferred.iter().map(|d| (d.1, d.2));
        self.replace(at, |of| &mut of.deferred, deferred, Self::defer);
        let flying = duty.flying.iter().flat_map(|b| &b.over);
        let waiting = duty.waiting.iter().chain(&duty.over).chain(flying);
        self.replace(
            at,
            |of| &mut of.steppers,
            waiting.map(|run| run.session),
            |l, s, gone| {
                l.suspects.sessions.note(s as usize);
                change(&mut l.sessions[s as usize].steps, i, gone);
            },
        );
        let owners = duty.leases.iter().map(|l| l.session);
        // A lease may be another of the same session.
        owners.clone().for_each(|s| self.suspects.sessions.note(s as usize));
        self.replace(
            at,
            |of| &mut of.owners,
            owners,
            |l, s, gone| {
                l.suspects.sessions.note(s as usize);
                change(&mut l.sessions[s as usize].minders, i, gone);
            },
        );
        let tracks = w.plans[at].as_ref().is_some_and(|plan| plan.tracks);
        let flying = duty.flying.iter().flat_map(|b| b.rows());
        let rows = flying.chain(step.assigned.iter().copied());
        self.replace(
            at,
            |of| &mut of.rows,
            rows,
            |l, (j, n), gone| {
                l.row(j, if tracks { n } else { 0.0 }, gone);
            },
        );
        self.fenced |= self.stages[at].read(w, step, i);
    }

    /// Takes out what a list of a stage contributed, and puts in what it does now.
    fn replace<T: Copy + PartialEq>(
        &mut self,
        at: usize,
        list: impl Fn(&mut OfStage) -> &mut Vec<T>,
        now: impl Iterator<Item = T> + Clone,
        contribute: impl Fn(&mut Self, T, bool),
    ) {
        if list(&mut self.stages[at]).iter().copied().eq(now.clone()) {
            return;
        }
        let mut of = std::mem::take(list(&mut self.stages[at]));
        of.drain(..).for_each(|item| contribute(self, item, true));
        of.extend(now);
        of.iter().for_each(|item| contribute(self, *item, false));
        *list(&mut self.stages[at]) = of;
    }

    /// An iteration under way has tokens of a job, or has them no more.
    fn row(&mut self, j: u32, n: f64, gone: bool) {
        self.suspects.jobs.note(j as usize);
        let of = &mut self.jobs[j as usize];
        of.rows = if gone { of.rows - 1 } else { of.rows + 1 };
        of.under_way.add(if gone { -n } else { n });
        if of.rows == 0 {
            of.under_way = Sum::default();
        }
    }

    fn take_abandoned(&mut self, leases: &[Minded]) {
        if leases.is_empty() && self.abandoned.0.is_empty() {
            return;
        }
        let (shares, bounds) = std::mem::take(&mut self.abandoned);
        shares.into_iter().for_each(|share| self.give(share, true));
        bounds.into_iter().for_each(|until| self.bound(until, true));
        let shares: Vec<Share> = leases.iter().map(share).collect();
        let bounds: Vec<u64> = leases.iter().filter_map(|l| bits(l.until)).collect();
        shares.iter().for_each(|share| self.give(*share, false));
        bounds.iter().for_each(|until| self.bound(*until, false));
        self.abandoned = (shares, bounds);
    }
}

impl OfStage {
    /// Which blocks iterations under way of a fenced engine compute in; false if it is none. What one began to compute in stays what
    /// it computes in, whatever its job has since.
    fn read(&mut self, w: &World, step: &Step, i: u32) -> bool {
        let plan = w.plans[i as usize].as_ref().filter(|plan| plan.fenced);
        let Some(memory) = plan.and_then(|plan| plan.memory) else { return false };
        let Some(shared) = &w.pools[memory as usize].shared else { return false };
        let mut before = std::mem::take(&mut self.reads);
        let number = |j: u32| {
            let job = &w.jobs[j as usize];
            let (s, claim) = job.session.zip(job.growing).filter(|_| job.alive)?;
            let c = w.sessions[s as usize].claims.get(claim as usize)?;
            (c.pool == memory && c.holder != NONE).then_some(c.holder)
        };
        let flying = step.duty.flying.iter().flat_map(|b| b.rows());
        for (j, _) in flying.chain(step.assigned.iter().copied()) {
            let name = (j, w.jobs[j as usize].epoch);
            let new = |h| Read { pool: memory, holder: h, generation: shared.generation(h) };
            let read = before.remove(&name).or_else(|| number(j).map(new));
            if let Some(read) = read {
                self.reads.insert(name, read);
            }
        }
        true
    }
}

impl OfPool {
    fn owner(&mut self, holder: u32) -> &mut Owner {
        let at = holder as usize;
        if at >= self.owners.len() {
            self.owners.resize(at + 1, Owner::default());
        }
        self.suspects.note(at);
        &mut self.owners[at]
    }

    /// Entries of its cache and their sizes, none for those that are gone.
    fn keep(&mut self, entries: Vec<(u32, Option<f64>)>) {
        for (at, size) in entries {
            let at = at as usize;
            if at >= self.entries.len() {
                self.entries.resize(at + 1, None);
            }
            for (size, gone) in [(self.entries[at], true), (size, false)] {
                let Some(size) = size else { continue };
                self.cached.add(if gone { -size } else { size });
                self.count = if gone { self.count - 1 } else { self.count + 1 };
            }
            self.entries[at] = size;
            if self.count == 0 {
                self.cached = Sum::default();
            }
        }
    }
}

fn share(lease: &Minded) -> Share {
    Share { pool: lease.pool, alloc: lease.alloc, holder: lease.holder }
}

/// A finite time as a number of the same order.
fn bits(until: f64) -> Option<u64> {
    (until < f64::INFINITY).then(|| until.max(0.0).to_bits())
}

/// Adds an item, or takes one like it away.
fn change<T: PartialEq>(list: &mut Vec<T>, item: T, gone: bool) {
    if gone {
        remove(list, item);
    } else {
        list.push(item);
    }
}

fn remove<T: PartialEq>(list: &mut Vec<T>, item: T) -> bool {
    let at = list.iter().position(|other| *other == item);
    at.map(|at| list.swap_remove(at)).is_some()
}
