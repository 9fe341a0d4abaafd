//! Who may come in.
//!
//! A session waits in the queue of its hold's first pool. An attempt evaluates the head's units
//! and reserves at that moment; it fits if every pool can allocate, all of its cache evicted if
//! need be. The first head that does not fit blocks its queue.

use crate::engine::Engine;
use crate::error::{Reason, Result, Subject, amount, whole};
use crate::expr::{Env, NO_VARS};
use crate::pool::booking::State;
use crate::pool::cache::Entry;
use crate::pool::queue::{Keys, Who};
use crate::session::exec::not_a_number;
use crate::session::{Claim, Hold, Pending, Status};
use crate::stage::Kind;
use serq_lang::ir::Ctx;

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Nobody waits.
    Empty,
    /// The head does not fit.
    Blocked,
    Admitted,
    /// The head can never fit: its session ended.
    Rejected,
}

impl Engine<'_> {
    /// A session reaches a hold: it is rejected if that can never fit, else it waits.
    pub(crate) fn reach_hold(&mut self, s: u32, plan: u32) -> Result<()> {
        self.name_pools(s, plan)?;
        if let Some(pool) = self.measure(s, plan)? {
            return self.reject(s, pool);
        }
        self.enqueue(s, false)
    }

    /// Evaluates which pools a hold is on, into the session's pending claims.
    pub(crate) fn name_pools(&mut self, s: u32, plan: u32) -> Result<()> {
        let Engine { w, c, session_rng, .. } = self;
        let mut pending = std::mem::take(&mut w.sessions[s as usize].pending);
        pending.clear();
        for claim in &c.holds[plan as usize].claims {
            let rng = &mut session_rng[s as usize];
            let pool = c.code.resolve(claim.pool, w, &Env::session(w, s), rng)?;
            if pending.iter().any(|p: &Pending| p.pool == pool) {
                let name = c.pool_name(pool as usize);
                return Err(Reason::new(
                    "hold-twice",
                    format!("a hold names pool `{name}` twice"),
                    "claim the sum of the units once",
                ));
            }
            pending.push(Pending { pool, units: 0.0, need: 0.0 });
        }
        w.sessions[s as usize].pending = pending;
        Ok(())
    }

    /// Evaluates units and needs, in whole blocks, into the pending claims. Returns a pool whose
    /// cap they exceed.
    fn measure(&mut self, s: u32, plan: u32) -> Result<Option<u32>> {
        let Engine { w, c, session_rng, .. } = self;
        let rng = &mut session_rng[s as usize];
        let mut over = None;
        for (i, claim) in c.holds[plan as usize].claims.iter().enumerate() {
            let env = Env::session(w, s);
            let units = amount(c.code.eval(claim.units, w, &env, rng)?, "a hold's units")?;
            let reserve = match claim.reserve {
                Some(e) => amount(c.code.eval(e, w, &env, rng)?, "a hold's reserve")?,
                None => 0.0,
            };
            let at = w.sessions[s as usize].pending[i].pool;
            let integral = c.pools[at as usize].integral;
            let units = whole(units, integral, "a hold's units")?;
            let reserve = whole(reserve, integral, "a hold's reserve")?;
            let pool = &w.pools[at as usize];
            let (units, need) = (pool.round_up(units), pool.round_up(units.max(reserve)));
            if need > pool.cap {
                over.get_or_insert(at);
            }
            let pending = &mut w.sessions[s as usize].pending[i];
            pending.units = units;
            pending.need = need;
        }
        Ok(over)
    }

    /// Whether a session at the head of a stage's queue does not fit and would not later, as long
    /// as the stage has these tokens left and nothing is given back.
    pub(crate) fn stays_blocked(&mut self, s: u32, stage: u32, left: f64) -> Result<bool> {
        let plan = self.pending_plan(s);
        if !self.c.holds[plan as usize].frozen {
            return Ok(false);
        }
        self.w.attempt = Some((stage, left));
        let over = self.measure(s, plan);
        self.w.attempt = None;
        let w = &self.w;
        let fits = |c: &Pending| w.pools[c.pool as usize].fits(c.need);
        // A mistake is reported by the attempt itself.
        Ok(matches!(over, Ok(None)) && !w.sessions[s as usize].pending.iter().all(fits))
    }

    pub(crate) fn reject(&mut self, s: u32, pool: u32) -> Result<()> {
        self.w.pools[pool as usize].stats.rejected += 1;
        self.requests.reject(s);
        self.end_session(s)
    }

    /// Joins the queue of the first pending pool; at its front after a preemption.
    pub(crate) fn enqueue(&mut self, s: u32, front: bool) -> Result<()> {
        let now = self.w.now;
        let Some(first) = self.w.sessions[s as usize].pending.first() else { return Ok(()) };
        let p = first.pool;
        let plan = &self.c.pools[p as usize];
        let keys = if front || plan.queue.is_empty() || plan.live {
            None
        } else {
            Some(Keys::new(&self.queue_keys(Who::Session(s), p)?))
        };
        let session = &mut self.w.sessions[s as usize];
        session.status = Status::Queued { pool: p };
        session.queued_at = now;
        let pool = &mut self.w.pools[p as usize];
        match (front, keys) {
            (true, _) => pool.queue.rejoin(Who::Session(s)),
            (false, Some(keys)) => pool.queue.join_by(Who::Session(s), keys),
            (false, None) => pool.queue.join(Who::Session(s)),
        }
        pool.note_queue(now);
        if !front {
            self.note_news(p);
        }
        Ok(())
    }

    /// The keys of a pool's queue for a session, as they are now.
    pub(crate) fn queue_keys(&mut self, who: Who, p: u32) -> Result<Vec<f64>> {
        let s = who.session();
        let Engine { w, c, session_rng, .. } = self;
        let mut vars = NO_VARS;
        let session = &w.sessions[s as usize];
        let since = match who {
            Who::Session(_) => session.queued_at,
            Who::Booking(_) => session.booking(p).map_or(w.now, |k| session.bookings[k].queued_at),
        };
        vars[Ctx::Waited as usize] = w.now - since;
        let env = Env { vars: &vars, ..Env::session(w, s) };
        let rng = &mut session_rng[s as usize];
        let mut keys = Vec::with_capacity(c.pools[p as usize].queue.len());
        for &e in &c.pools[p as usize].queue {
            let key = c.code.eval(e, w, &env, rng).map_err(|r| r.about(Subject::Pool(p)).of(s))?;
            if key.is_nan() {
                return Err(Reason::new(
                    "key",
                    "a queue key is not a number".into(),
                    "check the expression for a division by zero",
                )
                .about(Subject::Pool(p))
                .of(s));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    /// Who is next in a queue: its head, or, by live keys, whose are smallest now.
    fn select(&mut self, p: u32) -> Result<Option<Who>> {
        let queue = &self.w.pools[p as usize].queue;
        if !self.c.pools[p as usize].live || queue.head_is_back() || queue.len() < 2 {
            return Ok(queue.head());
        }
        let waiting: Vec<Who> = queue.iter().collect();
        let mut best: Option<(Vec<f64>, Who)> = None;
        for who in waiting {
            let keys = self.queue_keys(who, p)?;
            if best.as_ref().is_none_or(|(least, _)| keys < *least) {
                best = Some((keys, who));
            }
        }
        Ok(best.map(|(_, who)| who))
    }

    /// Somebody new waits: whoever admits from this queue has a reason to try.
    pub(crate) fn note_news(&mut self, p: u32) {
        match self.c.pools[p as usize].admit_via {
            None => self.plain_news += 1,
            Some(stage) => {
                if let Kind::Step(step) = &mut self.w.stages[stage as usize].kind {
                    step.news += 1;
                }
            }
        }
    }

    /// Admits from a pool's queue until its head does not fit.
    pub(crate) fn admit_all(&mut self, p: u32) -> Result<()> {
        loop {
            match self.admit_head(p, None)? {
                Attempt::Empty | Attempt::Blocked => return Ok(()),
                Attempt::Admitted | Attempt::Rejected => {}
            }
        }
    }

    /// One admission from the queues a step stage serves: the first that is not empty decides.
    pub(crate) fn admit_for(&mut self, stage: u32) -> Result<Attempt> {
        let queues = self.w.plans[stage as usize].as_ref().map_or(0, |p| p.queues.len());
        for k in 0..queues {
            let Some(p) = self.w.plans[stage as usize].as_ref().map(|plan| plan.queues[k]) else {
                break;
            };
            match self.admit_head(p, Some(stage))? {
                Attempt::Empty => {}
                other => return Ok(other),
            }
        }
        Ok(Attempt::Empty)
    }

    /// Tries the head of a queue, for the scheduler of a stage if one serves it.
    fn admit_head(&mut self, p: u32, stage: Option<u32>) -> Result<Attempt> {
        let s = match self.select(p)? {
            None => return Ok(Attempt::Empty),
            Some(Who::Booking(s)) => return self.grant(p, s),
            Some(Who::Session(s)) => s,
        };
        let pc = self.w.sessions[s as usize].pc;
        self.w.attempt = stage.map(|stage| (stage, self.budget_of(stage)));
        let outcome = self.attempt(p, s);
        self.w.attempt = None;
        outcome.map_err(|r| r.about(Subject::Op(pc)).of(s))
    }

    fn budget_of(&self, stage: u32) -> f64 {
        match &self.w.stages[stage as usize].kind {
            Kind::Step(step) => step.left(),
            _ => 0.0,
        }
    }

    fn attempt(&mut self, p: u32, s: u32) -> Result<Attempt> {
        let plan = self.pending_plan(s);
        let over = self.measure(s, plan)?;
        if let Some(pool) = over {
            self.leave_queue(p, Who::Session(s));
            self.reject(s, pool)?;
            return Ok(Attempt::Rejected);
        }
        let w = &self.w;
        let fits = |c: &Pending| w.pools[c.pool as usize].fits(c.need);
        if !w.sessions[s as usize].pending.iter().all(fits) {
            return Ok(Attempt::Blocked);
        }
        let reuse = match self.c.holds[plan as usize].reuse {
            Some(e) => {
                let reuse = amount(self.value(s, e)?, "the prefix to reuse")?;
                Some(whole(reuse, self.c.holds[plan as usize].integral, "the prefix to reuse")?)
            }
            None => None,
        };
        for (slot, e) in &self.c.holds[plan as usize].binds {
            let value = self.value(s, *e)?;
            if value.is_nan() {
                return Err(not_a_number(&self.c.ir.attrs[*slot as usize]));
            }
            *self.w.attr_mut(s, *slot) = value;
        }
        self.leave_queue(p, Who::Session(s));
        self.admit(s, plan, reuse)?;
        Ok(Attempt::Admitted)
    }

    pub(crate) fn leave_queue(&mut self, p: u32, who: Who) {
        let now = self.w.now;
        let pool = &mut self.w.pools[p as usize];
        pool.queue.remove(who);
        pool.note_queue(now);
    }

    /// The plan of the hold a queued session waits for.
    pub(crate) fn pending_plan(&self, s: u32) -> u32 {
        match self.c.ops[self.w.sessions[s as usize].pc as usize] {
            crate::program::Op::Hold(plan) | crate::program::Op::Enter(plan) => plan,
            _ => 0,
        }
    }

    fn admit(&mut self, s: u32, plan: u32, reuse: Option<f64>) -> Result<()> {
        let now = self.w.now;
        self.admissions += 1;
        let record = self.admissions;
        let pending = std::mem::take(&mut self.w.sessions[s as usize].pending);
        let first = self.w.sessions[s as usize].claims.len() as u32;
        let mut cached = 0.0f64;
        for (i, claim) in pending.iter().enumerate() {
            let p = claim.pool;
            let position = self.consume(s, p, reuse);
            cached = cached.max(position);
            self.make_room(p, claim.units)?;
            let pool = &mut self.w.pools[p as usize];
            pool.add_holder(now);
            pool.allocate(now, claim.units);
            pool.order.extend(self.c.pools[p as usize].keeps_order().then_some((record, s)));
            pool.stats.admissions += 1;
            let session = &mut self.w.sessions[s as usize];
            if i == 0 && self.warm {
                pool.stats.wait.add(now - session.queued_at);
            }
            session.claims.push(Claim {
                pool: p,
                alloc: claim.units,
                position,
                record,
                since: now,
                active: true,
            });
        }
        let slot = self.c.slots.cached as u32;
        *self.w.attr_mut(s, slot) = cached;
        let session = &mut self.w.sessions[s as usize];
        session.pending = pending;
        session.holds.push(Hold { plan, pc: session.pc, first, touched: false });
        session.admission = record;
        session.pc += 1;
        if self.c.holds[plan as usize].booked.is_some() {
            let first = session.claims[first as usize].pool;
            if let Some(k) = session.booking(first) {
                session.bookings[k].state = State::Opened;
            }
        }
        self.wake(s)
    }

    /// Takes the session's own prefix out of the cache; what may not be reused of it stays, dead.
    /// Returns the units reused.
    pub(crate) fn consume(&mut self, s: u32, p: u32, reuse: Option<f64>) -> f64 {
        let now = self.w.now;
        let Some(at) = self.w.sessions[s as usize].own_entry(p) else { return 0.0 };
        self.w.sessions[s as usize].forget_entry(p);
        let snapshot = self.snapshot(s);
        let pool = &mut self.w.pools[p as usize];
        let own = pool.cache.remove(at);
        let taken = reuse.map_or(own.size, |r| own.size.min(pool.round_down(r)));
        if own.size > taken && pool.cap == f64::INFINITY {
            pool.cache.add_anonymous(own.size - taken);
        } else if own.size > taken {
            let mut dead = Entry::new(own.size - taken, own.last, own.release);
            dead.attrs = snapshot;
            pool.cache.insert(dead);
        }
        pool.note_cached(now);
        taken
    }
}
