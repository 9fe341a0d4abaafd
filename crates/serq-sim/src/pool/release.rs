//! Giving allocations back: at the end of a scope, by `release`, and when a lease ends.

use crate::What;
use crate::engine::Engine;
use crate::error::{EPS, Reason, Result, Subject, amount, amount_or_inf, whole};
use crate::event::Event;
use crate::pool::cache::Entry;
use crate::pool::shared::NONE;
use crate::session::{Fed, Lease};
use crate::stage::duty::Telling;

impl Engine<'_> {
    /// The innermost hold of a session ends where its scope does. Room it gave back is offered at
    /// once.
    pub(crate) fn end_hold(&mut self, s: u32) -> Result<()> {
        let Some(hold) = self.w.sessions[s as usize].holds.last().copied() else { return Ok(()) };
        let c = self.c;
        let plan = &c.holds[hold.plan as usize];
        let keep = self.cache_value(s, hold.plan)?;
        let lease = match plan.lease {
            Some((claim, time)) => {
                let time = amount_or_inf(self.value(s, time)?, "the time of a lease")?;
                let on = match plan.lease_on {
                    Some(stage) => Some(self.pool_of(s, stage)?),
                    None => None,
                };
                Some((hold.first + claim, time, on))
            }
            None => None,
        };
        let first = hold.first as usize;
        let count = self.w.sessions[s as usize].claims.len();
        for k in first..count {
            let claim = self.w.sessions[s as usize].claims[k];
            if !claim.active {
                continue;
            }
            match lease {
                Some((leased, time, on)) if leased as usize == k => self.lease(s, k, time, on),
                _ => self.release_claim(s, k, keep),
            }
        }
        let pools: Vec<u32> =
            self.w.sessions[s as usize].claims[first..].iter().map(|c| c.pool).collect();
        let computed = self.c.slots.computed as u32;
        *self.w.attr_mut(s, computed) = 0.0;
        let session = &mut self.w.sessions[s as usize];
        session.preempted.retain(|(p, _)| !pools.contains(p));
        session.claims.truncate(first);
        session.holds.pop();
        let depth = session.holds.len();
        session.bookings.iter_mut().for_each(|b| b.depth = b.depth.min(depth));
        session.pc += 1;
        for p in pools {
            self.offer(p)?;
        }
        Ok(())
    }

    /// What the cache clause of a hold says now; 0 without one.
    pub(crate) fn cache_value(&mut self, s: u32, plan: u32) -> Result<f64> {
        match self.c.holds[plan as usize].cache {
            Some(e) => {
                let keep = amount_or_inf(self.value(s, e)?, "the prefix to cache")?;
                whole(keep, self.c.holds[plan as usize].integral, "the prefix to cache")
            }
            None => Ok(0.0),
        }
    }

    /// Frees a claim of a session; what was computed stays cached up to `keep`.
    pub(crate) fn release_claim(&mut self, s: u32, claim: usize, keep: f64) {
        let now = self.w.now;
        let session = &mut self.w.sessions[s as usize];
        let hold = session.holds[session.hold_of(claim)];
        let c = &mut session.claims[claim];
        c.active = false;
        let c = *c;
        let computed = if hold.touched { c.position } else { c.alloc };
        let pool = &mut self.w.pools[c.pool as usize];
        pool.order.remove(&c.record);
        if self.warm {
            pool.stats.hold.add(now - c.since);
        }
        if c.holder == NONE {
            self.give_back(s, c.pool, c.alloc, computed.min(keep));
        } else {
            self.close_holder(c.pool, c.holder, c.fed);
        }
    }

    /// Blocks of a shared pool are given back, last computed in iteration `fed`. Those that an iteration
    /// under way may still write are free later.
    pub(crate) fn close_holder(&mut self, p: u32, holder: u32, fed: Fed) {
        let now = self.w.now;
        self.w.pools[p as usize].remove_holder(now);
        if self.is_written(fed)
            && let Some(duty) = self.duty(fed.stage)
        {
            let latest = duty.latest;
            duty.deferred.push((latest, p, holder));
            return;
        }
        let pool = &mut self.w.pools[p as usize];
        if let Some(shared) = &mut pool.shared {
            shared.close(holder);
        }
        pool.note_shared(now);
    }

    /// Allocation to cache: `kept` units at most stay as the session's prefix.
    pub(crate) fn give_back(&mut self, s: u32, p: u32, alloc: f64, kept: f64) {
        let now = self.w.now;
        let pool = &mut self.w.pools[p as usize];
        pool.remove_holder(now);
        pool.free(now, alloc);
        let kept = pool.round_down(kept.min(alloc));
        if kept <= 0.0 {
            return;
        }
        self.releases += 1;
        let session = &mut self.w.sessions[s as usize];
        if let Some(old) = session.own_entry(p) {
            // One prefix per session and pool: the new one counts, the old one is dead.
            session.forget_entry(p);
            if pool.cap == f64::INFINITY {
                let entry = pool.cache.remove(old);
                pool.cache.add_anonymous(entry.size);
            } else {
                let entry = pool.cache.get_mut(old);
                entry.owner = None;
                entry.serial = None;
                if self.c.snapshots {
                    let from = s as usize * self.w.width;
                    entry.attrs = self.w.attrs[from..from + self.w.width].into();
                }
            }
        }
        let mut entry = Entry::new(kept, now, self.releases);
        entry.owner = Some(s);
        entry.serial = Some(session.serial);
        let at = pool.cache.insert(entry);
        pool.note_cached(now);
        session.cached.push((p, at));
    }

    /// A claim becomes a lease, which an engine may mind.
    fn lease(&mut self, s: u32, claim: usize, time: f64, on: Option<u32>) {
        let now = self.w.now;
        self.leases += 1;
        let id = self.leases;
        let session = &mut self.w.sessions[s as usize];
        let hold = session.holds[session.hold_of(claim)];
        let c = &mut session.claims[claim];
        c.active = false;
        let computed = if hold.touched { c.position } else { c.alloc };
        let lease = Lease {
            id,
            pool: c.pool,
            alloc: c.alloc,
            computed,
            plan: hold.plan,
            since: c.since,
            until: now + time,
            holder: c.holder,
            fed: c.fed,
        };
        self.w.pools[lease.pool as usize].order.remove(&c.record);
        self.tell(s, What::LeaseGranted { pool: lease.pool as usize });
        if let Some(stage) = on {
            self.mind(s, &lease, stage, lease.until);
            return;
        }
        self.w.sessions[s as usize].leases.push(lease);
        if time < f64::INFINITY {
            self.schedule(now + time, Event::LeaseEnd { session: s, lease: id });
        }
    }

    /// `release P`: the innermost hold's allocation there, else the oldest lease, which ends at once even
    /// if an engine minds it; else nothing.
    pub(crate) fn release(&mut self, s: u32, p: u32) -> Result<()> {
        let session = &self.w.sessions[s as usize];
        if let Some(claim) = session.claim_on(p) {
            let plan = session.holds[session.hold_of(claim)].plan;
            let keep = self.cache_value(s, plan)?;
            self.release_claim(s, claim, keep);
        } else if session.leases.iter().any(|l| l.pool == p) || self.minded(s, p).is_some() {
            return self.tell_lease(s, Telling { pool: p, on: None, after: 0.0 }, None);
        } else {
            return Ok(());
        }
        self.offer(p)
    }

    /// A lease's allocation is given back, cached by its hold's clause as it evaluates now.
    pub(crate) fn end_lease(&mut self, s: u32, k: usize) -> Result<()> {
        let lease = self.w.sessions[s as usize].leases[k];
        let keep = self.cache_value(s, lease.plan)?;
        self.w.sessions[s as usize].leases.remove(k);
        self.tell(s, What::LeaseEnded { pool: lease.pool as usize });
        if self.warm {
            let now = self.w.now;
            self.w.pools[lease.pool as usize].stats.hold.add(now - lease.since);
        }
        if lease.holder == NONE {
            self.give_back(s, lease.pool, lease.alloc, lease.computed.min(keep));
        } else {
            self.close_holder(lease.pool, lease.holder, lease.fed);
        }
        Ok(())
    }

    /// A lease reached its bound; nothing if it ended before.
    pub(crate) fn expire(&mut self, s: u32, lease: u64) -> Result<()> {
        let session = &self.w.sessions[s as usize];
        let Some(k) = session.leases.iter().position(|l| l.id == lease) else {
            return self.expire_abandoned(lease);
        };
        let pool = session.leases[k].pool;
        self.end_lease(s, k).map_err(|r| r.of(s).about(Subject::Pool(pool)))?;
        self.offer(pool)
    }

    /// `load P (n)`: computed units arrived.
    pub(crate) fn load(&mut self, s: u32, p: u32, n: f64) -> Result<()> {
        let n = amount(n, "the units loaded")?;
        let n = whole(n, self.c.pools[p as usize].integral, "the units loaded")?;
        let c = self.c;
        let session = &mut self.w.sessions[s as usize];
        let Some(k) = session.claim_on(p) else {
            return Err(no_hold("load", &c.pool_name(p as usize)));
        };
        let hold = session.hold_of(k);
        session.holds[hold].touched = true;
        let claim = &mut session.claims[k];
        claim.position += n;
        if claim.position > claim.alloc + EPS {
            return Err(Reason::new(
                "load-beyond",
                format!(
                    "loading {n} units brings pool `{}` to {} computed of {} allocated",
                    c.pool_name(p as usize),
                    claim.position,
                    claim.alloc
                ),
                "allocate more in the hold, or `grow` before",
            ));
        }
        claim.decided = claim.decided.max(claim.position);
        let position = claim.position;
        self.register(s, k as u32, position);
        Ok(())
    }

    /// Room in a pool is offered: to growths that wait, then to its queue unless a stage serves it.
    pub(crate) fn offer(&mut self, p: u32) -> Result<()> {
        self.retry_growers(p)?;
        if self.c.pools[p as usize].admit_via.is_none() { self.admit_all(p) } else { Ok(()) }
    }
}

/// The statement acts on a hold that is not there (any more).
pub(crate) fn no_hold(what: &str, pool: &str) -> Box<Reason> {
    Reason::new(
        "no-hold",
        format!("`{what}` of pool `{pool}`, of which the session has no hold"),
        "the hold released it before, or its index now names another member",
    )
}
