//! What cannot be known before the run: errors with the line, the session and the time.

use serq_lang::ir::{CExpr, CPool, CStmt, Program};
use serq_sim::{NoObserver, Options, RunError};

use crate::support::{fault, run};

const HEAD: &str = "
pool P { cap 10; }
pool F[2] { cap 10; }
stage E : step { budget 100; cost (now < 5) ? 1 : 0; }
stage clock : delay;
stage link : ps(now - 1);
workload { arrive batch (2); init { set zero = 0; set two = 2; } }
run { horizon 100; }
";

#[track_caller]
fn check(code: &str, time: f64, statements: &str) {
    let fault = fault(&format!("{HEAD}session {{\n{statements}\n}}"));
    assert_eq!((fault.code, fault.time), (code, time), "{fault}");
    let place = fault.place.expect("a program from text has positions");
    assert!(place.line > 1, "{place}");
}

#[test]
fn values_without_meaning_are_errors() {
    check("amount", 0., "hold P (0 - 1 - zero) {}");
    check("amount", 0., "hold P (zero / zero) {}");
    check("amount", 0., "hold P (1) reserve (0 - two) {}");
    check("amount", 0., "hold P (1) reuse (0 - two) {}");
    check("amount", 0., "run clock (zero - 1);");
    check("amount", 0., "run clock (1 / zero);");
    check("amount", 1., "hold P (1) { run clock (1); } cache (zero - 1);");
    check("amount", 0., "hold P (1) {} lease P (zero - 1);");
    check("amount", 0., "hold P (1) { grow P (zero - 1); }");
    check("amount", 0., "hold P (1) { load P (zero - 1); }");
    check("amount", 0., "run link (1);");
    check("load-beyond", 0., "hold P (1) { load P (two); }");
    check("guard", 0., "branch (two) { end; }");
    check("guard", 0., "branch (zero + 0.5) { end; }");
    check("index", 0., "hold F[two] (1) {}");
    check("index", 0., "hold F[two / 4] (1) {}");
    check("index", 0., "hold F[zero - 1] (1) {}");
    check("index", 0., "observe x = used(F[two]);");
    check("hold-twice", 0., "hold F[zero] (1), F[two - 2] (1) {}");
    check("choose", 0., "choose j in two / 4 by (j);");
    check("choose", 0., "choose j in zero / zero by (j);");
    check("key", 0., "choose j in two by (zero / zero);");
    check("observe", 0., "observe x = zero / zero;");
    check("set", 0., "set x = zero / zero;");
    check("draw", 0., "set x = ~exp(zero - 1);");
    check("no-hold", 0., "hold P (1) { release P; load P (0); }");
    check("zero-cost", 5., "run clock (5); run E prefill (1);");
}

#[test]
fn loops_that_take_no_time_end() {
    check("endless", 0., "loop { run clock (zero); }");
    check("instant-loop", 0., "loop { hold P (1) { run clock (zero); } }");
    // A run whose work is smaller than the clock can show.
    check("instant-loop", 1., "run clock (1); loop { run clock (1e-17 + zero); }");
}

#[test]
fn a_closed_workload_of_sessions_that_end_at_once_ends() {
    let fault = fault(
        "stage clock : delay;
         workload { arrive closed (3); init { set work = 0; } }
         session { run clock (work); }
         run { horizon 1; }",
    );
    assert_eq!((fault.code, fault.time), ("instant-loop", 0.0));
}

/// Two sessions take two pools in opposite order.
#[test]
fn a_deadlock_is_who_holds_and_who_waits() {
    let run = run("
        pool A { cap 10; }
        pool B { cap 20; }
        stage clock : delay;
        workload { arrive batch (3); }
        session {
          branch (serial == 0) {
            hold A (10) { run clock (1); hold B (15) {} }
          }
          branch (serial == 1) {
            hold B (15) { run clock (1); hold A (10) {} }
          }
          branch (serial == 2) { run clock (50); }
        }
        run { horizon 100; }");
    let deadlock = run.report.deadlock.as_ref().unwrap();
    assert_eq!((deadlock.sessions, deadlock.time), (2, 50.0));
    let told: Vec<_> = deadlock
        .waiters
        .iter()
        .map(|w| (w.session, w.holds[0].pool.as_str(), w.waits_for[0].pool.as_str()))
        .collect();
    assert_eq!(told, [(0, "A", "B"), (1, "B", "A")]);
    assert_eq!(
        deadlock.summary(),
        "2 session(s) can never move again; session 0 holds 10 of A and waits for 15 of B"
    );
    assert!(run.report.to_text().contains("deadlock: 2 session(s)"));
}

/// A queue that is long because of load is no deadlock, nor is a growth that somebody who works
/// will make room for.
#[test]
fn load_is_no_deadlock() {
    let run = run("
        pool A { cap 10; }
        stage clock : delay;
        workload { arrive batch (3); }
        session {
          hold A (5) { branch (serial == 0) { run clock (500); } else { grow A (3); } }
        }
        run { horizon 100; }");
    assert_eq!(run.report.run.live, 3);
    assert_eq!(run.report.deadlock, None);
}

/// Growths that wait for each other's hold.
#[test]
fn growths_can_deadlock() {
    let run = run("
        pool A { cap 10; }
        workload { arrive batch (2); }
        session { hold A (5) { grow A (1); } }
        run { horizon 100; }");
    let deadlock = run.report.deadlock.unwrap();
    assert_eq!(deadlock.sessions, 2);
    assert_eq!(deadlock.waiters[0].waits_as, "growth");
    assert_eq!(deadlock.waiters[0].waits_for[0].units, 1.0);
}

#[test]
fn what_is_wrong_before_the_run_is_said_before_it() {
    let run = |p: &Program, o: &Options| serq_sim::run(p, o, &mut NoObserver);
    let mut p = Program::empty();
    p.pools.push(CPool::new("x", -1.0));
    p.blocks[2].push(CStmt::Set(99, CExpr::Num(0.0)));
    let Err(RunError::Invalid(errors)) = run(&p, &Options::default()) else { panic!() };
    assert_eq!(errors.len(), 2);
    let p = Program::empty();
    for o in [
        Options { horizon: Some(0.0), ..Options::default() },
        Options { warmup: Some(1.0), ..Options::default() },
        Options { quantiles: vec![1.5], ..Options::default() },
    ] {
        assert!(matches!(run(&p, &o), Err(RunError::Options(_))), "{o:?}");
    }
}
