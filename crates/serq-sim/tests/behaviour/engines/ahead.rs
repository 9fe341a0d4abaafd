//! Engines a step ahead of their results, fences, and engines that stop.

use serq_sim::Options;

use super::{Diary, check_engines, diary};
use crate::support::{compile, run};

/// With `ahead` results come an iteration later, an empty one at the end; a resident whose tokens are all
/// scheduled is served nothing and is still one.
#[test]
fn an_engine_ahead_of_its_results() {
    check_engines(
        "pool kv { cap 16; block 4; shared; admit via E; }
         stage E : step { budget 9; cost 1; memory kv; ahead 1; };
         workload { arrive batch (1); init { set a = 0; set t = 0; } }
         session { hold kv (4) { run E prefill (4) decode (1) growing kv answers a first t; } observe first = t; run E steps (1); }
         run { horizon 30; }",
        "0 0 gets kv with 0; 0 E [0:4@0]; 0 E begins, free 12;
         1 E ends, free 12; 1 E [0:1@4]; 1 E begins, free 8;
         2 0 sample of E; 2 E ends, free 8; 2 E []; 2 E begins, free 8;
         3 0 sample of E; 3 0 run over on E; 3 E ends, free 16; 3 E []; 3 E begins, free 16;
         4 0 steps over on E; 4 E ends, free 16; 4 E []; 4 E begins, free 16;
         5 E ends, free 16; 5 E idles, free 16",
    );
}

/// A session that gives way still gets its tokens under way; if they are its last, it goes on behind its hold.
/// A hold that would hand its blocks over computes them again.
#[test]
fn tokens_under_way_of_a_victim() {
    // The newcomer of 1 takes what session 0, which has a sample under way, holds.
    let text = |decode: u32, lease: &str| {
        format!(
            "pool kv {{ cap 8; block 4; shared; preempt by (0 - serial) requeue (0); admit via E; }}
             stage E : step {{ budget 9; cost 1; memory kv; ahead 1; }};
             stage clock : delay;
             workload {{ arrive batch (2); init {{ set a = 0; set t = 0; }} }}
             session {{
               branch (serial == 1) {{ hold kv (4) {{ run E prefill (4) decode (2) growing kv; }} end; }}
               hold kv (4) {{ observe known = 4 + a; run E prefill (4) decode ({decode}) growing kv answers a first t; }} {lease}
               observe out = now; observe answers = a;
             }}
             run {{ horizon 30; }}"
        )
    };
    let runs = |decode, lease: &str| run(&text(decode, lease));
    let last = runs(0, "");
    assert_eq!((last.values("known"), last.values("answers")), (vec![4.], vec![1.]));
    assert_eq!(last.values("out"), [2.]);
    let more = runs(1, "");
    assert_eq!((more.values("known"), more.values("answers")), (vec![4., 5.], vec![3.]));
    let handed = runs(0, "lease kv (1)");
    assert_eq!((handed.values("known"), handed.values("answers")), (vec![4., 4.], vec![1.]));
}

/// Fenced, nobody with tokens under way gives way: who would grow waits for the next iteration.
#[test]
fn nobody_gives_way_behind_a_fence() {
    let text = |fenced: u32| {
        format!(
            "pool kv {{ cap 16; block 4; shared; preempt lifo; admit via E; }}
             stage E : step {{ budget 9; cost 1; memory kv; ahead 1; fenced {fenced}; }};
             stage clock : delay;
             workload {{ arrive batch (2); init {{ set a = 0; }} }}
             session {{
               until (serial == 1 ? 4.5 : inf) {{
                 hold kv (8) {{ run E prefill (7) decode (3) growing kv answers a; }}
               }} else {{ observe cut = free(kv); run clock (9); }}
               observe answers = a;
             }}
             run {{ horizon 30; }}"
        )
    };
    let log = |fenced| {
        diary(
            &compile(&text(fenced)),
            &Options::default(),
            Diary { memory: true, ..Diary::default() },
        )
        .1
    };
    // Blocks of 8 units each are full with the token of iteration 1; at 2 both need another.
    let open = log(0);
    assert!(open.contains("2 1 gives way in kv"), "{open}");
    let fenced = log(1);
    assert!(!fenced.contains("2 1 gives way in kv"), "{fenced}");
    assert!(fenced.contains("3 1 gives way in kv"), "{fenced}");
}

/// Two engines over one memory: what is given back of it waits for the engine that may still write it, and no
/// other, which may never iterate again.
#[test]
fn a_fence_is_of_the_engine_that_writes() {
    for (first, second) in [("A", "B"), ("B", "A")] {
        let text = format!(
            "pool kv {{ cap 64; block 4; shared; }}
             stage A : step {{ budget 9; cost 1; memory kv; ahead 1; fenced 1; }};
             stage B : step {{ budget 9; cost 1; memory kv; ahead 1; fenced 1; }};
             stage clock : delay;
             workload {{ arrive batch (2); }}
             session {{
               run clock (serial);
               branch (serial == 0) {{ hold kv (8) {{ run {first} prefill (7) growing kv; }} }} else {{}}
               until (serial == 1 ? 6.5 : inf) {{
                 hold kv (8) {{ run {second} prefill (7) decode (20) growing kv; }}
               }} else {{
                 observe cut = free(kv);
                 run clock (3);
                 observe then = free(kv);
               }}
             }}
             run {{ horizon 60; }}"
        );
        let run = run(&text);
        // Of session 1 nothing is free at once, and all soon; session 0 decodes on.
        let (cut, then) = (run.values("cut"), run.values("then"));
        assert_eq!((cut.len(), then.len()), (1, 1));
        assert!(then[0] > cut[0], "{first} {second}: {cut:?} {then:?}");
    }
}

/// What waits at an engine that stopped waits for ever, and is no deadlock.
#[test]
fn an_engine_stops() {
    let text = "
        pool kv { cap 8; admit via E; }
        stage E : step { budget 9; cost 1; memory kv; stops 3; };
        workload { arrive batch (2); }
        session { hold kv (8) { run E decode (5) growing kv; } }
        run { horizon 30; }";
    let run = run(&text.replace("growing kv", ""));
    assert_eq!(run.report.stage("E").expect("E").iterations, 3);
    assert_eq!((run.report.deadlock, run.report.run.live), (None, 2));
}
