//! `run`.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serq::cores;
use serq_lang::ir::Program;
use serq_sim::{
    Iteration, Observer, Options, Progress, Report, Request, RunError, SERIOUS, Sample,
};

use crate::cli::RunArgs;
use crate::csv::Csv;
use crate::load::{self, Loaded};
use crate::out::{self, Done, Failure};
use crate::{check, fault, seeds};

/// Parts of a run that the progress bar distinguishes.
const PARTS: u64 = 1000;

pub(crate) fn run(args: &RunArgs) -> Done {
    measure(args).map_err(|failure| if args.json { out::failed_as_json(failure) } else { failure })
}

fn measure(args: &RunArgs) -> Done {
    let loaded = load::input(&args.input, true)?;
    check::warn(&loaded.warnings, &loaded.sources);
    if args.requests.is_some() && args.seeds > 1 {
        let text = "error: --requests is for one run\n  = help: --csv DIR writes by-request.csv \
                    for every seed";
        return Err(Failure::usage(text));
    }
    let first = loaded.program.seed;
    let Some(last) = first.checked_add(u64::from(args.seeds) - 1) else {
        return Err(Failure::usage("error: the seeds do not fit into 64 bits"));
    };
    let all: Vec<u64> = (first..=last).collect();
    let reports = simulate(args, &loaded, &all)?;
    let text = match (&reports[..], args.json) {
        ([report], true) => report.to_json(),
        ([report], false) => report.to_text(),
        (reports, true) => seeds::to_json(reports),
        (reports, false) => seeds::to_text(reports),
    };
    out::result(&text)?;
    if args.strict {
        strict(&reports)?;
    }
    Ok(())
}

fn strict(reports: &[Report]) -> Done {
    let bad: Vec<String> = reports
        .iter()
        .flat_map(|r| r.notes.iter().map(move |note| (r.run.seed, note)))
        .filter(|(_, note)| SERIOUS.contains(&note.code))
        .map(|(seed, note)| format!("error: {}: seed {seed}: {}", note.code, note.text))
        .collect();
    if bad.is_empty() { Ok(()) } else { Err(Failure::program(bad.join("\n"))) }
}

/// What all the runs of one command share.
struct Shared<'a> {
    args: &'a RunArgs,
    program: &'a Program,
    seeds: &'a [u64],
    /// The first of those that failed; `usize::MAX` while none has.
    failed: AtomicUsize,
    /// Parts done of each run.
    parts: Vec<AtomicU64>,
    bar: ProgressBar,
    began: Instant,
}

/// Why one run has no report.
enum Stopped {
    Run(RunError),
    Files(PathBuf, std::io::Error),
}

/// One run per seed, on all cores; the reports in the order of the seeds.
fn simulate(args: &RunArgs, loaded: &Loaded, seeds: &[u64]) -> Done<Vec<Report>> {
    let shared = Shared {
        args,
        program: &loaded.program,
        seeds,
        failed: AtomicUsize::new(usize::MAX),
        parts: seeds.iter().map(|_| AtomicU64::new(0)).collect(),
        bar: bar(seeds.len() as u64 * PARTS),
        began: Instant::now(),
    };
    let results = cores::on_all(seeds.len(), |at| {
        let result = one(&shared, at);
        // Later ones under way stop too. Earlier ones go on: of several that fail, the first is
        // reported, whichever failed soonest.
        if result.is_err() {
            shared.failed.fetch_min(at, Ordering::Relaxed);
        }
        result
    });
    shared.bar.finish_and_clear();
    let mut reports = Vec::new();
    for (result, seed) in results.into_iter().zip(seeds) {
        match result {
            Some(Ok(report)) => reports.push(report),
            Some(Err(Stopped::Files(path, e))) => {
                let text = format!("error: cannot write samples into {}: {e}", path.display());
                return Err(Failure::program(text));
            }
            Some(Err(Stopped::Run(error))) => {
                let failure = fault::failure(&error, &args.input.file, &loaded.sources);
                return Err(fault::of_seed(failure, *seed, seeds.len() > 1));
            }
            // Not begun, because another run failed; that one is reported.
            None => {}
        }
    }
    Ok(reports)
}

fn one(shared: &Shared<'_>, at: usize) -> Result<Report, Stopped> {
    let seed = shared.seeds[at];
    let dir = shared.args.csv.as_deref().map(|dir| samples_dir(dir, shared, seed));
    let files = |(path, e)| Stopped::Files(path, e);
    let csv = Csv::create(shared.args, dir.as_deref(), shared.program).map_err(files)?;
    let RunArgs { quantiles, percentiles, slo, .. } = shared.args;
    let options = Options {
        seed: Some(seed),
        quantiles: quantiles.iter().chain(percentiles).copied().collect(),
        slo: slo.unwrap_or_default(),
        ..Options::default()
    };
    let mut watch = Watch { shared, at, csv };
    let report = serq_sim::run(shared.program, &options, &mut watch).map_err(Stopped::Run)?;
    watch.csv.finish().map_err(files)?;
    shared.progress(at, PARTS);
    Ok(report)
}

/// One folder for one run, a folder in it per seed for several.
fn samples_dir(dir: &Path, shared: &Shared<'_>, seed: u64) -> PathBuf {
    if shared.seeds.len() == 1 { dir.to_owned() } else { dir.join(format!("seed-{seed}")) }
}

impl Shared<'_> {
    fn progress(&self, at: usize, parts: u64) {
        self.parts[at].store(parts, Ordering::Relaxed);
        // Short runs show no bar.
        if self.began.elapsed() > Duration::from_millis(500) {
            self.bar.set_position(self.parts.iter().map(|p| p.load(Ordering::Relaxed)).sum());
        }
    }
}

/// A bar on a terminal, nothing elsewhere.
pub(crate) fn bar(length: u64) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(length), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Watches one run.
struct Watch<'a> {
    shared: &'a Shared<'a>,
    at: usize,
    csv: Csv,
}

impl Observer for Watch<'_> {
    fn sample(&mut self, sample: &Sample) {
        self.csv.sample(sample);
    }

    fn request(&mut self, request: &Request) {
        self.csv.request(request);
    }

    fn iteration(&mut self, iteration: &Iteration<'_>) {
        self.csv.iteration(iteration);
    }

    fn wants_iterations(&self) -> bool {
        self.csv.wants_iterations()
    }

    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        let share = (progress.time / progress.horizon).clamp(0.0, 1.0);
        self.shared.progress(self.at, (share * PARTS as f64) as u64);
        if self.shared.failed.load(Ordering::Relaxed) < self.at {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
