//! Notes of a report.

/// What a note says and what to do about it.
pub(super) struct Note {
    pub(super) code: &'static str,
    pub(super) text: &'static str,
    /// A program whose report has it.
    pub(super) program: &'static str,
}

pub(super) const NOTES: &[Note] = &[
    Note {
        code: "constant",
        text: "
An observe had the same value in every sample. That is right for what the program fixes, and otherwise
often a sign that it records something else than was meant, such as a time before anything happened.",
        program: "
stage s : fifo;
workload { arrive poisson(0.5); }
session { observe waited = now - now; run s (1); }
run { horizon 100; }
",
    },
    Note {
        code: "deadlock",
        text: "
Sessions wait for each other for ever, and nothing that is still to come can change it; what the run
counted after that is of a deployment that stands still. `deadlock` in the report says when, who holds what and waits
for what. Usually two ways of the program take pools in different orders, or one stage serves two queues in
an order that does not fit: `serq check` warns of both (W0703), and `serq explain W0703` says what to do.",
        program: "
pool a { cap 1; }
pool b { cap 1; }
stage s : fifo;
workload { arrive batch(2); }
session {
  branch (serial == 0) {
    hold a (1) { run s (1); hold b (1) { run s (1); } }
  } else {
    hold b (1) { run s (1); hold a (1) { run s (1); } }
  }
}
run { horizon 100; }
",
    },
    Note {
        code: "no-samples",
        text: "
An observe recorded nothing after the warm-up, so its statistics are empty. Either no session came to it,
or the run is too short.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { run s (0.1); branch (serial > 1e6) { observe late = now; } }
run { horizon 100; }
",
    },
    Note {
        code: "not-steady",
        text: "
The number of sessions alive, or of those in the deployment (not at a `delay` stage), has a trend over the
ten windows of the run, beyond chance and by more than a fifth of its mean. Averages over such a run are of
a passage, not of a state. Take a longer warm-up and run; if the trend stays, the deployment has no steady
state at this load.",
        program: "
stage think : delay;
workload { arrive poisson(1); }
session { run think (1000); }
run { horizon 500; }
",
    },
    Note {
        code: "overloaded",
        text: "
More sessions come than are served: the number in the deployment grows through the run, by most of the
difference between those that came and those that ended. Times measured here say how long the run was, not
how fast the deployment is. The text names the stage or pool whose backlog grows most. Lower the rate, or
add to that. (For the most that it can serve, `arrive closed(n)` keeps n sessions busy.)",
        program: "
stage s : fifo;
workload { arrive poisson(2); }
session { run s (1); }
run { horizon 500; }
",
    },
    Note {
        code: "rejected",
        text: "
A hold asked for more than its pool has at all, so it could never be admitted, and its session ended there.
Such sessions are missing in every other number. Bound what the workload asks for, or give the pool a larger
cap.",
        program: "
pool kv { cap 10; }
stage s : fifo;
workload { arrive batch(3); }
session { hold kv (8 + serial * 2) { run s (1); } }
run { horizon 100; }
",
    },
    Note {
        code: "stuck",
        text: "
A session was preempted, began again, and was preempted no further than before: it needs more than it can
get, and goes round for as long as the run lasts while others wait. Mostly a single request outgrows the pool.
Bound its length, reserve what it will need, or give the pool a larger cap.",
        program: "
pool kv { cap 10; preempt lifo; }
stage e : step { cost 1; memory kv; }
workload { arrive batch(1); }
session { hold kv (1) { prefill on e (1) growing kv; decode on e (20) growing kv; } }
run { horizon 100; }
",
    },
    Note {
        code: "unfinished",
        text: "
The workload has an end, and the horizon came before it: so many sessions had not ended, and their times
are missing, usually the longest ones. Take a longer horizon, or none: such a run ends with its last
session.",
        program: "
stage s : fifo;
workload { arrive batch(3); }
session { run s (10); }
run { horizon 15; }
",
    },
];
