//! Memory shared by content, conditions and what they ask, who gives way, and runs with two parts.

use serq_lang::ir::{Arrival, CSession, Content, Preset, version_needed};
use serq_sim::Options;

use super::{Diary, diary, same, shared};
use crate::support::{compile, fault, run, run_program};

/// The second session's prompt begins as the first's: two of its three blocks are there, while the first still
/// holds them, which counts them once, and after it has gone. At most `reuse`, in whole blocks.
#[test]
fn what_one_computed_another_finds() {
    for (pause, reuse, found, used) in
        [(5, 11, 8., 16.), (0, 11, 8., 12.), (0, 7, 4., 12.), (0, 3, 0., 12.)]
    {
        let session = format!(
            "content (1: 8, serial: inf);
             observe there = cachedin(kv);
             hold kv (12) reuse ({reuse}) {{
               observe found = cached;
               run E prefill (12 - cached) growing kv;
               observe used = used(kv);
               run clock ({pause});
             }}"
        );
        let run = run(&shared("", "", &session));
        assert_eq!(run.by_session("there"), [0., 8.]);
        assert_eq!(run.by_session("found"), [0., found]);
        assert_eq!(run.by_session("used"), [12., used]);
    }
}

/// Without a content of its own saying a session shares with its own turns only; the answer is content as
/// soon as it is there, the token under way is not.
#[test]
fn a_session_finds_its_own_turns() {
    let session = "hold kv (4) { run E prefill (6) decode (3) growing kv; }
        observe mine = cachedin(kv);
        content (serial: 8);
        observe other = cachedin(kv);
        content add (9: 4); content add (9: inf);
        hold kv (12) { run E prefill (12) growing kv; }
        observe added = cachedin(kv);";
    let run = run(&shared("", "", session));
    // 6 + 3 positions, 6 + 3 samples known at the last: two whole blocks.
    assert_eq!(run.values("mine"), [8., 8.]);
    assert_eq!(run.values("other"), [0., 0.]);
    assert_eq!(run.values("added"), [12., 12.]);
}

/// Data given with the sessions: their times, their contents, whose keys are none of the program's.
#[test]
fn sessions_come_with_time_and_content() {
    let mut p = compile(
        &shared(
            "",
            "",
            "observe came = now; observe there = cachedin(kv);
         hold kv (x) { run E prefill (x) growing kv; }
         content (5: inf); observe named = cachedin(kv);",
        )
        .replace("set t = 0;", "set t = 0; set x = 8;")
        .replace("run clock (serial);", ""),
    );
    let session = |at: f64, content: &[Content]| CSession {
        attrs: vec![Preset(p.attrs.iter().position(|a| a == "x").expect("x"), 12.)],
        at,
        content: content.to_vec(),
        ..CSession::default()
    };
    let max = u64::MAX;
    p.arrival = Arrival::Sessions(vec![
        session(0., &[Content(5, 4.), Content(max, f64::INFINITY)]),
        session(3., &[Content(5, 4.), Content(max, 6.), Content(7, 2.)]),
        session(3., &[]),
    ]);
    p.version = version_needed(&p);
    let run = run_program(&p, &Options::default());
    assert_eq!(run.by_session("came"), [0., 3., 3.]);
    // Four of key 5, then the same key to its sixth token: the third block differs.
    assert_eq!(run.by_session("there"), [0., 8., 0.]);
    assert_eq!(run.by_session("named"), [0., 0., 0.]);
}

/// A chain without end is the end of it, and a chain that is held is not replaced.
#[test]
fn contents_that_cannot_be() {
    let code = |session: &str| fault(&shared("", "", session)).code;
    assert_eq!(code("content add (1: 4);"), "content");
    assert_eq!(code("content (serial / 2: 4);"), "content");
    assert_eq!(code("content (1: serial / 2);"), "content");
    assert_eq!(code("content (1: 4); hold kv (4) { content (2: 4); }"), "content");
}

/// `when` is asked last, with what the attempt would take: whole blocks less those found, plus those found
/// that nobody holds. At 0 the head blocks its queue, though the next would fit.
#[test]
fn a_condition_holds_a_queue_back() {
    let session = "content (1: inf);
        hold kv (n) reuse (8) when (free(kv) - taking(kv, n + 4) >= floor) {
          observe in = now; observe taken = taken;
          run E prefill (n - cached) growing kv; run clock (3);
        }";
    let session = session
        .replace("n)", "4 + 4 * serial)")
        .replace("n +", "4 + 4 * serial +")
        .replace("n -", "4 + 4 * serial -");
    // 40 free less 8 for the first; then 36 less 12 but for the 4 found, which the first holds. When it has
    // gone these are free, and would be taken: no more is left than before.
    for (floor, ins) in [(20, vec![0., 1.]), (28, vec![0., 1.]), (29, vec![0.]), (33, vec![])] {
        let text = shared(
            "",
            "",
            &session.replace("floor", &floor.to_string()).replace("observe taken = taken;", ""),
        );
        let run = run(&text);
        assert_eq!(run.by_session("in"), ins, "{floor}");
    }
}

