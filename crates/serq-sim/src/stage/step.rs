//! A step stage: an engine that iterates over batches of tokens.
//!
//! [`Engine::iterate`] puts one iteration together: it serves residents while the budget lasts,
//! then admits from the queues of the stage one session at a time, serving each newcomer, until
//! the budget is spent, nobody fits or somebody was preempted. It decides nothing that its inputs
//! (state of the world at this instant) do not determine, and its result is the list of tokens
//! per job with a duration.

use serq_lang::ir::Ctx;

use super::coast::Coast;
use super::duty::Duty;
use super::serving::Order;
use super::{Job, Kind, Mode};
use crate::engine::Engine;
use crate::error::{EPS, Reason, Result, Subject, amount, amount_or_inf, whole};
use crate::event::Event;
use crate::expr::{Env, Expr, NO_VARS, Vars};
use crate::pool::admission::Attempt;
use crate::pool::growth::Growth;
use crate::session::Fed;
use crate::{Iteration, Phase, Tokens};

#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Jobs in ascending admission number of their sessions.
    pub(crate) residents: Vec<u32>,
    /// Counts changes of `residents`.
    pub(super) membership: u64,
    /// Counts what happened that could let an idle stage start: jobs joining, sessions queueing.
    pub(crate) news: u64,
    /// Whether an iteration is under way.
    pub(crate) running: bool,
    /// Whether one is being put together.
    pub(crate) filling: bool,
    /// Number of the latest iteration put together, from 1.
    pub(super) number: u64,
    /// Tokens of the iteration: job and amount, in order of assignment.
    pub(crate) assigned: Vec<(u32, f64)>,
    /// Budget left of the iteration being put together, and its chunk.
    pub(super) left: f64,
    pub(super) chunk: f64,
    /// What it does beside tokens.
    pub(crate) duty: Duty,
    /// Residents before this index were considered in this iteration.
    pub(super) cursor: usize,
    pub(super) order: Order,
    pub(super) attention: f64,
    pub(super) started: f64,
    pub(super) coast: Coast,
}

impl Step {
    /// Tokens left of the iteration being put together, and its chunk.
    pub(crate) fn left(&self) -> (f64, f64) {
        (self.left, self.chunk)
    }

    /// When the running iteration began.
    pub(crate) fn started(&self) -> f64 {
        self.started
    }

    /// Which share of time the iteration belongs to; see [`super::StageStats::split`].
    pub(crate) fn kind_of(&self, jobs: &[Job]) -> usize {
        let has =
            |prefill| self.assigned.iter().any(|(j, n)| jobs[*j as usize].prefilled(*n) == prefill);
        match (has(true), has(false)) {
            (true, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
            (false, false) => 3,
        }
    }
}

impl Engine<'_> {
    pub(super) fn join_step(&mut self, stage: u32, id: u32) {
        let jobs = &self.w.jobs;
        let Kind::Step(step) = &mut self.w.stages[stage as usize].kind else { return };
        let admission = jobs[id as usize].admission;
        let at = step.residents.partition_point(|j| jobs[*j as usize].admission <= admission);
        step.residents.insert(at, id);
        step.coast = Coast::default();
        step.membership += 1;
        step.cursor = step.cursor.min(at);
        step.news += 1;
        self.alert_stages.insert(stage);
    }

    /// A resident leaves before its work is done: preempted. Tokens of an iteration not yet
    /// finished are not computed, unless the engine is ahead of its results; while it is being put
    /// together, its budget gets them back.
    pub(super) fn leave_step(&mut self, stage: u32, id: u32) {
        self.drop_resident(stage, id);
        let w = &mut self.w;
        let ahead = w.plans[stage as usize].as_ref().is_some_and(|p| p.ahead);
        let Kind::Step(step) = &mut w.stages[stage as usize].kind else { return };
        if !(step.filling || step.running && !ahead) {
            return;
        }
        let Some(k) = step.assigned.iter().position(|(j, _)| *j == id) else { return };
        let (_, tokens) = step.assigned.remove(k);
        if step.filling {
            step.left += tokens;
        }
        let job = &mut w.jobs[id as usize];
        job.flying = if job.flying - tokens > EPS { job.flying - tokens } else { 0.0 };
        if let (Some(s), Some(claim)) = (job.session, job.growing) {
            let claim = &mut w.sessions[s as usize].claims[claim as usize];
            claim.position = (claim.position - tokens).max(0.0);
        }
    }

    pub(super) fn drop_resident(&mut self, stage: u32, id: u32) {
        let jobs = &self.w.jobs;
        let Kind::Step(step) = &mut self.w.stages[stage as usize].kind else { return };
        let admission = jobs[id as usize].admission;
        let from = step.residents.partition_point(|j| jobs[*j as usize].admission < admission);
        if let Some(k) = step.residents[from..].iter().position(|j| *j == id) {
            step.residents.remove(from + k);
            step.coast = Coast::default();
            step.membership += 1;
            step.cursor -= usize::from(from + k < step.cursor);
        }
    }

