//! The seven scheduler scenarios: what vLLM's scheduler does with a handful of requests, step by
//! step, and the program that says the same.
//!
//! The engine of every scenario is one device on a unit clock: a step of any batch takes 1 s. A
//! request is one slot and the blocks of what is computed of it. The expected first and last step
//! of every request were recorded from the real scheduler.

use serq_lang::ir::{Trace, TraceTurn};
use serq_sim::Options;

use crate::support::{Run, compile, run, run_program};

pub(crate) struct Engine {
    pub(crate) blocks: u32,
    pub(crate) budget: u32,
    pub(crate) slots: u32,
    pub(crate) chunk: u32,
}

/// A program with the given requests: prompt, tokens answered, step of arrival.
fn program(e: &Engine, requests: &[(u32, u32, u32)]) -> String {
    let choose = |f: fn(&(u32, u32, u32)) -> u32| {
        let arms: String = requests
            .iter()
            .enumerate()
            .map(|(i, r)| format!("serial == {i} ? {} : ", f(r)))
            .collect();
        format!("{arms}0")
    };
    format!(
        "
let bs = 16;
pool slots {{ cap {slots}; admit via E; }}
pool kv {{ cap {blocks} * bs; block bs; preempt lifo; }}
stage E : step {{ budget {budget}; chunk {chunk}; cost 1; memory kv; }}
stage clock : delay;
workload {{
  arrive batch ({n});
  init {{
    set prompt = {prompt};
    set o = {out};
    set due = {due};
  }}
}}
session {{
  run clock (due);
  set known = prompt;
  hold slots (1), kv (min(known(), budget_left(E))) {{}}
}}
run {{ horizon 10000; }}
",
        slots = e.slots,
        blocks = e.blocks,
        budget = e.budget,
        chunk = e.chunk,
        n = requests.len(),
        prompt = choose(|r| r.0),
        out = choose(|r| r.1),
        due = choose(|r| r.2),
    )
    .replace(
        "  hold slots (1), kv (min(known(), budget_left(E))) {}",
        "  hold slots (1), kv (min(max(known, computed + 1), budget_left(E)))
      reserve (max(known, computed + 1)) {
    set known = max(known, computed + 1);
    run E prefill (known) growing kv;
    branch (known == prompt) { observe first = now; }
    run E decode (o - 1 - (known - prompt)) growing kv;
  }
  observe last = now;",
    )
}

/// Runs the requests and compares first and last step of each, and the preemptions.
#[track_caller]
pub(crate) fn check(
    e: &Engine,
    requests: &[(u32, u32, u32)],
    first: &[u32],
    last: &[u32],
    preemptions: u64,
) -> Run {
    let run = run(&program(e, requests));
    let steps = |name| run.by_session(name).iter().map(|v| *v as u32).collect::<Vec<_>>();
    assert_eq!(steps("first"), first);
    assert_eq!(steps("last"), last);
    assert_eq!(run.report.pool("kv").unwrap().preemptions, preemptions);
    run
}

pub(crate) const WIDE: Engine = Engine { blocks: 999, budget: 1024, slots: 16, chunk: 0 };

#[test]
fn chunked() {
    check(&WIDE, &[(3000, 2, 0), (700, 5, 1), (100, 3, 1)], &[3, 4, 4], &[4, 8, 6], 0);
}

#[test]
fn hol() {
    let e = Engine { blocks: 10, ..WIDE };
    check(&e, &[(96, 10, 0), (96, 10, 0), (16, 3, 0)], &[1, 11, 11], &[10, 20, 13], 0);
}

#[test]
fn longchunk() {
    let e = Engine { budget: 4096, chunk: 1000, ..WIDE };
    check(&e, &[(3000, 2, 0), (3000, 2, 0)], &[3, 3], &[4, 4], 0);
}

#[test]
fn mixed() {
    let e = Engine { blocks: 39, budget: 512, slots: 4, chunk: 0 };
    let requests =
        [(300, 40, 0), (200, 30, 2), (250, 20, 3), (150, 60, 3), (400, 10, 5), (100, 25, 9)];
    check(&e, &requests, &[1, 3, 33, 41, 53, 63], &[40, 32, 52, 100, 62, 87], 0);
}

#[test]
fn preempt() {
    let e = Engine { blocks: 10, budget: 100, ..WIDE };
    check(&e, &[(80, 30, 0), (80, 30, 0)], &[1, 31], &[30, 60], 1);
}

#[test]
fn seqcap() {
    let e = Engine { slots: 2, ..WIDE };
    let requests = [(1024, 5, 0); 4];
    check(&e, &requests, &[1, 3, 7, 9], &[5, 7, 11, 13], 0);
}

