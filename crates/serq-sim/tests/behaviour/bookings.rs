//! Holds that are booked before they are entered.

use serq_lang::ir::{CHold, CRef, CStmt, Claim, Program};
use serq_sim::Options;

use crate::six::{num, program, six};
use crate::support::run;

/// Lets the hold that claims a pool alone be booked when the session starts.
fn booked(p: &mut Program, pool: usize) {
    let mut holds = 0;
    for stmt in p.blocks.iter_mut().flatten() {
        let CStmt::Hold(hold) = stmt else { continue };
        if hold.pools[0].0 == CRef::one(pool) {
            hold.booked = Some(0);
            holds += 1;
        }
    }
    assert_eq!(holds, 1, "holds of it");
    let session = p.session;
    p.blocks[session].insert(0, CStmt::Book(0));
}

/// A prefill of 10 s and a write of 2 s: serially the destination is allocated at 10; booked, at 0,
/// beside the prefill, and written at 12 all the same.
#[test]
fn a_destination_is_booked_while_the_source_works() {
    let text = "
        pool P { cap 10; }
        pool D { cap 10; }
        stage clock : delay;
        workload { arrive batch (1); }
        session {
          hold P (10) { run clock (10); }
          hold D (10) { run clock (2); load D (10); observe written = now; } keep (8)
          observe kept = cachedin(D);
        }
        run { horizon 20; }";
    for (serial, parked) in [(true, 10.0), (false, 0.0)] {
        let run = six(text, |p| {
            if !serial {
                booked(p, 1);
            }
        });
        assert_eq!((run.values("written"), run.values("kept")), (vec![12.0], vec![8.0]));
        let d = run.report.pool("D").unwrap();
        assert_eq!(12.0 - d.mean_hold, parked);
        assert_eq!((d.mean_used, d.admissions), (10.0 * (12.0 - parked) / 20.0, 1));
    }
}

/// The bookings of one pool are granted in order: the second when the first's hold is done.
#[test]
fn who_enters_before_the_grant_waits_for_it() {
    let run = six(
        "pool D { cap 10; }
         stage clock : delay;
         workload { arrive batch (3); }
         session {
           run clock (serial);
           hold D (10) { observe entered = now; run clock (5); }
         }
         run { horizon 100; }",
        |p| booked(p, 0),
    );
    assert_eq!(run.by_session("entered"), [0., 5., 10.]);
    assert_eq!(run.report.run.live, 0);
}

/// A leg of 5 s beside one of 3 s joins at 5, whichever is the wait and whichever the work. In a row, the
/// session would ask when its 3 s of work are done and stand behind another, which comes at 1 and stays
/// for 1 s.
#[test]
fn the_longer_of_two_legs_decides() {
    let program = |wait: u32, work: u32, booked: bool| {
        let (book, admit) = if booked { ("book room;", "enter room if") } else { ("", "admit if") };
        format!(
            "pool D {{ cap 10; }}
             stage clock : delay;
             workload {{ arrive batch (3); session {{ request; }} }}
             server {{
               branch (serial == 0) {{ admit if D (10) fit {{ run clock ({wait}); }} }}
               branch (serial == 1) {{
                 {book}
                 run clock ({work});
                 {admit} D (10) fit {{ observe joined = now; run clock (1); }}
               }}
               branch (serial == 2) {{
                 run clock (1);
                 admit if D (10) fit {{ observe other = now; run clock (1); }}
               }}
             }}
             run {{ horizon 100; }}"
        )
    };
    for (wait, work, booked, joined, other) in
        [(5, 3, true, 5., 6.), (3, 5, true, 5., 6.), (5, 3, false, 6., 5.), (3, 5, false, 5., 3.)]
    {
        let run = run(&program(wait, work, booked));
        let got = (run.values("joined"), run.values("other"));
        assert_eq!(got, (vec![joined], vec![other]), "{wait}, {work}, booked: {booked}");
    }
}

