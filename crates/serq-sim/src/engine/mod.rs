//! The engine: a state machine over time.
//!
//! Events come out of the heap in order of time and scheduling; after each one the instant
//! settles ([`settle`](Engine::settle)). Everything else is in the modules of what it concerns:
//! statements and sessions, pools, stages.

pub(crate) mod alert;
#[cfg(debug_assertions)]
pub(crate) mod invariant;
#[cfg(debug_assertions)]
mod ledger;
mod settle;
mod tell;
pub(crate) mod upkeep;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use alert::Set;
use serq_lang::ir::Program;

use crate::error::{Fault, Reason, Result, RunError, Subject};
use crate::event::{Event, Heap};
use crate::expr::{Env, Expr, NO_VARS};
use crate::pool::Pool;
use crate::program::Compiled;
use crate::report::gauge::Gauge;
use crate::rng::{Family, Purpose, Rng, dist::Units};
use crate::session::Pending;
use crate::stage::{Kind, Mode, Stage};
use crate::stats::{Requests, Samples, TimeAverage, Trend};
use crate::world::World;
use crate::{Observer, RunSettings};

/// Events between two calls of the observer's progress.
const PROGRESS_EVERY: u64 = 1 << 16;
/// A bit above every sequence number.
const LATE: u64 = 1 << 63;

pub(crate) struct Engine<'p> {
    pub(crate) c: &'p Compiled<'p>,
    pub(crate) w: World,
    pub(crate) observer: &'p mut dyn Observer,
    pub(crate) settings: RunSettings,
    pub(crate) seed: u64,
    events: Heap<Event>,
    scheduled: u64,
    pub(crate) handled: u64,
    pub(crate) ready: VecDeque<u32>,
    pub(crate) free_jobs: Vec<u32>,
    pub(crate) free_sessions: Vec<u32>,
    pub(crate) session_rng: Vec<Rng>,
    /// Where those come from.
    pub(crate) statements: Family,
    pub(crate) stage_rng: Vec<Rng>,
    pub(crate) evict_rng: Rng,
    pub(crate) arrival_rng: Rng,
    /// What Poisson arrivals draw from it.
    pub(crate) arrival_units: Units,
    /// Whether the warm-up is over, and since when.
    pub(crate) warm: bool,
    pub(crate) warm_at: f64,
    /// Numbers given out: admissions, releases, leases.
    pub(crate) admissions: u64,
    pub(crate) releases: u64,
    pub(crate) leases: u64,
    /// Frames and chains of content, too.
    pub(crate) frames: u64,
    pub(crate) chains: u64,
    /// Times that several leases ended with one iteration.
    pub(crate) groups: u64,
    /// Other orders for some of them.
    pub(crate) releases_in: &'p [(u64, Vec<usize>)],
    pub(crate) preemptions: u64,
    /// Sessions that joined the queue of a pool no stage serves.
    pub(crate) plain_news: u64,
    /// Arrivals scheduled and come.
    pub(crate) coming: u64,
    /// Arrivals without a gap since the last with one.
    pub(crate) crowd: u64,
    pub(crate) arrived: u64,
    pub(crate) ended: u64,
    pub(crate) turns_begun: u64,
    pub(crate) live: u64,
    pub(crate) live_average: TimeAverage,
    pub(crate) samples: Vec<Samples>,
    pub(crate) gauges: Vec<Gauge>,
    pub(crate) requests: Requests,
    pub(crate) trend: Trend,
    /// Sessions that had come when the warm-up ended.
    pub(crate) arrived_before: u64,
    pub(crate) stillborn: u64,
    pub(crate) stillborn_at: f64,
    /// Whether the observer sees every sample.
    pub(crate) show_samples: bool,
    /// Whether it sees every iteration.
    pub(crate) trace_iterations: bool,
    /// Whether it is told what happens, step by step.
    pub(crate) watched: bool,
    /// The engine whose iteration ended with this event, for the observer.
    pub(crate) delivered: Option<u32>,
    /// Buffer: what the attempt of a head that does not fit would have measured.
    pub(crate) measured: Vec<Pending>,
    /// Buffer: jobs an iteration finished.
    pub(crate) done: Vec<u32>,
    /// Pools and stages that need a look when an instant settles.
    pub(crate) alert_pools: Set,
    pub(crate) alert_stages: Set,
    /// Whether another look would find nothing to do: set when an instant has settled.
    pub(crate) calm: bool,
    /// In a run without horizon, whether anything happens.
    watch: upkeep::Watch,
    /// Coasting engines whose residents' work and positions are to be brought up to date.
    pub(crate) lagging: Vec<u32>,
    /// What was found when the invariants were last checked.
    #[cfg(debug_assertions)]
    ledger: ledger::Ledger,
}

