//! Errors of a run, and of programs given as JSON.

/// An error that only a run can find.
pub(super) struct Fault {
    pub(super) code: &'static str,
    pub(super) text: &'static str,
    /// A program that gives it.
    pub(super) program: &'static str,
}

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        code: "abandon",
        text: "A lease was abandoned, and its bound came out infinite: nobody would ever end it. Give the lease a
time.",
        program: "
let t = 1 / 0;
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session {
  branch (serial == 0) { hold kv (1) { run s (1); } lease kv (t * (1 + serial)); abandon kv; }
}
run { horizon 100; }
",
    },
    Fault {
        code: "amount",
        text: "An amount came out negative, infinite or as no number. Units, work and times are 0 or
more; what the program computes there is never silently made 0. Look at the inputs of the expression:
a draw without a lower bound, a difference of two readings, a division.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1 - serial); }
run { horizon 100; }
",
    },
    Fault {
        code: "booked-twice",
        text: "A session books a pool that it has booked already, and has not entered. Each booking is entered
before the next.",
        program: "
pool kv { cap 10; }
stage s : fifo;
workload { arrive batch(1); session { loop { request; } } }
server {
  book room;
  run s (1);
  branch (serial > 0) { enter room if kv (1) fit { run s (1); } }
}
run { horizon 100; }
",
    },
    Fault {
        code: "capacity",
        text: "The capacity of a ps stage came out infinite. Whoever shares it would be done at once; a stage
that takes no time and has no queue is a `delay` of 0.",
        program: "
stage s : ps(1 / (n - n));
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 100; }
",
    },
    Fault {
        code: "choose",
        text: "The number of candidates of a `choose` is no whole number up to a million.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { choose i in serial / 2 by (i); run s (1); }
run { horizon 100; }
",
    },
    Fault {
        code: "content",
        text: "A segment of a session's content has a key or a length that is no whole number, or more is added
behind a segment without end.",
        program: "
pool kv { cap 160; block 16; shared; }
stage s : fifo;
workload { arrive poisson(1); }
session {
  content (1: 10 + serial / 2);
  hold kv (16) { run s (1); }
}
run { horizon 100; }
",
    },
    Fault {
        code: "draw",
        text: "A distribution was given parameters for which there is none: a negative or infinite mean, a
probability outside of 0 to 1, bounds out of order.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { run s (~exp(0 - serial)); }
run { horizon 100; }
",
    },
    Fault {
        code: "endless",
        text: "A session executed a million statements without waiting for anything. A loop with a `run` in it
was linked, and the run's work came out as 0 every time.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { loop { run s (0 * serial); } }
run { horizon 100; }
",
    },
    Fault {
        code: "enter",
        text: "A session came to a hold that is booked, and had not booked it. Book on every way that leads there.",
        program: "
pool kv { cap 10; }
stage s : fifo;
workload { arrive batch(1); session { request; } }
server {
  branch (serial > 0) { book room; }
  run s (1);
  enter room if kv (1) fit { run s (1); }
}
run { horizon 100; }
",
    },
    Fault {
        code: "gauge",
        text: "A gauge came out infinite or as no number.",
        program: "
pool kv { cap 10; }
stage s : fifo;
gauge share = used(kv) / queued(kv);
workload { arrive poisson(1); }
session { hold kv (1) { run s (1); } }
run { horizon 100; }
",
    },
    Fault {
        code: "guard",
        text: "The guard of a `branch` is neither 0 nor 1. A comparison gives one of the two; a probability is
drawn with `branch with`.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { branch (serial) { run s (1); } }
run { horizon 100; }
",
    },
    Fault {
        code: "hold-twice",
        text: "Two claims of one hold came out as the same member of a family. Claim the sum once.",
        program: "
pool kv[2] { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv[0 * serial] (1), kv[0] (1) { run s (1); } }
run { horizon 100; }
",
    },
    Fault {
        code: "index",
        text: "An index names no member of its family: it is negative, too large, or not whole.",
        program: "
stage s[2] : fifo;
workload { arrive poisson(1); }
session { run s[serial] (1); }
run { horizon 100; }
",
    },
    Fault {
        code: "instant-loop",
        text: "Time stands still: a session is woken again and again at one instant, or sessions and stages keep
each other busy. Somewhere in a loop the work comes out as 0.",
        program: "
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { loop { hold kv (1) { run s (0 * serial); } } }
run { horizon 100; }
",
    },
    Fault {
        code: "integral",
        text: "An engine that is `integral` counts whole tokens, and this amount is none. Round it where it is computed.",
        program: "
stage e : step { cost 1; integral; };
workload { arrive poisson(1); }
session { run e decode (1 + serial / 2); }
run { horizon 100; }
",
    },
    Fault {
        code: "key",
        text: "A key (of a queue, an eviction, a serving order, a choice) came out as no number, so it orders
nothing. Look for 0 / 0.",
        program: "
pool kv { cap 10; queue by (serial / (serial - serial)); }
stage s : fifo;
workload { arrive batch(3); }
session { hold kv (10) { run s (1); } }
run { horizon 100; }
",
    },
    Fault {
        code: "load-beyond",
        text: "`load` brings more computed units than the hold has allocated. Whoever receives units must hold
room for them first: claim more, or `grow` before.",
        program: "
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) { run s (1); load kv (2 + serial); } }
run { horizon 100; }
",
    },
    Fault {
        code: "no-hold",
        text: "`grow`, `growing` or `load` acts on a pool that the session no longer holds: the hold gave it back
with `release`, or its index names another member now.",
        program: "
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) { run s (1); release kv; grow kv (1); } }
run { horizon 100; }
",
    },
    Fault {
        code: "observe",
        text: "An observe recorded something infinite, or no number. One such sample would make every average of
it useless.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); observe x = 1 / (serial - serial); }
run { horizon 100; }
",
    },
    Fault {
        code: "run-twice",
        text: "Two stages of one run came out as the same member of a family. A flow is on a stage once.",
        program: "
share maxmin;
stage s[2] : ps(1);
workload { arrive poisson(1); }
session { run s[0 * serial], s[0] (1); }
run { horizon 100; }
",
    },
    Fault {
        code: "set",
        text: "An attribute was set to no number: 0 / 0, inf - inf, the root of a negative number.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { set x = (serial - serial) / (serial - serial); run s (1); }
run { horizon 100; }
",
    },
    Fault {
        code: "steps",
        text: "A run waits for a number of iterations that is not whole.",
        program: "
stage e : step { cost 1; };
workload { arrive poisson(1); }
session { run e steps (1.5 + serial); }
run { horizon 100; }
",
    },
    Fault {
        code: "table",
        text: "A table was read where nothing was measured, and it says `outside refuse`; or an argument was
infinite or no number. Measure there, or let the table go on: `outside extend` as straight as between
the last two points, `outside clamp` with the last value.",
        program: "
table cost(tokens) outside refuse { 1: 0.2, 16: 0.3 }
stage s : fifo;
workload { arrive poisson(1); }
session { run s (cost(1 + serial)); }
run { horizon 100; }
",
    },
    Fault {
        code: "until",
        text: "The time of an `until` is no number. It is a time of the clock, `now + 5` for in five seconds, `inf` for never.",
        program: "
stage s : fifo;
workload { arrive poisson(1); }
session { until (serial / serial) { run s (1); } }
run { horizon 100; }
",
    },
    Fault {
        code: "when",
        text: "The condition of a hold is no number. It is 0 if the hold does not fit, and anything else if it does.",
        program: "
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) when (serial / serial) { run s (1); } }
run { horizon 100; }
",
    },
    Fault {
        code: "upkeep",
        text: "A run without horizon goes on for nothing but renewals of leases: everybody waits for room, and the
engines iterate only to keep what waits. Where that is certain to last, the run ends and reports a deadlock; here
a lease may still come to its bound, or time alone may change something, but for a million events nothing
did. Give the run a horizon, or let a renewal last longer than its interval and an iteration of each engine.",
        program: "
pool kvP { cap 10; admit via P; }
pool kvD { cap 10; }
stage P : step { cost 1; memory kvP; }
stage D : step { cost 1; }
workload { arrive at(0, 0); }
session {
  branch (serial == 0) {
    hold kvP (10) { run P prefill (10); } lease kvP (2) on P;
    renew kvP (2) every (1) from D;
    hold kvD (10) { run D steps (1) telling kvP on P; }
  } else {
    hold kvD (10) { hold kvP (10) { run P prefill (1); } }
  }
}
",
    },
    Fault {
        code: "zero-cost",
        text: "An iteration of a step stage that computes tokens came out to take no time. Give its cost a part
that is positive whenever there are tokens.",
        program: "
stage e : step { budget 10; cost ntok - ntok; }
workload { arrive poisson(1); }
session { prefill 5; }
run { horizon 100; }
",
    },
];

