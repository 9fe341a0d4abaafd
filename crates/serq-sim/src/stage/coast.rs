//! Iterations of a step stage that decide nothing, many at a time.
//!
//! While an engine's residents all decode, nobody finishes, nobody can be admitted and every
//! growth finds free room, one iteration leads to the next without touching anything but the
//! engine itself. Such iterations are run here in a tight loop, without the event list and
//! without settling, up to the next event of anything else: every sum is added to in the same
//! order as one at a time, so no bit of any result depends on it. What the shortcut leaves out
//! was shown to do nothing: [`Engine::calm`] says that settling would find nothing to do, the
//! conditions in [`Engine::coast`] that the scheduler would serve the same residents again.
//!
//! An engine that keeps an account of samples coasts as well, unless it is ahead of its results or has
//! something else to do: samples count up, and an iteration that completes a block whose content others
//! may find is, as one that makes an allocation larger, done resident by resident as it would be.

use serq_lang::ir::{CExpr, CServe, CStep, Ctx, Fun};

use super::{Kind, Mode};
use crate::engine::Engine;
use crate::error::{EPS, Result, Subject, whole};
use crate::event::Event;
use crate::expr::{Env, NO_VARS};
use crate::pool::shared::NONE;
use crate::program::StepPlan;

/// Whole numbers up to here add and subtract exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Iterations between two looks at the event list: progress is reported from there.
const MOST: u64 = 1 << 16;

/// What may be concluded from a step stage's expressions alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coasting {
    /// The budget, if it is a constant, the chunk has one value while the same sessions decode, and the
    /// order of service cannot change.
    budget: Option<f64>,
    /// Whether the chunk is a constant.
    constant_chunk: bool,
    /// Whether the cost depends on context variables alone that stay as long as no allocation grows.
    steady_cost: bool,
}

impl Coasting {
    /// Whether budget and chunk read nothing of the residents.
    pub(crate) fn ignores_residents(self) -> bool {
        self.budget.is_some()
    }

    /// `tracks` if samples change attributes.
    pub(crate) fn of(step: &CStep, tracks: bool) -> Self {
        let keys: &[CExpr] = match &step.serve {
            CServe::By(keys) => keys,
            CServe::ExclusivePrefill | CServe::PrefillAlone => &[],
        };
        let constant_key = |key: &CExpr| {
            reads_only(key, &|fun| fun.is_arithmetic(), &|var| {
                matches!(var, Ctx::Decoding | Ctx::Admission)
            })
        };
        let attribute = |e: &CExpr| {
            let mut found = false;
            e.walk(&mut |e| found |= matches!(e, CExpr::Attr(_)));
            found
        };
        let still = is_frozen(&step.chunk)
            && keys.iter().all(|key| constant_key(key) && !(tracks && attribute(key)));
        Self {
            budget: if still && !step.ahead { step.budget.as_num() } else { None },
            constant_chunk: step.chunk.as_num().is_some(),
            steady_cost: reads_only(&step.cost, &|fun| fun.is_arithmetic(), &|var| {
                !matches!(var, Ctx::Now | Ctx::Ctxb)
            }),
        }
    }
}

/// Whether an expression of a hold's header has one value as long as nothing happens but an
/// engine's decoding: it draws nothing and reads neither the clock nor what decoding changes.
pub(crate) fn is_frozen(e: &CExpr) -> bool {
    let steady = |fun: Fun| {
        fun.is_arithmetic()
            || matches!(
                fun,
                Fun::Cachedin
                    | Fun::Mine
                    | Fun::BudgetLeft
                    | Fun::Holders
                    | Fun::Queued
                    | Fun::Queue
                    | Fun::Busy
            )
    };
    reads_only(e, &steady, &|_| false)
}

