//! Steps, leases that an engine minds, renewals, and the order of simultaneous releases.

use serq_sim::Options;

use super::{Diary, check, check_engines, diary, shared};
use crate::support::{compile, fault};

/// A run of steps takes no tokens and ends with the k-th iteration from now on, the one being put together
/// included; the engine iterates for it.
#[test]
fn steps_are_counted() {
    // Session 0 waits on an idle engine; session 1 comes in the middle of its second iteration.
    check_engines(
        "pool kv { cap 8; block 4; } stage clock : delay;
         stage E : step { budget 9; cost 2; memory kv; };
         workload { arrive batch (2); }
         session { run clock (3 * serial); run E steps (3 - serial); }
         run { horizon 30; }",
        "0 E []; 0 E begins, free 8; 2 E ends, free 8; 2 E []; 2 E begins, free 8;
         4 E ends, free 8; 4 E []; 4 E begins, free 8;
         6 0 steps over on E; 6 E ends, free 8; 6 E []; 6 E begins, free 8;
         8 1 steps over on E; 8 E ends, free 8; 8 E idles, free 8",
    );
    let code = |session: &str| {
        let text = format!(
            "stage E : step {{ budget 9; cost ntok; }}; workload {{ arrive batch (1); }}
             session {{ {session} }} run {{ horizon 9; }}"
        );
        fault(&text).code
    };
    assert_eq!(code("run E steps (1);"), "zero-cost");
    assert_eq!(code("run E steps (1.5);"), "steps");
}

/// Admitted by the iteration that is put together, a session has it counted.
#[test]
fn the_iteration_that_admits_is_a_step() {
    check(
        &shared("", "", "hold kv (4) { run E steps (1); run E steps (1); }"),
        "0 0 gets kv with 0; 1 0 steps over on E; 1 1 gets kv with 0;
         2 0 steps over on E; 2 1 steps over on E; 3 1 steps over on E",
    );
}

/// A source that leases 8 of 8 units on its engine for `bound`, and a reader that does `read`.
fn leased(bound: &str, read: &str, rest: &str) -> String {
    format!(
        "pool kv {{ cap 8; block 4; shared; admit via P; }}
         stage P : step {{ budget 100; cost 1; memory kv; }};
         stage D : step {{ budget 100; cost 1; }};
         stage clock : delay;
         workload {{ arrive batch (2); }}
         session {{
           branch (serial == 0) {{
             hold kv (8) {{ run P prefill (8) growing kv; }} lease kv ({bound}) on P;
             {read}
           }} else {{ run clock (1); hold kv (4) {{ observe in = now; }} {rest} }}
         }}
         run {{ horizon 30; }}"
    )
}

/// A lease that its engine minds ends with the results of an iteration: the first one put together at or after
/// its bound, or after it was told. What it had serves the iteration after.
#[test]
fn an_engine_notices_that_a_lease_is_over() {
    let reads = [
        // The bound, 3.5 after 1, is noticed at 5.
        (
            "3.5",
            "run clock (20);",
            "5 0 end of lease of kv noticed; 6 0 lease of kv ends; 6 1 gets kv with 0",
        ),
        (
            "4",
            "run clock (20);",
            "5 0 end of lease of kv noticed; 6 0 lease of kv ends; 6 1 gets kv with 0",
        ),
        // Told at 3, told at 3 and there at 4.5, told too late.
        (
            "9",
            "run clock (2); release kv on P; run clock (20);",
            "3 0 end of lease of kv noticed; 4 0 lease of kv ends; 4 1 gets kv with 0",
        ),
        (
            "9",
            "run clock (2); release kv on P after (1.5); end;",
            "5 0 end of lease of kv noticed; 6 0 lease of kv ends; 6 1 gets kv with 0",
        ),
        (
            "2",
            "run clock (2.5); release kv on P after (1.5);",
            "3 0 end of lease of kv noticed; 4 0 lease of kv ends; 4 1 gets kv with 0",
        ),
        // Word that is on its way does not keep its bound from coming.
        (
            "3",
            "run clock (2); release kv on P after (4);",
            "4 0 end of lease of kv noticed; 5 0 lease of kv ends; 5 1 gets kv with 0",
        ),
        (
            "7",
            "run clock (2); release kv on P after (4);",
            "7 0 end of lease of kv noticed; 8 0 lease of kv ends; 8 1 gets kv with 0",
        ),
        // Released at once; and by the end of its session.
        (
            "9",
            "run clock (2.5); release kv; run clock (20);",
            "3.5 0 lease of kv ends; 4 1 gets kv with 0",
        ),
        ("9", "run clock (2.5);", "3.5 0 lease of kv ends; 4 1 gets kv with 0"),
        // Abandoned, its session gone: only the bound ends it.
        (
            "4",
            "abandon kv; run clock (1); release kv; end;",
            "5 0 end of lease of kv noticed; 6 0 lease of kv ends; 6 1 gets kv with 0",
        ),
        // Its own engine knows at once, another sends word.
        (
            "9",
            "run P steps (2) telling kv;",
            "1 0 leases kv; 2 0 end of lease of kv noticed; 3 0 steps over on P; 3 0 lease of kv ends; 3 1 gets kv with 0",
        ),
        (
            "9",
            "run D steps (2) telling kv on P;",
            "3 0 steps over on D; 3 0 end of lease of kv noticed; 4 0 lease of kv ends; 4 1 gets kv with 0",
        ),
        (
            "9",
            "run D steps (2) telling kv;",
            "3 0 steps over on D; 3 0 lease of kv ends; 3 1 gets kv with 0",
        ),
    ];
    for (bound, read, expected) in reads {
        let (_, text) =
            diary(&compile(&leased(bound, read, "")), &Options::default(), Diary::default());
        let expected: Vec<&str> = expected.split(';').map(str::trim).collect();
        let from = text.lines().skip_while(|l| l != expected.first().unwrap_or(&""));
        let found: Vec<&str> = from.collect();
        assert_eq!(found, expected, "{bound} {read}\n{text}");
    }
    assert_eq!(fault(&leased("serial == 0 ? inf : 1", "abandon kv;", "")).code, "abandon");
}

