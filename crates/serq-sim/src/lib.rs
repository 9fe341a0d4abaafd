//! Runs a deployment: an event loop over its intermediate representation.
//!
//! [`run`] takes a program, compiles it once and plays it from time 0 to its horizon. The engine
//! is a pure state machine: no clock, no files, no threads; randomness comes from the seed, so
//! one program and seed give one [`Report`], bit for bit, on every machine. Samples and progress
//! go out through an [`Observer`].
//!
//! ```
//! use serq_lang::ir::Program;
//! use serq_sim::{NoObserver, Options, run};
//!
//! let program = Program::empty();
//! let report = run(&program, &Options::default(), &mut NoObserver)?;
//! assert_eq!(report.run.arrivals, 0);
//! # Ok::<(), serq_sim::RunError>(())
//! ```
#![forbid(unsafe_code)]
#![expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
#![expect(clippy::cast_sign_loss, reason = "checked to be whole and not negative before")]

pub mod content;
mod engine;
mod error;
mod event;
mod expr;
mod pool;
mod program;
mod report;
mod request;
mod rng;
mod session;
mod slots;
mod stage;
mod stats;
mod world;

use std::ops::ControlFlow;

use pool::shared;
use serq_lang::ir::{CPool, Program, Trace, validate};

pub use error::{Fault, RunError};
pub use report::deadlock::{Deadlock, Held, Waiter};
pub use report::gauge::GaugeReport;
pub use report::requests::{Measure, RequestsReport, SloReport};
pub use report::{
    Note, ObserveReport, PoolReport, Quantile, REPORT_VERSION, Report, RunReport, SERIOUS, Split,
    StageReport,
};
pub use request::Request;
pub use serq_lang::ir::Slo;
pub use stats::student::student_t;

/// What a caller may override, and wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub seed: Option<u64>,
    /// Seconds.
    pub horizon: Option<f64>,
    /// Seconds.
    pub warmup: Option<f64>,
    /// Quantiles to report beside the usual ones, each in 0..=1.
    pub quantiles: Vec<f64>,
    /// What a request must meet to be served well; with no bound, what the program says.
    pub slo: Slo,
    /// Whether iterations of an engine that decide nothing are run many at a time. It changes the
    /// time a run takes and no bit of its result.
    pub coalesce: bool,
    /// Orders of simultaneous releases: where several leases end with one iteration of an engine, for
    /// the time that happens of the given number, from 0, places in the order the run would take. A
    /// real engine walks a set there.
    pub releases: Vec<(u64, Vec<usize>)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: None,
            horizon: None,
            warmup: None,
            quantiles: Vec::new(),
            slo: Slo::default(),
            coalesce: true,
            releases: Vec::new(),
        }
    }
}

/// Sees a run from outside. Every method has a default that ignores it.
pub trait Observer {
    /// A sample after the warm-up, in order of time. Called only if [`Observer::wants_samples`].
    fn sample(&mut self, sample: &Sample) {
        let _ = sample;
    }

    /// Asked once, before the run.
    fn wants_samples(&self) -> bool {
        true
    }

    /// A request that started after the warm-up is answered; in the order in which that is known:
    /// when its session turns to something else than prefill and decode.
    fn request(&mut self, request: &Request) {
        let _ = request;
    }

    /// An iteration of a step stage begins. Called only if [`Observer::wants_iterations`].
    fn iteration(&mut self, iteration: &Iteration<'_>) {
        let _ = iteration;
    }

    /// Asked once, before the run.
    fn wants_iterations(&self) -> bool {
        false
    }

    /// Something happened to a session. Called only if [`Observer::wants_happenings`].
    fn happened(&mut self, happening: &Happening) {
        let _ = happening;
    }

    /// The memory of a step stage at a moment of an iteration, or while it is idle. Called only if
    /// [`Observer::wants_happenings`].
    fn engine(&mut self, state: &EngineState) {
        let _ = state;
    }

    /// Several leases end with one iteration: see [`Options::releases`]. Called only if
    /// [`Observer::wants_happenings`].
    fn releases(&mut self, releases: &Releases<'_>) {
        let _ = releases;
    }

    /// Asked once, before the run. An observer that wants them makes every iteration an event of its
    /// own, which takes longer.
    fn wants_happenings(&self) -> bool {
        false
    }

    /// Called now and then; `Break` stops the run.
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        let _ = progress;
        ControlFlow::Continue(())
    }
}

/// Ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn wants_samples(&self) -> bool {
        false
    }
}

/// One sample of an observe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Index into the program's observes.
    pub observe: usize,
    /// Seconds.
    pub time: f64,
    /// Serial number of the session, from 0.
    pub session: u64,
    /// Turns the session has begun.
    pub turn: u64,
    pub value: f64,
}

/// What an engine does in one iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Iteration<'a> {
    /// Index into the program's stages.
    pub stage: usize,
    /// When it begins, seconds.
    pub time: f64,
    /// Seconds it lasts.
    pub duration: f64,
    /// In order of assignment; none in an iteration after a preemption that left nothing to do.
    pub tokens: &'a [Tokens],
}

/// One resident's part of an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tokens {
    pub session: u64,
    pub turn: u64,
    pub prefill: bool,
    pub count: f64,
    /// Units computed before these, in the allocation that the run grows; 0 if it grows none.
    pub position: f64,
}