/// Whether an expression draws nothing, calls only such functions and reads only such variables.
fn reads_only(e: &CExpr, call: &dyn Fn(Fun) -> bool, var: &dyn Fn(Ctx) -> bool) -> bool {
    let mut only = true;
    e.walk(&mut |e| {
        only &= match e {
            CExpr::Call(fun, _) => call(*fun),
            CExpr::Ctx(v) => var(*v),
            CExpr::Sample(..) => false,
            _ => true,
        }
    });
    only
}

/// What the residents allow.
struct Rest {
    /// Iterations that can end before one after which somebody is done or takes less than a token.
    ends: u64,
    /// Iterations that can start before one in which an allocation grows.
    starts: u64,
}

/// Where a coasting engine is. Valid until something but [`Engine::coast`] touches its residents or
/// begins an iteration; work and positions lag behind by `pending` tokens until
/// [`Engine::catch_up`], which comes before anybody can look at them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coast {
    /// As in [`Rest`], from here.
    ends: u64,
    starts: u64,
    /// Seconds an iteration lasts until an allocation grows.
    cost: f64,
    pending: u64,
    /// When the last of those came, and the longest time between two of them.
    last: f64,
    longest: f64,
    /// Residents whose requests count.
    counted: u64,
}

impl Engine<'_> {
    /// An iteration of the stage ends now, and with it all those that follow and decide nothing.
    /// True if the last one begun is scheduled to end; false if the one that ends now must be
    /// looked at as any other.
    pub(crate) fn coast(&mut self, stage: u32) -> Result<bool> {
        let limit = self.next_time();
        if !self.calm || limit <= self.w.now {
            return Ok(false);
        }
        let at = stage as usize;
        let Some(plan) = &self.w.plans[at] else { return Ok(false) };
        let Some(budget) = plan.coasting.budget else { return Ok(false) };
        let (stops, chunk) = (plan.stops, plan.chunk);
        let Kind::Step(step) = &self.w.stages[at].kind else { return Ok(false) };
        if step.duty.calls() {
            return Ok(false);
        }
        if !plan.coasting.constant_chunk {
            // Its value is nothing to who decodes; a mistake in it is found as without the shortcut.
            let value = self.stage_value(stage, chunk, &Env::stage(&NO_VARS));
            let integral = self.w.plans[at].as_ref().is_some_and(|p| p.integral);
            if !value.is_ok_and(|v| v >= 0.0 && whole(v, integral, "the chunk").is_ok()) {
                return Ok(false);
            }
        }
        let Some(plan) = &self.w.plans[at] else { return Ok(false) };
        let waits = plan.queues.iter().any(|p| self.w.pools[*p as usize].queue.len() > 0);
        let mut blocked = None;
        if waits && plan.alone {
            // It tries them before it decodes.
            return Ok(false);
        }
        if waits {
            match self.nobody_fits(stage, budget) {
                Some(head) => blocked = head,
                None => return Ok(false),
            }
        }
        let (warm, warm_at, horizon) = (self.warm, self.warm_at, self.settings.horizon);
        for count in 0.. {
            if self.w.now >= stops {
                return Ok(false);
            }
            let s = &mut self.w.stages[at];
            let Kind::Step(step) = &mut s.kind else { return Ok(false) };
            let c = &mut step.coast;
            if c.ends > 0 && c.starts > 0 {
                if c.pending == 0 {
                    self.lagging.push(stage);
                }
                c.pending += 1;
                c.ends -= 1;
                c.starts -= 1;
                c.last = self.w.now;
                c.longest = c.longest.max(self.w.now - step.started);
                self.requests.steady(step.started, self.w.now, c.counted);
                if warm {
                    s.stats.decoding += 1;
                    s.stats.split[1] += self.w.now - step.started.max(warm_at);
                    s.stats.tokens[1] += step.assigned.len() as f64;
                }
            } else if self.refresh(stage, budget)? {
                // The others change nothing that an invariant speaks of.
                #[cfg(debug_assertions)]
                self.check_invariants();
            } else {
                return Ok(false);
            }
            if let Some(s) = blocked.take() {
                // The iteration that begins now tries it in vain.
                self.w.sessions[s as usize].pending.clone_from(&self.measured);
            }
            let s = &mut self.w.stages[at];
            let Kind::Step(step) = &mut s.kind else { return Ok(false) };
            step.started = self.w.now;
            step.running = true;
            s.stats.iterations += 1;
            let next = self.w.now + step.coast.cost;
            if next >= limit || next > horizon || count == MOST {
                self.schedule(next, Event::IterEnd { stage });
                break;
            }
            self.w.now = next;
            self.handled += 1;
        }
        Ok(true)
    }

    /// Looks at every resident: if the iteration that ends now and the one that follows decide
    /// nothing, ends the first, does what the second begins with, and notes how far that goes on.
    fn refresh(&mut self, stage: u32, budget: f64) -> Result<bool> {
        self.catch_up();
        if !self.would_serve_the_same(stage, budget) {
            return Ok(false);
        }
        let rest = self.rest(stage);
        if rest.ends == 0 || (rest.starts == 0 && !self.growths_fit(stage)) {
            return Ok(false);
        }
        let Some(StepPlan { coasting, cost, tracks, .. }) = &self.w.plans[stage as usize] else {
            return Ok(false);
        };
        let (steady, cost, tracks) = (coasting.steady_cost, *cost, *tracks);
        // State first: the cost may read it.
        let counted = self.end_coasted(stage);
        if tracks && rest.starts == 0 {
            self.sample_residents(stage, 1.0);
            self.serve_residents(stage);
        } else {
            if rest.starts == 0 {
                self.grow_residents(stage);
            }
            self.advance_residents(stage, 1.0);
        }
        let vars = self.assigned_vars(stage);
        let cost =
            self.iteration_cost(stage, cost, &vars).map_err(|r| r.about(Subject::Stage(stage)))?;
        let rest = if steady { self.rest(stage) } else { Rest { ends: 0, starts: 0 } };
        let Kind::Step(step) = &mut self.w.stages[stage as usize].kind else { return Ok(false) };
        let (ends, starts) = (rest.ends, rest.starts);
        step.coast = Coast { ends, starts, cost, counted, ..Coast::default() };
        Ok(true)
    }

    /// Brings work and positions of all coasting engines up to date.
    pub(crate) fn catch_up(&mut self) {
        while let Some(stage) = self.lagging.pop() {
            let Kind::Step(step) = &mut self.w.stages[stage as usize].kind else { continue };
            let tokens = std::mem::take(&mut step.coast.pending);
            let longest = std::mem::take(&mut step.coast.longest);
            let last = step.coast.last;
            for (id, _) in &step.assigned {
                if let Some(s) = self.w.jobs[*id as usize].session {
                    self.requests.skipped(s, tokens, last, longest);
                }
            }
            self.advance_residents(stage, tokens as f64);
        }
    }

    /// Whether the running iteration serves every resident with one token of decoding, and the
    /// next would too if nobody leaves.
    fn would_serve_the_same(&mut self, stage: u32, budget: f64) -> bool {
        let runs = &self.c.runs;
        let w = &mut self.w;
        let Kind::Step(step) = &mut w.stages[stage as usize].kind else { return false };
        step.attention = 0.0;
        let w = &self.w;
        let Kind::Step(step) = &w.stages[stage as usize].kind else { return false };
        let tracks = w.plans[stage as usize].as_ref().is_some_and(|p| p.tracks);
        let count = step.assigned.len();
        let decodes = |&(id, tokens): &(u32, f64)| {
            let job = &w.jobs[id as usize];
            job.mode == Mode::Decode
                && !job.stalled
                && tokens == 1.0
                && !(tracks && w.awaits_first(job, runs))
        };
        count > 0
            && count == step.residents.len()
            && budget >= count as f64
            && step.assigned.iter().all(decodes)
    }

    /// Whether the head of the stage's queues, if anybody waits, does not fit and cannot while
    /// the residents decode; then also whose attempt would have failed.
    fn nobody_fits(&mut self, stage: u32, budget: f64) -> Option<Option<u32>> {
        let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return None };
        let left = step.assigned.iter().fold(budget, |left, (_, tokens)| left - tokens);
        if left <= 0.0 {
            return Some(None);
        }
        let queues = &self.w.plans[stage as usize].as_ref()?.queues;
        let head = queues.iter().find_map(|p| self.w.pools[*p as usize].queue.head());
        match head {
            Some(who) => {
                self.stays_blocked(who.session(), stage, left).then(|| Some(who.session()))
            }
            None => Some(None),
        }
    }

    /// How far the residents of an engine go on as they do.
    fn rest(&self, stage: u32) -> Rest {
        let w = &self.w;
        let mut rest = Rest { ends: 0, starts: u64::MAX };
        let Kind::Step(step) = &w.stages[stage as usize].kind else { return rest };
        let (mut work, mut room, mut whole) = (f64::INFINITY, f64::INFINITY, true);
        for &(id, _) in &step.assigned {
            let job = &w.jobs[id as usize];
            work = work.min(job.work);
            if let (Some(s), Some(claim)) = (job.session, job.growing) {
                let c = &w.sessions[s as usize].claims[claim as usize];
                whole &= c.position.fract() == 0.0 && c.position < EXACT;
                if c.holder != NONE
                    && let Some(shared) = &w.pools[c.pool as usize].shared
                {
                    // Or does the iteration complete a block that others may find?
                    whole &= c.decided.fract() == 0.0;
                    let known = c.position.min(c.decided);
                    room = room.min((shared.next_registered(c.holder) - known - 1.0).max(0.0));
                }
                // As the iteration itself asks: does one more token exceed the allocation?
                room = room.min(if c.position + 1.0 - c.alloc > EPS {
                    0.0
                } else {
                    (c.alloc - c.position).max(1.0)
                });
            }
        }
        // Work counts down exactly from any number to 1, a position counts up exactly if whole.
        let most = |x: f64| if x < EXACT { x as u64 } else { 1 };
        rest.ends = most(work).saturating_sub(1);
        if room < f64::INFINITY {
            // Others are counted one by one.
            rest.starts = if whole { most(room) } else { u64::from(room >= 1.0) };
        }
        rest
    }

    /// The iteration that ends now, as [`Engine::end_iteration`] counts it. The number of
    /// residents whose requests count.
    fn end_coasted(&mut self, stage: u32) -> u64 {
        let w = &mut self.w;
        let s = &mut w.stages[stage as usize];
        let Kind::Step(step) = &mut s.kind else { return 0 };
        step.running = false;
        let mut counted = 0;
        for (id, _) in &step.assigned {
            if let Some(s) = w.jobs[*id as usize].session {
                self.requests.decoded(s, step.started, w.now);
                counted += u64::from(self.requests.pending(s));
            }
        }
        self.requests.iteration_ended(step.started, w.now);
        if self.warm {
            s.stats.decoding += 1;
            s.stats.split[1] += w.now - step.started.max(self.warm_at);
            s.stats.tokens[1] += step.assigned.len() as f64;
        }
        counted
    }

    /// Samples delivered: `tokens` more each.
    fn sample_residents(&mut self, stage: u32, tokens: f64) {
        let (w, runs) = (&mut self.w, &self.c.runs);
        let Kind::Step(step) = &w.stages[stage as usize].kind else { return };
        for &(id, _) in &step.assigned {
            let job = &w.jobs[id as usize];
            let Some(s) = job.session else { continue };
            if let Some(slot) = runs.get(job.run as usize).and_then(|run| run.answers) {
                let at = s as usize * w.width + slot as usize;
                let answers = &mut w.attrs[at];
                if answers.fract() == 0.0 && answers.abs() < EXACT {
                    *answers += tokens;
                } else {
                    // As one at a time: what is no whole number does not add up alike.
                    (0..tokens as u64).for_each(|_| *answers += 1.0);
                }
            }
            if let Some(claim) = job.growing {
                w.sessions[s as usize].claims[claim as usize].decided += tokens;
            }
        }
    }

    /// The next token of each resident in order of service: room, position, and what of it others find.
    fn serve_residents(&mut self, stage: u32) {
        let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return };
        for k in 0..step.assigned.len() {
            let Kind::Step(step) = &self.w.stages[stage as usize].kind else { return };
            let id = step.assigned[k].0;
            let job = &mut self.w.jobs[id as usize];
            job.work -= 1.0;
            let (Some(s), Some(claim)) = (job.session, job.growing) else { continue };
            let c = &self.w.sessions[s as usize].claims[claim as usize];
            let need = c.position + 1.0 - c.alloc;
            if need > EPS {
                let (pool, units) = (c.pool, c.alloc + need);
                if c.holder == NONE {
                    let (now, pool) = (self.w.now, &mut self.w.pools[pool as usize]);
                    let more = pool.round_up(units) - c.alloc;
                    pool.allocate(now, more);
                    self.w.sessions[s as usize].claims[claim as usize].alloc += more;
                } else {
                    // It fits: `growths_fit` said so.
                    self.grow_shared(s, claim, units);
                }
            }
            let c = &mut self.w.sessions[s as usize].claims[claim as usize];
            c.position += 1.0;
            let position = c.position;
            self.register(s, claim, position);
        }
    }

    /// Work done and positions reached by `tokens` more each.
    fn advance_residents(&mut self, stage: u32, tokens: f64) {
        if self.w.plans[stage as usize].as_ref().is_some_and(|p| p.tracks) {
            self.sample_residents(stage, tokens);
        }
        let w = &mut self.w;
        let Kind::Step(step) = &w.stages[stage as usize].kind else { return };
        for &(id, _) in &step.assigned {
            let job = &mut w.jobs[id as usize];
            job.work -= tokens;
            if let (Some(s), Some(claim)) = (job.session, job.growing) {
                w.sessions[s as usize].claims[claim as usize].position += tokens;
            }
        }
    }

    /// Whether every allocation that the next iteration makes larger finds free room, nothing
    /// evicted and nobody preempted.
    fn growths_fit(&self, stage: u32) -> bool {
        let w = &self.w;
        let Kind::Step(step) = &w.stages[stage as usize].kind else { return false };
        let mut grown: Option<(u32, f64)> = None;
        step.assigned.iter().all(|&(id, _)| {
            let job = &w.jobs[id as usize];
            let (Some(s), Some(claim)) = (job.session, job.growing) else { return true };
            let c = &w.sessions[s as usize].claims[claim as usize];
            let need = c.position + 1.0 - c.alloc;
            if need <= EPS {
                return true;
            }
            let pool = &w.pools[c.pool as usize];
            let (of, used) = grown.unwrap_or((c.pool, pool.used));
            let more = pool.round_up(c.alloc + need) - c.alloc;
            grown = Some((of, used + more));
            of == c.pool
                && used + more <= pool.cap + EPS
                && used + pool.cache.total + more <= pool.cap + EPS
        })
    }

    /// Makes the allocations larger that need it for the next token, in order of service.
    fn grow_residents(&mut self, stage: u32) {
        let w = &mut self.w;
        let Kind::Step(step) = &w.stages[stage as usize].kind else { return };
        for &(id, _) in &step.assigned {
            let job = &w.jobs[id as usize];
            let (Some(s), Some(claim)) = (job.session, job.growing) else { continue };
            let c = &mut w.sessions[s as usize].claims[claim as usize];
            let need = c.position + 1.0 - c.alloc;
            if need > EPS {
                let pool = &mut w.pools[c.pool as usize];
                let more = pool.round_up(c.alloc + need) - c.alloc;
                pool.allocate(w.now, more);
                c.alloc += more;
            }
        }
    }
}
