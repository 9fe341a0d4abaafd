//! E03: names.

use super::Entry;
use super::Example::Program;
use crate::diag::Code;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        code: Code::E0301,
        text: "No pool has this name.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kw (1) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0302,
        text: "No stage has this name.",
        example: Program("
stage engine : fifo;
workload { arrive poisson(1); }
session { run engin (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0303,
        text: "
A name in an expression is an attribute (the built-in ones are cached, serial, turn_no, new, out,
think, more, forced, computed; every `set` and `choose` makes another), a constant from a `let`, a
binding of the hold's header, or a variable of the place, such as `now`. This one is none of them.
Constants can read only those declared above them.",
        example: Program("
let lambda = 0.5;
stage s : fifo;
workload { arrive poisson(lamda); }
session { run s (lambda); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0304,
        text: "
Functions: min max abs floor ceil sqrt exp ln pow; of a stage queue busy work est_lambda est_rho
est_wait price; of a pool used free cachedin holders queued; of a step stage budget_left. A name with
`~` in front is a distribution. A `table` is called like a function.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (exponential(1)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0305,
        text: "
Distributions: ~exp(mean) ~det(x) ~uniform(lo, hi) ~erlang(k, mean) ~h2(mean, cv2) ~bernoulli(p).",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (~normal(1, 2)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0306,
        text: "Two constants, two pools or two stages have the same name.",
        example: Program("
stage s : fifo;
stage s : delay;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0307,
        text: "
A name is either a constant or an attribute. Where it is both, a reader could not tell which of the
two an expression reads. The built-in attributes count: cached serial turn_no new out think more
forced computed.",
        example: Program("
let size_of_answer = 100;
stage s : fifo;
workload { arrive poisson(1); }
session { set size_of_answer = 3; run s (size_of_answer); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0308,
        text: "
`inf` and the variables of the language (now size age last queued n nres ndec kvb kvp ntok npre attn
ctxb ctxp nchunk decoding admission remaining) are not names for constants.",
        example: Program("
let now = 3;
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0309,
        text: "
Some `set` assigns this name, so it is an attribute; at this place it is also a variable of the
language. An attribute may share a name with a variable that exists elsewhere only.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { set now = 3; run s (now); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0310,
        text: "
A variable exists at its moments only: size, age, last and queued while a cached prefix is judged for
eviction; n in the capacity of a ps stage; nres, ndec, kvb and kvp in a budget, chunk, cost or serving
key; ntok, npre, attn, ctxb, ctxp and nchunk in a cost; decoding, admission and remaining in a serving key; now everywhere.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (ntok); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0311,
        text: "
The capacity of a ps stage and the budget, chunk and cost of a step stage are evaluated for the stage,
for no session in particular. An attribute has no value there.",
        example: Program("
stage s : ps(weight);
workload { arrive poisson(1); }
session { set weight = 2; run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0312,
        text: "
Serving statements look at the stages declared above them.",
        example: Program("
pool kv { cap 100; }
workload { arrive poisson(1); }
session { hold kv (10) { prefill on e (10) growing kv; } }
stage e : step { budget 10; cost 1; memory kv; }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0313,
        text: "
A name with arguments in the place of a statement or a declaration is a call of a definition, and
nothing is defined under this name. Definitions may stand anywhere in the program's files; those of
the library come with `use \"std/...\";`. A misspelled statement can look like a call as well.",
        example: Program("
def serve(t) { run s (t); }
stage s : fifo;
workload { arrive poisson(1); }
session { server_on(1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0314,
        text: "
A definition is called where what it stands for belongs: one with `=` in an expression, one with
statements among statements, one with declarations at the top of a file.",
        example: Program("
def half(x) = x / 2;
stage s : fifo;
workload { arrive poisson(1); }
session { half(1); run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0315,
        text: "
A call is replaced by what the definition stands for, before anything runs. A definition that calls
itself, or one that calls it, would never be done. Repetition at run time is `loop { ... }`.",
        example: Program("
def serve(t) { run s (t); again(t); }
def again(t) { serve(t / 2); }
stage s : fifo;
workload { arrive poisson(1); }
session { serve(1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0316,
        text: "
An argument takes the parameter's place as it is written, and is evaluated there. This one reads a
name that the definition sets or binds, so it could mean another value inside than at the call. Copy
the value with `set` before the call, under a name that the definition does not use.",
        example: Program("
def twice(t) {
  set c = 1;
  run s (t + c);
}
stage s : fifo;
workload { arrive poisson(1); }
session {
  set c = 2;
  twice(c);
}
run { horizon 10; }
"),
    },
];