/// Opened, a booking is a hold like any other: it is preempted, and asks for its units again.
#[test]
fn an_opened_booking_can_be_preempted() {
    let run = six(
        "pool D { cap 10; preempt lifo; }
         stage clock : delay;
         workload { arrive batch (2); }
         session {
           hold D (5) {
             observe entered = now;
             run clock (1 + 3 * serial);
             grow D (serial == 0 ? 5 : 0);
             run clock (2);
           }
           observe done = now;
         }
         run { horizon 100; }",
        |p| booked(p, 0),
    );
    assert_eq!(run.by_session("entered"), [0., 0., 3.]);
    assert_eq!(run.by_session("done"), [3., 9.]);
    assert_eq!(run.report.pool("D").unwrap().preemptions, 1);
}

/// Unopened bookings end with their session, and the next one comes in.
#[test]
fn an_unopened_booking_is_given_back() {
    let run = six(
        "pool D { cap 10; }
         stage clock : delay;
         workload { arrive batch (2); }
         session {
           branch (serial == 0) { run clock (3); end; }
           hold D (10) { observe entered = now; }
         }
         run { horizon 100; }",
        |p| booked(p, 0),
    );
    assert_eq!(run.values("entered"), [3.]);
    assert_eq!(run.report.pool("D").unwrap().admissions, 2);
}

/// A shield protects what is under way: a booking that waits in a queue leaves it at the deadline, and
/// whoever comes to its hold inside of the shield waits anew.
#[test]
fn a_booking_behind_a_shield_leaves_its_queue() {
    let run = |body: &str| {
        run(&format!(
            "pool D {{ cap 1; }}
             stage clock : delay;
             workload {{ arrive batch (2); session {{ request; }} }}
             server {{
               branch (serial == 0) {{ admit if D (1) fit {{ run clock (10); }} }} else {{
                 until (3) {{
                   book room;
                   {body}
                 }} else {{ observe left = now; }}
               }}
             }}
             run {{ horizon 100; }}"
        ))
    };
    let enter = "enter room if D (1) fit { observe entered = now; }";
    let outside = run(&format!("shield {{ run clock (5); observe waiting = queued(D); }} {enter}"));
    assert_eq!((outside.values("waiting"), outside.values("left")), (vec![0.], vec![5.]));
    assert!(outside.values("entered").is_empty());
    let inside = run(&format!("shield {{ run clock (5); {enter} }}"));
    assert_eq!((inside.values("entered"), inside.values("left")), (vec![10.], vec![10.]));
}

#[test]
fn what_is_a_sessions_own() {
    for (lease, after) in [
        ("lease P (9)", [4., 4., 0.]),
        ("lease P (3)", [4., 0., 0.]),
        ("lease P (9) on E", [4., 4., 0.]),
        // Noticed at 2, and given back at 3.
        ("lease P (1) on E", [4., 0., 0.]),
    ] {
        let run = run(&format!(
            "pool P {{ cap 9; }}
             stage E : step {{ cost 1; }};
             stage clock : delay;
             workload {{ arrive batch (1); }}
             session {{
               observe units = mine(P);
               hold P (4) {{ run clock (1); observe held = mine(P); }} {lease};
               observe units = mine(P);
               run clock (4);
               observe units = mine(P);
               release P;
               observe units = mine(P);
             }}
             run {{ horizon 20; }}"
        ));
        let units: Vec<f64> = [0.0].into_iter().chain(after).collect();
        assert_eq!(run.values("units"), units, "{lease}");
        assert_eq!(run.values("held"), [4.], "{lease}");
    }
}