/// An iteration of the reader's engine sends word every two seconds at most; the lease's engine then sets the
/// bound to what it hears and when. It ends when the session turns to something that ends it.
#[test]
fn a_reader_renews_its_lease() {
    let noticed = |read: &str| {
        let (_, text) =
            diary(&compile(&leased("3", read, "")), &Options::default(), Diary::default());
        let line = text.lines().find(|l| l.contains("noticed")).map(str::to_owned);
        line.map_or(-1.0, |l| l.split(' ').next().and_then(|t| t.parse().ok()).expect("a time"))
    };
    assert_eq!(noticed("run clock (9);"), 4.0);
    // Sent at 1, 3 and 5, heard at 2, 4 and 6; abandoned at 6.
    assert_eq!(noticed("renew kv (2.5) every (2) from D; run clock (5); abandon kv;"), 9.0);
    assert_eq!(noticed("renew kv (2.5) every (2) from D; run clock (4); abandon kv;"), 7.0);
    // The same two seconds on the way: heard at 3, 5 and 7, the last after the lease was abandoned.
    let late = "renew kv (2.5) every (2) from D after (2); run clock (5); abandon kv;";
    assert_eq!(noticed(late), 10.0);
    // Heard at 2, which changes nothing, and at 4, before the bound of 4 is looked at.
    assert_eq!(noticed("renew kv (1) every (2) from D; run clock (9);"), 5.0);
    // An interruption ends it, shielded or not.
    let cut = |shield: &str| {
        format!(
            "renew kv (2.5) every (2) from D; until (2) {{ {shield} {{ run clock (20); }} }} else {{ run clock (20); }}"
        )
    };
    assert_eq!(noticed(&cut("shield")), 5.0);
    assert_eq!(noticed(&cut("branch (1)")), 5.0);
}

/// Several leases that end with one iteration: in the order of telling, then of granting, unless the caller
/// wants another.
#[test]
fn the_order_of_simultaneous_releases() {
    let text = "
        pool kv { cap 40; block 4; shared; admit via P; }
        stage P : step { budget 100; cost 1; memory kv; };
        stage clock : delay;
        workload { arrive batch (3); }
        session {
          hold kv (8) { run P prefill (8) growing kv; } lease kv (serial == 0 ? 2 : 9) on P;
          run clock (2 - serial / 10);
          branch (serial > 0) { release kv on P; }
          run clock (9);
        }
        run { horizon 30; }";
    let order = |releases: Vec<(u64, Vec<usize>)>| {
        let options = Options { releases, ..Options::default() };
        let (_, text) = diary(&compile(text), &options, Diary::default());
        let ends = text.lines().filter(|l| l.ends_with("lease of kv ends") || l.contains("group"));
        ends.map(|l| format!("{l};")).collect::<String>()
    };
    let ends = |a, b, c| {
        format!(
            "4 group 0 on 0: [2, 1, 0];4 {a} lease of kv ends;4 {b} lease of kv ends;4 {c} lease of kv ends;"
        )
    };
    assert_eq!(order(Vec::new()), ends(2, 1, 0));
    assert_eq!(order(vec![(0, vec![2, 0, 1])]), ends(0, 2, 1));
    assert_eq!(order(vec![(1, vec![2, 0, 1])]), ends(2, 1, 0));
    let options = Options { releases: vec![(0, vec![0, 0, 1])], ..Options::default() };
    match serq_sim::run(&compile(text), &options, &mut serq_sim::NoObserver) {
        Err(serq_sim::RunError::Fault(fault)) => assert_eq!(fault.code, "releases"),
        other => panic!("{other:?}"),
    }
}
