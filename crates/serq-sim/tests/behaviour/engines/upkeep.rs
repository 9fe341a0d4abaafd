//! Sessions that wait for each other beside a lease that is renewed: engines iterate for the renewals, so
//! that something always happens, and the run is over all the same.

use serq_sim::{Held, NoObserver, Options, Report};

use crate::support::{compile_with, fault};

/// Session 0 leases all of `kvP` and waits for `kvD`, which session 1 has while it waits for `kvP`.
const PROGRAM: &str = "
    let bound = 5;
    let interval = 2;
    let late = 0;
    let dies = inf;
    let patience = inf;
    let jitter = 0;
    pool kvP { cap 10; admit via P; }
    pool kvD { cap 10; }
    stage P : step { cost 1; memory kvP; };
    stage D : step { cost jitter ? ~uniform(0.9, 1.1) : 1; stops dies; };
    stage clock : delay;
    workload { arrive at (0, 0, 0); }
    session {
      branch (serial == 2) {
        run clock (100);
      } else {
        until (now + patience) {
          branch (serial == 0) {
            hold kvP (10) { run P prefill (10); } lease kvP (bound) on P;
            renew kvP (bound) every (interval) from D after (late);
            hold kvD (10) { run D steps (1) telling kvP on P; }
          } else {
            hold kvD (10) { hold kvP (10) WHEN { run P prefill (1); } }
          }
        }
      }
      observe done = now;
    }";

#[track_caller]
fn run(sets: &[&str], horizon: Option<f64>) -> Report {
    let options = Options { horizon, ..Options::default() };
    let program = compile_with(&PROGRAM.replace("WHEN", ""), sets);
    serq_sim::run(&program, &options, &mut NoObserver).expect("it runs")
}

/// Nothing moves after session 2 has left at 100. The run ends at one of its looks behind that, and says who
/// has what; with a horizon it says the same.
#[test]
fn a_renewed_lease_hides_no_deadlock() {
    for (sets, horizon) in [
        (&[][..], None),
        (&[], Some(5000.0)),
        (&["bound=50", "interval=2.5", "late=30"], None),
        (&["bound=300", "interval=290"], None),
    ] {
        let report = run(sets, horizon);
        let deadlock = report.deadlock.as_ref().expect("a deadlock");
        assert_eq!(deadlock.sessions, 2, "{sets:?}");
        let all = |pool: &str| vec![Held { pool: pool.into(), units: 10.0 }];
        let [first, second] = &deadlock.waiters[..] else { panic!("{deadlock:?}") };
        assert_eq!((&first.holds, &first.waits_for), (&all("kvP"), &all("kvD")));
        assert_eq!((&second.holds, &second.waits_for), (&all("kvD"), &all("kvP")));
        assert_eq!(report.observe("done").unwrap().count, 1);
        let end = report.run.horizon;
        assert!(end > 100.0 && end <= horizon.unwrap_or(10_000.0), "{end}");
    }
}

/// A lease that does end frees the pool, and what waits for it goes on.
#[test]
fn a_lease_that_ends_is_waited_for() {
    for (sets, done) in [
        // Too rarely renewed; given up by who waits.
        (&["interval=9"][..], 3),
        (&["late=6", "interval=6"], 3),
        (&["patience=20_000"], 3),
        // The reader dies: who reads waits for ever, the other does not.
        (&["dies=20_000"], 2),
    ] {
        let report = run(sets, None);
        assert_eq!(report.deadlock, None, "{sets:?}");
        assert_eq!((report.observe("done").unwrap().count, report.run.live), (done, 3 - done));
    }
}

/// What is not certain is not called a deadlock: a bound that leaves no room for an iteration of each
/// engine, iterations that draw their length, a condition on the clock. Such a run is given up late.
#[test]
fn what_may_change_is_given_up_late() {
    let plain = PROGRAM.replace("WHEN", "");
    for text in [
        plain.replace("interval = 2;", "interval = 3;"),
        plain.replace("jitter = 0;", "jitter = 1;"),
        PROGRAM.replace("WHEN", "when (now >= 0)"),
    ] {
        let fault = fault(&text);
        assert_eq!((fault.code, fault.session), ("upkeep", Some(0)), "{fault}");
        assert!(fault.path.starts_with("blocks") && fault.place.is_some(), "{fault}");
        assert!(fault.time > 50_000.0, "{fault}");
        let parts = ["session 0 holds 10 of kvP and waits for 10 of kvD", "2 session(s)"];
        assert!(parts.iter().all(|p| fault.reason.contains(p)), "{fault}");
    }
}
