//! Shared by the tests: from text to a run, and the samples of it.

use serq_lang::ir::Program;
use serq_sim::{NoObserver, Observer, Options, Report, Request, RunError, Sample};

/// Compiles a program that must be valid.
#[track_caller]
pub(crate) fn compile(text: &str) -> Program {
    compile_with(text, &[])
}

/// The same with constants set from outside.
#[track_caller]
pub(crate) fn compile_with(text: &str, sets: &[&str]) -> Program {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let compiled = serq_lang::compile("test.sq", text.as_bytes(), &sets);
    match compiled.program {
        Some(program) => program,
        None => panic!("{:#?}", compiled.diagnostics),
    }
}

/// Codes of the errors of a program that must be refused.
#[track_caller]
pub(crate) fn errors(text: &str) -> Vec<String> {
    let compiled = serq_lang::compile("test.sq", text.as_bytes(), &[]);
    assert!(compiled.program.is_none(), "accepted: {text}");
    compiled.diagnostics.iter().map(|d| format!("{:?}", d.code)).collect()
}

/// A run with every sample.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) report: Report,
    pub(crate) samples: Vec<Sample>,
    names: Vec<String>,
}

#[derive(Default)]
struct Sink(Vec<Sample>, Vec<Request>);

impl Observer for Sink {
    fn sample(&mut self, sample: &Sample) {
        self.0.push(*sample);
    }

    fn request(&mut self, request: &Request) {
        self.1.push(*request);
    }
}

#[track_caller]
pub(crate) fn run(text: &str) -> Run {
    run_program(&compile(text), &Options::default())
}

#[track_caller]
pub(crate) fn run_program(program: &Program, options: &Options) -> Run {
    let mut sink = Sink::default();
    match serq_sim::run(program, options, &mut sink) {
        Ok(report) => Run { report, samples: sink.0, names: program.observes.clone() },
        Err(e) => panic!("{e}"),
    }
}

/// Runs with and without coalescing: every bit is the same, or the mistake is.
#[track_caller]
pub(crate) fn same_without_coalescing(program: &Program, options: &Options, what: &str) {
    let run = |coalesce| {
        let mut sink = Sink::default();
        let options = Options { coalesce, ..options.clone() };
        let outcome = serq_sim::run(program, &options, &mut sink);
        // Debug output has every bit of every number but the sign and payload of a NaN.
        (format!("{outcome:?}"), sink.0, sink.1)
    };
    let (fast, slow) = (run(true), run(false));
    assert!(fast.1 == slow.1, "samples differ: {what}");
    assert!(fast.2 == slow.2, "requests differ: {what}");
    assert!(fast.0 == slow.0, "{}\n{}\n{what}", fast.0, slow.0);
}

/// The error of a program that must fail during the run.
#[track_caller]
pub(crate) fn fault(text: &str) -> serq_sim::Fault {
    match serq_sim::run(&compile(text), &Options::default(), &mut serq_sim::NoObserver) {
        Err(RunError::Fault(fault)) => *fault,
        other => panic!("no fault: {other:?}"),
    }
}

impl Run {
    /// Samples of an observe in order of time.
    #[track_caller]
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        let k = self.index(name);
        self.samples.iter().filter(|s| s.observe == k).map(|s| s.value).collect()
    }

    /// Samples of an observe in order of session, then time.
    #[track_caller]
    pub(crate) fn by_session(&self, name: &str) -> Vec<f64> {
        let k = self.index(name);
        let mut found: Vec<_> = self.samples.iter().filter(|s| s.observe == k).collect();
        found.sort_by_key(|s| s.session);
        found.iter().map(|s| s.value).collect()
    }

    #[track_caller]
    fn index(&self, name: &str) -> usize {
        self.names.iter().position(|n| n == name).unwrap_or_else(|| panic!("no observe {name}"))
    }

    #[track_caller]
    pub(crate) fn mean(&self, name: &str) -> f64 {
        self.report.observe(name).unwrap_or_else(|| panic!("no observe {name}")).mean
    }
}

/// Runs twice with one result, which may be one of `mistakes` and no other error.
#[track_caller]
pub(crate) fn runs_or_fails_in_order(program: &Program, mistakes: &[&str], what: &str) {
    let run = || serq_sim::run(program, &Options::default(), &mut NoObserver);
    let outcome = run();
    match &outcome {
        Ok(_) => {}
        Err(RunError::Fault(fault)) => {
            assert!(mistakes.contains(&fault.code), "{fault}\n{what}");
        }
        Err(other) => panic!("{other}\n{what}"),
    }
    assert_eq!(outcome.map(|r| r.to_json()), run().map(|r| r.to_json()), "{what}");
}
