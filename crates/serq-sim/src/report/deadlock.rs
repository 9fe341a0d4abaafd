//! Who can never move again, and why.
//!
//! At the end of a run some sessions wait. Whether that is load or a deadlock is decided by
//! optimistic reduction: leases with a bound, and those that were told, are taken to end; everybody who
//! works at a stage, or is cut by a deadline, is taken to finish and to give back all it has; whoever then
//! fits at the head of a queue, or can grow, is taken to finish as well; and
//! so on. Those who are left can not move in any continuation, whatever the others do. Leases that are renewed for ever,
//! because nothing else is left to happen, have no bound.

use serde::Serialize;

use crate::engine::Engine;
use crate::engine::upkeep::Upkeep;
use crate::error::EPS;
use crate::pool::lease::Minded;
use crate::pool::queue::Who;
use crate::session::{Lease, Session, Status};
use crate::stage::Kind;

/// Sessions listed at most.
const MOST_LISTED: usize = 20;

/// Sessions that wait for each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deadlock {
    /// When the run found it: the horizon, or when nothing was left to happen.
    pub time: f64,
    /// How many sessions can never move again.
    pub sessions: usize,
    /// The first of them, by serial number.
    pub waiters: Vec<Waiter>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiter {
    pub session: u64,
    /// Pools it waits for.
    pub waits_for: Vec<Held>,
    /// `admission` to a hold, a `booking`, or `growth` of a hold.
    pub waits_as: &'static str,
    /// What it holds meanwhile, leases and bookings included.
    pub holds: Vec<Held>,
}

/// Units of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    pub pool: String,
    pub units: f64,
}

impl Deadlock {
    /// One line.
    pub fn summary(&self) -> String {
        let list = |held: &[Held]| {
            let parts: Vec<_> = held.iter().map(|h| format!("{} of {}", h.units, h.pool)).collect();
            if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
        };
        let first = self.waiters.iter().find(|w| !w.holds.is_empty()).or(self.waiters.first());
        let first = first.map_or(String::new(), |w| {
            format!(
                "; session {} holds {} and waits for {}",
                w.session,
                list(&w.holds),
                list(&w.waits_for)
            )
        });
        format!("{} session(s) can never move again{first}", self.sessions)
    }
}

/// Finds a deadlock among the live sessions.
pub(crate) fn find(e: &Engine<'_>) -> Option<Deadlock> {
    find_if(e, e.upkeep() == Upkeep::Forever)
}

/// The same if leases that are renewed never come to their bounds.
pub(crate) fn find_kept(e: &Engine<'_>) -> Option<Deadlock> {
    find_if(e, true)
}

fn find_if(e: &Engine<'_>, kept: bool) -> Option<Deadlock> {
    let w = &e.w;
    let mut free: Vec<f64> = w.pools.iter().map(|p| p.cap - p.used).collect();
    let mut moves: Vec<bool> = w
        .sessions
        .iter()
        .map(|s| !(s.status.is_queued() || matches!(s.status, Status::Growing { .. })))
        .collect();
    // What waits at an engine that stopped waits for ever, as the program says.
    let stopped = |via: u32| w.plans[via as usize].as_ref().is_some_and(|p| w.now >= p.stops);
    for (p, pool) in w.pools.iter().enumerate() {
        if e.c.pools[p].admit_via.is_some_and(stopped) {
            pool.queue.iter().for_each(|who| moves[who.session() as usize] = true);
        }
    }
    ending(e, kept, &mut free);
    let give = |s: &Session, free: &mut Vec<f64>| {
        let bounded = |l: &&Lease| l.until < f64::INFINITY;
        let leases = s.leases.iter().filter(bounded).map(|l| (l.pool, -l.alloc));
        let counted = |l: &&Minded| kept || l.until == f64::INFINITY;
        let minded = minded(e, s).filter(counted).map(|l| (l.pool, l.alloc));
        for (p, units) in holdings(s).chain(leases).chain(minded) {
            free[p as usize] += units;
        }
    };
    for (i, s) in w.sessions.iter().enumerate() {
        let stalled = matches!(s.status, Status::Working { job } if w.jobs[job as usize].stalled);
        moves[i] &= !stalled;
        moves[i] |= s.will_be_cut();
        if moves[i] && s.is_alive() {
            give(s, &mut free);
        }
    }
    if moves.iter().all(|m| *m) {
        return None;
    }
    loop {
        let mut progress = false;
        for p in &w.pools {
            for s in p.growers.iter().copied() {
                if moves[s as usize] {
                    continue;
                }
                if !can_grow(e, s, &free) {
                    break;
                }
                moves[s as usize] = true;
                give(&w.sessions[s as usize], &mut free);
                progress = true;
            }
        }
        // Queues of one stage block each other in their order; a queue of its own blocks itself.
        for i in 0..w.pools.len() {
            let via = e.c.pools[i].admit_via;
            let queues: Vec<usize> = match via {
                None => vec![i],
                Some(_) => (0..w.pools.len()).filter(|k| e.c.pools[*k].admit_via == via).collect(),
            };
            if queues[0] != i {
                continue;
            }
            let heads = queues.iter().flat_map(|k| w.pools[*k].queue.iter().map(move |w| (*k, w)));
            for (at, who) in heads {
                let s = who.session();
                if moves[s as usize] {
                    continue;
                }
                let session = &w.sessions[s as usize];
                let pending = match who {
                    Who::Session(_) => &session.pending[..],
                    Who::Booking(_) => {
                        session.booking(at as u32).map_or(&[][..], |k| &session.bookings[k].claims)
                    }
                };
                if pending.iter().any(|c| c.need > free[c.pool as usize] + EPS) {
                    break;
                }
                // A granted booking moves its session only if that waits for it.
                let waits = session.status == (Status::Booked { pool: at as u32 });
                if matches!(who, Who::Booking(_)) && !waits {
                    continue;
                }
                moves[s as usize] = true;
                give(&w.sessions[s as usize], &mut free);
                progress = true;
            }
        }
        if !progress {
            break;
        }
    }
    let mut stuck: Vec<u32> =
        (0..w.sessions.len() as u32).filter(|s| !moves[*s as usize]).collect();
    stuck.sort_by_key(|s| w.sessions[*s as usize].serial);
    if stuck.is_empty() {
        return None;
    }
    let time = if e.has_events() { e.settings.horizon } else { w.now };
    let waiters = stuck.iter().take(MOST_LISTED).map(|s| waiter(e, *s)).collect();
    Some(Deadlock { time, sessions: stuck.len(), waiters })
}

