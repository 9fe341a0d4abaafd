//! Leases that an engine minds.
//!
//! A plain lease ends by itself or by its session's word, at once. One that an engine minds ends when the
//! engine notices: when an iteration is put together, that its bound is past or that it was told; and
//! then with that iteration's results. As long as nobody told it, it is its session's; then, and
//! once it is abandoned, the engine's alone, and outlives the session.

use crate::What;
use crate::engine::Engine;
use crate::error::{Reason, Result};
use crate::pool::cache::Entry;
use crate::pool::shared::NONE;
use crate::session::{Fed, Lease};
use crate::stage::duty::Telling;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Minded {
    pub(crate) id: u64,
    /// Whose it was, by slot and serial number.
    pub(crate) session: u32,
    pub(crate) serial: u64,
    pub(crate) pool: u32,
    pub(crate) alloc: f64,
    pub(crate) since: f64,
    /// As in a claim.
    pub(crate) holder: u32,
    pub(crate) fed: Fed,
    /// Its bound, seconds on the clock.
    pub(crate) until: f64,
    /// Units computed, and the hold whose cache clause applies.
    computed: f64,
    plan: u32,
    /// What that clause said when the session lost it.
    keep: f64,
}

impl Engine<'_> {
    fn make_minded(&self, s: u32, lease: &Lease, until: f64) -> Minded {
        Minded {
            id: lease.id,
            session: s,
            serial: self.w.sessions[s as usize].serial,
            pool: lease.pool,
            alloc: lease.alloc,
            since: lease.since,
            holder: lease.holder,
            fed: lease.fed,
            until,
            computed: lease.computed,
            plan: lease.plan,
            keep: 0.0,
        }
    }

    /// A session's lease becomes one that an engine minds.
    pub(crate) fn mind(&mut self, s: u32, lease: &Lease, stage: u32, until: f64) {
        let minded = self.make_minded(s, lease, until);
        self.w.sessions[s as usize].minded.push((lease.id, stage));
        if let Some(duty) = self.duty(stage) {
            duty.leases.push(minded);
        }
        self.note_duty(stage);
    }

    /// The oldest lease of a pool that an engine minds for a session: which engine, and where there.
    pub(crate) fn minded(&self, s: u32, pool: u32) -> Option<(u32, usize)> {
        self.w.sessions[s as usize].minded.iter().find_map(|&(id, stage)| {
            let crate::stage::Kind::Step(step) = &self.w.stages[stage as usize].kind else {
                return None;
            };
            let at = step.duty.leases.iter().position(|l| l.id == id && l.pool == pool)?;
            Some((stage, at))
        })
    }

    /// Takes a lease out of its engine's list and from its session.
    pub(crate) fn take_minded(&mut self, s: u32, stage: u32, at: usize) -> Minded {
        let crate::stage::Kind::Step(step) = &mut self.w.stages[stage as usize].kind else {
            unreachable!("only step stages mind leases");
        };
        let mut lease = step.duty.leases.remove(at);
        self.disown(&lease);
        // A mistake in the clause is reported where it is evaluated for a living session.
        lease.keep = self.cache_value(s, lease.plan).unwrap_or(0.0);
        lease
    }

    /// A lease of a session that ends.
    pub(crate) fn end_minded_of(&mut self, s: u32, id: u64, stage: u32) -> Result<()> {
        self.w.sessions[s as usize].minded.retain(|m| m.0 != id);
        let Some(duty) = self.duty(stage) else { return Ok(()) };
        let Some(at) = duty.leases.iter().position(|l| l.id == id) else { return Ok(()) };
        let lease = duty.leases.remove(at);
        self.end_minded(lease)
    }

    /// A lease is its session's no more.
    pub(crate) fn disown(&mut self, lease: &Minded) {
        let session = &mut self.w.sessions[lease.session as usize];
        if session.serial == lease.serial {
            session.minded.retain(|(id, _)| *id != lease.id);
        }
    }

    /// A session's lease of a pool can end: whoever is to hear of it is told, else it ends at once.
    /// `by` is the engine whose run tells. Nothing without a lease.
    pub(crate) fn tell_lease(&mut self, s: u32, telling: Telling, by: Option<u32>) -> Result<()> {
        let Telling { pool, on, after } = telling;
        let at = self.w.now + after;
        let plain = self.w.sessions[s as usize].leases.iter().position(|l| l.pool == pool);
        let minded = self.minded(s, pool);
        let lease = match (minded, plain, on) {
            (Some((stage, k)), ..) => self.take_minded(s, stage, k),
            (None, Some(k), Some(_)) => {
                let lease = self.w.sessions[s as usize].leases.remove(k);
                let mut minded = self.make_minded(s, &lease, f64::INFINITY);
                minded.keep = self.cache_value(s, lease.plan)?;
                minded
            }
            (None, Some(k), None) => {
                self.end_lease(s, k)?;
                return self.offer(pool);
            }
            (None, None, _) => return Ok(()),
        };
        if by.is_none() {
            self.end_renewals(s, Some(pool));
        }
        match on {
            Some(stage) => {
                if let Some(duty) = self.duty(stage) {
                    duty.told.push((at, lease));
                }
                self.note_duty(stage);
                Ok(())
            }
            None => {
                self.end_minded(lease)?;
                self.offer(pool)
            }
        }
    }

    /// An idle engine has a reason to look.
    fn note_duty(&mut self, stage: u32) {
        if let crate::stage::Kind::Step(step) = &mut self.w.stages[stage as usize].kind {
            step.news += 1;
        }
        self.alert_stages.insert(stage);
    }

    /// What was leased is given back.
    pub(crate) fn end_minded(&mut self, lease: Minded) -> Result<()> {
        let now = self.w.now;
        if self.warm {
            self.w.pools[lease.pool as usize].stats.hold.add(now - lease.since);
        }
        self.tell_of(lease.serial, What::LeaseEnded { pool: lease.pool as usize });
        if lease.holder != NONE {
            self.close_holder(lease.pool, lease.holder, lease.fed);
            return Ok(());
        }
        let session = &self.w.sessions[lease.session as usize];
        if session.is_alive() && session.serial == lease.serial {
            let keep = self.cache_value(lease.session, lease.plan)?;
            self.give_back(lease.session, lease.pool, lease.alloc, lease.computed.min(keep));
        } else {
            self.give_back_of_nobody(lease.pool, lease.alloc, lease.computed.min(lease.keep));
        }
        Ok(())
    }

    /// An allocation whose session has ended: what stays cached can be used by nobody.
    fn give_back_of_nobody(&mut self, p: u32, alloc: f64, kept: f64) {
        let now = self.w.now;
        let pool = &mut self.w.pools[p as usize];
        pool.remove_holder(now);
        pool.free(now, alloc);
        let kept = pool.round_down(kept.min(alloc));
        if kept > 0.0 {
            self.releases += 1;
            if pool.cap == f64::INFINITY {
                pool.cache.add_anonymous(kept);
            } else {
                pool.cache.insert(Entry::new(kept, now, self.releases));
            }
            pool.note_cached(now);
        }
    }

    /// `abandon P`: only its bound ends the lease.
    pub(crate) fn abandon(&mut self, s: u32, pool: u32) -> Result<()> {
        self.end_renewals(s, Some(pool));
        let lease = if let Some((stage, at)) = self.minded(s, pool) {
            let lease = self.take_minded(s, stage, at);
            if let Some(duty) = self.duty(stage) {
                duty.leases.insert(at, lease);
            }
            lease
        } else if let Some(k) =
            self.w.sessions[s as usize].leases.iter().position(|l| l.pool == pool)
        {
            let lease = self.w.sessions[s as usize].leases.remove(k);
            let mut minded = self.make_minded(s, &lease, lease.until);
            minded.keep = self.cache_value(s, lease.plan)?;
            self.w.abandoned.push(minded);
            minded
        } else {
            return Ok(());
        };
        if lease.until == f64::INFINITY {
            return Err(Reason::new(
                "abandon",
                format!("a lease of pool `{}` without a bound is abandoned", {
                    self.c.pool_name(pool as usize)
                }),
                "nothing would end it: give the lease a time",
            ));
        }
        Ok(())
    }

    /// The bound of an abandoned lease that no engine minds; nothing if it is none of those.
    pub(crate) fn expire_abandoned(&mut self, id: u64) -> Result<()> {
        let Some(k) = self.w.abandoned.iter().position(|l| l.id == id) else { return Ok(()) };
        let lease = self.w.abandoned.remove(k);
        self.end_minded(lease)?;
        self.offer(lease.pool)
    }
}