impl<'p> Engine<'p> {
    pub(crate) fn new(
        c: &'p Compiled<'p>,
        plans: (Vec<Option<crate::program::StepPlan>>, Vec<Option<Expr>>),
        settings: RunSettings,
        observer: &'p mut dyn Observer,
    ) -> Self {
        let ir: &Program = c.ir;
        let seed = settings.seed;
        let world = World {
            pools: ir.pools.iter().zip(&c.pools).map(|(p, plan)| Pool::new(p, plan.lru)).collect(),
            stages: ir
                .stages
                .iter()
                .zip(plans.1)
                .zip(&c.flows)
                .map(|((s, e), flows)| Stage::new(s, e, *flows))
                .collect(),
            width: ir.attrs.len(),
            plans: plans.0,
            ..World::default()
        };
        Self {
            c,
            w: world,
            show_samples: observer.wants_samples(),
            trace_iterations: observer.wants_iterations(),
            watched: observer.wants_happenings(),
            delivered: None,
            observer,
            settings,
            seed,
            events: Heap::new(),
            scheduled: 0,
            handled: 0,
            ready: VecDeque::new(),
            free_jobs: Vec::new(),
            free_sessions: Vec::new(),
            session_rng: Vec::new(),
            statements: Family::new(seed, Purpose::Statements),
            stage_rng: (0..ir.stages.len())
                .map(|i| Rng::stream(seed, Purpose::Stage, i as u64, 0))
                .collect(),
            evict_rng: Rng::stream(seed, Purpose::Evict, 0, 0),
            arrival_rng: Rng::stream(seed, Purpose::Arrivals, 0, 0),
            arrival_units: Units::default(),
            warm: settings.warmup <= 0.0,
            warm_at: 0.0,
            admissions: 0,
            releases: 0,
            leases: 0,
            frames: 0,
            chains: 0,
            groups: 0,
            releases_in: &[],
            preemptions: 0,
            plain_news: 0,
            coming: 0,
            crowd: 0,
            arrived: 0,
            ended: 0,
            turns_begun: 0,
            live: 0,
            live_average: TimeAverage::default(),
            samples: ir.observes.iter().map(|_| Samples::default()).collect(),
            gauges: Gauge::all(c.gauges.len(), settings),
            requests: Requests::new(
                c.runs.iter().any(|run| run.mode != Mode::Plain),
                settings.slo,
                settings.warmup,
                settings.horizon,
            ),
            trend: Trend::new(
                settings.warmup,
                settings.horizon,
                2 + ir.stages.len() + ir.pools.len(),
            ),
            arrived_before: 0,
            stillborn: 0,
            stillborn_at: -1.0,
            measured: Vec::new(),
            done: Vec::new(),
            calm: false,
            watch: upkeep::Watch::default(),
            lagging: Vec::new(),
            #[cfg(debug_assertions)]
            ledger: ledger::Ledger::default(),
            alert_pools: Set::default(),
            alert_stages: Set::default(),
        }
    }

    /// Runs to the horizon, or until nothing can happen any more; without a horizon, until the last
    /// session has ended, or nobody can move again, which then is the end of the run.
    pub(crate) fn run(&mut self) -> std::result::Result<(), RunError> {
        self.start().map_err(|r| self.fault(*r))?;
        #[cfg(debug_assertions)]
        self.check_invariants();
        let drains = self.settings.horizon == f64::INFINITY;
        while let Some(at) = self.events.due() {
            if at > self.settings.horizon || (drains && self.is_drained()) {
                break;
            }
            if drains && self.only_upkeep_is_left()? {
                break;
            }
            let before = self.handled / PROGRESS_EVERY;
            if at >= self.trend.next {
                self.look(at);
            }
            self.next_event().map_err(|r| self.fault(*r))?;
            if self.handled / PROGRESS_EVERY > before {
                let progress = crate::Progress {
                    time: self.w.now,
                    horizon: self.settings.horizon,
                    events: self.handled,
                };
                if let ControlFlow::Break(()) = self.observer.progress(&progress) {
                    return Err(RunError::Stopped(self.w.now));
                }
            }
        }
        self.catch_up();
        #[cfg(debug_assertions)]
        self.check_everything();
        if drains {
            self.settings.horizon = self.w.now;
            if self.w.now <= self.settings.warmup && self.settings.warmup > 0.0 {
                let (end, warmup) = (self.w.now, self.settings.warmup);
                return Err(RunError::Options(format!(
                    "the run ended at {end}, before the warm-up of {warmup}: nothing was measured"
                )));
            }
        }
        Ok(())
    }

    /// Notes the state for the looks due up to `now`, before what happens then.
    pub(crate) fn look(&mut self, now: f64) {
        let w = &self.w;
        let idle = |s: &Stage| if let Kind::Delay = s.kind { f64::from(s.present) } else { 0.0 };
        let live = self.live as f64;
        let backlog = (live - w.stages.iter().map(idle).sum::<f64>()).max(0.0);
        let stages = w.stages.iter().map(|s| f64::from(s.present));
        let pools = w.pools.iter().map(|p| p.queue.len() as f64);
        self.trend.look(now, [live, backlog].into_iter().chain(stages).chain(pools));
    }

    fn start(&mut self) -> Result<()> {
        if !self.warm {
            self.schedule(self.settings.warmup, Event::EndWarmup);
        }
        self.start_arrivals()?;
        self.settle()?;
        self.read_gauges()
    }

