//! Where time passes.
//!
//! A job is work at a stage, a session's or (moving spilled units) nobody's. Jobs live in one
//! arena with an epoch per number, so that an event for a job that left is recognised. How a kind
//! of stage serves is in its own file: [`queueing`] (fifo and delay), [`ps`], [`flow`], [`step`] with
//! [`deliver`] (what its iterations result in) and [`duty`] (what they do beside tokens).

pub(crate) mod coast;
pub(crate) mod deliver;
pub(crate) mod duty;
pub(crate) mod estimate;
pub(crate) mod flow;
pub(crate) mod ps;
pub(crate) mod queueing;
pub(crate) mod serving;
pub(crate) mod step;

use std::collections::VecDeque;

use estimate::Estimate;
use flow::Flow;
use ps::Ps;
use serq_lang::ir::{CExpr, CStage, CStageKind};
use step::Step;

use crate::What;
use crate::engine::Engine;
use crate::error::{EPS, Result};
use crate::expr::Expr;
use crate::session::Status;
use crate::stats::{Mean, TimeAverage};

/// What a run asks of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Plain,
    Prefill,
    Decode,
    /// No job: the session waits for iterations.
    Steps,
}

impl Mode {
    /// Whether it computes tokens of a request.
    pub(crate) fn computes(self) -> bool {
        matches!(self, Mode::Prefill | Mode::Decode)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) alive: bool,
    /// Counts the jobs that had this number.
    pub(crate) epoch: u32,
    pub(crate) stage: u32,
    /// Flow: further stages, and their `gap`s.
    pub(crate) also: Box<[(u32, Option<f64>)]>,
    /// Flow: work per second.
    pub(crate) rate: f64,
    pub(crate) session: Option<u32>,
    pub(crate) mode: Mode,
    /// Unfinished work: all of it until a fifo or delay stage ends it, tokens left at a step stage,
    /// those under way included.
    pub(crate) work: f64,
    /// Step: decode tokens behind those of a prefill.
    pub(crate) then: f64,
    /// Step that tracks: tokens scheduled and not delivered.
    pub(crate) flying: f64,
    /// Step: the run it is of, [`NO_RUN`] for none.
    pub(crate) run: u32,
    /// Preempted with tokens under way, which its session still gets: the session's serial number.
    pub(crate) ghost: Option<u64>,
    /// Fifo and delay: when it ends. Ps: the virtual time at which it does.
    pub(crate) finish: f64,
    pub(crate) joined: f64,
    /// When service began; `None` while it waits.
    pub(crate) started: Option<f64>,
    /// Seconds since the stage's previous start of service.
    pub(crate) gap: Option<f64>,
    /// Step: claim of the session that grows with it.
    pub(crate) growing: Option<u32>,
    /// Step: admission number of its session, the order among residents.
    pub(crate) admission: u64,
    /// Step: last iteration that considered it.
    pub(crate) served: u64,
    /// Step: its growth waits in a growers list.
    pub(crate) stalled: bool,
}

/// A job of no run of a session.
pub(crate) const NO_RUN: u32 = u32::MAX;

impl Job {
    /// Tokens left, those under way included.
    pub(crate) fn left(&self) -> f64 {
        self.work + self.then
    }

    /// Whether the next token it is served is one of decoding. Only who keeps an account of tokens
    /// under way has any.
    pub(crate) fn decodes(&self) -> bool {
        self.mode == Mode::Decode || self.flying >= self.work - EPS
    }

    /// Prefill tokens that no iteration has been given yet.
    pub(crate) fn unscheduled_prefill(&self) -> f64 {
        if self.mode == Mode::Prefill { (self.work - self.flying).max(0.0) } else { 0.0 }
    }

    /// Whether the latest `n` tokens it was served are prefill.
    pub(crate) fn prefilled(&self, n: f64) -> bool {
        self.mode == Mode::Prefill && self.flying - n < self.work - EPS
    }

    /// The stages it is at.
    pub(crate) fn stages(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        std::iter::once(self.stage).chain(self.also.iter().map(|(s, _)| *s))
    }