/// Errors that no program gives: of who drives the simulator, and of itself.
pub(super) const DRIVER: &[(&str, &str)] = &[
    (
        "releases",
        "Whoever drives the run (`serq oracle`) ordered the ends of leases that came at once, and the order does not name each of them once.",
    ),
    (
        "shared",
        "A shared pool came out with less than it had. That is a mistake of the simulator, and no program's: please report it, with the program and the seed.",
    ),
];

/// Errors that only the JSON form can have.
pub(super) const REPRESENTATION: &[(&str, &str)] = &[
    (
        "ir-format",
        "The file does not carry \"format\": \"serq-tl\". Other projects number their representations differently, so it must say which it follows.",
    ),
    (
        "ir-version",
        "The file's version is not the one this program reads. Write it again from the program's text with `serq ir`.",
    ),
    (
        "ir-json",
        "The file is no JSON of this form. The message has the line and column; compare with what `serq ir` writes.",
    ),
    ("ir-depth", "Brackets are nested deeper than any valid program needs."),
    (
        "ir-index",
        "A number names a pool, stage, attribute, observe or block that is not in its list. Lists count from 0.",
    ),
    ("ir-name", "A name is listed twice, or built-in attributes share a slot."),
    ("ir-number", "A constant is not a number."),
    (
        "block-shared",
        "A block is the body of two statements, or of itself. Each body is a block of its own.",
    ),
    ("hold-empty", "A hold claims no pool."),
    ("trace", "A recorded session has no turns, or a turn with a negative or infinite number."),
];