    /// Handles one event and lets its instant settle.
    fn next_event(&mut self) -> Result<()> {
        let Some((at, event)) = self.events.pop() else { return Ok(()) };
        self.w.now = at;
        self.handled += 1;
        if let Event::IterEnd { stage } = event
            && self.coast(stage)?
        {
            return Ok(());
        }
        if self.w.now >= self.trend.next {
            // Iterations that were run together led past a look; nothing has changed since.
            self.look(self.w.now);
        }
        if !self.lagging.is_empty() {
            self.catch_up();
        }
        match event {
            Event::Arrive => self.arrive()?,
            Event::Finish { job, epoch } => self.finish(job, epoch)?,
            Event::Shared { stage, epoch } => self.finish_shared(stage, epoch)?,
            Event::Flow { job, epoch } => self.finish_flow(job, epoch)?,
            Event::IterEnd { stage } => self.end_iteration(stage)?,
            Event::LeaseEnd { session, lease } => self.expire(session, lease)?,
            Event::Deadline { session, frame } => self.deadline(session, frame)?,
            Event::Come { number } => self.spawn_as(Some(number))?,
            Event::EndWarmup => self.end_warmup(),
        }
        self.settle()?;
        self.read_gauges()?;
        #[cfg(debug_assertions)]
        self.check_invariants();
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn schedule(&mut self, at: f64, event: Event) {
        self.scheduled += 1;
        // An infinite time never comes.
        if at < f64::INFINITY {
            self.events.push(at, self.scheduled, event);
        }
    }

    /// The same, to come after every other event of its time.
    pub(crate) fn schedule_late(&mut self, at: f64, event: Event) {
        self.scheduled += 1;
        if at < f64::INFINITY {
            self.events.push(at, LATE | self.scheduled, event);
        }
    }

    /// When the next event is due; never is infinite.
    pub(crate) fn next_time(&self) -> f64 {
        self.events.next().unwrap_or(f64::INFINITY)
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// An expression of a stage, drawing from the stage's stream.
    pub(crate) fn stage_value(&mut self, stage: u32, e: Expr, env: &Env<'_>) -> Result<f64> {
        let rng = &mut self.stage_rng[stage as usize];
        self.c.code.eval(e, &self.w, env, rng).map_err(|r| r.about(Subject::Stage(stage)))
    }

    /// The gauges' values now that an instant has settled.
    #[inline(always)]
    fn read_gauges(&mut self) -> Result<()> {
        if self.gauges.is_empty() { Ok(()) } else { self.read_all_gauges() }
    }

    fn read_all_gauges(&mut self) -> Result<()> {
        for k in 0..self.gauges.len() {
            let rng = &mut self.evict_rng;
            let env = Env::stage(&NO_VARS);
            let value = self.c.code.eval(self.c.gauges[k], &self.w, &env, rng)?;
            if !value.is_finite() {
                return Err(Reason::new(
                    "gauge",
                    format!("gauge `{}` is {value}", self.c.ir.gauges[k].name),
                    "a gauge is a finite number: check for a division by zero",
                )
                .about(Subject::Gauge(k as u32)));
            }
            self.gauges[k].set(self.w.now, value);
        }
        Ok(())
    }

    fn end_warmup(&mut self) {
        let now = self.w.now;
        for gauge in &mut self.gauges {
            gauge.reset(now);
        }
        self.warm = true;
        self.warm_at = now;
        self.arrived_before = self.arrived;
        self.live_average.reset(now);
        for pool in &mut self.w.pools {
            pool.reset_averages(now);
        }
        for stage in &mut self.w.stages {
            stage.stats.present.reset(now);
            stage.stats.busy.reset(now);
            if let Kind::Flow(flow) = &mut stage.kind {
                flow.carried.reset(now);
            }
        }
    }

    /// Gives a mistake its place, session and time.
    fn fault(&self, r: Reason) -> RunError {
        let spans = self.c.ir.spans.as_ref();
        let (path, place) = match r.subject {
            Some(Subject::Op(pc)) => {
                let (block, at) = self.c.origin[pc as usize];
                let place = spans.and_then(|s| s.statement(block as usize, at as usize));
                (format!("blocks[{block}][{at}]"), place)
            }
            Some(Subject::Pool(p)) => {
                (format!("pools[{p}]"), spans.and_then(|s| s.pool(p as usize)))
            }
            Some(Subject::Stage(i)) => {
                (format!("stages[{i}]"), spans.and_then(|s| s.stage(i as usize)))
            }
            Some(Subject::Gauge(k)) => {
                let place = spans.and_then(|s| s.resolve(*s.gauges.get(k as usize)?));
                (format!("gauges[{k}]"), place)
            }
            None => ("program".into(), None),
        };
        RunError::Fault(Box::new(Fault {
            code: r.code,
            place,
            path,
            session: r.session.map(|s| self.w.sessions[s as usize].serial),
            time: self.w.now,
            reason: r.text,
            help: r.help.to_owned(),
        }))
    }
}

#[cfg(test)]
mod tests;
