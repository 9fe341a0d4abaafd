//! Who may come in.
//!
//! A session waits in the queue of its hold's first pool. An attempt evaluates the head's units
//! and reserves at that moment; it fits if every pool can allocate, all of its cache evicted if
//! need be, and the hold's condition, if it has one, is met. The first head that does not fit blocks
//! its queue.

use crate::engine::Engine;
use crate::error::{Reason, Result, Subject, amount, whole};
use crate::expr::{Env, NO_VARS};
use crate::pool::queue::{Keys, Who};
use crate::session::exec::not_a_number;
use crate::session::{Hold, Pending, Status};
use crate::stage::Kind;
use crate::world::Attempt as Admitting;
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

/// Where a session stands in a queue that it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Ahead of everybody: it was preempted.
    Front,
    /// By the queue's keys, though it was preempted.
    Back,
    /// By the queue's keys, as who comes the first time.
    New,
}

impl Engine<'_> {
    /// A session reaches a hold: it is rejected if that can never fit, else it waits. One that it has
    /// booked it enters.
    pub(crate) fn reach_hold(&mut self, s: u32, plan: u32) -> Result<()> {
        if self.c.holds[plan as usize].booked.is_some() && !self.forgone(s, plan) {
            return self.enter(s, plan);
        }
        self.name_pools(s, plan)?;
        let mut pending = std::mem::take(&mut self.w.sessions[s as usize].pending);
        let over = self.measure(s, plan, &mut pending);
        self.w.sessions[s as usize].pending = pending;
        self.w.hits.clear();
        if let Some(pool) = over? {
            return self.reject(s, pool);
        }
        self.enqueue(s, Place::New)
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

    /// Looks up what the session finds in shared pools, then evaluates units and needs, in whole blocks.
    /// Returns a pool whose cap they exceed.
    pub(crate) fn measure(
        &mut self,
        s: u32,
        plan: u32,
        pending: &mut [Pending],
    ) -> Result<Option<u32>> {
        if self.c.holds[plan as usize].shares {
            self.look_up(s, plan, pending)?;
        }
        let Engine { w, c, session_rng, .. } = self;
        let rng = &mut session_rng[s as usize];
        let mut over = None;
        for (claim, pending) in c.holds[plan as usize].claims.iter().zip(pending) {
            let env = Env::session(w, s);
            let units = amount(c.code.eval(claim.units, w, &env, rng)?, "a hold's units")?;
            let reserve = match claim.reserve {
                Some(e) => amount(c.code.eval(e, w, &env, rng)?, "a hold's reserve")?,
                None => 0.0,
            };
            let at = pending.pool;
            let integral = c.pools[at as usize].integral;
            let units = whole(units, integral, "a hold's units")?;
            let reserve = whole(reserve, integral, "a hold's reserve")?;
            let pool = &w.pools[at as usize];
            let (units, need) = (pool.round_up(units), pool.round_up(units.max(reserve)));
            if need > pool.cap {
                over.get_or_insert(at);
            }
            pending.units = units;
            pending.need = need;
        }
        Ok(over)
    }

    /// What a session would find in the shared pools of a hold, for the attempt under way.
    fn look_up(&mut self, s: u32, plan: u32, pending: &[Pending]) -> Result<()> {
        let reuse = self.reuse(s, plan)?.unwrap_or(f64::INFINITY);
        let w = &mut self.w;
        w.hits.clear();
        for claim in pending {
            if let Some(shared) = &w.pools[claim.pool as usize].shared {
                let hit = shared.hit(&w.sessions[s as usize].chain, reuse);
                w.hits.push((claim.pool, hit));
            }
        }
        Ok(())
    }

    /// How much of a cached prefix a hold may use; `None` for all of it.
    fn reuse(&mut self, s: u32, plan: u32) -> Result<Option<f64>> {
        let Some(e) = self.c.holds[plan as usize].reuse else { return Ok(None) };
        let reuse = amount(self.value(s, e)?, "the prefix to reuse")?;
        whole(reuse, self.c.holds[plan as usize].integral, "the prefix to reuse").map(Some)
    }

    /// Whether every pool has what is asked for, all of its cache evicted if need be.
    fn all_fit(&self, pending: &[Pending]) -> bool {
        let w = &self.w;
        pending.iter().all(|c| {
            let pool = &w.pools[c.pool as usize];
            match (&pool.shared, w.hits.iter().find(|(p, _)| *p == c.pool)) {
                (Some(shared), Some((_, hit))) => shared.needed(hit, c.need) <= shared.free(),
                _ => pool.fits(c.need),
            }
        })
    }

    /// Whether a session at the head of a stage's queue does not fit and would not later, as long
    /// as the stage has these tokens left and nothing is given back. What an attempt would have measured
    /// is then in [`Engine::measured`].
    pub(crate) fn stays_blocked(&mut self, s: u32, stage: u32, left: f64) -> bool {
        let plan = self.pending_plan(s);
        if !self.c.holds[plan as usize].frozen {
            return false;
        }
        let chunk = match &self.w.stages[stage as usize].kind {
            Kind::Step(step) => step.left().1,
            _ => 0.0,
        };
        self.w.attempt = Some(Admitting { stage, left, chunk });
        let mut measured = std::mem::take(&mut self.measured);
        measured.clone_from(&self.w.sessions[s as usize].pending);
        let over = self.measure(s, plan, &mut measured);
        let fits = self.all_fit(&measured);
        self.measured = measured;
        self.w.attempt = None;
        // A mistake is reported by the attempt itself.
        matches!(over, Ok(None)) && !fits
    }

    pub(crate) fn reject(&mut self, s: u32, pool: u32) -> Result<()> {
        self.w.pools[pool as usize].stats.rejected += 1;
        self.requests.reject(s);
        self.end_session(s)
    }

    /// Joins the queue of the first pending pool.
    pub(crate) fn enqueue(&mut self, s: u32, place: Place) -> Result<()> {
        let now = self.w.now;
        let Some(first) = self.w.sessions[s as usize].pending.first() else { return Ok(()) };
        let p = first.pool;
        let plan = &self.c.pools[p as usize];
        let front = place == Place::Front;
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
        self.alert_queue(p);
        if place == Place::New {
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
        let Some(who) = self.select(p)? else { return Ok(Attempt::Empty) };
        let s = who.session();
        let pc = self.w.sessions[s as usize].pc;
        self.w.attempt = stage.map(|stage| self.admitting(stage));
        let outcome = self.attempt(p, who);
        self.w.attempt = None;
        self.w.hits.clear();
        outcome.map_err(|r| r.about(Subject::Op(pc)).of(s))
    }

    fn admitting(&self, stage: u32) -> Admitting {
        let (left, chunk) = match &self.w.stages[stage as usize].kind {
            Kind::Step(step) => step.left(),
            _ => (0.0, 0.0),
        };
        Admitting { stage, left, chunk }
    }

    fn attempt(&mut self, p: u32, who: Who) -> Result<Attempt> {
        let s = who.session();
        let (plan, booking) = match who {
            Who::Session(_) => (self.pending_plan(s), None),
            Who::Booking(_) => {
                let Some(k) = self.w.sessions[s as usize].booking(p) else {
                    return Ok(Attempt::Empty);
                };
                (self.w.sessions[s as usize].bookings[k].plan, Some(k))
            }
        };
        let session = &mut self.w.sessions[s as usize];
        let mut pending = match booking {
            Some(k) => std::mem::take(&mut session.bookings[k].claims),
            None => std::mem::take(&mut session.pending),
        };
        let over = self.measure(s, plan, &mut pending);
        let fits = self.all_fit(&pending);
        let session = &mut self.w.sessions[s as usize];
        match booking {
            Some(k) => session.bookings[k].claims = pending,
            None => session.pending = pending,
        }
        if let Some(pool) = over? {
            if booking.is_none() {
                self.leave_queue(p, who);
            }
            self.reject(s, pool)?;
            return Ok(Attempt::Rejected);
        }
        if !fits {
            return Ok(Attempt::Blocked);
        }
        let reuse = self.reuse(s, plan)?;
        if let Some(when) = self.c.holds[plan as usize].when {
            let when = self.value(s, when)?;
            if when.is_nan() {
                return Err(Reason::new(
                    "when",
                    "the condition of a hold is not a number".into(),
                    "check the expression for a division by zero",
                ));
            }
            if when == 0.0 {
                return Ok(Attempt::Blocked);
            }
        }
        match booking {
            None => {
                self.bind(s, plan)?;
                self.leave_queue(p, who);
                self.admit(s, plan, reuse)?;
            }
            Some(k) => {
                // The session is elsewhere: what the grant sets waits until it comes to the hold.
                let binds = &self.c.holds[plan as usize].binds;
                let before: Vec<f64> = binds.iter().map(|b| *self.w.attr_mut(s, b.0)).collect();
                self.bind(s, plan)?;
                let mut bound = Vec::with_capacity(before.len());
                for (bind, before) in binds.iter().zip(before) {
                    bound.push(std::mem::replace(self.w.attr_mut(s, bind.0), before));
                }
                self.w.sessions[s as usize].bookings[k].binds = bound;
                self.leave_queue(p, who);
                self.grant(s, plan, reuse)?;
            }
        }
        Ok(Attempt::Admitted)
    }

    /// Sets the attributes of a hold's bindings, in order.
    fn bind(&mut self, s: u32, plan: u32) -> Result<()> {
        for (slot, e) in &self.c.holds[plan as usize].binds {
            let value = self.value(s, *e)?;
            if value.is_nan() {
                return Err(not_a_number(&self.c.ir.attrs[*slot as usize]));
            }
            *self.w.attr_mut(s, *slot) = value;
        }
        Ok(())
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
            crate::program::Op::Hold(plan) => plan,
            _ => 0,
        }
    }

    fn admit(&mut self, s: u32, plan: u32, reuse: Option<f64>) -> Result<()> {
        self.admissions += 1;
        let record = self.admissions;
        let pending = std::mem::take(&mut self.w.sessions[s as usize].pending);
        let first = self.w.sessions[s as usize].claims.len() as u32;
        let mut cached = 0.0f64;
        for (i, claim) in pending.iter().enumerate() {
            let p = claim.pool;
            let waited = (i == 0).then(|| self.w.now - self.w.sessions[s as usize].queued_at);
            let claim = self.claim(s, claim, reuse, record, waited)?;
            cached = cached.max(claim.position);
            let keeps = self.c.pools[p as usize].keeps_order();
            self.w.pools[p as usize].order.extend(keeps.then_some((record, s)));
            self.w.sessions[s as usize].claims.push(claim);
        }
        let slot = self.c.slots.cached as u32;
        *self.w.attr_mut(s, slot) = cached;
        let session = &mut self.w.sessions[s as usize];
        session.pending = pending;
        session.holds.push(Hold {
            plan,
            pc: session.pc,
            first,
            touched: false,
            frames: session.frames.len() as u32,
        });
        session.admission = record;
        session.pc += 1;
        self.wake(s)
    }
}