/// Who waits for a lease that will end, or will be cut, is in no deadlock.
#[test]
fn what_ends_by_itself_is_no_deadlock() {
    let check = |lease: &str, wait: &str, deadlock: bool| {
        let run = run(&format!(
            "pool P {{ cap 1; }}
             stage E : step {{ cost 1; }};
             stage clock : delay;
             workload {{ arrive batch (2); }}
             session {{
               branch (serial == 0) {{
                 hold P (1) {{ run clock (1); }} {lease};
                 until (inf) {{ hold P (1) {{ run clock (1); }} }}
               }} else {{ run clock (2); {wait} }}
             }}
             run {{ horizon 10; }}"
        ));
        assert_eq!(run.report.deadlock.is_some(), deadlock, "{lease}, {wait}");
    };
    let hold = "hold P (1) { run clock (1); }";
    check("lease P (inf)", hold, true);
    check("lease P (inf) on E", hold, true);
    check("lease P (100)", hold, false);
    check("lease P (100) on E", hold, false);
    check("lease P (inf) on E; release P on E after (50)", hold, false);
    check("lease P (100) on E; abandon P", hold, false);
    // The first still waits for itself.
    check("lease P (inf)", &format!("until (50) {{ {hold} }}"), true);
    let waits = |wait: &str| {
        let run = run(&format!(
            "pool P {{ cap 1; }} stage clock : delay; workload {{ arrive batch (1); }}
             session {{ hold P (1) {{ run clock (1); {wait} }} }} run {{ horizon 10; }}"
        ));
        run.report.deadlock.is_some()
    };
    assert!(waits("hold P (1) { }") && waits("shield { hold P (1) { } }"));
    assert!(!waits("until (50) { hold P (1) { } }"));
    assert!(waits("until (50) { shield { hold P (1) { } } }"));
}

/// Each books one of two pools and then holds the other's.
#[test]
fn bookings_take_part_in_a_deadlock() {
    let run = six(
        "pool D { cap 10; }
         pool E { cap 10; }
         stage clock : delay;
         workload { arrive batch (2); }
         session {
           branch (serial == 0) { hold E (10) { run clock (2); hold D (10) {} } }
           else { run clock (1); hold E (10) {} }
         }
         run { horizon 100; }",
        |p| {
            // The second session books D at once and waits for E with it.
            let waits = |b: &&mut Vec<CStmt>| matches!(&b[..], [CStmt::Run(_), CStmt::Hold(h)] if h.pools[0].0 == CRef::one(1));
            let body = p.blocks.len();
            let second = p.blocks.iter_mut().find(waits);
            let block = second.unwrap();
            block.insert(0, CStmt::Book(0));
            let claim = Claim(CRef::one(0), num(10.0), None);
            block.push(CStmt::Hold(CHold { booked: Some(0), ..CHold::new(vec![claim], body) }));
            p.blocks.push(Vec::new());
        },
    );
    let deadlock = run.report.deadlock.expect("no deadlock");
    assert_eq!(deadlock.sessions, 2);
    assert_eq!(
        (deadlock.waiters[1].holds[0].pool.as_str(), deadlock.waiters[1].holds[0].units),
        ("D", 10.0)
    );
}

#[test]
fn a_booking_is_made_once_and_before() {
    let text = "pool D { cap 10; }
         workload { arrive batch (2); }
         session { branch (serial == 0) { set k = 1; } hold D (2) {} }
         run { horizon 100; }";
    let code = |change: fn(&mut Program, CStmt)| {
        let p = program(text, |p| {
            booked(p, 0);
            let session = p.session;
            let book = p.blocks[session].remove(0);
            change(p, book);
        });
        match serq_sim::run(&p, &Options::default(), &mut serq_sim::NoObserver) {
            Err(serq_sim::RunError::Fault(fault)) => (fault.code, fault.session),
            other => panic!("{other:?}"),
        }
    };
    let never = code(|p, book| {
        let block = p.blocks.iter_mut().find(|b| matches!(b[..], [CStmt::Set(..)]));
        block.unwrap().push(book);
    });
    assert_eq!(never, ("enter", Some(1)));
    let twice = code(|p, book| {
        let session = p.session;
        p.blocks[session].splice(0..0, [book.clone(), book]);
    });
    assert_eq!(twice, ("booked-twice", Some(0)));
}