/// Something that happened to a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Happening {
    /// Seconds.
    pub time: f64,
    /// Serial number of the session: for sessions given as data, their place in the list.
    pub session: u64,
    pub what: What,
}

/// What happened. Pools and stages are indices into the program's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// It was allocated units of a pool, one for each pool of a hold, in the hold's order; a booking
    /// when it is granted. `cached` units were there already.
    Admitted { pool: usize, cached: f64 },
    /// A hold of it gave way to a growth of this pool. Its tokens in the iteration that is being put
    /// together, if there is one, are taken back.
    Preempted { pool: usize },
    /// A sample of a run was delivered: the last prefill token's, or a decode token's.
    Sampled { stage: usize },
    /// A run is over, whether the session waited for it or, preempted, for its admission.
    RunOver { stage: usize },
    /// The iteration that a run of steps ends with is over. With `ahead` the session hears of it
    /// an iteration later.
    StepsOver { stage: usize },
    /// A hold ended and left a lease.
    LeaseGranted { pool: usize },
    /// The engine that minds a lease puts an iteration together with which the lease ends.
    LeaseNoticed { pool: usize },
    /// What was leased is given back.
    LeaseEnded { pool: usize },
    /// A booking that was granted is given up.
    BookingEnded { pool: usize },
    /// The time of an `until` has come. `shielded`: what it cuts is shielded, and goes on.
    Cut { shielded: bool },
}

/// Leases that end together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Releases<'a> {
    /// Number of such events before this one.
    pub group: u64,
    /// Seconds.
    pub time: f64,
    /// Index into the program's stages.
    pub stage: usize,
    /// Serial numbers of the sessions whose leases these are, in the run's own order: as they were told,
    /// then as they were granted.
    pub sessions: &'a [u64],
}

/// An engine's memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineState {
    /// Seconds.
    pub time: f64,
    /// Index into the program's stages.
    pub stage: usize,
    pub phase: Phase,
    /// Units of the stage's memory that nobody holds; cached ones are among them. `None` without a
    /// memory.
    pub free: Option<f64>,
}

/// When it is looked at an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// An iteration was put together and begins now.
    PutTogether,
    /// An iteration is over, its results are delivered (with `ahead`, those of the one before), and
    /// the sessions that were waiting for them have gone on as far as they could.
    Delivered,
    /// Nothing else happens at this instant, and no iteration is under way.
    Idle,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub time: f64,
    pub horizon: f64,
    pub events: u64,
}

/// The run's numbers, overrides applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSettings {
    pub(crate) seed: u64,
    pub(crate) horizon: f64,
    pub(crate) warmup: f64,
    pub(crate) coalesce: bool,
    pub(crate) slo: Slo,
}

/// Runs a program to its horizon, or, without one, until its last session has ended.
///
/// Errors: the program or the options are invalid, a statement met a value without meaning, or
/// the observer stopped it. A deadlock is no error: it is in the report.
pub fn run(
    program: &Program,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Report, RunError> {
    validate(program).map_err(RunError::Invalid)?;
    let settings = settings(program, options)?;
    let large = |p: &&CPool| p.shared && p.block.is_some_and(|b| p.cap / b > shared::MOST_BLOCKS);
    if let Some(pool) = program.pools.iter().find(large) {
        let text = format!(
            "shared pool `{}` has {} units in blocks of {}: at most {} blocks can be run",
            pool.name,
            pool.cap,
            pool.block.unwrap_or(1.0),
            shared::MOST_BLOCKS
        );
        return Err(RunError::Options(text));
    }
    if let Some(Trace::File(name)) = &program.trace {
        let text = format!("the trace \"{name}\" was not read: put its sessions into the program");
        return Err(RunError::Options(text));
    }
    let (compiled, plans, capacities) = program::compile(program);
    let mut engine = engine::Engine::new(&compiled, (plans, capacities), settings, observer);
    engine.releases_in = &options.releases;
    engine.run()?;
    Ok(report::make(&mut engine, &options.quantiles))
}

fn settings(program: &Program, options: &Options) -> Result<RunSettings, RunError> {
    let settings = RunSettings {
        seed: options.seed.unwrap_or(program.seed),
        horizon: options.horizon.unwrap_or(program.horizon),
        warmup: options.warmup.unwrap_or(program.warmup),
        coalesce: options.coalesce,
        slo: if options.slo == Slo::default() {
            program.slo.unwrap_or_default()
        } else {
            options.slo
        },
    };
    let refuse = |text: String| Err(RunError::Options(text));
    let drains = settings.horizon == f64::INFINITY && program.is_finite();
    if !(drains || (settings.horizon.is_finite() && settings.horizon > 0.0)) {
        return refuse(format!("the horizon is {}: give a positive number", settings.horizon));
    }
    if !(settings.warmup >= 0.0 && settings.warmup < settings.horizon) {
        return refuse(format!(
            "the warm-up is {}: give 0 or more, less than the horizon {}",
            settings.warmup, settings.horizon
        ));
    }
    if let Some(q) = options.quantiles.iter().find(|q| !(0.0..=1.0).contains(*q)) {
        return refuse(format!("quantile {q} is not between 0 and 1"));
    }
    if let Some((name, bound)) = settings.slo.bounds().find(|(_, b)| !b.is_finite() || *b < 0.0) {
        return refuse(format!("the bound {name} is {bound}: give seconds"));
    }
    Ok(settings)
}
