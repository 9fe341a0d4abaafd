//! Memory: what a run keeps does not depend on how long it is.

use super::Engine;
use crate::{NoObserver, RunSettings, program};

const PROGRAM: &str = "
    pool kv { cap 1000; block 10; preempt lifo; }
    pool disk { cap inf; }
    stage E : step { budget 100; cost 0.01 + ntok / 1000; memory kv; }
    stage link : ps (1);
    stage tool : delay;
    workload { arrive poisson (1); init { set x = 1 + floor(~exp(50)); } }
    session {
      hold disk (x) { run link (0.01); } cache (x);
      hold kv (min(x, 900)) { run E prefill (min(x, 900)) growing kv; } cache (x) lease kv (0.5);
      hold disk (x) reuse (x / 2) {} cache (x);
      tool 1;
    }
    run { horizon 1; }
";

#[test]
fn memory_does_not_grow_with_the_run() {
    let compiled = serq_lang::compile("test.sq", PROGRAM.as_bytes(), &[]);
    let ir = compiled.program.expect("valid");
    let sizes = |horizon: f64| {
        let settings = RunSettings {
            seed: 1,
            horizon,
            warmup: 0.0,
            slo: crate::Slo::default(),
            coalesce: true,
        };
        let (c, plans, capacities) = program::compile(&ir);
        let mut observer = NoObserver;
        let mut e = Engine::new(&c, (plans, capacities), settings, &mut observer);
        e.run().unwrap();
        let entries: usize = e.w.pools.iter().map(|p| p.cache.iter().count()).sum();
        let orders: usize = e.w.pools.iter().map(|p| p.order.len() + p.orphans.len()).sum();
        [e.w.sessions.len(), e.w.jobs.len(), e.events.len(), entries, orders, e.ready.len()]
    };
    let (short, long) = (sizes(5_000.0), sizes(50_000.0));
    for (a, b) in short.into_iter().zip(long) {
        assert!(b <= 2 * a + 20, "{short:?} became {long:?}");
    }
}

/// A decode of 1000 tokens is a handful of events in the list, with and without somebody who waits
/// for its slot, over memory of either kind, and a thousand for the report.
#[test]
fn iterations_that_decide_nothing_are_no_events() {
    let text = "
        pool slots { cap 1; admit via E; }
        pool kv { cap 4000; block 16; preempt lifo; }
        stage E : step { budget 100; cost 0.25; memory kv; }
        workload { arrive batch (2); }
        session {
          hold slots (1), kv (16) { run E decode (1000) growing kv; }
        }
        run { horizon 1000; }";
    let (scheduled, handled, end) = events(text, true);
    assert_eq!((handled, end), (2000, 500.0));
    assert!(scheduled < 20, "{scheduled}");
    assert_eq!(events(text, false), (2000, 2000, 500.0));
    // Over shared memory, counting samples.
    let text = "
        pool kv { cap 4000; block 16; shared; preempt by (admission) requeue (0); }
        stage E : step { budget 100; chunk queue(E) > 1 ? 50 : 0; cost 0.25; memory kv; };
        workload { arrive batch (3); init { set a = 0; set t = 0; } }
        session { hold kv (5) { run E prefill (5) decode (1000) growing kv answers a first t; } observe a = a; }
        run { horizon 1000; }";
    let (scheduled, handled, end) = events(text, true);
    assert_eq!((handled, end), (1001, 250.25));
    assert!(scheduled < 20, "{scheduled}");
    assert_eq!(events(text, false), (1001, 1001, 250.25));
}

/// Events put into the list and handled, and when the last of them came.
fn events(text: &str, coalesce: bool) -> (u64, u64, f64) {
    let compiled = serq_lang::compile("test.sq", text.as_bytes(), &[]);
    let ir = compiled.program.expect("valid");
    let options = crate::Options { coalesce, ..crate::Options::default() };
    let settings = crate::settings(&ir, &options).unwrap();
    let (c, plans, capacities) = program::compile(&ir);
    let mut observer = NoObserver;
    let mut e = Engine::new(&c, (plans, capacities), settings, &mut observer);
    e.run().unwrap();
    (e.scheduled, e.handled, e.w.now)
}