/// Rules that both forms have, and the code of the text's.
pub(super) const SAME_AS: &[(&str, &str)] = &[
    ("abandon", "E0438"),
    ("admit-via", "E0420"),
    ("arg-kind", "E0402"),
    ("arity", "E0401"),
    ("arrival", "E0408"),
    ("block-depth", "E0109"),
    ("book", "E0433"),
    ("budget-left", "E0424"),
    ("content", "E0434"),
    ("draw", "E0423"),
    ("drop-shared", "E0432"),
    ("enter", "E0431"),
    ("expr-depth", "E0109"),
    ("family-index", "E0403"),
    ("family-range", "E0411"),
    ("gap", "E0408"),
    ("gauge", "E0428"),
    ("guard", "E0502"),
    ("hidden", "E0509"),
    ("hold-cap", "E0412"),
    ("hold-negative", "E0413"),
    ("hold-twice", "E0422"),
    ("index-changed", "E0505"),
    ("keep-shared", "E0432"),
    ("lease-none", "E0436"),
    ("lease-on", "E0437"),
    ("lease-pool", "E0417"),
    ("loop-instant", "E0503"),
    ("moment-attr", "E0311"),
    ("moment-ctx", "E0310"),
    ("outside-hold", "E0418"),
    ("pool-block", "E0405"),
    ("pool-cap", "E0405"),
    ("pool-shared", "E0432"),
    ("run-answers", "E0439"),
    ("run-flow", "E0430"),
    ("run-growing", "E0416"),
    ("run-horizon", "E0405"),
    ("run-mode", "E0414"),
    ("run-steps", "E0439"),
    ("run-then", "E0439"),
    ("run-warmup", "E0410"),
    ("share", "E0429"),
    ("spill", "E0420"),
    ("stage-servers", "E0406"),
    ("step-fenced", "E0440"),
    ("step-stops", "E0405"),
    ("taking", "E0435"),
    ("workload-stmt", "E0215"),
];
