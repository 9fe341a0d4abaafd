//! What an iteration results in, and when that is known.
//!
//! Without `ahead` an iteration's results are there when it is over. With it they are delivered when the next
//! one is over, an empty one if nothing is left to compute: a scheduler that puts an iteration together
//! before it has seen what came of the last.
//!
//! A row of an iteration is a job and its tokens; a job's rows are delivered in the order in which they
//! were scheduled, so its work tells what each of them was.

use super::duty::Waiting;
use super::{Kind, Mode};
use crate::engine::Engine;
use crate::error::{EPS, Reason, Result, Subject};
use crate::pool::lease::Minded;
use crate::program::Op;
use crate::session::Status;
use crate::{Releases, What};

/// An iteration that is over.
#[derive(Debug)]
pub(crate) struct Batch {
    number: u64,
    rows: Vec<(u32, f64)>,
    pub(crate) over: Vec<Waiting>,
    pub(crate) ending: Vec<Minded>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.over.is_empty() && self.ending.is_empty()
    }

    /// Jobs that have tokens in it.
    fn jobs(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().map(|r| r.0)
    }

    /// Jobs and their tokens.
    #[cfg(debug_assertions)]
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, f64)> + Clone + '_ {
        self.rows.iter().copied()
    }
}

impl Engine<'_> {
    /// An iteration of an engine that keeps an account of tokens under way is over.
    pub(super) fn end_tracked(&mut self, stage: u32) -> Result<()> {
        let (now, warm) = (self.w.now, self.warm);
        let w = &mut self.w;
        let s = &mut w.stages[stage as usize];
        let Kind::Step(step) = &mut s.kind else { return Ok(()) };
        step.running = false;
        let began = step.started;
        if warm {
            let mut tokens = [0.0, 0.0];
            for &(id, n) in &step.assigned {
                tokens[usize::from(!w.jobs[id as usize].prefilled(n))] += n;
            }
            s.stats.decoding += u64::from(tokens[1] > 0.0);
            s.stats.split[step.kind_of(&w.jobs)] += now - began.max(self.warm_at);
            s.stats.tokens[0] += tokens[0];
            s.stats.tokens[1] += tokens[1];
        }
        let batch = Batch {
            number: step.number,
            rows: std::mem::take(&mut step.assigned),
            over: std::mem::take(&mut step.duty.over),
            ending: std::mem::take(&mut step.duty.ending),
        };
        for run in &batch.over {
            self.tell(run.session, What::StepsOver { stage: stage as usize });
            if let Some(telling) = run.telling {
                self.tell_lease(run.session, telling, Some(stage))?;
            }
        }
        let ahead = self.w.plans[stage as usize].as_ref().is_some_and(|p| p.ahead);
        if ahead {
            let Some(duty) = self.duty(stage) else { return Ok(()) };
            let older = duty.flying.pop_front();
            if !batch.is_empty() {
                duty.flying.push_back(batch);
            }
            if let Some(older) = older {
                self.deliver(stage, older, began)?;
            }
        } else {
            self.deliver(stage, batch, began)?;
        }
        self.requests.iteration_ended(began, now);
        Ok(())
    }

    fn deliver(&mut self, stage: u32, mut batch: Batch, began: f64) -> Result<()> {
        let now = self.w.now;
        if let Some(duty) = self.duty(stage) {
            duty.delivered = batch.number;
            let mut free = Vec::new();
            duty.deferred.retain(|&(number, pool, holder)| {
                let waits = number > batch.number;
                if !waits {
                    free.push((pool, holder));
                }
                waits
            });
            for (pool, holder) in free {
                let pool = &mut self.w.pools[pool as usize];
                if let Some(shared) = &mut pool.shared {
                    shared.close(holder);
                }
                pool.note_shared(now);
            }
        }
        self.end_together(stage, &batch.ending)?;
        let mut done = std::mem::take(&mut self.done);
        for &(id, n) in &batch.rows {
            if self.deliver_row(stage, (id, n), began)? {
                done.push(id);
            }
        }
        for id in done.drain(..) {
            self.drop_resident(stage, id);
            self.complete(id)?;
        }
        self.done = done;
        for run in &batch.over {
            if let Some(telling) = run.telling {
                self.end_renewals(run.session, Some(telling.pool));
            }
            self.wake(run.session)?;
        }
        if let Kind::Step(step) = &mut self.w.stages[stage as usize].kind
            && step.assigned.is_empty()
        {
            // The buffer goes back, so that the next iteration does not allocate.
            batch.rows.clear();
            step.assigned = batch.rows;
        }
        Ok(())
    }

    /// Leases that end with one iteration: in the order in which they were noticed, or in another the
    /// caller wants for several.
    fn end_together(&mut self, stage: u32, leases: &[Minded]) -> Result<()> {
        if leases.len() > 1 {
            let group = self.groups;
            self.groups += 1;
            if self.watched {
                let sessions: Vec<u64> = leases.iter().map(|l| l.serial).collect();
                self.observer.releases(&Releases {
                    group,
                    time: self.w.now,
                    stage: stage as usize,
                    sessions: &sessions,
                });
            }
            let orders = self.releases_in;
            if let Some((_, order)) = orders.iter().find(|(of, _)| *of == group) {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                if !sorted.iter().copied().eq(0..leases.len()) {
                    return Err(Reason::new(
                        "releases",
                        format!("{order:?} is no order of the {} leases of group {group}", {
                            leases.len()
                        }),
                        "name each place from 0 once",
                    )
                    .about(Subject::Stage(stage)));
                }
                return order.iter().try_for_each(|k| self.end_minded(leases[*k]));
            }
        }
        leases.iter().try_for_each(|lease| self.end_minded(*lease))
    }

    /// A resident's tokens are there; true if they were its last.
    fn deliver_row(&mut self, stage: u32, (id, n): (u32, f64), began: f64) -> Result<bool> {
        let now = self.w.now;
        let job = &mut self.w.jobs[id as usize];
        job.flying = if job.flying - n > EPS { job.flying - n } else { 0.0 };
        let prefill = job.mode == Mode::Prefill;
        job.work -= n;
        let filled = prefill && job.work <= EPS;
        let decodes = filled && job.then > 0.0;
        if decodes {
            job.mode = Mode::Decode;
            job.work = std::mem::take(&mut job.then);
        }
        let over = job.work <= EPS;
        let (alive, ghost) = (job.alive, job.ghost);
        let Some(s) = job.session else { return Ok(alive && over) };
        if !alive && job.flying <= 0.0 {
            self.free_job(id);
        }
        let session = &self.w.sessions[s as usize];
        if !alive && !(session.is_alive() && ghost == Some(session.serial)) {
            return Ok(false);
        }
        if decodes {
            self.requests.prefilled(s, now);
            self.requests.decodes(s);
        } else if !prefill {
            self.requests.decoded(s, began, now);
        }
        if filled || !prefill {
            self.sample(stage, id, s);
        }
        if over && !alive {
            self.finish_behind(s, stage)?;
        }
        Ok(over && alive)
    }

    /// A sample of a run is delivered.
    fn sample(&mut self, stage: u32, id: u32, s: u32) {
        let now = self.w.now;
        let job = &self.w.jobs[id as usize];
        let (alive, claim, flying) = (job.alive, job.growing, job.flying);
        if let Some(plan) = self.c.runs.get(job.run as usize) {
            if let Some(slot) = plan.answers {
                *self.w.attr_mut(s, slot) += 1.0;
            }
            if let Some(slot) = plan.first {
                let first = self.w.attr_mut(s, slot);
                if *first == 0.0 {
                    *first = now;
                }
            }
        }
        self.tell(s, What::Sampled { stage: stage as usize });
        let Some(claim) = claim.filter(|_| alive) else { return };
        let c = &mut self.w.sessions[s as usize].claims[claim as usize];
        c.decided += 1.0;
        let position = c.position - flying;
        if self.w.plans[stage as usize].as_ref().is_some_and(|p| p.ahead) {
            self.register(s, claim, position);
        }
    }

    /// A preempted session's last token was under way: its hold is over, wherever it waits for it.
    fn finish_behind(&mut self, s: u32, stage: u32) -> Result<()> {
        let session = &self.w.sessions[s as usize];
        let (pc, status) = (session.pc, session.status);
        let (Op::Hold(plan), Status::Queued { .. }) = (self.c.ops[pc as usize], status) else {
            return Ok(());
        };
        self.detach(s);
        self.tell(s, What::RunOver { stage: stage as usize });
        *self.w.attr_mut(s, self.c.slots.computed as u32) = 0.0;
        self.w.sessions[s as usize].pc = self.c.holds[plan as usize].end + 1;
        self.wake(s)
    }

    /// Tokens of a session that are under way at engines it has left are for nobody.
    pub(crate) fn drop_under_way(&mut self, s: u32) {
        let w = &mut self.w;
        for stage in &mut w.stages {
            let Kind::Step(step) = &mut stage.kind else { continue };
            let flying = step.duty.flying.iter().flat_map(Batch::jobs);
            for id in flying.chain(step.assigned.iter().map(|a| a.0)) {
                let job = &mut w.jobs[id as usize];
                if job.session == Some(s) {
                    job.ghost = None;
                }
            }
        }
    }

    /// Others find what a session has computed, as far as its content is known.
    pub(crate) fn register(&mut self, s: u32, claim: u32, position: f64) {
        let session = &self.w.sessions[s as usize];
        let c = &session.claims[claim as usize];
        if let Some(shared) = &mut self.w.pools[c.pool as usize].shared {
            shared.register(c.holder, &session.chain, position.min(c.decided));
        }
    }
}
