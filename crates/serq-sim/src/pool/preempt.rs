//! Taking an allocation away.
//!
//! The victim of `lifo` on an engine's memory is the resident admitted last, by its session's
//! latest admission of any hold: that is the end of the engine's running list, where a request
//! that waits elsewhere, or left its blocks leased, does not stand. On any other pool it is the
//! last holder. With keys it is, of the same, the one with the greatest. Leases and bookings are never
//! taken.

use crate::What;
use crate::engine::Engine;
use crate::error::{EPS, Reason, Result, Subject};
use crate::expr::{Env, NO_VARS};
use crate::pool::admission::Place;
use crate::pool::queue::Who;
use crate::session::{Fed, Status};
use crate::stage::Kind;
use serq_lang::ir::Ctx;

impl Engine<'_> {
    /// Session and claim that give way in a pool.
    pub(crate) fn victim(&mut self, p: u32) -> Result<Option<(u32, u32)>> {
        let plan = &self.c.pools[p as usize];
        if !plan.lifo {
            return Ok(None);
        }
        if plan.victims.is_empty() { Ok(self.last_holder(p)) } else { self.greatest_holder(p) }
    }

    fn last_holder(&self, p: u32) -> Option<(u32, u32)> {
        let plan = &self.c.pools[p as usize];
        if plan.memory_of.is_empty() {
            let (_, &s) = self.w.pools[p as usize].order.last_key_value()?;
            let claim = self.w.sessions[s as usize].claim_on(p)?;
            return Some((s, claim as u32));
        }
        let mut last: Option<(u64, u32, u32)> = None;
        for &stage in &plan.memory_of {
            let Kind::Step(step) = &self.w.stages[stage as usize].kind else { continue };
            let found = step.residents.iter().rev().find_map(|j| {
                let job = &self.w.jobs[*j as usize];
                let s = job.session?;
                let claim = self.w.sessions[s as usize].claim_on(p)?;
                Some((job.admission, s, claim as u32))
            });
            last = last.max(found);
        }
        last.map(|(_, s, claim)| (s, claim))
    }

    /// Session and claim with the greatest keys; of equals the later admission.
    fn greatest_holder(&mut self, p: u32) -> Result<Option<(u32, u32)>> {
        let c = self.c;
        let plan = &c.pools[p as usize];
        let mut holders: Vec<(u64, u32, bool)> = Vec::new();
        if plan.memory_of.is_empty() {
            let order = self.w.pools[p as usize].order.iter();
            holders.extend(order.map(|(record, s)| (*record, *s, false)));
        }
        for &stage in &plan.memory_of {
            let Kind::Step(step) = &self.w.stages[stage as usize].kind else { continue };
            for &id in &step.residents {
                let job = &self.w.jobs[id as usize];
                holders.extend(job.session.map(|s| (job.admission, s, job.decodes())));
            }
        }
        let mut best: Option<(Vec<f64>, u64, u32, u32)> = None;
        for (admission, s, decodes) in holders {
            let Some(claim) = self.w.sessions[s as usize].claim_on(p) else { continue };
            let mut keys = Vec::with_capacity(plan.victims.len());
            for &key in &plan.victims {
                keys.push(self.judge(p, s, (admission, decodes), key)?);
            }
            let greater =
                best.as_ref().is_none_or(|(most, last, ..)| match keys.partial_cmp(most) {
                    Some(std::cmp::Ordering::Equal) | None => admission > *last,
                    Some(order) => order.is_gt(),
                });
            if greater {
                best = Some((keys, admission, s, claim as u32));
            }
        }
        Ok(best.map(|(.., s, claim)| (s, claim)))
    }

    /// A key or clause of a pool's preemption, for one holder.
    fn judge(
        &mut self,
        p: u32,
        s: u32,
        (admission, decodes): (u64, bool),
        e: crate::expr::Expr,
    ) -> Result<f64> {
        let mut vars = NO_VARS;
        vars[Ctx::Admission as usize] = admission as f64;
        vars[Ctx::Decoding as usize] = f64::from(decodes);
        let Engine { w, c, session_rng, .. } = self;
        let env = Env { vars: &vars, ..Env::session(w, s) };
        let value = c.code.eval(e, w, &env, &mut session_rng[s as usize]);
        let value = value.map_err(|r| r.about(Subject::Pool(p)).of(s))?;
        if value.is_nan() {
            return Err(Reason::new(
                "key",
                "a preemption key is not a number".into(),
                "check the expression for a division by zero",
            )
            .about(Subject::Pool(p))
            .of(s));
        }
        Ok(value)
    }

    /// Whether an iteration under way may still write to a claim that is not to be taken before.
    pub(crate) fn is_fenced(&self, s: u32, claim: u32) -> bool {
        self.is_written(self.w.sessions[s as usize].claims[claim as usize].fed)
    }

    /// Whether blocks that an iteration of a fenced engine computed in last may still be written.
    pub(crate) fn is_written(&self, fed: Fed) -> bool {
        if fed.number == 0 {
            return false;
        }
        let fenced = self.w.plans[fed.stage as usize].as_ref().is_some_and(|plan| plan.fenced);
        match &self.w.stages[fed.stage as usize].kind {
            Kind::Step(step) => fenced && fed.number > step.duty.delivered,
            _ => false,
        }
    }

    /// Unwinds a session's hold that owns `claim`, and every hold inside it, and puts the session
    /// at the front of that hold's queue: it will do the hold's body again from the start.
    pub(crate) fn preempt(&mut self, s: u32, claim: u32) -> Result<()> {
        let session = &self.w.sessions[s as usize];
        let c = session.claims[claim as usize];
        let at = session.hold_of(claim as usize);
        let hold = session.holds[at];
        let job = match session.status {
            Status::Working { job } => Some(job),
            _ => None,
        };
        let serial = session.serial;
        let front = match self.c.pools[c.pool as usize].requeue {
            Some(e) => {
                let decodes = job.is_some_and(|job| self.w.jobs[job as usize].decodes());
                let admission = self.w.sessions[s as usize].admission;
                self.judge(c.pool, s, (admission, decodes), e)? == 0.0
            }
            None => true,
        };
        self.detach(s);
        // Tokens under way are still the session's, except where blocks are to be handed over.
        if let Some(job) = job
            && self.c.holds[hold.plan as usize].lease.is_none()
            && self.w.jobs[job as usize].flying > 0.0
        {
            self.w.jobs[job as usize].ghost = Some(serial);
        }
        let c = self.w.sessions[s as usize].claims[claim as usize];
        let position = if hold.touched { c.position } else { 0.0 };
        self.tell(s, What::Preempted { pool: c.pool as usize });
        self.note_stuck(s, c.pool, position);
        *self.w.attr_mut(s, self.c.slots.computed as u32) = position;
        self.unwind(s, at)?;
        self.w.sessions[s as usize].pc = hold.pc;
        self.w.pools[c.pool as usize].stats.preemptions += 1;
        self.preemptions += 1;
        self.leave_frames(s, hold.frames);
        self.name_pools(s, hold.plan).map_err(|r| r.about(Subject::Op(hold.pc)).of(s))?;
        self.enqueue(s, if front { Place::Front } else { Place::Back })
    }

    /// Counts a session that was preempted before and got no further since.
    fn note_stuck(&mut self, s: u32, p: u32, position: f64) {
        let session = &mut self.w.sessions[s as usize];
        match session.preempted.iter_mut().find(|(pool, _)| *pool == p) {
            Some((_, before)) => {
                if position <= *before + EPS && !session.stuck {
                    session.stuck = true;
                    self.w.pools[p as usize].stats.stuck += 1;
                }
                *before = position;
            }
            None => session.preempted.push((p, position)),
        }
    }

    /// Releases the holds from the innermost to `down_to`, caching by their clauses.
    pub(crate) fn unwind(&mut self, s: u32, down_to: usize) -> Result<()> {
        while self.w.sessions[s as usize].holds.len() > down_to {
            let session = &self.w.sessions[s as usize];
            let Some(hold) = session.holds.last().copied() else { break };
            let count = session.claims.len();
            let keep =
                self.cache_value(s, hold.plan).map_err(|r| r.about(Subject::Op(hold.pc)).of(s))?;
            for k in hold.first as usize..count {
                if self.w.sessions[s as usize].claims[k].active {
                    self.release_claim(s, k, keep);
                }
            }
            let session = &mut self.w.sessions[s as usize];
            session.claims.truncate(hold.first as usize);
            session.holds.pop();
        }
        self.cancel_bookings(s, Some(down_to));
        Ok(())
    }

    /// Takes a session out of wherever it waits or works.
    pub(crate) fn detach(&mut self, s: u32) {
        let now = self.w.now;
        match self.w.sessions[s as usize].status {
            Status::Gone | Status::Executing | Status::Booked { .. } => {}
            Status::Ready => self.ready.retain(|r| *r != s),
            Status::Queued { pool } => {
                let pool = &mut self.w.pools[pool as usize];
                pool.queue.remove(Who::Session(s));
                pool.note_queue(now);
            }
            Status::Stepping { stage } => self.leave_steps(s, stage),
            Status::Growing { pool } => {
                self.w.pools[pool as usize].growers.retain(|g| *g != s);
            }
            Status::Working { job } => {
                if self.w.jobs[job as usize].stalled {
                    let claim = self.w.sessions[s as usize].growth.0;
                    let pool = self.w.sessions[s as usize].claims[claim as usize].pool;
                    self.w.pools[pool as usize].growers.retain(|g| *g != s);
                }
                self.remove_job(job);
            }
        }
    }
}
