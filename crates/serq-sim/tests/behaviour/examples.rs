//! The example programs: what they were written to show, in short runs.

use serq_lang::ir::{CStageKind, Trace};
use serq_sim::Options;

use crate::support::{Run, compile, compile_with, run_program, same_without_coalescing};
use crate::theory::little;

const LLMD: &str = include_str!("../../../../examples/llmd_pd.sq");
const VLLM: &str = include_str!("../../../../examples/vllm.sq");

#[track_caller]
fn run(text: &str, sets: &[&str], seed: u64, horizon: f64) -> Run {
    let options = Options {
        seed: Some(seed),
        horizon: Some(horizon),
        warmup: Some(50.0),
        ..Options::default()
    };
    run_program(&compile_with(text, sets), &options)
}

/// One engine at light load: nine of ten prompt tokens are found cached, the first token comes
/// after about 17 ms.
#[test]
fn vllm_at_light_load() {
    let mut ttft = Vec::new();
    for seed in 1..=3 {
        let run = run(VLLM, &[], seed, 1000.0);
        let hit = run.mean("hit_tokens") / run.mean("prompt_tokens");
        assert!((0.86..0.94).contains(&hit), "hit {hit}");
        assert_eq!(run.report.pool("kv").unwrap().preemptions, 0);
        ttft.push(run.mean("ttft"));
        let split = run.report.stage("engine").unwrap().split.unwrap();
        let shares = [split.prefill, split.decode, split.mixed, split.empty, split.idle];
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
    let mean = ttft.iter().sum::<f64>() / 3.0;
    assert!((0.012..0.025).contains(&mean), "{ttft:?}");
}

/// An engine short of memory preempts requests while they compute again what they had lost. The
/// program keeps what is known in an attribute of its own; that is what the engine counts.
#[test]
fn what_is_known_is_what_was_answered() {
    let known = "max(known, computed + 1)";
    let from = VLLM.find("    prefill known").unwrap();
    let to = VLLM.find("  } keep (prompt + o);").unwrap();
    let counted = VLLM.replace(
        &VLLM[from..to],
        "run engine prefill (known - c) decode (o - answered - 1) growing kv
           answers answered first first;
         branch (1) { observe ttft = first - sent; }",
    );
    let counted = counted.replace(known, "prompt + answered");
    let counted = counted.replace("set known = prompt;", "set answered = 0; set first = 0;");
    assert!(!counted.contains(known));
    let sets = ["blocks=600", "lambda=1", "B=64", "chunk_cap=4"];
    let (kept, counted) = (run(VLLM, &sets, 1, 300.0), run(&counted, &sets, 1, 300.0));
    assert!(kept.report.pool("kv").unwrap().preemptions > 1000);
    assert!(kept.values("response").len() > 100);
    assert_eq!(kept.by_session("response"), counted.by_session("response"));
}

/// Memory pressure on both sides: decoders preempt, more than a hundred prompts cross on leased
/// blocks, nothing breaks.
#[test]
fn llmd_under_pressure() {
    let run = run(LLMD, &["blocks_p=1200", "blocks_d=1200", "lambda=1.2"], 1, 400.0);
    let preemptions: u64 = run.report.pools.iter().map(|p| p.preemptions).sum();
    assert!(preemptions > 0);
    assert!(run.report.observe("lease").unwrap().count > 100);
    assert_eq!(run.report.deadlock, None);
}

const LOCAL: &str =
    "admit if kvD[j] (min(known, hit + budget_left(D[j]))) reserve (known), reqsD[j] (1)";
const LOCAL_SLOTS: &str =
    "admit if reqsD[j] (1), kvD[j] (min(known, hit + budget_left(D[j]))) reserve (known)";

/// A local prefill that waits for blocks while it holds nothing is safe. If it waits in front of
/// the slots, which requests with read KV need next, they wait for its blocks and it for theirs:
/// at 0.6 sessions a second that comes about at the end of this run, at 1.2 in the middle.
#[test]
fn a_local_prefill_waits_for_blocks_first() {
    assert!(LLMD.contains(LOCAL));
    for (lambda, live, stuck) in [("lambda=0.6", 0.0, 1), ("lambda=1.2", 100.0, 100)] {
        let sets = ["blocks_d=1100", lambda];
        let blocks = run(LLMD, &sets, 20, 800.0);
        assert!(blocks.report.run.mean_live < 30.0, "{lambda}");
        assert_eq!(blocks.report.deadlock, None);
        let slots = run(&LLMD.replace(LOCAL, LOCAL_SLOTS), &sets, 20, 800.0);
        assert!(slots.report.run.mean_live > live);
        let deadlock = slots.report.deadlock.unwrap();
        assert!(deadlock.sessions > stuck);
        assert!(deadlock.waiters.iter().any(|w| !w.holds.is_empty()));
    }
}

/// The decoder's slots are declared before its blocks, so that a request whose KV has arrived is
/// tried before new ones. The other way round, new requests that do not fit block it.
#[test]
fn the_order_of_queues_can_deadlock() {
    let (slots, blocks) = (pool("reqsD"), pool("kvD"));
    let swapped = LLMD.replace(&slots, "@").replace(&blocks, &slots).replace('@', &blocks);
    assert_ne!(swapped, LLMD);
    let sets = ["blocks_d=2000", "lambda=1.2"];
    let right = run(LLMD, &sets, 1, 600.0);
    assert_eq!(right.report.deadlock, None);
    let wrong = run(&swapped, &sets, 1, 600.0);
    assert!(wrong.report.deadlock.is_some(), "{}", wrong.report.to_text());
}

/// The declaration of a pool in the example.
fn pool(name: &str) -> String {
    let from = LLMD.find(&format!("pool {name}[ND] {{")).unwrap();
    let to = from + LLMD[from..].find("}\n").unwrap() + 2;
    LLMD[from..to].to_owned()
}

/// No bit of any example's result depends on iterations run together, at light load and under
/// memory pressure.
#[test]
fn coalescing_changes_nothing() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "sq") {
            let text = std::fs::read_to_string(&path).unwrap();
            let options =
                Options { horizon: Some(300.0), warmup: Some(20.0), ..Options::default() };
            same_without_coalescing(&compile(&text), &options, &path.display().to_string());
        }
    }
    let options = Options { horizon: Some(100.0), warmup: Some(7.0), ..Options::default() };
    let pressed = ["blocks_p=1200", "blocks_d=1200", "lambda=1.2"];
    same_without_coalescing(&compile_with(LLMD, &pressed), &options, "llmd_pd under pressure");
    let pressed = ["blocks=1000", "lambda=0.6"];
    same_without_coalescing(&compile_with(VLLM, &pressed), &options, "vllm under pressure");
}

/// Little's law at every stage and pool of every example.
#[test]
fn examples_obey_littles_law() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "sq") {
            let text = std::fs::read_to_string(&path).unwrap();
            let program = compile(&text);
            if matches!(program.trace, Some(Trace::File(_))) {
                // Whoever runs it reads the recording, and tests it.
                continue;
            }
            // An engine iterates thousands of times a second; plain stages need few events.
            let engine = program.stages.iter().any(|s| matches!(s.kind, CStageKind::Step(_)));
            let longest = if engine { 600.0 } else { 50_000.0 };
            let options = Options {
                horizon: Some(program.horizon.min(longest)),
                warmup: Some(program.warmup.min(100.0)),
                ..Options::default()
            };
            little(&run_program(&program, &options).report);
            seen += 1;
        }
    }
    assert!(seen >= 7);
}
