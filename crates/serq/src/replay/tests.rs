use serde_json::json;
use serq_sim::Request;

use super::log::parse;
use super::{Entry, Mismatch, compare, prepare, settings};
use crate::import;

const LINE: &str = r#"{"request_id": "a", "input_toks": 40, "output_toks": 3, "arrival_time": 5.5, "queued_ts": 1.0, "scheduled_ts": 1.0, "first_token_ts": 2.0, "last_token_ts": 4.0}"#;

fn log() -> Vec<Entry> {
    let second = LINE.replace("5.5", "5.0").replace("\"output_toks\": 3", "\"output_toks\": 1");
    parse("l", &format!("{LINE}\n\n{second}\n")).expect("a log")
}

#[test]
fn a_log_is_read() {
    let log = log();
    assert_eq!((log[0].ttft(), log[0].tpot(), log[0].e2e()), (1.0, 1.0, 3.0));
    assert!(log[1].tpot().is_nan());
    let check = |text: &str, words: &str| {
        let error = parse("l", text).expect_err("wrong");
        assert!(error.contains(words), "{error}");
    };
    check("", "no requests");
    check("{}", "line 1: missing field");
    check(&LINE.replace("2.0", "0.5"), "line 1: the times");
    check(&LINE.replace("40", "0"), "without a prompt");
}

#[test]
fn settings_are_those_the_program_has() {
    let meta = json!({
        "engine_kwargs": {"max_num_seqs": 128, "max_num_batched_tokens": 2048},
        "resolved_config": {"scheduler_config": {"async_scheduling": true}},
        "kv_cache": null,
    });
    let constants = ["C.seqs", "C.async", "C.blocks"].map(str::to_owned);
    assert_eq!(settings::of(&meta, &constants), ["C.seqs=128", "C.async=1"]);
}

const PROGRAM: &str = "
stage e : step { cost ntok / 100; };
workload {
  arrive batch(1);
  init { set prompt = 1; set o = 1; }
  session { request; }
}
server { run e prefill (prompt) decode (o - 1) answers answered first t1; }
run { horizon 10; }
";

fn program(text: &str) -> serq_lang::ir::Program {
    let compiled = serq_lang::compile("p.sq", text.as_bytes(), &[]);
    compiled.program.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics))
}

#[test]
fn requests_are_replayed_in_order_of_arrival() {
    let (ready, order) = prepare(program(PROGRAM), &log(), None).expect("fits");
    assert_eq!(order.iter().map(|e| e.arrival).collect::<Vec<_>>(), [5.0, 5.5]);
    let replayed = super::play(&ready).expect("runs");
    let all: Vec<&Request> = replayed.iter().flatten().collect();
    assert_eq!(all.len(), 2, "{replayed:?}");
    assert_eq!((all[0].start, all[1].start), (0.0, 0.5));
    assert!((all[0].ttft() - 0.4).abs() < 1e-9 && (all[1].ttft() - 0.4).abs() < 1e-9, "{all:?}");
    let c = compare(&order, &replayed);
    assert_eq!((c.requests, c.unanswered), (2, 0));
    assert!((c.lines[0].simulated.mean - 400.0).abs() < 1e-6, "{c:?}");
    assert!((c.lines[1].simulated.mean - 10.0).abs() < 1e-6, "{c:?}");
    assert_eq!(c.lines[0].measured.p99, 1000.0);
}

#[test]
fn a_trace_of_other_requests_is_refused() {
    let trace = |text: &str| import::parse("t", text, &import::Options::default()).expect("reads");
    let one = trace(r#"{"timestamp": 0, "input_length": 40, "output_length": 3}"#);
    let fails = |w, expected| assert_eq!(prepare(program(PROGRAM), &log(), Some(w)), Err(expected));
    fails(&one, Mismatch::Count { trace: 1, log: 2 });
    let two = trace(
        "{\"timestamp\": 0, \"input_length\": 40, \"output_length\": 3}\n{\"timestamp\": 1, \"input_length\": 41, \"output_length\": 1}",
    );
    fails(&two, Mismatch::Length { at: 1, what: "prompt", log: 40, trace: 41 });
    let bare = PROGRAM.replace("set o = 1; ", "").replace("(o - 1)", "(1)");
    assert_eq!(prepare(program(&bare), &log(), None), Err(Mismatch::Attribute("o")));
}
