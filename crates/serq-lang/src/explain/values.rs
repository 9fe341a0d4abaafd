//! E04: values and kinds.

use super::Entry;
use super::Example::Program;
use crate::diag::Code;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        code: Code::E0401,
        text: "A function or distribution takes a fixed number of arguments. min and max take two.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (max(1, 2, 3)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0402,
        text: "
queue busy work est_lambda est_rho est_wait price read a stage; used free cachedin holders queued read
a pool; budget_left reads a step stage; arithmetic takes numbers.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) { run s (used(s)); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0403,
        text: "
A family of pools or stages is used one member at a time.",
        example: Program("
stage s[2] : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0404,
        text: "
A `let`, a cap, a block, the size of a family, the number of servers, an arrival law and the run's
parameters are computed once, before the run. They cannot draw, and cannot read attributes, pools,
stages or the clock.",
        example: Program("
let mean = ~exp(3);
stage s : fifo;
workload { arrive poisson(1); }
session { run s (mean); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0405,
        text: "
A constant lies outside of what its place allows: caps are 0 or more (or inf), blocks, budgets,
capacities, costs and horizons above 0 and finite, probabilities between 0 and 1, a warm-up 0 or more,
a seed an integer from 0 to 2^53 - 1, the parameters of a distribution such that there is one.",
        example: Program("
pool kv { cap 100; block 0; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0406,
        text: "A fifo stage has 1, 2, 3, ... servers. A stage without queueing is a `delay`.",
        example: Program("
stage s : fifo(1.5);
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0407,
        text: "The size of a family is an integer from 1 to 10000, and so is the number of all members.",
        example: Program("
stage s[0] : fifo;
workload { arrive poisson(1); }
session { run s[0] (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0408,
        text: "
`poisson` takes a rate above 0, in sessions per second; `closed` and `batch` take an integer of at
most a million sessions.",
        example: Program("
stage s : fifo;
workload { arrive poisson(0); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0409,
        text: "A run ends at its horizon, in seconds of the deployment's time.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { seed 1; }
"),
    },
    Entry {
        code: Code::E0410,
        text: "Measurements begin after the warm-up, so it must end before the horizon.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; warmup 10; }
"),
    },
    Entry {
        code: Code::E0411,
        text: "
The members of a family of N are 0 to N - 1. A constant index outside of them, or between two, is
refused here; one that is computed is a run-time error.",
        example: Program("
stage s[2] : fifo;
workload { arrive poisson(1); }
session { run s[2] (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0412,
        text: "
The units or the reserve of a hold are constant and larger than the pool: nobody would ever be
admitted. (With blocks, units are rounded up to whole ones first.) A computed amount that is too large
is a rejection, which the run counts.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (101) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0413,
        text: "
Units, work and times are 0 or more. A negative constant is refused here; a computed amount that turns
out negative is a run-time error, and never silently 0.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (-1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0414,
        text: "
A step stage serves prompts and answers differently, so a run there says which it is.",
        example: Program("
stage e : step { budget 10; cost 1; }
workload { arrive poisson(1); }
session { run e (5); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0415,
        text: "Only a step stage knows prefill and decode.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s prefill (5); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0416,
        text: "
`growing P` extends the allocation on P as tokens are computed, which only a step stage does.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) { run s (1) growing kv; } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0417,
        text: "
A lease keeps one allocation of the hold it stands behind. It must name one of that hold's pools as the
hold does, index included: with another index it could mean another member.",
        example: Program("
pool slots { cap 4; }
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold slots (1) { run s (1); } lease kv (30); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0418,
        text: "
`release`, `load`, `grow` and `growing` act on the innermost hold of the pool around them, so there must
be one, and it must name the pool in the same way, index included. Only `release P` may stand outside,
in a program where some hold leases that same P.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (10) { run s (1); } release kv; }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0419,
        text: "
`admit via`, `memory` and `spill` pair families: member i with member i, which needs equal sizes, or
every member with one.",
        example: Program("
pool slots[3] { cap 4; admit via e; }
stage e[2] : step { budget 10; cost 1; }
workload { arrive poisson(1); }
session { hold slots[0] (1) { run e[0] prefill (5); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0420,
        text: "
Only a step stage has a scheduler that can admit from a queue; spilled units move over a fifo, ps or
delay stage, into another pool.",
        example: Program("
pool slots { cap 4; admit via s; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold slots (1) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0421,
        text: "An iteration of a step stage takes `cost` seconds, which has no default.",
        example: Program("
stage e : step { budget 10; }
workload { arrive poisson(1); }
session { run e prefill (5); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0422,
        text: "A hold claims each pool once. Claim the sum of the units.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1), kv (2) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0423,
        text: "
The header of a hold is evaluated at every attempt to admit it, keys whenever an order is needed, an
index whenever its member is. A draw there would give different numbers each time, and how often would
depend on the machine. Draw once with `set`, and read the attribute.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (~uniform(1, 9)) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0424,
        text: "
`budget_left` is what remains of a step stage's budget, so neither the budget nor the chunk can read it.",
        example: Program("
stage e : step { budget budget_left(e) + 1; cost 1; }
workload { arrive poisson(1); }
session { run e prefill (5); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0425,
        text: "
The server is copied to each `request`, and a binding to each of its uses; bindings of bindings can
double with every step. After that a program has at most 100000 statements and 1000000 parts of
expressions, and a binding at most 10000 parts.",
        example: Program("
pool kv { }
stage s : fifo;
workload { arrive poisson(1); }
session {
  hold kv (n) at admission (
    a = serial + serial + serial + serial + serial + serial + serial + serial + serial + serial,
    b = a + a + a + a + a + a + a + a + a + a,
    c = b + b + b + b + b + b + b + b + b + b,
    d = c + c + c + c + c + c + c + c + c + c,
    n = d
  ) { run s (1); }
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0426,
        text: "
Constant arithmetic came out as no number: 0 / 0, inf - inf, 0 * inf, the logarithm or root of a
negative number.",
        example: Program("
let rate = 1;
stage s : fifo;
workload { arrive poisson(rate); }
session { run s ((rate - 1) / (rate - 1)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0427,
        text: "
An argument takes the parameter's place wherever it stands. This one draws, and the definition uses
it more than once, so it would be several draws. Draw with `set` first, and give the attribute.",
        example: Program("
def twice(t) {
  run s (t);
  run s (t);
}
stage s : fifo;
workload { arrive poisson(1); }
session { twice(~exp(1)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0428,
        text: "
A gauge is followed over time: it is read whenever the state has changed. It may read what pools and
stages hold (used, free, holders, queued, queue, busy) of members that are named by a constant. It
cannot read what depends on a session, on the moment itself, or on unfinished work, which changes all
the time.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
gauge ahead = work(s);
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0429,
        text: "
A run over several stages is one flow, and its rate depends on all that flows there. There are two
rules for it: `share maxmin;` raises all flows alike until a stage is full, and `share bottleneck;`
gives each flow the least of its stages' equal parts. One of them is declared once, for all.",
        example: Program("
stage a : ps(1);
stage b : ps(2);
workload { arrive poisson(0.1); }
session { run a, b (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0430,
        text: "
The stages of a run over several share their capacity between flows. They are different `ps` stages
of constant capacity.",
        example: Program("
share maxmin;
stage a : ps(1);
stage b : fifo;
workload { arrive poisson(0.1); }
session { run a, b (1); }
run { horizon 10; }
"),
    },
];
