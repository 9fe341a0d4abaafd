//! Reading and comparing, on the recorded traces and on broken ones.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Agreement, Event, Run, Side, Trace, What, compare, parse, read, report};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oracle")
}

fn trace(name: &str) -> Trace {
    read(&folder().join(name)).unwrap_or_else(|e| panic!("{e}"))
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("a trace")
}

fn all() -> Vec<Trace> {
    let mut traces = Vec::new();
    for folder in [folder(), folder().join("fuzz")] {
        for entry in fs::read_dir(folder).expect("the traces") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if name.ends_with(".json") && !name.starts_with("hash_") && !name.starts_with("malf") {
                traces.push(read(&path).unwrap_or_else(|e| panic!("{e}")));
            }
        }
    }
    traces
}

#[test]
fn every_trace_reads_and_agrees_with_itself() {
    let traces = all();
    assert_eq!(traces.len(), 198);
    for trace in &traces {
        let agreement = compare(trace, &trace.run);
        assert!(agreement.all(), "{}", trace.name);
        assert_eq!(agreement.requests.of, trace.scenario.requests.len());
        assert!(agreement.steps.of > 0);
    }
    let listed = text("fault-free.txt");
    let listed: Vec<&str> = listed.lines().collect();
    assert_eq!(listed.len(), 163);
    for name in listed {
        assert!(folder().join(name).is_file(), "{name}");
    }
}

#[test]
fn a_trace_is_read_whole() {
    let trace = trace("pd09_heartbeats_outlive_lease.json");
    assert_eq!(trace.vllm, "0.33.0");
    let d = &trace.scenario.engines[&Side::D];
    assert_eq!((d.lease, d.block, d.budget), (6.0, 4, 64));
    let co = self::trace("co13_priority.json");
    assert_eq!(co.scenario.requests[0].priority, 5);
    assert_eq!(co.scenario.engines[&Side::C].blocks, 12);
    let r1: Vec<String> =
        co.run.events["r1"].iter().map(|e| format!("{} {}", e.tick, e.what)).collect();
    assert_eq!(
        r1,
        [
            "0 admitted (0 tokens cached)",
            "0 first token",
            "13 preempted",
            "16 admitted again (20 tokens cached)",
            "16 finished (length)",
        ]
    );
}

/// A change to a run is seen at its tick and engine, and nowhere before.
#[track_caller]
fn check(name: &str, change: fn(&mut Run), at: (u64, Side), counts: [usize; 4]) -> Agreement {
    let trace = trace(name);
    let mut run = trace.run.clone();
    change(&mut run);
    run.settle();
    let agreement = compare(&trace, &run);
    let first = agreement.first.as_ref().expect("a difference");
    assert_eq!((first.tick, first.side), at);
    let Agreement { requests, steps, .. } = &agreement;
    assert_eq!([requests.agree, requests.of, steps.agree, steps.of], counts);
    assert!(!agreement.all());
    agreement
}

#[test]
fn differences_are_found_where_they_begin() {
    let name = "pd13_abort_in_D_queue.json";
    check(
        name,
        |run| {
            run.events
                .get_mut("r2")
                .expect("r2")
                .retain(|e| e.tick != 8 || e.what != What::FirstToken)
        },
        (8, Side::D),
        [2, 3, 24, 24],
    );
    check(
        name,
        |run| {
            for event in run.events.get_mut("r0").expect("r0") {
                event.tick += u64::from(matches!(event.what, What::Parked { .. }));
            }
        },
        (1, Side::D),
        [2, 3, 24, 24],
    );
    check(
        name,
        |run| run.steps.get_mut(&(4, Side::P)).expect("step").free = Some(54),
        (4, Side::P),
        [3, 3, 23, 24],
    );
    check(name, |run| drop(run.steps.remove(&(7, Side::D))), (7, Side::D), [3, 3, 23, 24]);
    check(name, |run| run.note("r9", 3, Side::P, What::Freed), (3, Side::P), [3, 4, 24, 24]);
    // Twice is not once.
    check(
        name,
        |run| {
            let preempted = |e: &&Event| e.what == What::Preempted;
            let again = *run.events["r0"].iter().find(preempted).expect("preempted");
            run.events.get_mut("r0").expect("r0").push(again);
        },
        (7, Side::D),
        [2, 3, 24, 24],
    );
}

#[test]
fn more_steps_than_recorded_are_no_difference() {
    let trace = trace("co01_basic.json");
    let mut run = trace.run.clone();
    run.steps.insert((99, Side::C), super::Step::default());
    assert!(compare(&trace, &run).all());
}

