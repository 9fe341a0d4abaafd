//! E0431 to E0441: bookings, content, leases, what engines do beside tokens; objectives.

use super::Entry;
use super::Example::Program;
use crate::diag::Code;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        code: Code::E0431,
        text: "
`enter NAME if P (units) fit { ... }` is the hold of a booking: it waits for what `book NAME;` put into
the queue before. No statement of this server books that name. A hold that is not booked is
`admit if P (units) fit { ... }`.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(0.1); session { turn; request; } }
server {
  run s (1);
  enter blocks if kv (1) fit { run s (1); }
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0432,
        text: "
What is computed in a `shared` pool stays until its block is reused, and any session whose content
begins the same finds it. Such a pool has a finite cap in blocks and no order of eviction, spills
nowhere and receives nothing, and no hold of it alone says what it keeps; nobody can `drop` what is everybody's.",
        example: Program("
pool kv { cap 10; shared; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0433,
        text: "
`book NAME;` puts one hold into its queue: the one whose header stands at `enter NAME if ...` in the same
server. Without it nobody knows what is to be booked, and with two nobody knows which.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(0.1); session { turn; request; } }
server {
  book blocks;
  run s (1);
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0434,
        text: "
`content (key: tokens, ...)` names what a session's tokens are, for pools that are `shared`: two sessions
have the same tokens as far as their chains of segments agree. Keys and lengths are whole numbers, 0
or more; the last length may be `inf`, for an answer of unknown length.",
        example: Program("
pool kv { cap 1600; block 16; shared; }
stage s : fifo;
workload { arrive poisson(1); }
session {
  content (1: inf, 2: 100);
  hold kv (100) { run s (1); }
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0435,
        text: "
`taking(P, n)` is how many free units an attempt to admit a hold would take of P, if it took n: what is
cached and held by others costs nothing, what is cached and free costs its blocks. It is a question
in the header of a hold, about a pool that this hold claims, with the same index.",
        example: Program("
pool kv { cap 1600; block 16; shared; }
pool slots { cap 8; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold slots (1) when (taking(kv, 100) < 50) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0436,
        text: "
`release P on S`, `telling P`, `renew P` and `abandon P` are about a lease of the session: an allocation
that outlived its hold. No hold of this program ends with `lease P (seconds)`, with the same index.",
        example: Program("
pool kv { cap 10; }
stage e : step { cost 1; };
workload { arrive poisson(0.1); }
session {
  hold kv (1) { run e decode (1); }
  release kv on e after (2);
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0437,
        text: "
What an engine does about leases, it does in its iterations: a bound that has passed, a message that a
lease can end, a renewal. So the stage that minds a lease (`lease P (seconds) on S`), hears of its
end (`release P on S`) or renews it (`renew P (seconds) every (seconds) from S`) is a step stage, and only
a lease that some stage minds can be renewed.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(0.1); }
session {
  hold kv (1) { run s (1); } lease kv (10) on s
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0438,
        text: "
`abandon P` leaves a lease to its bound: nobody will release it. Every hold that leases this pool gives
the lease no bound, so its units would never come back.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(0.1); }
session {
  hold kv (1) { run s (1); } lease kv (inf)
  abandon kv;
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0439,
        text: "
`run S prefill (n) decode (m)` is one run with two parts, in this order. Samples, the last prefill token
and each decode token, are counted by `answers a` and timed by `first t`, two attributes that nothing
else means. `run S steps (k)` waits for iterations: it computes nothing, so it neither grows a pool
nor samples, and alone it may tell a lease (`telling P`).",
        example: Program("
stage e : step { cost 1; };
workload { arrive poisson(0.1); }
session { run e decode (4) decode (2); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0440,
        text: "
`fenced (1)` keeps blocks from changing hands while an iteration that may write to them is under way. Without
`ahead (1)` no iteration is under way while the next one is put together.",
        example: Program("
stage e : step { cost 1; fenced (1); };
workload { arrive poisson(0.1); }
session { run e decode (4); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0441,
        text: "
`slo` says what a request must meet: bounds on ttft, tpot, itl (every gap) and e2e, each once, in seconds that
are known before the run. The report then has the share of requests that met all of them, and how many per
second did.",
        example: Program("
stage e : step { cost 0.01; };
workload { arrive poisson(1); }
session { run e decode (4); }
slo ttft 0.5 ttft 1;
run { horizon 10; }
"),
    },
];
