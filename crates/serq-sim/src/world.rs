//! The state of a run that expressions can read.
//!
//! Kept apart from the engine, so that an expression borrows the state while the engine's streams
//! and event list stay free.

use serq_lang::ir::{Ctx, Fun};

use crate::content::Hit;
use crate::error::{Result, amount, amount_or_inf};
use crate::expr::{Code, Env, Vars};
use crate::pool::Pool;
use crate::pool::lease::Minded;
use crate::program::{RunPlan, StepPlan};
use crate::rng::Rng;
use crate::session::Session;
use crate::slots::Slots;
use crate::stage::flow::Flows;
use crate::stage::{Job, Kind, Stage};

#[derive(Debug, Default)]
pub(crate) struct World {
    /// Seconds.
    pub(crate) now: f64,
    pub(crate) pools: Slots<Pool>,
    pub(crate) stages: Slots<Stage>,
    /// By slot; slots of ended sessions are used again.
    pub(crate) sessions: Slots<Session>,
    /// Attributes, `width` per slot.
    pub(crate) attrs: Vec<f64>,
    pub(crate) width: usize,
    /// By number; numbers of finished jobs are used again.
    pub(crate) jobs: Slots<Job>,
    pub(crate) flows: Flows,
    /// Leases that only their bound ends and that no engine minds.
    pub(crate) abandoned: Vec<Minded>,
    /// The admission attempt under way, of a stage's scheduler.
    pub(crate) attempt: Option<Attempt>,
    /// What the session of an attempt finds in shared pools.
    pub(crate) hits: Vec<(u32, Hit)>,
    /// Per stage: how it iterates.
    pub(crate) plans: Vec<Option<StepPlan>>,
}

/// An attempt to admit somebody into an iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) stage: u32,
    /// Tokens left in the iteration.
    pub(crate) left: f64,
    /// Its chunk, 0 for none.
    pub(crate) chunk: f64,
}

impl World {
    pub(crate) fn attrs(&self, session: u32) -> &[f64] {
        let from = session as usize * self.width;
        &self.attrs[from..from + self.width]
    }

    pub(crate) fn attr_mut(&mut self, session: u32, slot: u32) -> &mut f64 {
        &mut self.attrs[session as usize * self.width + slot as usize]
    }

    pub(crate) fn pool_observable(&self, fun: Fun, pool: u32, session: Option<u32>) -> f64 {
        let p = &self.pools[pool as usize];
        match fun {
            Fun::Used => p.used,
            Fun::Free => p.cap - p.used,
            Fun::Cachedin => session.map_or(0.0, |s| self.cached_in(s, pool)),
            Fun::Holders => p.holders as f64,
            Fun::Owed => self.owed(pool),
            Fun::Mine => session.map_or(0.0, |s| self.mine(s, pool)),
            Fun::Queued => p.queue.len() as f64,
            _ => f64::NAN,
        }
    }

    /// Units of a pool that a session has: in holds, in granted bookings, and leased, by itself or minded by
    /// an engine.
    fn mine(&self, session: u32, pool: u32) -> f64 {
        let session = &self.sessions[session as usize];
        let granted = session.bookings.iter().flat_map(|b| &b.granted);
        let claims = session.claims.iter().filter(|c| c.active).chain(granted);
        let held = claims.filter(|c| c.pool == pool).map(|c| c.alloc);
        let own = session.leases.iter().filter(|l| l.pool == pool).map(|l| l.alloc);
        let minded = session.minded.iter().filter_map(|&(id, stage)| {
            let Kind::Step(step) = &self.stages[stage as usize].kind else { return None };
            let lease = step.duty.leases.iter().find(|l| l.id == id && l.pool == pool)?;
            Some(lease.alloc)
        });
        held.chain(own).chain(minded).fold(0.0, |sum, units| sum + units)
    }