    /// Tokens it would take from an unlimited budget; `chunk` 0 is no cap.
    pub(crate) fn wants(&self, chunk: f64) -> f64 {
        if self.flying > 0.0 {
            let left = self.left() - self.flying;
            if self.decodes() {
                left.min(1.0)
            } else {
                let prefill = self.work - self.flying;
                if chunk > 0.0 { prefill.min(chunk) } else { prefill }
            }
        } else if self.mode == Mode::Decode {
            self.work.min(1.0)
        } else if chunk > 0.0 {
            self.work.min(chunk)
        } else {
            self.work
        }
    }
}

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) kind: Kind,
    /// Jobs waiting and in service.
    pub(crate) present: u32,
    pub(crate) estimate: Estimate,
    pub(crate) stats: StageStats,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Fifo(Fifo),
    Ps(Ps),
    /// A ps stage that carries flows.
    Flow(Flow),
    Delay,
    Step(Step),
}

#[derive(Debug)]
pub(crate) struct Fifo {
    pub(crate) servers: usize,
    pub(crate) queue: VecDeque<u32>,
    /// In order of start.
    pub(crate) serving: Vec<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct StageStats {
    pub(crate) present: TimeAverage,
    pub(crate) busy: TimeAverage,
    pub(crate) completed: u64,
    pub(crate) wait: Mean,
    pub(crate) service: Mean,
    pub(crate) iterations: u64,
    /// Seconds of iterations after the warm-up: prefill only, decode only, mixed, empty.
    pub(crate) split: [f64; 4],
    /// Tokens after the warm-up: prefill, decode.
    pub(crate) tokens: [f64; 2],
    /// Iterations after the warm-up with decode tokens.
    pub(crate) decoding: u64,
}

impl Stage {
    pub(crate) fn new(ir: &CStage, capacity: Option<Expr>, flows: bool) -> Self {
        let kind = match (&ir.kind, capacity) {
            (CStageKind::Fifo(c), _) => Kind::Fifo(Fifo {
                servers: *c as usize,
                queue: VecDeque::new(),
                serving: Vec::new(),
            }),
            (CStageKind::Ps(CExpr::Num(capacity)), _) if flows => {
                Kind::Flow(Flow { capacity: *capacity, carried: TimeAverage::default() })
            }
            (CStageKind::Ps(_), Some(capacity)) => Kind::Ps(Ps::new(capacity)),
            (CStageKind::Step(_), _) => Kind::Step(Step::default()),
            _ => Kind::Delay,
        };
        Self { kind, present: 0, estimate: Estimate::default(), stats: StageStats::default() }
    }

    #[inline]
    fn change_present(&mut self, now: f64, by: i32) {
        self.present = self.present.wrapping_add_signed(by);
        self.stats.present.set(now, f64::from(self.present));
        self.stats.busy.set(now, f64::from(self.present > 0));
    }
}

impl Engine<'_> {
    /// A job joins a stage. `work` is positive.
    pub(crate) fn join(
        &mut self,
        stage: u32,
        session: Option<u32>,
        work: f64,
        mode: Mode,
        growing: Option<u32>,
    ) -> Result<()> {
        self.join_over((stage, &[]), session, work, mode, growing).map(|_| ())
    }

    /// The same over further stages at once.
    pub(crate) fn join_over(
        &mut self,
        (stage, also): (u32, &[u32]),
        session: Option<u32>,
        work: f64,
        mode: Mode,
        growing: Option<u32>,
    ) -> Result<u32> {
        let now = self.w.now;
        let (id, epoch) = self.new_job();
        let job = Job {
            alive: true,
            epoch,
            stage,
            also: if also.is_empty() {
                Box::default()
            } else {
                also.iter().map(|s| (*s, None)).collect()
            },
            rate: 0.0,
            session,
            mode,
            work,
            then: 0.0,
            flying: 0.0,
            run: NO_RUN,
            ghost: None,
            finish: 0.0,
            joined: now,
            started: None,
            gap: None,
            growing,
            admission: session.map_or(0, |s| self.w.sessions[s as usize].admission),
            served: 0,
            stalled: false,
        };
        match self.w.jobs.get_mut(id as usize) {
            Some(slot) => *slot = job,
            None => self.w.jobs.push(job),
        }
        if let Some(s) = session {
            self.w.sessions[s as usize].status = Status::Working { job: id };
        }
        self.w.stages[stage as usize].change_present(now, 1);
        for s in also {
            self.w.stages[*s as usize].change_present(now, 1);
        }
        match &mut self.w.stages[stage as usize].kind {
            Kind::Fifo(fifo) => {
                fifo.queue.push_back(id);
                self.start_waiting(stage);
            }
            Kind::Delay => self.start_delay(stage, id),
            Kind::Ps(_) => self.join_ps(stage, id),
            Kind::Flow(_) => self.join_flow(stage, id),
            Kind::Step(_) => self.join_step(stage, id),
        }
        Ok(id)
    }