    /// Whether the stage would start an iteration: idle, with residents or somebody to admit.
    pub(crate) fn can_iterate(&self, stage: u32) -> bool {
        let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return false };
        let Some(plan) = &self.w.plans[stage as usize] else { return false };
        !step.running
            && (!step.residents.is_empty()
                || plan.queues.iter().any(|p| self.w.pools[*p as usize].queue.len() > 0)
                || step.duty.calls())
            && self.w.now < plan.stops
    }

    /// Puts one iteration together and starts it, if it has tokens or preempted somebody.
    pub(crate) fn iterate(&mut self, stage: u32) -> Result<()> {
        let here = Subject::Stage(stage);
        let preempted = self.preemptions;
        let (snapshot, chunk, exclusive) = self.begin(stage).map_err(|r| r.about(here))?;
        self.attend(stage)?;
        let alone = self.w.plans[stage as usize].as_ref().is_some_and(|p| p.alone);
        let prefills = alone && self.prefill_alone(stage, chunk)?;
        loop {
            if prefills {
                break;
            }
            while self.left(stage) > 0.0 {
                let Some(id) = self.next_resident(stage, &snapshot)? else { break };
                self.serve(stage, id, chunk, exclusive)?;
            }
            if alone || self.preemptions > preempted || self.left(stage) <= 0.0 {
                break;
            }
            match self.admit_for(stage)? {
                Attempt::Empty | Attempt::Blocked => break,
                Attempt::Rejected => {}
                Attempt::Admitted => self.run_ready()?,
            }
        }
        self.send_renewals(stage);
        self.launch(stage, self.preemptions > preempted).map_err(|r| r.about(here))
    }

    /// Serves the first that can prefill, of the residents or else of who is admitted; false if there is none.
    fn prefill_alone(&mut self, stage: u32, chunk: f64) -> Result<bool> {
        let preempted = self.preemptions;
        loop {
            while let Some(id) = self.unserved_prefill(stage) {
                self.serve(stage, id, chunk, None)?;
                if self.is_filled(stage) {
                    return Ok(true);
                }
            }
            if self.preemptions > preempted || self.left(stage) <= 0.0 {
                return Ok(false);
            }
            match self.admit_for(stage)? {
                Attempt::Empty | Attempt::Blocked => return Ok(false),
                Attempt::Rejected => {}
                Attempt::Admitted => self.run_ready()?,
            }
        }
    }

    fn unserved_prefill(&self, stage: u32) -> Option<u32> {
        let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return None };
        step.residents.iter().copied().find(|id| {
            let job = &self.w.jobs[*id as usize];
            !job.decodes() && job.served != step.number
        })
    }

    fn is_filled(&self, stage: u32) -> bool {
        match &self.w.stages[stage as usize].kind {
            Kind::Step(step) => !step.assigned.is_empty(),
            _ => false,
        }
    }

    fn left(&self, stage: u32) -> f64 {
        match &self.w.stages[stage as usize].kind {
            Kind::Step(step) => step.left,
            _ => 0.0,
        }
    }

    /// Evaluates budget and chunk; with exclusive prefill, says which resident alone is served.
    fn begin(&mut self, stage: u32) -> Result<(Vars, f64, Option<u32>)> {
        let Some(plan) = &self.w.plans[stage as usize] else { return Ok((NO_VARS, 0.0, None)) };
        let snapshot = if plan.coasting.ignores_residents() && plan.serve.is_empty() {
            NO_VARS
        } else {
            self.w.residents_vars(stage)
        };
        let (budget, chunk, exclusive) = (plan.budget, plan.chunk, plan.exclusive);
        let integral = plan.integral;
        let env = Env::stage(&snapshot);
        let budget = amount_or_inf(self.stage_value(stage, budget, &env)?, "the budget")?;
        let budget = whole(budget, integral, "the budget")?;
        let chunk = amount(self.stage_value(stage, chunk, &env)?, "the chunk")?;
        let chunk = whole(chunk, integral, "the chunk")?;
        let jobs = &self.w.jobs;
        let Kind::Step(step) = &mut self.w.stages[stage as usize].kind else {
            return Ok((snapshot, chunk, None));
        };
        step.number += 1;
        step.coast = Coast::default();
        step.filling = true;
        step.assigned.clear();
        step.left = budget;
        step.chunk = chunk;
        step.cursor = 0;
        step.order.forget();
        step.attention = 0.0;
        let mut prefills = step.residents.iter().filter(|j| !jobs[**j as usize].decodes());
        let only = if exclusive { prefills.next().copied() } else { None };
        Ok((snapshot, chunk, only))
    }

    /// Gives one resident its tokens.
    fn serve(&mut self, stage: u32, id: u32, chunk: f64, exclusive: Option<u32>) -> Result<()> {
        let left = self.left(stage);
        let tracks = self.tracks(stage);
        let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return Ok(()) };
        let number = step.number;
        let job = &mut self.w.jobs[id as usize];
        job.served = number;
        if job.stalled || exclusive.is_some_and(|only| only != id) {
            return Ok(());
        }
        let tokens = job.wants(chunk).min(left);
        if tokens <= 0.0 {
            return Ok(());
        }
        let prefill = !job.decodes();
        let mut attention = if prefill { tokens * tokens / 2.0 } else { 0.0 };
        if let (Some(s), Some(claim)) = (job.session, job.growing) {
            let c = &self.w.sessions[s as usize].claims[claim as usize];
            let (position, need) = (c.position, c.position + tokens - c.alloc);
            if need > EPS {
                match self.grow_claim(s, claim, need)? {
                    Growth::Grown => {}
                    Growth::Preempted => return Ok(()),
                    Growth::Fenced => {
                        self.close_serving(stage);
                        return Ok(());
                    }
                    Growth::Stalled => {
                        self.stall(s, claim, need);
                        self.w.jobs[id as usize].stalled = true;
                        return Ok(());
                    }
                }
            }
            if prefill {
                attention = tokens * (position + tokens / 2.0);
            }
            let c = &mut self.w.sessions[s as usize].claims[claim as usize];
            c.position += tokens;
            if tracks {
                self.feed(stage, s, claim, number);
            }
        }
        if tracks {
            self.w.jobs[id as usize].flying += tokens;
        }
        if self.w.jobs[id as usize].started.is_none() {
            self.begin_service(stage, id);
        }
        if let Kind::Step(step) = &mut self.w.stages[stage as usize].kind {
            step.attention += attention;
            step.assigned.push((id, tokens));
            step.left -= tokens;
        }
        Ok(())
    }

    fn tracks(&self, stage: u32) -> bool {
        self.w.plans[stage as usize].as_ref().is_some_and(|p| p.tracks)
    }

    /// A claim's position has advanced in an iteration: what is full of what is known can be found.
    fn feed(&mut self, stage: u32, s: u32, claim: u32, number: u64) {
        let c = &mut self.w.sessions[s as usize].claims[claim as usize];
        let position = c.position;
        if self.w.plans[stage as usize].as_ref().is_some_and(|p| p.memory == Some(c.pool)) {
            c.fed = Fed { stage, number };
        }
        self.register(s, claim, position);
    }

    /// No resident that is there now is served any more in this iteration.
    fn close_serving(&mut self, stage: u32) {
        let w = &mut self.w;
        let Kind::Step(step) = &mut w.stages[stage as usize].kind else { return };
        for id in &step.residents {
            w.jobs[*id as usize].served = step.number;
        }
        step.order.forget();
    }

    /// Starts the iteration that was put together.
    fn launch(&mut self, stage: u32, preempted: bool) -> Result<()> {
        let now = self.w.now;
        let Kind::Step(step) = &mut self.w.stages[stage as usize].kind else { return Ok(()) };
        step.filling = false;
        let duty = step.duty.calls();
        if step.assigned.is_empty() && !preempted && !duty {
            return Ok(());
        }
        if !step.assigned.is_empty() {
            step.duty.latest = step.number;
        }
        let vars = self.assigned_vars(stage);
        let Some(plan) = &self.w.plans[stage as usize] else { return Ok(()) };
        let cost = plan.cost;
        let cost = self.iteration_cost(stage, cost, &vars)?;
        if cost <= 0.0 && duty {
            return Err(Reason::new(
                "zero-cost",
                "an iteration that steps or leases wait for costs no time".into(),
                "give the cost a part that is positive without tokens",
            ));
        }
        let s = &mut self.w.stages[stage as usize];
        s.stats.iterations += 1;
        if let Kind::Step(step) = &mut s.kind {
            step.running = true;
            step.started = now;
        }
        self.schedule(now + cost, Event::IterEnd { stage });
        if self.trace_iterations {
            self.show_iteration(stage, cost);
        }
        self.show_engine(stage, Phase::PutTogether);
        Ok(())
    }

    /// Seconds an iteration lasts.
    pub(super) fn iteration_cost(&mut self, stage: u32, cost: Expr, vars: &Vars) -> Result<f64> {
        let cost = amount(self.stage_value(stage, cost, &Env::stage(vars))?, "the cost")?;
        let tokens = vars[Ctx::Ntok as usize];
        if cost <= 0.0 && tokens > 0.0 {
            return Err(Reason::new(
                "zero-cost",
                format!("an iteration of {tokens} tokens costs no time"),
                "give the cost a part that is positive whenever there are tokens",
            )
            .about(Subject::Stage(stage)));
        }
        Ok(cost)
    }

    /// Tells the observer what the iteration serves.
    fn show_iteration(&mut self, stage: u32, duration: f64) {
        let w = &self.w;
        let Kind::Step(step) = &w.stages[stage as usize].kind else { return };
        let part = |&(id, count): &(u32, f64)| {
            let job = &w.jobs[id as usize];
            let (session, turn) = job.session.map_or((0, 0), |s| {
                let s = &w.sessions[s as usize];
                (s.serial, s.turns)
            });
            let claim = job.session.zip(job.growing);
            let position = claim
                .map_or(0.0, |(s, k)| w.sessions[s as usize].claims[k as usize].position - count);
            Tokens { session, turn, prefill: job.prefilled(count), count, position }
        };
        let tokens: Vec<Tokens> = step.assigned.iter().map(part).collect();
        self.observer.iteration(&Iteration {
            stage: stage as usize,
            time: w.now,
            duration,
            tokens: &tokens,
        });
    }

    /// Context variables over what the iteration serves.
    pub(super) fn assigned_vars(&self, stage: u32) -> Vars {
        let mut vars = NO_VARS;
        let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return vars };
        let memory = self.w.plans[stage as usize].as_ref().and_then(|p| p.memory);
        let (mut decoders, mut chunks) = (0u32, 0u32);
        let (mut kvb, mut kvp, mut tokens, mut prefilled) = (0.0, 0.0, 0.0, 0.0);
        let (mut ctxb, mut ctxp) = (0.0, 0.0);
        for &(id, n) in &step.assigned {
            let job = &self.w.jobs[id as usize];
            let held = self.w.held(job.session, memory);
            // Behind the tokens, which are scheduled.
            let position = match (job.session, job.growing) {
                (Some(s), Some(k)) => self.w.sessions[s as usize].claims[k as usize].position,
                _ => n,
            };
            tokens += n;
            if !job.prefilled(n) {
                decoders += 1;
                kvb += held;
                ctxb += position;
            } else {
                prefilled += n;
                kvp += held;
                ctxp += n * (position - n);
                chunks += 1;
            }
        }
        vars[Ctx::Ctxb as usize] = ctxb;
        vars[Ctx::Ctxp as usize] = ctxp;
        vars[Ctx::Nchunk as usize] = f64::from(chunks);
        vars[Ctx::Nres as usize] = step.residents.len() as f64;
        vars[Ctx::Ndec as usize] = f64::from(decoders);
        vars[Ctx::Kvb as usize] = kvb;
        vars[Ctx::Kvp as usize] = kvp;
        vars[Ctx::Ntok as usize] = tokens;
        vars[Ctx::Npre as usize] = prefilled;
        vars[Ctx::Attn as usize] = step.attention;
        vars
    }

    /// The iteration's tokens are computed; jobs without any left are done, in order of assignment.
    pub(crate) fn end_iteration(&mut self, stage: u32) -> Result<()> {
        self.alert_stages.insert(stage);
        if self.watched {
            self.delivered = Some(stage);
        }
        if self.tracks(stage) {
            return self.end_tracked(stage);
        }
        let now = self.w.now;
        let (warm, warm_at) = (self.warm, self.warm_at);
        let w = &mut self.w;
        let s = &mut w.stages[stage as usize];
        let Kind::Step(step) = &mut s.kind else { return Ok(()) };
        step.running = false;
        let kind = if warm { step.kind_of(&w.jobs) } else { 0 };
        let assigned = std::mem::take(&mut step.assigned);
        let mut done = std::mem::take(&mut self.done);
        let mut tokens = [0.0, 0.0];
        let began = step.started;
        for &(id, n) in &assigned {
            let job = &mut w.jobs[id as usize];
            if let (Some(s), Mode::Decode) = (job.session, job.mode) {
                self.requests.decoded(s, began, now);
            }
            tokens[usize::from(job.mode == Mode::Decode)] += n;
            job.work -= n;
            if job.work <= EPS {
                done.push(id);
            }
        }
        self.requests.iteration_ended(began, now);
        if warm {
            s.stats.decoding += u64::from(tokens[1] > 0.0);
            s.stats.split[kind] += now - step.started.max(warm_at);
            s.stats.tokens[0] += tokens[0];
            s.stats.tokens[1] += tokens[1];
        }
        // The buffer goes back, so that the next iteration does not allocate.
        step.assigned = assigned;
        step.assigned.clear();
        for id in done.drain(..) {
            self.drop_resident(stage, id);
            self.complete(id)?;
        }
        self.done = done;
        Ok(())
    }
}