/// What prefills under way still need: whole blocks for what no iteration has been given, less what is
/// there; nothing for decoding.
#[test]
fn owed_is_what_prefills_lack() {
    let session =
        "branch (serial == 0) { hold kv (6) { run E prefill (20) decode (9) growing kv; } }
        else { while (now < 8) { observe owed = owed(kv); run clock (1); } }";
    let run = run(&shared("", "chunk 6;", session));
    // At 1, before the second iteration, 6 of 20 are scheduled, in two blocks; then 12 in three, 18 in five.
    assert_eq!(run.values("owed"), [12., 8., 0., 0., 0., 0., 0.]);
}

/// A newcomer gets what it wants, within the budget left and the chunk.
#[test]
fn a_share_is_what_an_iteration_has_left() {
    for (stage, shares) in [("", [30., 30.]), ("chunk 7;", [7., 7.]), ("budget 33;", [30., 3.])] {
        let text = shared("", stage, "hold kv (0) at admission (s = share(E, 30)) { observe share = s; run E prefill (30); }")
            .replace(if stage.starts_with("budget") { "budget 100;" } else { "@" }, "")
            .replace("run clock (serial);", "");
        assert_eq!(run(&text).by_session("share"), shares, "{stage}");
    }
}

/// Two that prefill 8 of 16 units and decode: at the third token both need a block, and there is none.
fn pressed(preempt: &str, queue: &str, rest: &str) -> String {
    format!(
        "pool turn {{ cap inf; queue {queue}; admit via E; }}
         pool kv {{ cap 16; block 4; shared; preempt {preempt}; }}
         stage E : step {{ budget 100; cost 1; memory kv; {rest} }};
         stage clock : delay;
         workload {{ arrive batch (3); init {{ set a = 0; set t = 0; set p = 5 - serial; }} }}
         session {{
           branch (serial == 2) {{ run clock (1); }}
           hold turn (0), kv (8) when (free(kv) >= 8) {{ run E prefill (7 + a) decode (6 - a) growing kv answers a first t; }}
           observe done = now; observe first = t; observe answers = a;
         }}
         run {{ horizon 60; }}"
    )
}

/// The victim has the greatest keys, of equals the later admission. `requeue (0)` puts it before who waits,
/// else its key places it.
#[test]
fn who_gives_way_and_where_to() {
    for (preempt, queue, order) in [
        // The last admitted, and back at the front.
        ("lifo", "fifo", "0 1 2"),
        ("by (1) requeue (0)", "fifo", "0 1 2"),
        ("by (admission) requeue (1)", "fifo", "0 2 1"),
        // Session 0 has the greatest p, and comes back at the front or behind all.
        ("by (p, admission) requeue (0)", "by (p)", "1 0 2"),
        ("by (p, admission) requeue (1)", "by (p)", "1 2 0"),
        ("by (decoding, 0 - admission) requeue (serial == 0)", "by (0 - p)", "1 0 2"),
    ] {
        let (_, text) =
            diary(&compile(&pressed(preempt, queue, "")), &Options::default(), Diary::default());
        let over: Vec<&str> = text
            .lines()
            .filter(|l| l.ends_with("run over on E"))
            .filter_map(|l| l.split(' ').nth(1))
            .collect();
        assert_eq!(over.join(" "), order, "{preempt}, {queue}\n{text}");
    }
}

/// One run prefills and answers: a sample at the end of the prefill and for each decode token; the first sets
/// the time once, and what was answered is known after a preemption.
#[test]
fn a_run_prefills_and_answers() {
    let run = run(&pressed("lifo", "fifo", ""));
    assert_eq!(run.by_session("answers"), [7., 7., 7.]);
    // 0 is done at 7; 1, preempted at 2 with two answers, computes 9 tokens and is done at 12.
    assert_eq!(run.by_session("first"), [1., 1., 13.]);
    assert_eq!(run.by_session("done"), [7., 12., 19.]);
    let quick = compile(&shared(
        "",
        "",
        "hold kv (4) { run E prefill (3) decode (2) growing kv answers a first t; observe at = t; }",
    ));
    let (_, text) =
        diary(&quick, &Options::default(), Diary { iterations: true, ..Diary::default() });
    same(
        &text,
        "0 0 gets kv with 0; 0 E [0:3@0];
        1 0 sample of E; 1 1 gets kv with 0; 1 E [0:1@3 1:3@0];
        2 0 sample of E; 2 1 sample of E; 2 E [0:1@4 1:1@3];
        3 0 sample of E; 3 1 sample of E; 3 0 run over on E; 3 E [1:1@4];
        4 1 sample of E; 4 1 run over on E",
    );
}