    /// A job's number, perhaps used before, and its epoch.
    fn new_job(&mut self) -> (u32, u32) {
        match self.free_jobs.pop() {
            Some(id) => (id, self.w.jobs[id as usize].epoch.wrapping_add(1)),
            None => (self.w.jobs.len() as u32, 0),
        }
    }

    pub(super) fn free_job(&mut self, id: u32) {
        self.w.jobs[id as usize].alive = false;
        self.free_jobs.push(id);
    }

    /// Service of a job begins.
    pub(crate) fn begin_service(&mut self, stage: u32, id: u32) {
        let now = self.w.now;
        let s = &mut self.w.stages[stage as usize];
        let job = &mut self.w.jobs[id as usize];
        job.started = Some(now);
        job.gap = s.estimate.start(now);
    }

    /// A job that is in no list of its stage any more is done: records it and wakes its session.
    pub(crate) fn complete(&mut self, id: u32) -> Result<()> {
        let now = self.w.now;
        let job = &self.w.jobs[id as usize];
        if let (Some(s), Mode::Prefill) = (job.session, job.mode) {
            self.requests.prefilled(s, now);
        }
        let (session, started) = (job.session, job.started.unwrap_or(job.joined));
        let times = (started - job.joined, now - started);
        let (stage, gap) = (job.stage, job.gap);
        self.note_completed(stage, gap, times);
        for k in 0..self.w.jobs[id as usize].also.len() {
            let (also, gap) = self.w.jobs[id as usize].also[k];
            self.note_completed(also, gap, times);
        }
        self.free_job(id);
        match session {
            Some(s) => {
                self.tell(s, What::RunOver { stage: stage as usize });
                self.wake(s)
            }
            None => Ok(()),
        }
    }

    /// A job leaves a stage, done: it waited and was served so long, and its service began `gap` after the one before.
    #[inline]
    fn note_completed(&mut self, stage: u32, gap: Option<f64>, (wait, service): (f64, f64)) {
        let s = &mut self.w.stages[stage as usize];
        s.change_present(self.w.now, -1);
        if self.c.code.reads_estimates {
            s.estimate.complete(gap, service, wait);
        }
        if self.warm {
            s.stats.completed += 1;
            s.stats.wait.add(wait);
            s.stats.service.add(service);
        }
    }

    /// Takes a job out of its stage unfinished. At a step stage the tokens of an iteration that
    /// has not ended are not computed: the position goes back. If it delivers an iteration later, the job
    /// is still known until its tokens under way are, though nobody gets them.
    pub(crate) fn remove_job(&mut self, id: u32) {
        let now = self.w.now;
        let stage = self.w.jobs[id as usize].stage;
        match &mut self.w.stages[stage as usize].kind {
            Kind::Fifo(fifo) => {
                fifo.queue.retain(|j| *j != id);
                fifo.serving.retain(|j| *j != id);
            }
            Kind::Delay => {}
            Kind::Ps(_) => self.leave_ps(stage, id),
            Kind::Flow(_) => self.leave_flow(id),
            Kind::Step(_) => self.leave_step(stage, id),
        }
        let job = &self.w.jobs[id as usize];
        for s in std::iter::once(stage).chain(job.also.iter().map(|(s, _)| *s)) {
            self.w.stages[s as usize].change_present(now, -1);
        }
        if self.w.jobs[id as usize].flying > 0.0 {
            self.w.jobs[id as usize].alive = false;
        } else {
            self.free_job(id);
        }
        if matches!(self.w.stages[stage as usize].kind, Kind::Fifo(_)) {
            self.start_waiting(stage);
        }
    }
}