#[test]
fn a_report_tells_both_states() {
    let difference = check(
        "pd13_abort_in_D_queue.json",
        |run| {
            for event in run.events.get_mut("r2").expect("r2") {
                event.tick += u64::from(matches!(event.what, What::Parked { .. }));
            }
            let step = run.steps.get_mut(&(4, Side::D)).expect("step");
            step.free = Some(3);
            step.holding.clear();
            step.waiting.push("r2".to_owned());
        },
        (4, Side::D),
        [2, 3, 23, 24],
    );
    let same = compare(&trace("co01_basic.json"), &trace("co01_basic.json").run);
    let text = report(&[same, difference]);
    let expected = "\
co01_basic             2 of 2 requests agree, 5 of 5 steps agree
pd13_abort_in_D_queue  2 of 3 requests agree, 23 of 24 steps agree
all                    4 of 5 requests agree, 28 of 29 steps agree

pd13_abort_in_D_queue: first difference at tick 4, engine D
  r2: vLLM parked (0 tokens here, 9 to load); here nothing
  P in vLLM: free 47 then 55; batch; running; waiting; held r1:5 r2:3; leased until r1:30 r2:31
  P here:    free 47 then 55; batch; running; waiting; held r1:5 r2:3; leased until r1:30 r2:31
  D in vLLM: free 0 then 0; batch r0+1@29; running r0; waiting; holding r2:3
  D here:    free 0 then 3; batch r0+1@29; running r0; waiting r2
";
    assert_eq!(text, expected);
}

/// A file with one thing changed is refused with a message that says what and where.
#[track_caller]
fn refused(name: &str, old: &str, new: &str, message: &str) {
    let text = text(name);
    assert!(text.contains(old), "{old}");
    let error = parse("t.json", &text.replacen(old, new, 1)).expect_err("refused").to_string();
    assert!(error.starts_with("t.json: ") && error.contains(message), "{error}");
}

#[test]
fn a_file_that_contradicts_itself_is_refused() {
    let co = "co05_lru_eviction.json";
    refused(co, "\"C_admit\":4", "\"C_admit\":5", "trace.requests.r1: the steps say otherwise");
    refused(
        co,
        "\"arrived\":[\"r1\"]",
        "\"arrived\":[\"r8\"]",
        "tick 4, engine C: request r8 is none",
    );
    refused(co, "\"t\":5", "\"t\":3", "tick 3, engine C: steps must come in order");
    refused(co, "\"side\":\"C\"", "\"side\":\"P\"", "this mode has no such engine");
    refused(co, "\"id\":\"r1\"", "\"id\":\"r0\"", "two requests are called r0");
    refused(co, "\"num_blocks\":11", "\"num_blocks\":0", "num_blocks: one block is the null block");
    refused(co, "\"num_blocks\":11", "\"watermark\":1.5", "watermark: a share");
    refused(co, "\"num_blocks\":11", "\"block_size\":0", "block_size: a block holds");
    refused(co, "\"num_blocks\":11", "\"tick_seconds\":0", "a tick must take some time");
    refused(
        co,
        "\"num_blocks\":11",
        "\"D\":{\"lease\":1}",
        "scenario.D: this mode has no such engine",
    );
    refused(co, "\"num_blocks\":11", "\"num_block\":11", "unknown field `num_block`");
    refused(co, "[[1,12]]", "[[1,0]]", "request r0: an empty prompt");
    refused(co, "[[1,12]]", "[[1,99999999]]", "more than 10000000 tokens");
    let parts = "[[1,9000000],[2,9000000],[3,9000000]]";
    refused(co, "[[1,12]]", parts, "a prompt of more than 10000000 tokens");
    refused(co, "[[1,12]]", "[[18446744073709551615,1]]", "tokens that are no ids");
    refused(co, "\"prompt_parts\":[[1,12]],", "", "exactly one of `prompt` and `prompt_parts`");
    refused(co, "\"num_blocks\":11", "\"requests\":[]", "duplicate field");
    refused(
        co,
        "\"end\":{\"C\":{\"free\":10",
        "\"end\":{\"C\":{\"free\":9",
        "trace.end.C: other free",
    );
    refused("pd01_basic.json", "\"remote\":", "\"remote\":184467440737095516", "is parked with");
    refused("pd01_basic.json", "\"blocks\":", "\"blocks\":1", "is parked with 1");
    refused("hash_vectors.json", "\"vllm\"", "\"vllm\"", "not a trace of vLLM's schedulers");
    let missing = read(Path::new("no/such.json")).expect_err("missing").to_string();
    assert!(missing.starts_with("no/such.json: "), "{missing}");
}

#[test]
fn token_ids_and_parts_are_the_same_content() {
    let co = text("co05_lru_eviction.json");
    let ids = "\"prompt\":[1000,1001,1002,1003,1004,1005,1006,1007,1008,1009,1010,1011]";
    let mixed = co.replacen("\"prompt_parts\":[[1,12]]", ids, 1);
    let mixed = parse("mixed", &mixed).expect("reads");
    let requests = &mixed.scenario.requests;
    let shared = |a: usize, b: usize| {
        let segments = |i: usize| requests[i].prompt.segments().iter().copied();
        segments(a).zip(segments(b)).take_while(|(a, b)| a == b).count()
    };
    assert_eq!((shared(0, 4), shared(0, 1), shared(1, 3)), (12, 0, 12));
    // A part longer than a thousand runs into the next one's tokens.
    let long = parse("long", &co.replacen("[[1,12]]", "[[1,1012]]", 1)).expect("reads");
    assert_eq!(long.scenario.requests[0].prompt.segments()[1].key, 2);
}
