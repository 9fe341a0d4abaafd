//! The programs of `examples/oracle` against every recorded run of vLLM's schedulers.

use std::path::{Path, PathBuf};

use serq::oracle::{self, Agreement, Count, Mode, Trace};
use serq_lang::diag::render_all;
use serq_lang::fmt::format;
use serq_lang::ir::Program;
use serq_lang::{Compiled, Used, compile_with};

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/oracle")
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oracle")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(programs().join(name)).expect("a program")
}

fn compile(name: &str, sets: &[String]) -> Compiled {
    let mut load =
        |_: &str, path: &str| Ok(Used { name: path.to_owned(), text: text(path).into_bytes() });
    compile_with(name, text(name).as_bytes(), sets, &mut load)
}

/// A program that links without a word.
fn linked(name: &str, sets: &[String]) -> (Program, Vec<String>) {
    let compiled = compile(name, sets);
    let shown = render_all(&compiled.diagnostics, &compiled.sources);
    assert!(compiled.diagnostics.is_empty(), "{shown}");
    (compiled.program.expect("no finding, so a program"), compiled.constants)
}

const PROGRAMS: [(Mode, &str); 3] = [
    (Mode::Colocated, "vllm_colocated.sq"),
    (Mode::Pull, "vllm_pull.sq"),
    (Mode::Push, "vllm_push.sq"),
];

#[test]
fn the_programs_link_and_stand_in_the_common_layout() {
    for (_, name) in PROGRAMS {
        linked(name, &[]);
    }
    for name in ["engine.sq", "vllm_colocated.sq", "vllm_pull.sq", "vllm_push.sq"] {
        let text = text(name);
        assert_eq!(format(name, &text).expect("it parses"), text, "{name}: serq fmt");
    }
}

fn play(trace: &Trace) -> Agreement {
    let (_, name) = PROGRAMS.iter().find(|(mode, _)| *mode == trace.scenario.mode).expect("a mode");
    let (_, constants) = linked(name, &[]);
    let sets = oracle::settings(trace, &constants).unwrap_or_else(|e| panic!("{e}"));
    let (program, _) = linked(name, &sets);
    oracle::play(trace, &program).unwrap_or_else(|e| panic!("{}: {e}", trace.name))
}

/// Every trace that `keep` accepts, beside the program of its mode.
fn compared(keep: impl Fn(&str, &Trace) -> bool) -> Vec<Agreement> {
    let mut paths: Vec<PathBuf> = [data(), data().join("fuzz"), data().join("faults")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("the traces"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter(|p| !p.ends_with("hash_vectors.json") && !p.ends_with("malformed_params.json"))
        .collect();
    paths.sort();
    let mut agreements = Vec::new();
    for path in paths {
        let trace = oracle::read(&path).unwrap_or_else(|e| panic!("{e}"));
        let name = path.strip_prefix(data()).expect("one of ours").display().to_string();
        if keep(&name, &trace) {
            agreements.push(play(&trace));
        }
    }
    agreements
}

/// Everything agrees, in as many requests and steps.
#[track_caller]
fn check(keep: impl Fn(&str, &Trace) -> bool, traces: usize, requests: usize, steps: usize) {
    let agreements = compared(keep);
    let all = agreements.iter().all(Agreement::all);
    assert!(all, "{}", oracle::report(&agreements));
    let sum = |count: fn(&Agreement) -> Count| {
        agreements.iter().map(count).fold(0, |sum, c| sum + c.agree)
    };
    assert_eq!(
        (agreements.len(), sum(|a| a.requests), sum(|a| a.steps)),
        (traces, requests, steps)
    );
}

#[test]
fn one_engine_is_vllms_step_for_step() {
    check(|_, t| t.scenario.mode == Mode::Colocated, 56, 545, 1609);
}

#[test]
fn pull_is_vllms_step_for_step() {
    check(|name, t| t.scenario.mode == Mode::Pull && !fault(name), 107, 1003, 7231);
}

#[test]
fn push_is_vllms_step_for_step() {
    check(|name, t| t.scenario.mode == Mode::Push && !fault(name), 35, 347, 2715);
}

fn fault(name: &str) -> bool {
    name.starts_with("faults")
}

/// Leases that run out under way, late heartbeats, failed reads, lost legs, a dead engine, aborts under push.
#[test]
fn faults_go_as_with_vllm() {
    check(|name, _| fault(name), 26, 253, 4096);
}

/// The traces without faults and with the scheduler that waits for its results.
#[test]
fn the_listed_traces_are_among_them() {
    let list = std::fs::read_to_string(data().join("fault-free.txt")).expect("the list");
    let listed: Vec<&str> = list.lines().collect();
    assert_eq!(listed.len(), 163);
    let agreements = compared(|name, _| listed.contains(&name));
    assert_eq!(agreements.len(), 163);
    assert!(agreements.iter().all(Agreement::all), "{}", oracle::report(&agreements));
}

/// What a program is wrong about is seen: each of these lets says one thing that vLLM does.
#[test]
fn another_scheduler_is_another_run() {
    let differs = |name: &str, set: &str| {
        let trace = oracle::read(&data().join(name)).unwrap_or_else(|e| panic!("{e}"));
        let mode = trace.scenario.mode;
        let (_, program) = PROGRAMS.iter().find(|(m, _)| *m == mode).expect("a mode");
        let mut sets = oracle::settings(&trace, &linked(program, &[]).1).expect("settings");
        let (key, _) = set.split_once('=').expect("a setting");
        sets.retain(|s| !s.starts_with(&format!("{key}=")));
        sets.push(set.to_owned());
        let agreement = oracle::play(&trace, &linked(program, &sets).0).expect("it runs");
        assert!(!agreement.all(), "{name} with {set}");
        agreement
    };
    differs("co03_preempt_recompute.json", "C.blocks=200");
    differs("co07_full_isl_gate.json", "C.whole=0");
    differs("co13_priority.json", "C.policy=0");
    differs("async03_colocated.json", "C.async=0");
    differs("pd01_basic.json", "router_delay=2");
    differs("pd10_decoder_crash.json", "D.stops=inf");
    differs("pd20_read_fails_recompute.json", "D.recompute=0");
    differs("push02_concurrent.json", "concurrent=0");
    let found = differs("pd09_heartbeats_outlive_lease.json", "D.lease=120");
    assert_eq!((found.requests.agree, found.requests.of), (2, 3));
}
