//! E05 to W07: what a deployment does, what comes from outside, warnings.

use super::Entry;
use super::Example::{Overridden, Program, Trace, Words};
use crate::diag::Code;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        code: Code::E0501,
        text: "
A `set` reads the state of a pool or stage, and the header of a later hold uses the attribute. The
header is read when the hold is admitted, which can be long after the `set`: by then the pool has
changed, the prefix may have been evicted, and the hold would be sized for a state that is gone. Read
it when the hold is admitted, with a binding: `at admission (hit = cachedin(kv))`, in a server
`where hit = cachedin(kv)`.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session {
  set hit = cachedin(kv);
  hold kv (hit + 10) { run s (1); } cache (10);
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0502,
        text: "
The guard of a `branch` is exactly 0 or 1, and 0 and 1 are fine as constants (they switch a part of the
program off and on). A constant between them is a probability: `branch with (0.9)` draws.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { branch (0.9) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0503,
        text: "
A way through the loop takes no time, so a session could go round for ever at one instant. Give each
way a `run` with work, or leave by `end`.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { loop { branch with (0.5) { run s (1); } } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0504,
        text: "
In a closed workload, whoever ends is replaced at once. No session of this program ever runs anywhere,
so they would replace each other at time 0 for ever.",
        example: Program("
pool kv { cap 100; }
workload { arrive closed(4); }
session { hold kv (1) { } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0505,
        text: "
The hold names a member by an index that reads an attribute, its body changes that attribute, and then
acts on the pool with the same spelling: it would mean another member than the one held. Keep the index
in an attribute of its own.",
        example: Program("
pool kv[2] { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session {
  set i = 0;
  hold kv[i] (1) { run s (1); set i = 1; grow kv[i] (1); }
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0506,
        text: "`hidden` names attributes that the client sets. Nothing sets this one.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); hidden answer; }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0507,
        text: "An attribute is hidden once.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); init { set answer = 3; } hidden answer, answer; }
session { run s (answer); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0508,
        text: "
`cached` and `computed` are what the server itself has done; it cannot be kept from it.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); hidden cached; }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0509,
        text: "
A hidden attribute is what a real server learns only afterwards, such as the length of an answer. It may
be the work of a run and what stays cached. Until a run sized by it has ended, on every way to where
it is read, it decides nothing of the deployment: no branch, loop, choice, index, growth, deadline or
lease, whom to admit, evict or serve. That goes for attributes set from it as well, through any number of
steps, by the client too. Headers of holds and keys may not name it at all. What only the client does,
outside the server, it may decide by what it knows.

Ways out: decide behind the run; by an estimate that is drawn beside it; by what was answered so
far (`answers`); or take the attribute off the list, if the deployment does know it.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); init { set answer = ~uniform(1, 9); } hidden answer; }
session {
  set long = answer > 5;
  branch (long) { hold kv (10) { run s (answer); } } else { run s (answer); }
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0601,
        text: "`--set name=value` takes the place of the value of `let name`, and there is none.",
        example: Overridden("
let lambda = 0.5;
stage s : fifo;
workload { arrive poisson(lambda); }
session { run s (1); }
run { horizon 10; }
", &["lamda=2"]),
    },
    Entry {
        code: Code::E0602,
        text: "Two `--set` give the same constant a value.",
        example: Overridden("
let lambda = 0.5;
stage s : fifo;
workload { arrive poisson(lambda); }
session { run s (1); }
run { horizon 10; }
", &["lambda=2", "lambda=3"]),
    },
    Entry {
        code: Code::E0603,
        text: "
A trace is a list of turns, one per row: session,turn,new,out,think and optionally forced. The rows of a
session stand together. new, out, think and forced are numbers, 0 or more. Empty lines, lines that begin
with # and a first line of titles are skipped.",
        example: Trace("
session,turn,new,out,think
a,1,1000,200,3.5
a,2,500,many,2
"),
    },
    Entry {
        code: Code::E0604,
        text: "The trace has no row, so no session could replay anything.",
        example: Trace("
session,turn,new,out,think
"),
    },
    Entry {
        code: Code::E0605,
        text: "
`use \"std/...\";` is a file of the library, which comes with the language; any other path is that of
a file, relative to the file it is written in. This one is not there or cannot be read.",
        example: Program("
use \"std/nothing\";
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0606,
        text: "
A file that is used twice is read once, at its first use. But a file cannot use itself, directly or
through others: what comes first would have no answer. Move what both need into a third file.",
        example: Words,
    },
    Entry {
        code: Code::E0607,
        text: "
The first line of a table's file names its columns. The axes of the table, the column of its values
and those of `where` are among them, spelt the same. This one is not.",
        example: Words,
    },
    Entry {
        code: Code::E0608,
        text: "
A point of a table is a finite number for each axis and one for the value. What cannot be read so is
not left out, since a cost without it would be another; take the row out, or choose other rows with
`where`. In the text, several coordinates stand in parentheses: (1, 16): 0.2.",
        example: Program("
table cost(tokens, batch) { (1, 1): 0.2, 16: 0.3 }
stage s : fifo;
workload { arrive poisson(1); }
session { run s (cost(1, 1)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0609,
        text: "
Two points have the same coordinates, so the table would have two values there. If a file holds several
things, `where COLUMN = \"TEXT\"` chooses one; of repeated measurements keep the mean.",
        example: Program("
table cost(tokens) { 1: 0.2, 16: 0.3, 16: 0.4 }
stage s : fifo;
workload { arrive poisson(1); }
session { run s (cost(1)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0610,
        text: "
A table needs a point, better two on every axis. If it is of a file, no row of it has what `where` asks
for.",
        example: Program("
table cost(tokens) {}
stage s : fifo;
workload { arrive poisson(1); }
session { run s (cost(1)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0611,
        text: "
`in` says what the values of a table are measured in: s, ms, us or ns. The table's values are then
seconds. Without it they are what the table has.",
        example: Program("
table cost(tokens) in minutes { 1: 0.2, 16: 0.3 }
stage s : fifo;
workload { arrive poisson(1); }
session { run s (cost(1)); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0699,
        text: "
The checks that every program passes before it runs, text or JSON, found something that the text's own
checks have no code for. The message says what and where.",
        example: Words,
    },
    Entry {
        code: Code::W0701,
        text: "
A `loop` has no other end than `end;`, which ends the session, so statements behind it are never reached.
What should happen at the end of a session belongs in front of `end;`.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session {
  loop { run s (1); branch with (0.5) { end; } }
  observe done = now;
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::W0702,
        text: "No expression reads this constant, so giving it another value would change nothing.",
        example: Program("
let lambda = 0.5;
let mu = 1;
stage s : fifo;
workload { arrive poisson(lambda); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::W0703,
        text: "
Sessions that queue keep what they hold. Two forms of it can come to a standstill in which each waits for
another; a run then reports a deadlock.

One step stage serves two queues. It tries them in the order in which the pools are declared, and stops
at the first head that does not fit. A session that holds the first pool queues at the second: behind the
sessions at the first, which may be waiting for exactly what it holds. Neither then goes on. Declare the
inner queue's pool above the outer one's.

Or the program's ways take pools in different orders: on one a session holds blocks and queues for a slot,
on another one stands first in the queue of the slots and waits for blocks (a hold waits in the queue of
the pool it names first), or holds a slot and queues for blocks. Everybody behind that head waits with it,
those with blocks too. Preemption does not help: it makes room for what is being computed, not for those
that queue. Claim in one order on every way, in one hold the pool first of which more is held elsewhere
(`hold kv (8), slots (1)`); or let the wait end, with `until` or a lease that has a bound.",
        example: Program("
pool kv { cap 100; admit via e; }
pool slots { cap 4; admit via e; }
stage e : step { budget 10; cost 1; memory kv; }
workload { arrive poisson(1); session { turn; request; } }
server {
  admit if kv (20) fit {
    admit if slots (1) fit { prefill on e (20) growing kv; }
  } keep (20);
}
run { horizon 10; }
"),
    },
];
