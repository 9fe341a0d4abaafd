//! Processor sharing, in virtual time.
//!
//! With `n` jobs and total capacity `phi(n)` each gets `phi(n) / n` per second. Virtual time
//! advances at that rate, so a job that joins at virtual time `v` with work `w` ends when it
//! reaches its tag `v + w`: the order of completion is known whatever joins later, and no job has
//! to be touched when the population changes. Equal tags end in order of joining.
//!
//! The clock starts again from 0 whenever the stage empties, so that tags stay small and keep
//! their precision over a long run.

use super::Kind;
use crate::engine::Engine;
use crate::error::{Reason, Result, Subject, amount_or_inf};
use crate::event::{Event, Heap};
use crate::expr::{Env, Expr, Vars};
use serq_lang::ir::Ctx;

#[derive(Debug)]
pub(crate) struct Ps {
    capacity: Expr,
    /// Virtual time at `at`, and how fast it goes since.
    virtual_at: f64,
    at: f64,
    rate: f64,
    /// By tag, then order of joining.
    jobs: Heap<u32>,
    joined: u64,
    epoch: u32,
    /// Whether the population changed since the rate was set.
    pub(crate) dirty: bool,
}

impl Ps {
    pub(super) fn new(capacity: Expr) -> Self {
        Self {
            capacity,
            virtual_at: 0.0,
            at: 0.0,
            rate: 0.0,
            jobs: Heap::new(),
            joined: 0,
            epoch: 0,
            dirty: false,
        }
    }

    pub(crate) fn virtual_time(&self, now: f64) -> f64 {
        let passed = now - self.at;
        if passed > 0.0 { self.virtual_at + passed * self.rate } else { self.virtual_at }
    }

    fn advance(&mut self, now: f64) {
        self.virtual_at = self.virtual_time(now);
        self.at = now;
        if self.jobs.is_empty() {
            self.virtual_at = 0.0;
        }
    }
}

impl Engine<'_> {
    pub(super) fn join_ps(&mut self, stage: u32, id: u32) {
        self.begin_service(stage, id);
        let now = self.w.now;
        let Kind::Ps(ps) = &mut self.w.stages[stage as usize].kind else { return };
        ps.advance(now);
        let job = &mut self.w.jobs[id as usize];
        job.finish = ps.virtual_at + job.work;
        ps.jobs.push(job.finish, ps.joined, id);
        ps.joined += 1;
        ps.dirty = true;
        self.alert_stages.insert(stage);
    }

    pub(super) fn leave_ps(&mut self, stage: u32, id: u32) {
        let now = self.w.now;
        let Kind::Ps(ps) = &mut self.w.stages[stage as usize].kind else { return };
        ps.advance(now);
        ps.jobs.retain(|j| *j != id);
        ps.dirty = true;
        self.alert_stages.insert(stage);
    }

    /// Sets the rate for the present population and schedules the next completion.
    pub(crate) fn reschedule(&mut self, stage: u32) -> Result<()> {
        let now = self.w.now;
        let n = self.w.stages[stage as usize].present;
        let Kind::Ps(ps) = &mut self.w.stages[stage as usize].kind else { return Ok(()) };
        ps.advance(now);
        ps.dirty = false;
        ps.epoch = ps.epoch.wrapping_add(1);
        let (capacity, epoch) = (ps.capacity, ps.epoch);
        let Some((tag, _)) = ps.jobs.peek() else { return Ok(()) };
        let rest = (tag - ps.virtual_at).max(0.0);
        let mut vars: Vars = crate::expr::NO_VARS;
        vars[Ctx::N as usize] = f64::from(n);
        let phi = self.stage_value(stage, capacity, &Env::stage(&vars))?;
        let phi = amount_or_inf(phi, "the capacity").map_err(|r| r.about(Subject::Stage(stage)))?;
        let rate = phi / f64::from(n);
        if rate == f64::INFINITY {
            return Err(Reason::new(
                "capacity",
                "the capacity is infinite".into(),
                "use a `delay` stage of 0 seconds, or give the capacity a bound",
            )
            .about(Subject::Stage(stage)));
        }
        let Kind::Ps(ps) = &mut self.w.stages[stage as usize].kind else { return Ok(()) };
        ps.rate = rate;
        if rate > 0.0 {
            self.schedule(now + rest / rate, Event::Shared { stage, epoch });
        }
        Ok(())
    }

    /// The job with the smallest tag ends, unless the population changed since this was scheduled.
    pub(crate) fn finish_shared(&mut self, stage: u32, epoch: u32) -> Result<()> {
        let now = self.w.now;
        let Kind::Ps(ps) = &mut self.w.stages[stage as usize].kind else { return Ok(()) };
        if ps.epoch != epoch {
            return Ok(());
        }
        let Some((tag, id)) = ps.jobs.pop() else { return Ok(()) };
        ps.virtual_at = tag;
        ps.at = now;
        ps.dirty = true;
        if ps.jobs.is_empty() {
            ps.jobs.clear();
            ps.virtual_at = 0.0;
        }
        self.alert_stages.insert(stage);
        self.complete(id)
    }
}