/// Adds what is given back whatever sessions do: by the bound of a lease, or because it was told.
fn ending(e: &Engine<'_>, kept: bool, free: &mut [f64]) {
    let w = &e.w;
    for lease in w.sessions.iter().filter(|s| s.is_alive()).flat_map(|s| &s.leases) {
        free[lease.pool as usize] += if lease.until < f64::INFINITY { lease.alloc } else { 0.0 };
    }
    for (stage, plan) in w.stages.iter().zip(&w.plans) {
        let Kind::Step(step) = &stage.kind else { continue };
        let duty = &step.duty;
        let under_way = duty.ending.iter().chain(duty.flying.iter().flat_map(|b| &b.ending));
        // An engine that stopped notices nothing any more.
        let stopped = plan.as_ref().is_some_and(|p| w.now >= p.stops);
        let bounded = duty.leases.iter().filter(|l| !kept && l.until < f64::INFINITY);
        let noticed = bounded.chain(duty.told.iter().map(|(_, l)| l)).filter(|_| !stopped);
        for lease in under_way.chain(noticed) {
            free[lease.pool as usize] += lease.alloc;
        }
    }
}

/// Leases of a session that engines mind.
fn minded<'e>(e: &'e Engine<'_>, s: &'e Session) -> impl Iterator<Item = &'e Minded> {
    s.minded.iter().filter_map(|(id, stage)| match &e.w.stages[*stage as usize].kind {
        Kind::Step(step) => step.duty.leases.iter().find(|l| l.id == *id),
        _ => None,
    })
}

fn holdings(s: &Session) -> impl Iterator<Item = (u32, f64)> + '_ {
    let claims = s.claims.iter().filter(|c| c.active).map(|c| (c.pool, c.alloc));
    let booked = s.bookings.iter().flat_map(|b| &b.granted).map(|c| (c.pool, c.alloc));
    claims.chain(s.leases.iter().map(|l| (l.pool, l.alloc))).chain(booked)
}

fn can_grow(e: &Engine<'_>, s: u32, free: &[f64]) -> bool {
    let (pool, units) = growth(e, s);
    units <= free[pool as usize] + EPS
}

/// Pool and whole-block units a stalled session wants more.
fn growth(e: &Engine<'_>, s: u32) -> (u32, f64) {
    let session = &e.w.sessions[s as usize];
    let (claim, units) = session.growth;
    let c = session.claims[claim as usize];
    (c.pool, e.w.pools[c.pool as usize].round_up(c.alloc + units) - c.alloc)
}

fn waiter(e: &Engine<'_>, s: u32) -> Waiter {
    let session = &e.w.sessions[s as usize];
    let held = |(p, units): (u32, f64)| Held { pool: e.c.pool_name(p as usize), units };
    let (waits_for, waits_as) = match session.status {
        Status::Queued { .. } => {
            (session.pending.iter().map(|p| held((p.pool, p.need))).collect(), "admission")
        }
        Status::Booked { pool } => {
            let claims = session.booking(pool).map_or(&[][..], |k| &session.bookings[k].claims);
            (claims.iter().map(|p| held((p.pool, p.need))).collect(), "booking")
        }
        _ => (vec![held(growth(e, s))], "growth"),
    };
    let minded = minded(e, session).map(|l| (l.pool, l.alloc));
    let holds = holdings(session).chain(minded).map(held).collect();
    Waiter { session: session.serial, waits_for, waits_as, holds }
}
