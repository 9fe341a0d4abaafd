//! `until`, `shield`, and what a session booked.

use crate::support::run;

/// What `until` cuts: a session leaves its queue, its stage, those who wait to grow, and the holds inside; who is
/// done by then is not cut, and a shield is waited for.
#[test]
fn a_deadline_cuts_what_is_inside() {
    let check = |body: &str, seen: &[f64], free: f64| {
        let text = format!(
            "pool turn {{ cap 1; }}
             pool kv {{ cap 8; }}
             stage E : step {{ budget 9; cost 1; memory kv; }};
             stage clock : delay; stage one : fifo (1); stage link : ps (1);
             workload {{ arrive batch (2); }}
             session {{
               branch (serial == 0) {{ hold turn (1), kv (2) {{ run one (20); }} }}
               until (3) {{ {body} observe seen = now; }} else {{ observe seen = 0 - now; }}
               observe free = free(kv);
             }}
             run {{ horizon 19; }}"
        );
        let run = run(&text);
        assert_eq!(run.values("seen"), seen, "{body}");
        assert_eq!(run.values("free"), vec![free; seen.len()], "{body}");
    };
    // In a queue, in a fifo stage behind another, shared out, in service, growing, decoding.
    check("hold turn (1) {}", &[-3.], 6.);
    check("hold kv (3) { hold turn (1) {} }", &[-3.], 6.);
    check("hold kv (3) { run one (1); }", &[-3.], 6.);
    check("hold kv (3) { run link (4); }", &[-3.], 6.);
    check("hold kv (3) { run clock (3.5); }", &[-3.], 6.);
    check("hold kv (3) { grow kv (4); }", &[-3.], 6.);
    check("hold kv (6) { run E decode (4) growing kv; }", &[-3.], 6.);
    check("run E steps (4);", &[-3.], 6.);
    // Done by then.
    check("hold kv (3) { run clock (3); }", &[3.], 6.);
    check("hold kv (6) { run E decode (3) growing kv; }", &[3.], 6.);
    check("run E steps (3);", &[3.], 6.);
    // Shielded, also from within; the hold around it goes at the shield's end.
    check("hold kv (3) { shield { run clock (5); } run clock (5); }", &[-5.], 6.);
    check("shield { shield { run clock (5); } run clock (1); } run clock (5);", &[-6.], 6.);
    check("shield { run clock (5); }", &[-5.], 6.);
    // The time is evaluated once; a past one cuts at once, and never is never.
    check("until (now - 1) { run clock (1); } else { run clock (1); }", &[1.], 6.);
    check("until (inf) { run clock (2); } else { run clock (9); }", &[2.], 6.);
    // The inner deadline is gone with its block; the outer one cuts both.
    check("until (2) { run clock (1); } else {} run clock (1.5);", &[2.5], 6.);
    check("until (4) { run clock (5); } else { observe seen = 99; }", &[-3.], 6.);
    // A deadline inside a shield cuts there.
    check("shield { until (4) { run clock (9); } else {} }", &[-4.], 6.);
}

/// A hold that is preempted begins again without the deadlines inside it.
#[test]
fn a_preempted_hold_has_no_old_deadlines() {
    let text = "
        pool kv { cap 8; preempt lifo; }
        stage clock : delay;
        workload { arrive batch (2); }
        session {
          hold kv (4) {
            observe in = now;
            branch (serial == 0) { run clock (1); grow kv (4); run clock (3); }
            else { until (now + 4) { run clock (5); } else { observe cut = now; } }
          }
        }
        run { horizon 30; }";
    let run = run(text);
    assert_eq!(run.by_session("in"), [0., 0., 4.]);
    assert_eq!(run.values("cut"), [8.]);
}

/// A booked hold is granted while its session does something else: its units are its own, and what the grant
/// found and bound is there when the session comes.
#[test]
fn what_is_booked_is_bound_at_the_grant() {
    let run = run(
        "pool D { cap 8; admit via E; }
         pool P { cap 8; }
         stage E : step { budget 9; cost 1; };
         stage clock : delay;
         workload { arrive batch (2); init { set n = 0; set place = 0; } session { request; } }
         server {
           run clock (serial);
           set n = 7;
           book room;
           run clock (0.5);
           admit if P (1) fit { run clock (2.5); observe used = used(D); set n = 9; }
           enter room if D (n) fit where m = n * 2 { observe bound = m; observe place = admission; observe at = now; }
         }
         run { horizon 30; }",
    );
    // The first is granted at 0, before it is admitted to P; the second when the first has gone, at 3.
    assert_eq!(run.by_session("used"), [7., 7.]);
    assert_eq!((run.by_session("bound"), run.by_session("at")), (vec![14., 14.], vec![3., 4.]));
    assert_eq!(run.by_session("place"), [1., 4.]);
}
