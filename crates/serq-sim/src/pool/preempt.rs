//! Taking an allocation away.
//!
//! The victim of `lifo` on an engine's memory is the resident admitted last, by its session's
//! latest admission of any hold: that is the end of the engine's running list, where a request
//! that waits elsewhere, or left its blocks leased, does not stand. On any other pool it is the
//! last holder. Leases are never taken.

use crate::engine::Engine;
use crate::error::{EPS, Result, Subject};
use crate::pool::queue::Who;
use crate::session::Status;
use crate::stage::Kind;

impl Engine<'_> {
    /// Session and claim that give way in a pool.
    pub(crate) fn victim(&self, p: u32) -> Option<(u32, u32)> {
        let plan = &self.c.pools[p as usize];
        if !plan.lifo {
            return None;
        }
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

    /// Unwinds a session's hold that owns `claim`, and every hold inside it, and puts the session
    /// at the front of that hold's queue: it will do the hold's body again from the start.
    pub(crate) fn preempt(&mut self, s: u32, claim: u32) -> Result<()> {
        self.detach(s);
        let session = &self.w.sessions[s as usize];
        let c = session.claims[claim as usize];
        let at = session.hold_of(claim as usize);
        let hold = session.holds[at];
        let position = if hold.touched { c.position } else { 0.0 };
        let first = session.claims[hold.first as usize].pool;
        self.note_stuck(s, c.pool, position);
        *self.w.attr_mut(s, self.c.slots.computed as u32) = position;
        self.unwind(s, at)?;
        self.w.sessions[s as usize].pc = hold.pc;
        self.w.pools[c.pool as usize].stats.preemptions += 1;
        self.preemptions += 1;
        if self.c.holds[hold.plan as usize].booked.is_some() {
            let session = &mut self.w.sessions[s as usize];
            if let Some(k) = session.booking(first) {
                session.pending.clone_from(&session.bookings[k].claims);
            }
            return self.enqueue(s, true);
        }
        self.name_pools(s, hold.plan).map_err(|r| r.about(Subject::Op(hold.pc)).of(s))?;
        self.enqueue(s, true)
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
            self.close_booking(s, hold, true);
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
