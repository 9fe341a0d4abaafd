//! The engine of a colocated deployment: admission, preemption, prefix reuse.

use crate::scenarios::{Engine, WIDE, check};
use serq_sim::{Iteration, Observer, Options, Tokens};

use crate::support::{compile, run};

/// Two prompts of 80 tokens on 10 blocks of 16: the second's growth preempts itself, and it waits
/// for the first to end.
#[test]
fn the_latest_is_preempted() {
    let e = Engine { blocks: 10, budget: 100, ..WIDE };
    check(&e, &[(80, 20, 0), (80, 20, 0)], &[1, 21], &[20, 40], 1);
}

#[test]
fn a_long_prompt_takes_several_iterations() {
    check(&WIDE, &[(3000, 1, 0)], &[3], &[3], 0);
    let e = Engine { budget: 4096, chunk: 1000, ..WIDE };
    check(&e, &[(3000, 1, 0)], &[3], &[3], 0);
}

#[test]
fn a_turn_reuses_the_blocks_of_the_last() {
    let run = run("
        let bs = 16;
        pool slots { cap 4; admit via E; }
        pool kv { cap 100 * bs; block bs; preempt lifo; }
        stage E : step { budget 1024; cost 1; memory kv; }
        workload {
          arrive batch (1);
          session {
            loop {
              turn;
              set prompt = K + 100;
              set o = 10;
              request;
              set K = prompt + o;
              branch (turn_no == 3) { end; }
            }
          }
        }
        server {
          admit if slots (1), kv (hit + min(prompt - hit, budget_left(E))) fit reuse (full)
                where full = floor((prompt - 1) / bs) * bs, hit = min(cachedin(kv), full) {
            observe hits = cached;
            observe computed_now = prompt - cached;
            prefill prompt - cached growing kv;
            decode o - 1 growing kv;
          } keep (prompt + o - 1);
        }
        run { horizon 1000; }");
    assert_eq!(run.values("hits"), [0., 96., 208.]);
    assert_eq!(run.values("computed_now"), [100., 114., 112.]);
}

/// 20 blocks. A leaves 160 tokens, B takes 192: two blocks of A's tail go. A comes back for all:
/// it finds 128, and B's 192 go.
#[test]
fn the_tail_of_the_oldest_is_evicted_first() {
    let run = run("
        pool kv { cap 320; block 16; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          branch (serial == 0) {
            hold kv (160) { observe hit = cached; } cache (160);
            run clock (2);
            hold kv (320) { observe hit = cached; } cache (320);
          } else {
            run clock (1);
            hold kv (192) {} cache (192);
          }
        }
        run { horizon 10; }");
    assert_eq!(run.values("hit"), [0., 128.]);
    let kv = run.report.pool("kv").unwrap();
    assert_eq!((kv.evicted_units, kv.evicted_entries), (32. + 192., 1));
}

/// A request of 10 steps beside two prompts of one step each: alone with the engine in turn, they
/// cost it 2 steps.
#[test]
fn exclusive_prefill_stops_the_decodes() {
    for (serve, done) in [("serve admission;", 10.), ("serve exclusive prefill;", 12.)] {
        let run = run(&format!(
            "stage E : step {{ budget 100; cost 1; {serve} }}
             stage clock : delay;
             workload {{ arrive batch (3); }}
             session {{
               branch (serial == 0) {{
                 run E prefill (1);
                 run E decode (9);
                 observe done = now;
               }} else {{
                 run clock (2 * serial);
                 run E prefill (10);
               }}
             }}
             run {{ horizon 100; }}"
        ));
        assert_eq!(run.values("done"), [done]);
    }
}

#[test]
fn two_slots_for_four_requests() {
    let run = run("
        pool slots { cap 2; admit via E; }
        stage E : step { budget 100; cost 1; }
        workload { arrive batch (4); }
        session {
          hold slots (1) {
            observe admitted = now;
            run E prefill (10);
            run E decode (4);
          }
        }
        run { horizon 100; }");
    assert_eq!(run.by_session("admitted"), [0., 0., 5., 5.]);
}

/// The order in which residents are served is admission's, unless keys say otherwise: the second
/// prompt is served first, and after each the other's decode.
#[test]
fn serving_keys_decide() {
    let order = |serve: &str| {
        run(&format!(
            "pool slots {{ cap 2; }}
             stage E : step {{ budget 4; cost 1; {serve} }}
             workload {{ arrive batch (2); }}
             session {{
               set size = serial == 0 ? 8 : 4;
               hold slots (1) {{
                 run E prefill (size);
                 observe first = now;
                 run E decode (2);
                 observe last = now;
               }}
             }}
             run {{ horizon 100; }}"
        ))
    };
    let fair = order("serve admission;");
    assert_eq!(fair.by_session("first"), [2., 4.]);
    assert_eq!(fair.by_session("last"), [4., 6.]);
    let short = order("serve by (remaining);");
    assert_eq!(short.by_session("first"), [4., 1.]);
    assert_eq!(short.by_session("last"), [6., 3.]);
}

/// A resident preempted after it was served in the same iteration gives its tokens back: its
/// position too. Decodes go first and the latest admitted is the victim, so the decode of the
/// second is served, then the growth of the first takes its memory.
#[test]
fn tokens_of_a_victim_go_back_to_the_budget() {
    let run = run("
        pool kv { cap 12; preempt lifo; }
        stage E : step { budget 4; cost 1; memory kv; serve decode first; }
        workload { arrive batch (2); }
        session {
          branch (serial == 0) {
            hold kv (3) { run E prefill (9) growing kv; }
            observe done = now;
          } else {
            hold kv (6) {
              observe again = computed;
              run E decode (8) growing kv;
            }
            observe done = now;
          }
        }
        run { horizon 100; }");
    // s0 computes 3, 3 and 3 tokens beside the decode: its third chunk, at 2, needs 9 of 12
    // units while s1 has 6. s1's third token goes back, s0 takes all 3 of its rest, and s1 starts
    // again at 3 with two tokens computed.
    assert_eq!(run.by_session("again"), [0., 2.]);
    assert_eq!(run.by_session("done"), [3., 11.]);
    assert_eq!(run.report.pool("kv").unwrap().preemptions, 1);
}

struct Trace(Vec<String>);

impl Observer for Trace {
    fn wants_iterations(&self) -> bool {
        true
    }

    fn iteration(&mut self, it: &Iteration<'_>) {
        let part =
            |t: &Tokens| format!("{}{}{}", t.session, if t.prefill { "p" } else { "d" }, t.count);
        let parts: Vec<_> = it.tokens.iter().map(part).collect();
        self.0.push(format!("{}+{}: {}", it.time, it.duration, parts.join(" ")));
    }
}

/// Every iteration, token by token: chunks share the budget with decodes in order of admission,
/// and a growth that does not fit costs its session the iteration.
#[test]
fn iterations_can_be_watched() {
    let program = compile(
        "pool kv { cap 12; block 4; preempt lifo; admit via E; }
         stage E : step { budget 6; cost 1; memory kv; }
         workload { arrive batch (2); init { set size = serial == 0 ? 7 : 4; } }
         session {
           hold kv (min(size, budget_left(E))) {
             run E prefill (size) growing kv;
             run E decode (2) growing kv;
           }
         }
         run { horizon 20; }",
    );
    let mut trace = Trace(Vec::new());
    serq_sim::run(&program, &Options::default(), &mut trace).unwrap();
    let expected =
        ["0+1: 0p6", "1+1: 0p1 1p4", "2+1: 0d1", "3+1: 0d1", "4+1: 1p4", "5+1: 1d1", "6+1: 1d1"];
    assert_eq!(trace.0, expected);
}

/// Three requests of 2, 4 and 3 prompt tokens, the last of which comes while the others decode: a prompt has an
/// iteration to itself, whether its request was there when the iteration began (`exclusive prefill`) or comes
/// from the queue as it is put together (`prefill alone` only).
#[test]
fn a_prefill_alone_keeps_newcomers_out() {
    let trace = |serve: &str| {
        let program = compile(&format!(
            "pool slots {{ cap 3; admit via E; }}
             stage E : step {{ budget 100; cost 1; serve {serve}; }}
             stage clock : delay;
             workload {{ arrive batch (3); }}
             session {{
               run clock (serial == 2 ? 2.5 : 0);
               hold slots (1) {{
                 run E prefill (serial == 0 ? 2 : serial == 1 ? 4 : 3);
                 run E decode (3);
               }}
             }}
             run {{ horizon 20; }}"
        ));
        let mut trace = Trace(Vec::new());
        serq_sim::run(&program, &Options::default(), &mut trace).unwrap();
        trace.0
    };
    let alone = [
        "0+1: 0p2",
        "1+1: 1p4",
        "2+1: 0d1 1d1",
        "3+1: 2p3",
        "4+1: 0d1 1d1 2d1",
        "5+1: 0d1 1d1 2d1",
        "6+1: 2d1",
    ];
    assert_eq!(trace("prefill alone"), alone);
    let exclusive = [
        "0+1: 0p2 1p4",
        "1+1: 0d1 1d1",
        "2+1: 0d1 1d1",
        "3+1: 0d1 1d1 2p3",
        "4+1: 2d1",
        "5+1: 2d1",
        "6+1: 2d1",
    ];
    assert_eq!(trace("exclusive prefill"), exclusive);
}

/// Two residents with prompts of 2 and 4 tokens, of which the first has two more to answer: p2, p4, d1, d1. The
/// first decodes only when nobody has a prompt left; served together they would be done at 3.
#[test]
fn prompts_one_by_one_before_any_decode() {
    let trace = |serve: &str| {
        let program = compile(&format!(
            "stage E : step {{ budget 100; cost 1; serve {serve}; }}
             workload {{ arrive batch (2); }}
             session {{
               run E prefill (serial == 0 ? 2 : 4);
               branch (serial == 0) {{ run E decode (2); }}
             }}
             run {{ horizon 20; }}"
        ));
        let mut trace = Trace(Vec::new());
        serq_sim::run(&program, &Options::default(), &mut trace).unwrap();
        trace.0
    };
    let one_by_one = ["0+1: 0p2", "1+1: 1p4", "2+1: 0d1", "3+1: 0d1"];
    assert_eq!(trace("exclusive prefill"), one_by_one);
    assert_eq!(trace("prefill alone"), one_by_one);
    assert_eq!(trace("admission"), ["0+1: 0p2 1p4", "1+1: 0d1", "2+1: 0d1"]);
}

/// A prefill that waits for memory does not keep the decodes waiting that will free it.
#[test]
fn a_prefill_alone_that_cannot_grow_lets_the_decodes_go_on() {
    let run = run("
        pool kv { cap 8; preempt none; }
        stage E : step { budget 4; cost 1; memory kv; serve prefill alone; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          run clock (serial);
          hold kv (serial == 0 ? 7 : 1) {
            run E prefill (4) growing kv;
            run E decode (serial == 0 ? 3 : 1) growing kv;
            observe done = now;
          }
        }
        run { horizon 40; }");
    // s0 has 7 of 8 units: its prompt takes until 1, its answer until 4. s1's prompt lacks 3 units from 1 to 4.
    assert_eq!(run.by_session("done"), [4., 6.]);
}
