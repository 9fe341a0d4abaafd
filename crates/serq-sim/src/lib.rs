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
mod gate;
mod pool;
mod program;
mod report;
mod request;
mod rng;
mod session;
mod stage;
mod stats;
mod world;

use std::ops::ControlFlow;

use serq_lang::ir::{Program, Trace, validate};

pub use error::{Fault, RunError};
pub use report::deadlock::{Deadlock, Held, Waiter};
pub use report::gauge::GaugeReport;
pub use report::requests::{Measure, RequestsReport, SloReport};
pub use report::{
    Note, ObserveReport, PoolReport, Quantile, REPORT_VERSION, Report, RunReport, SERIOUS, Split,
    StageReport,
};
pub use request::{Request, Slo};
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
    /// What a request must meet to be served well; with no bound, that is not reported.
    pub slo: Slo,
    /// Whether iterations of an engine that decide nothing are run many at a time. It changes the
    /// time a run takes and no bit of its result.
    pub coalesce: bool,
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
        }
    }
}

/// Sees a run from outside. Every method has a default that ignores it.
pub trait Observer {
    /// A sample after the warm-up, in order of time.
    fn sample(&mut self, sample: &Sample) {
        let _ = sample;
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

    /// Called now and then; `Break` stops the run.
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        let _ = progress;
        ControlFlow::Continue(())
    }
}

/// Ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

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
    if let Some(missing) = gate::missing(program) {
        let text = format!("the program has {missing}, which this version does not run");
        return Err(RunError::Options(text));
    }
    if let Some(Trace::File(name)) = &program.trace {
        let text = format!("the trace \"{name}\" was not read: put its sessions into the program");
        return Err(RunError::Options(text));
    }
    let (compiled, plans, capacities) = program::compile(program);
    let mut engine = engine::Engine::new(&compiled, (plans, capacities), settings, observer);
    engine.run()?;
    Ok(report::make(&mut engine, &options.quantiles))
}

fn settings(program: &Program, options: &Options) -> Result<RunSettings, RunError> {
    let settings = RunSettings {
        seed: options.seed.unwrap_or(program.seed),
        horizon: options.horizon.unwrap_or(program.horizon),
        warmup: options.warmup.unwrap_or(program.warmup),
        coalesce: options.coalesce,
        slo: options.slo,
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
    if let Some((name, bound)) = settings.slo.bounds().find(|(_, b)| b.is_nan() || *b < 0.0) {
        return refuse(format!("the bound {name} is {bound}: give seconds"));
    }
    Ok(settings)
}
