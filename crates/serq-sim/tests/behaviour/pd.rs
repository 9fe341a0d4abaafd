//! Releases, leases, loads and transfers: allocations that do not end with their scope.

use crate::support::{compile, errors, fault, run};

/// The first gives its pool back at 1, the instant at which the second comes: nobody waits.
#[test]
fn release_before_the_end_of_the_scope() {
    let run = run("
        pool P { cap 10; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          run clock (serial);
          set t = now;
          hold P (10) {
            observe wait = now - t;
            run clock (1);
            release P;
            observe after = free(P);
            run clock (3);
          }
          observe at_end = free(P);
        }
        run { horizon 100; }");
    assert_eq!(run.by_session("wait"), [0., 0.]);
    assert_eq!(run.by_session("after"), [0., 10.]);
    assert_eq!(run.by_session("at_end"), [10., 10.]);
}

#[test]
fn release_caches_by_the_clause() {
    let run = run("
        pool P { cap 10; }
        workload { arrive batch (1); }
        session {
          hold P (10) { release P; } cache (8);
          hold P (10) { observe hit = cached; }
        }
        run { horizon 1; }");
    assert_eq!(run.values("hit"), [8.]);
}

#[test]
fn a_slot_released_early_goes_to_the_next() {
    let run = run("
        pool slots { cap 1; }
        pool kv { cap 20; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          hold slots (1), kv (10) {
            observe admitted = now;
            run clock (1);
            release slots;
            observe used = used(kv);
            run clock (0.5);
          }
        }
        run { horizon 10; }");
    assert_eq!(run.by_session("admitted"), [0., 1.]);
    assert_eq!(run.by_session("used"), [20., 10.]);
}

#[test]
fn load_makes_computed_what_may_be_cached() {
    let run = run("
        pool P { cap 100; }
        workload { arrive batch (1); }
        session {
          hold P (40) { load P (30); } cache (40);
          hold P (40) { observe hit = cached; }
        }
        run { horizon 1; }");
    assert_eq!(run.values("hit"), [30.]);
}

#[test]
fn load_beyond_the_allocation_is_an_error() {
    let fault = fault(
        "
        pool P { cap 100; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          run clock (1 + serial);
          hold P (10) { load P (11 - serial); }
        }
        run { horizon 10; }",
    );
    assert_eq!((fault.code, fault.session, fault.time), ("load-beyond", Some(0), 1.0));
    assert_eq!(fault.place.unwrap().to_string(), "test.sq:7:25");
}

#[test]
fn statements_of_a_hold_stand_inside_it() {
    for statement in [
        "release P;",
        "load P (1);",
        "grow P (1);",
        "run E prefill (1) growing P;",
        "hold Q (1) {} lease P (1);",
        "hold F[0] (1) { release F[1]; }",
        "hold F[k] (1) { load F[k + 0] (1); }",
    ] {
        let text = format!(
            "pool P {{ cap 10; }} pool Q {{ cap 10; }} pool F[2] {{ cap 10; }}
             stage E : step {{ budget 1; cost 1; }}
             workload {{ arrive batch (1); init {{ set k = 0; }} }}
             session {{ {statement} }}
             run {{ horizon 1; }}"
        );
        assert!(!errors(&text).is_empty(), "{statement} was accepted");
    }
}

const TRANSFER: &str = "
    pool memP { cap 10; }
    pool memD { cap 10; }
    stage prefill : fifo;
    stage link : fifo;
    stage decode : fifo;
    workload { arrive batch (3); }
    session {
      hold memP (10) { observe p = now; prefill 1; } lease memP (inf);
      hold memD (10) {
        observe d = now;
        MOVE
        observe holders = holders(memP);
        observe used = used(memD);
        decode 1;
      }
    }
    run { horizon 100; }";

/// The source is held until the read ends, the destination from before it begins.
#[test]
fn a_transfer_frees_the_source_when_it_ends() {
    let sugar = TRANSFER.replace("MOVE", "transfer (1) from memP to memD (10);");
    let run = run(&sugar);
    assert_eq!(run.by_session("holders"), [1., 1., 0.]);
    assert_eq!(run.by_session("used"), [10., 10., 10.]);
    assert_eq!(run.by_session("p")[..2], [0., 2.]);
    assert_eq!(run.by_session("d")[..2], [1., 3.]);
    let kernel = TRANSFER.replace("MOVE", "run link (1); load memD (10); release memP;");
    let strip = |text: &str| serq_lang::ir::Program { spans: None, ..compile(text) };
    assert_eq!(strip(&sugar), strip(&kernel));
}

/// Six requests, a decoder that takes one at a time for 10 s. Store and forward prefills them all
/// meanwhile; with leased blocks the prefiller (room for two) stops at four: two are read by 15 s,
/// two wait leased.
#[test]
fn leased_blocks_hold_the_prefiller_back() {
    let program = |body: &str| {
        format!(
            "pool memP {{ cap 20; }} pool memD {{ cap 10; }}
             stage prefill : fifo; stage link : fifo; stage decode : fifo;
             workload {{ arrive batch (6); }}
             session {{ {body} }}
             run {{ horizon 15; }}"
        )
    };
    let forward = run(&program(
        "hold memP (10) { prefill 1; observe done = now; run link (0.1); }
         hold memD (10) { decode 10; }",
    ));
    assert_eq!(forward.values("done").len(), 6);
    let leased = run(&program(
        "hold memP (10) { prefill 1; observe done = now; } lease memP (inf);
         hold memD (10) { transfer 0.1 from memP to memD (10); decode 10; }",
    ));
    assert_eq!(leased.values("done").len(), 4);
}

/// A hold preempted and done again releases its lease once; the second time there is nothing.
#[test]
fn a_hold_done_again_releases_nothing_twice() {
    let run = run("
        pool A { cap 100; }
        pool kv { cap 10; preempt lifo; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          hold A (10) {} lease A (inf);
          hold kv (5) {
            release A;
            observe free = serial == 1 ? free(A) : 100;
            run clock (1 + serial);
            grow kv (3);
            run clock (1);
          }
        }
        run { horizon 100; }");
    assert!(run.values("free").len() > 2);
    assert!(run.values("free").iter().all(|v| *v == 100.0));
    assert_eq!(run.report.pool("kv").unwrap().preemptions, 1);
    assert_eq!(run.report.pool("A").unwrap().mean_used, 0.0);
}

/// A stage tries its queues in order of declaration and stops at the first head that does not fit.
#[test]
fn queues_of_a_stage_block_in_order_of_declaration() {
    for (first, second, admitted) in [("a", "b", 50.0), ("b", "a", 2.0)] {
        let run = run(&format!(
            "pool {first} {{ cap 10; admit via E; }}
             pool {second} {{ cap 10; admit via E; }}
             stage E : step {{ budget 10; cost 1; }}
             stage clock : delay;
             workload {{ arrive batch (3); }}
             session {{
               run clock (serial);
               branch (serial < 2) {{
                 hold a (10) {{ run clock (50); }}
               }} else {{
                 hold b (10) {{ observe admitted = now; }}
               }}
             }}
             run {{ horizon 200; }}"
        ));
        assert_eq!(run.values("admitted"), [admitted]);
    }
}

/// `lifo` on an engine's memory takes from residents only: with nobody there a growth waits.
#[test]
fn growth_with_nobody_resident_waits() {
    let run = run("
        pool kv { cap 10; preempt lifo; }
        stage E : step { budget 10; cost 1; memory kv; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          branch (serial == 0) {
            hold kv (8) { run clock (5); }
          } else {
            hold kv (2) { grow kv (1); observe grew = now; }
          }
        }
        run { horizon 100; }");
    assert_eq!(run.values("grew"), [5.]);
    assert_eq!(run.report.pool("kv").unwrap().preemptions, 0);
}

/// Nobody takes the lease: it ends after its 2 s, is cached by the clause, and evicted for the
/// next hold.
#[test]
fn a_lease_ends_at_its_bound() {
    let run = run("
        pool P { cap 10; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          branch (serial == 0) {
            hold P (10) { run clock (1); } cache (10) lease P (2);
            run clock (9);
            hold P (10) { observe hit = cached; }
          } else {
            hold P (10) { observe admitted = now; }
          }
        }
        run { horizon 100; }");
    assert_eq!(run.values("admitted"), [3.]);
    assert_eq!(run.values("hit"), [0.]);
    assert_eq!(run.report.pool("P").unwrap().evicted_units, 10.0);
}

#[test]
fn a_lease_ends_with_its_session() {
    let run = run("
        pool P { cap 10; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          branch (serial == 0) {
            hold P (10) { run clock (1); } lease P (inf);
            run clock (1);
          } else {
            hold P (10) { observe admitted = now; }
          }
        }
        run { horizon 100; }");
    assert_eq!(run.values("admitted"), [2.]);
}

/// The engine's only resident finds 8 of 10 units leased: at 1 and at 2 it is its own victim, at
/// 2.6 the lease ends, at 3 (the end of the empty iteration) it grows.
#[test]
fn a_lease_is_no_victim() {
    let run = run("
        pool kv { cap 10; preempt lifo; }
        stage E : step { budget 10; cost 1; memory kv; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          branch (serial == 0) {
            hold kv (8) {} lease kv (inf);
            run clock (2.6);
            release kv;
            observe released = now;
          } else {
            run clock (1);
            hold kv (2) { run E prefill (3) growing kv; }
            observe done = now;
          }
        }
        run { horizon 100; }");
    assert_eq!(run.values("released"), [2.6]);
    assert_eq!(run.values("done"), [4.]);
    assert_eq!(run.report.pool("kv").unwrap().preemptions, 2);
}