    /// Units of the session's own prefix in a pool; in a shared one, those that anybody left which
    /// the session's content begins with.
    pub(crate) fn cached_in(&self, session: u32, pool: u32) -> f64 {
        let (s, p) = (&self.sessions[session as usize], &self.pools[pool as usize]);
        match &p.shared {
            Some(shared) => shared.found(&s.chain, s.chain_stamp),
            None => s.own_entry(pool).map_or(0.0, |e| p.cache.size(e)),
        }
    }

    pub(crate) fn admission(&self, session: Option<u32>) -> f64 {
        session.map_or(0.0, |s| self.sessions[s as usize].admission as f64)
    }

    /// Whether a job's next sample is the first that its session gets.
    pub(crate) fn awaits_first(&self, job: &Job, runs: &[RunPlan]) -> bool {
        let first = runs.get(job.run as usize).and_then(|run| run.first);
        job.session.zip(first).is_some_and(|(s, slot)| self.attrs(s)[slot as usize] == 0.0)
    }

    /// Units that an amount takes of the free ones, with the hit of the attempt under way.
    pub(crate) fn taking(&self, pool: u32, n: f64) -> f64 {
        let p = &self.pools[pool as usize];
        match (&p.shared, self.hits.iter().find(|(of, _)| *of == pool)) {
            (Some(shared), Some((_, hit))) if n >= 0.0 => shared.needed(hit, n),
            _ => p.round_up(n),
        }
    }

    /// What prefills under way still need of a pool.
    fn owed(&self, pool: u32) -> f64 {
        let mut owed = 0.0;
        for stage in &self.stages {
            let Kind::Step(step) = &stage.kind else { continue };
            for &id in &step.residents {
                let job = &self.jobs[id as usize];
                let left = job.unscheduled_prefill();
                let (Some(s), Some(claim)) = (job.session, job.growing) else { continue };
                let c = &self.sessions[s as usize].claims[claim as usize];
                if c.pool == pool && left > 0.0 {
                    let whole = self.pools[pool as usize].round_up(c.position + left);
                    owed += (whole - c.alloc).max(0.0);
                }
            }
        }
        owed
    }

    /// Tokens that a newcomer who wants `n` gets of a stage's iteration.
    pub(crate) fn share(&self, code: &Code, stage: u32, n: f64, rng: &mut Rng) -> Result<f64> {
        let (left, chunk) = match self.attempt.filter(|a| a.stage == stage) {
            Some(attempt) => (attempt.left, attempt.chunk),
            None => self.room(code, stage, rng)?,
        };
        let share = if n < left { n } else { left };
        Ok(if chunk > 0.0 && chunk < share { chunk } else { share })
    }

    pub(crate) fn stage_observable(&self, fun: Fun, stage: u32) -> f64 {
        let s = &self.stages[stage as usize];
        match fun {
            Fun::Queue => f64::from(s.present),
            Fun::Busy => match &s.kind {
                Kind::Fifo(f) => f.serving.len() as f64,
                Kind::Step(step) if step.running => step.assigned.len() as f64,
                Kind::Step(_) | Kind::Ps(_) | Kind::Flow(_) | Kind::Delay => f64::from(s.present),
            },
            Fun::Work => self.unfinished(stage),
            Fun::EstLambda => s.estimate.lambda(),
            Fun::EstRho => s.estimate.rho(),
            Fun::EstWait => s.estimate.wait(),
            _ => f64::NAN,
        }
    }

    /// Unfinished work of a stage, summed in a fixed order.
    fn unfinished(&self, stage: u32) -> f64 {
        let s = &self.stages[stage as usize];
        let rest = |j: &u32| self.jobs[*j as usize].finish - self.now;
        match &s.kind {
            Kind::Fifo(f) => {
                f.serving.iter().map(rest).sum::<f64>()
                    + f.queue.iter().map(|j| self.jobs[*j as usize].work).sum::<f64>()
            }
            Kind::Delay => self
                .jobs
                .iter()
                .filter(|j| j.alive && j.stage == stage)
                .map(|j| j.finish - self.now)
                .sum(),
            Kind::Ps(ps) => {
                let v = ps.virtual_time(self.now);
                self.jobs
                    .iter()
                    .filter(|j| j.alive && j.stage == stage)
                    .map(|j| (j.finish - v).max(0.0))
                    .sum()
            }
            Kind::Flow(_) => {
                let passed = self.now - self.flows.at;
                self.flows
                    .jobs
                    .iter()
                    .map(|j| &self.jobs[*j as usize])
                    .filter(|j| j.stages().any(|s| s == stage))
                    .map(|j| (j.work - j.rate * passed).max(0.0))
                    .sum()
            }
            Kind::Step(step) => {
                let left = |j: &u32| self.jobs[*j as usize].left();
                step.residents.iter().map(left).sum()
            }
        }
    }