/// Three sessions of three turns on 20 blocks: hits, evictions from the tail and preemptions under
/// one budget. The only scenario with a prefix cache; the recorded `new` is the whole prompt.
#[test]
fn cache_trace() {
    let mut program = compile(
        "
let bs = 16;
pool slots { cap 4; admit via E; }
pool kv { cap 20 * bs; block bs; preempt lifo; }
stage E : step { budget 64; cost 1; memory kv; }
stage clock : delay;
stage tool : delay;
workload {
  arrive batch (3);
  trace \"inline\" ordered;
  turn {}
  session {
    run clock (serial * 3);
    loop {
      turn;
      set prompt = new;
      set o = out;
      set t0 = now;
      set seen = 0;
      observe sent = now;
      request;
      observe latency = now - t0;
      branch (more) { tool think; } else { end; }
    }
  }
}
server {
  set known = prompt;
  admit if slots (1), kv (hit + min(known - hit, budget_left(E))) reserve (known) fit
        reuse (full)
        where known = max(known, computed + 1),
              full = floor((known - 1) / bs) * bs,
              hit = min(cachedin(kv), full) {
    set known = max(known, computed + 1);
    set c = cached;
    branch (!seen) { observe hits = c; }
    prefill known - c growing kv;
    branch (!seen) { observe ttft = now - t0; set seen = 1; }
    decode o - 1 - (known - prompt) growing kv;
  } keep (prompt + o - 1);
}
run { horizon 1000; }
",
    );
    let turns = |new: [f64; 3]| new.map(|n| TraceTurn(n, 3.0, 2.0, 0.0)).to_vec();
    program.trace = Some(Trace::Inline(vec![
        turns([100.0, 150.0, 210.0]),
        turns([120.0, 180.0, 230.0]),
        turns([90.0, 140.0, 200.0]),
    ]));
    let run = run_program(&program, &Options::default());
    assert_eq!(run.by_session("sent"), [0., 6., 13., 3., 9., 17., 6., 12., 22.]);
    assert_eq!(run.by_session("ttft"), [2., 3., 11., 2., 4., 13., 2., 6., 14.]);
    assert_eq!(run.by_session("latency"), [4., 5., 13., 4., 6., 15., 4., 8., 16.]);
    assert_eq!(run.by_session("hits"), [0., 96., 0., 0., 64., 0., 0., 0., 0.]);
}

/// Twelve blocks of four tokens, without a cache; a request computes at most four prompt
/// tokens an iteration. In blocks at the end of each iteration (B has 8 prompt tokens, 6 to answer):
///
/// | it | A | C | B | |
/// |---|---|---|---|---|
/// | 0 | 1 | | | A's prompt |
/// | 1 | 2 | 1 | | C begins 40 prompt tokens |
/// | 2, 3 | 2 | 3 | 2 | B's prompt: its first token at 4 |
/// | 4 to 6 | 3 | 6 | 3 | B's tokens 2 to 4 at 5, 6 and 7: 11 positions |
/// | 7 | 3 | 7 | - | full: C takes a block, B gives way, A ends |
/// | 8, 9 | | 9 | 2 | B knows 12 tokens, 8 and 4, and computes 4 each |
/// | 10 | | 10 | - | full again before B's last 4, C ends |
/// | 11 to 13 | | | 3 | B still knows 12, D comes at 11 for three tokens |
///
/// So B's fifth token is there at 14 and the sixth at 15. vLLM's scheduler counts alike: what a
/// preempted request has to compute is prompt and outputs, and outputs are never lost.
#[test]
fn preempted_again_while_computing_again() {
    let program = |known: &str, body: &str| {
        format!(
            "use \"std/vllm\";
             pool slots {{ cap 4; admit via E; }}
             pool kv {{ cap 48; block 4; preempt lifo; }}
             stage E : step {{ budget 64; chunk 4; cost 1; memory kv; }}
             workload {{
               arrive at (0, 1, 2, 11);
               session {{ request; }}
               init {{
                 set prompt = serial == 1 ? 40 : serial == 2 ? 8 : 4;
                 set o = serial == 0 ? 8 : serial == 1 ? 1 : serial == 2 ? 6 : 3;
               }}
             }}
             server {{
               set known = prompt;
               set answered = 0;
               set first = 0;
               admit if slots (1), kv (min(known, min(4, budget_left(E)))) reserve (known) fit
                   where known = {known} {{
                 observe again = {known};
                 {body}
               }}
               observe ttft = first;
               observe done = now;
             }}
             run {{ horizon 100; }}"
        )
    };
    let kept = program(
        "needed(known)",
        "set known = needed(known);
         prefill known growing kv;
         branch (known == prompt) { set first = now; }
         decode o - 1 - (known - prompt) growing kv;",
    );
    let counted = program(
        "prompt + answered",
        "run E prefill (prompt + answered) decode (o - answered - 1) growing kv
           answers answered first first;",
    );
    for text in [kept, counted] {
        let run = run(&text);
        assert_eq!(run.by_session("again"), [4., 40., 8., 12., 12., 4.]);
        assert_eq!(run.by_session("ttft"), [1., 11., 4., 12.]);
        assert_eq!(run.by_session("done"), [8., 11., 15., 14.]);
        assert_eq!(run.report.pool("kv").unwrap().preemptions, 2);
    }
}
