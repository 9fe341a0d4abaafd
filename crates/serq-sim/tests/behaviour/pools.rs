//! Pools: blocks, caches, eviction, tiers, growth, priorities, rejection.

use crate::support::run;

/// Three prefixes of 10 in a pool of 30; a fourth hold needs 10: the smallest key goes.
#[test]
fn eviction_keys_decide_who_hits() {
    let run = run("
        pool P { cap 30; evict by (0 - serial); }
        stage clock : delay;
        workload { arrive batch (4); }
        session {
          branch (serial < 3) {
            hold P (10) {} cache (10);
            run clock (2);
            observe hit = cachedin(P) > 0;
          } else {
            run clock (1);
            hold P (10) {}
          }
        }
        run { horizon 10; }");
    assert_eq!(run.by_session("hit"), [1., 1., 0.]);
}

/// By size alone the 5 units of a session that waits would go; with `queued` in front of it the
/// other's 8 do.
#[test]
fn prefixes_of_waiting_sessions_can_be_spared() {
    for (keys, hits) in [("size", [0., 8.]), ("queued, size", [5., 0.])] {
        let run = run(&format!(
            "pool P {{ cap 20; evict by ({keys}); }}
             pool turn_stile {{ cap 1; }}
             stage clock : delay;
             workload {{ arrive batch (4); }}
             session {{
               branch (serial == 0) {{
                 hold P (5) {{}} cache (5);
                 run clock (1);
                 hold turn_stile (1) {{}}
                 observe hit = cachedin(P);
               }}
               branch (serial == 1) {{
                 hold P (8) {{}} cache (8);
                 run clock (5);
                 observe hit = cachedin(P);
               }}
               branch (serial == 2) {{
                 hold turn_stile (1) {{ run clock (4); }}
               }}
               branch (serial == 3) {{
                 run clock (2);
                 hold P (11) {{}}
               }}
             }}
             run {{ horizon 10; }}"
        ));
        assert_eq!(run.by_session("hit"), hits, "{keys}");
    }
}

#[test]
fn blocks_round_up_when_allocated_and_down_when_cached() {
    let run = run("
        pool P { cap 100; block 10; }
        stage clock : delay;
        workload { arrive batch (3); }
        session {
          run clock (serial);
          branch (serial == 0) {
            hold P (55) { observe used = used(P); } cache (55);
            observe left = cachedin(P);
            run clock (9);
          }
          branch (serial == 1) {
            hold P (70) { run clock (3); }
          }
          branch (serial == 2) {
            observe used = used(P);
            hold P (30) { observe used = used(P); }
          }
        }
        run { horizon 10; }");
    assert_eq!(run.by_session("used"), [60., 70., 100.]);
    assert_eq!(run.values("left"), [50.]);
    let p = run.report.pool("P").unwrap();
    assert_eq!((p.evicted_units, p.evicted_entries), (20. + 30., 1));
}

/// Two blocks of 10 leave for the tier over the link, one job each; the third job is the session's
/// reading them back.
#[test]
fn evicted_blocks_go_to_the_tier() {
    let run = run("
        pool P { cap 30; block 10; spill T via link (size / 10) when (1); }
        pool T { cap 100; block 10; }
        stage link : fifo;
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          branch (serial == 0) {
            hold P (30) {} cache (30);
            run clock (10);
            observe tier = cachedin(T);
            run link (cachedin(T) / 10);
            observe back = now;
          } else {
            run clock (1);
            hold P (20) {}
          }
        }
        run { horizon 100; }");
    assert_eq!(run.values("tier"), [20.]);
    assert_eq!(run.values("back"), [12.]);
    assert_eq!(run.report.pool("P").unwrap().spills, 2);
    assert_eq!(run.report.stage("link").unwrap().completed, 3);
}

#[test]
fn without_preemption_a_growth_waits() {
    let run = run("
        pool P { cap 10; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          hold P (5) {
            branch (serial == 0) { run clock (1); } else {
              set t = now;
              grow P (3);
              observe waited = now - t;
              observe used = used(P);
            }
          }
        }
        run { horizon 10; }");
    assert_eq!(run.values("waited"), [1.]);
    assert_eq!(run.values("used"), [8.]);
}

/// A growth that waits inside an iteration gets no tokens until there is room.
#[test]
fn without_preemption_a_resident_waits() {
    let run = run("
        pool P { cap 10; }
        stage E : step { budget 100; cost 1; memory P; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          hold P (5) {
            branch (serial == 0) { run clock (2.5); } else { run E prefill (6) growing P; }
          }
          observe done = now;
        }
        run { horizon 10; }");
    assert_eq!(run.by_session("done"), [2.5, 3.5]);
}

#[test]
fn queue_keys_give_priority() {
    let run = run("
        pool P { cap 10; queue by (0 - serial); }
        stage clock : delay;
        workload { arrive batch (4); }
        session {
          branch (serial == 3) { hold P (10) { run clock (1); } } else {
            run clock (0.5);
            hold P (10) { observe admitted = serial; run clock (1); }
          }
        }
        run { horizon 10; }");
    assert_eq!(run.values("admitted"), [2., 1., 0.]);
}

#[test]
fn what_can_never_fit_is_rejected() {
    let run = run("
        pool P { cap 10; }
        workload { arrive batch (3); }
        session {
          hold P (serial == 0 ? 11 : 1) reserve (serial == 1 ? 11 : 1) { observe admitted = serial; }
        }
        run { horizon 10; }");
    assert_eq!(run.values("admitted"), [2.]);
    assert_eq!(run.report.pool("P").unwrap().rejected, 2);
    assert_eq!(run.report.run.live, 0);
    assert!(run.report.notes.iter().any(|n| n.code == "rejected"));
}

/// 160 tokens of room for 200: the request grows to 160 in 61 iterations, preempts itself in an
/// empty one, and starts over. It is counted as stuck once.
#[test]
fn a_request_larger_than_the_pool_is_stuck() {
    let run = |cost: &str| {
        run(&format!(
            "pool kv {{ cap 160; block 16; preempt lifo; }}
             stage E : step {{ budget 1000; cost {cost}; memory kv; }}
             workload {{ arrive batch (1); }}
             session {{
               hold kv (100) {{
                 run E prefill (100) growing kv;
                 run E decode (100) growing kv;
               }}
             }}
             run {{ horizon 400; }}"
        ))
    };
    let unit = run("1");
    let kv = unit.report.pool("kv").unwrap();
    assert_eq!((kv.preemptions, kv.admissions, kv.stuck), (6, 7, 1));
    assert_eq!(unit.report.stage("E").unwrap().iterations, 401);
    let tokens = run("ntok");
    assert_eq!(tokens.report.pool("kv").unwrap().preemptions, 2);
}

/// In this version every hold uses the session's prefix up, and leaves what its clause says.
#[test]
fn a_hold_without_a_cache_clause_leaves_nothing() {
    let run = run("
        pool P { cap 2000; block 16; }
        workload { arrive batch (1); }
        session {
          hold P (1000) {} cache (1000);
          observe prefix = cachedin(P);
          hold P (1000) {}
          observe prefix = cachedin(P);
        }
        run { horizon 10; }");
    assert_eq!(run.values("prefix"), [992., 0.]);
}

/// `reuse` keeps whole blocks of the prefix; the rest takes room and helps nobody.
#[test]
fn what_may_not_be_reused_is_dead() {
    let run = run("
        pool P { cap 200; block 10; }
        stage clock : delay;
        workload { arrive batch (1); }
        session {
          hold P (100) {} cache (100);
          hold P (50) reuse (55) { observe hit = cached; run clock (1); } cache (50);
          observe prefix = cachedin(P);
        }
        run { horizon 2; }");
    assert_eq!(run.values("hit"), [50.]);
    assert_eq!(run.values("prefix"), [50.]);
    // 50 dead all along; 50 more after the second hold.
    assert_eq!(run.report.pool("P").unwrap().mean_cached, 75.0);
}

/// The first index with the smallest key.
#[test]
fn choose_takes_the_first_of_the_least() {
    let run = run("
        pool P[3] { cap 10; }
        stage clock : delay;
        workload { arrive batch (4); }
        session {
          run clock (serial);
          choose j in 3 by (holders(P[j]));
          observe taken = j;
          choose none in 0 - serial by (0);
          observe nobody = none;
          hold P[j] (1) { run clock (10); }
        }
        run { horizon 100; }");
    assert_eq!(run.by_session("taken"), [0., 1., 2., 0.]);
    assert_eq!(run.by_session("nobody"), [0.; 4]);
}

/// Two holds of one session on one pool are two holders, and the end of the inner one takes its own
/// units along, not the outer one's.
#[test]
fn a_session_may_hold_a_pool_twice() {
    let run = run("
        pool P { cap 10; }
        workload { arrive batch (1); }
        session {
          hold P (1) {
            hold P (2) { observe holders = holders(P); observe used = used(P); }
            observe holders = holders(P);
            observe used = used(P);
          }
          observe holders = holders(P);
          observe used = used(P);
        }
        run { horizon 10; }");
    assert_eq!(run.values("holders"), [2., 1., 0.]);
    assert_eq!(run.values("used"), [3., 1., 0.]);
}