    /// What extra work `more` costs at a stage, others' waiting included: with `lambda`, `rho`
    /// and `W` estimated online and `s_miss = s_hit + more`,
    /// `more + lambda (s_miss^2 - s_hit^2) / (2 (1 - rho)) + lambda W more / (1 - rho)`.
    pub(crate) fn price(&self, stage: u32, hit: f64, more: f64) -> f64 {
        let estimate = &self.stages[stage as usize].estimate;
        let (lambda, rho) = (estimate.lambda(), estimate.rho());
        let miss = hit + more;
        more + lambda * (miss * miss - hit * hit) / (2.0 * (1.0 - rho))
            + lambda * estimate.wait() * more / (1.0 - rho)
    }

    /// Inside an admission attempt of the stage, the tokens its iteration has left; else what its
    /// budget would leave beside its residents.
    pub(crate) fn budget_left(&self, code: &Code, stage: u32, rng: &mut Rng) -> Result<f64> {
        if let Some(attempt) = self.attempt
            && attempt.stage == stage
        {
            return Ok(attempt.left);
        }
        Ok(self.room(code, stage, rng)?.0)
    }

    /// What a stage's budget would leave beside its residents, and its chunk.
    fn room(&self, code: &Code, stage: u32, rng: &mut Rng) -> Result<(f64, f64)> {
        let Some(plan) = &self.plans[stage as usize] else { return Ok((0.0, 0.0)) };
        let Kind::Step(step) = &self.stages[stage as usize].kind else { return Ok((0.0, 0.0)) };
        let vars = self.residents_vars(stage);
        let env = Env::stage(&vars);
        let budget = amount_or_inf(code.eval(plan.budget, self, &env, rng)?, "a budget")?;
        let chunk = amount(code.eval(plan.chunk, self, &env, rng)?, "a chunk")?;
        let taken: f64 = step.residents.iter().map(|j| self.jobs[*j as usize].wants(chunk)).sum();
        Ok(((budget - taken).max(0.0), chunk))
    }

    /// Context variables over all residents of a step stage.
    pub(crate) fn residents_vars(&self, stage: u32) -> Vars {
        let mut vars = crate::expr::NO_VARS;
        let Kind::Step(step) = &self.stages[stage as usize].kind else { return vars };
        let memory = self.plans[stage as usize].as_ref().and_then(|p| p.memory);
        let (mut decoders, mut kvb, mut kvp) = (0u32, 0.0, 0.0);
        for &j in &step.residents {
            let job = &self.jobs[j as usize];
            let held = self.held(job.session, memory);
            if job.decodes() {
                decoders += 1;
                kvb += held;
            } else {
                kvp += held;
            }
        }
        vars[Ctx::Nres as usize] = step.residents.len() as f64;
        vars[Ctx::Ndec as usize] = f64::from(decoders);
        vars[Ctx::Kvb as usize] = kvb;
        vars[Ctx::Kvp as usize] = kvp;
        vars
    }

    /// Units a session holds in a pool, over all its holds.
    pub(crate) fn held(&self, session: Option<u32>, pool: Option<u32>) -> f64 {
        match (session, pool) {
            (Some(s), Some(p)) => self.sessions[s as usize]
                .claims
                .iter()
                .filter(|c| c.pool == p && c.active)
                .map(|c| c.alloc)
                .sum(),
            _ => 0.0,
        }
    }
}
