//! Every program in `examples/`, and the starter of `serq new`: it links without a warning, stands
//! in the common layout, says what it shows and how to run it, survives JSON, and runs; text and
//! JSON give the same report, byte for byte.

use std::path::{Path, PathBuf};

use serq_lang::diag::render_all;
use serq_lang::fmt::format;
use serq_lang::{compile, ir};
use serq_sim::{NoObserver, Options, run};

/// Seconds that are simulated here.
const SHORT: f64 = 60.0;

/// Programs that the manual and others point to; none may go away.
const PROMISED: [&str; 13] = [
    "closed",
    "lecture_pd",
    "llmd_pd",
    "llmd_pd_nics",
    "llmd_pd_short",
    "measured",
    "mg1",
    "pd_batching",
    "ps",
    "replay_shared",
    "routing",
    "vllm",
    "vllm_push",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads the recording that a program names.
fn attach(program: &mut ir::Program) {
    let Some(ir::Trace::File(trace)) = &program.trace else { return };
    let path = root().join("examples").join(trace);
    let workload = serq::import::read(&path, &Default::default()).expect("a recording");
    workload.recorded().attach(program);
}

fn check(name: &str, text: &str) {
    let compiled = compile(name, text.as_bytes(), &[]);
    let shown = render_all(&compiled.diagnostics, &compiled.sources);
    assert!(compiled.diagnostics.is_empty(), "{shown}");
    let mut program = compiled.program.expect("no finding, so a program");

    let laid_out = format(name, text).expect("it parses");
    assert_eq!(laid_out, text, "{name} is not in the common layout: serq fmt");

    let again = ir::from_json(&ir::to_json(&program)).expect("it reads what it writes");
    assert_eq!(again, program, "{name}");

    attach(&mut program);
    let options =
        Options { horizon: Some(SHORT), warmup: Some(SHORT / 10.0), ..Options::default() };
    let report = run(&program, &options, &mut NoObserver).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(report.run.events > 0, "{name} does nothing");
    let mut bare = program.clone();
    bare.spans = None;
    let from_json = run(&bare, &options, &mut NoObserver).expect("as before");
    assert_eq!(from_json.to_json(), report.to_json(), "{name}");
    for observe in &report.observes {
        assert!(observe.mean.is_finite(), "{name}: no sample of {}", observe.name);
    }
}

#[test]
fn every_example_runs() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join("examples")).expect("examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|e| e != "sq") {
            continue;
        }
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a text");
        let head: Vec<&str> = text.lines().take_while(|l| l.starts_with("//")).collect();
        let head = head.join("\n");
        assert!(head.contains("Shows:"), "{name} does not say what it shows");
        assert!(head.contains(&format!("serq run examples/{name}.sq")), "{name}: how to run it");
        check(&format!("{name}.sq"), &text);
        names.push(name);
    }
    for name in PROMISED {
        assert!(names.iter().any(|n| n == name), "{name} is missing");
    }
    for replay in [
        "replay_shared.sq",
        "traces/chats.jsonl",
        "replays/vllm.sq",
        "replays/sharegpt-300.b16.jsonl",
        "oracle/vllm_colocated.sq",
        "oracle/vllm_pull.sq",
        "oracle/vllm_push.sq",
    ] {
        assert!(root().join("examples").join(replay).is_file(), "{replay} is missing");
    }
}

/// Ten prompts by hand: what each shares with those before it, in blocks of 512 (the last of them
/// without its last token, in blocks of 16).
#[test]
fn recorded_prompts_find_what_they_share() {
    let text = std::fs::read_to_string(root().join("examples/replay_shared.sq")).expect("a text");
    let sum = |sets: &[&str], name: &str| {
        let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
        let mut program =
            compile("replay_shared.sq", text.as_bytes(), &sets).program.expect("links");
        attach(&mut program);
        let report = run(&program, &Options::default(), &mut NoObserver).expect("it runs");
        let observe = report.observes.iter().find(|o| o.name == name).expect("observed");
        assert_eq!(observe.count, 10);
        observe.mean * 10.0
    };
    let found = [0, 512, 0, 1024, 1024, 2048, 1024, 2560, 496, 1536];
    let all = f64::from(found.iter().sum::<u32>());
    assert_eq!(sum(&[], "found"), all);
    assert_eq!(sum(&["N=1"], "found"), all);
    assert_eq!(sum(&[], "asked"), 17_678.0);
    let little = sum(&["N=1", "blocks=220"], "found");
    assert!(little > 0.0 && little < 0.8 * all, "{little}: much of it was evicted");
}

#[test]
fn the_starter_runs() {
    check("starter.sq", include_str!("../src/starter.sq"));
}

/// Little's law, to rounding: this run ends with its last request, so nobody is there at either end. (The
/// examples without a recording are tested beside the simulator.)
#[test]
fn a_recording_obeys_littles_law() {
    let text = std::fs::read_to_string(root().join("examples/replay_shared.sq")).expect("a text");
    for blocks in ["blocks=10000", "blocks=220"] {
        let mut program = compile("replay_shared.sq", text.as_bytes(), &[blocks.to_owned()])
            .program
            .expect("it links");
        attach(&mut program);
        let report = run(&program, &Options::default(), &mut NoObserver).expect("it runs");
        let check = |what: &str, number: f64, count: u64, time: f64| {
            let sum = if count == 0 { 0.0 } else { count as f64 * time };
            let expected = sum / report.run.horizon;
            let off = (number - expected).abs();
            assert!(off <= 1e-9 * expected, "{what}: {number}, {expected} by Little's law");
        };
        for s in &report.stages {
            check(&s.name, s.mean_present, s.completed, s.mean_wait + s.mean_service);
        }
        for p in &report.pools {
            check(&p.name, p.mean_queue, p.waits, p.mean_wait);
            check(&p.name, p.mean_holders, p.holds, p.mean_hold);
        }
        assert_eq!(report.stages.iter().map(|s| s.completed).sum::<u64>(), 10, "{blocks}");
    }
}

/// The library's parts are the deployment they were taken from: the same report, seed for seed, but
/// for the names of the pools.
#[test]
fn short_and_long_pd_are_one_deployment() {
    let report = |name: &str, seed: u64| {
        let text = std::fs::read_to_string(root().join("examples").join(name)).expect("a text");
        let program = compile(name, text.as_bytes(), &[]).program.expect("it links");
        let options = Options {
            seed: Some(seed),
            horizon: Some(300.0),
            warmup: Some(30.0),
            ..Options::default()
        };
        run(&program, &options, &mut NoObserver).expect("it runs").to_json()
    };
    for seed in [1, 2, 3] {
        let mut short = report("llmd_pd_short.sq", seed);
        for (new, old) in
            [("P.reqs", "reqsP"), ("P.kv", "kvP"), ("D.reqs", "reqsD"), ("D.kv", "kvD")]
        {
            short = short.replace(new, old);
        }
        assert_eq!(short, report("llmd_pd.sq", seed), "seed {seed}");
    }
}
