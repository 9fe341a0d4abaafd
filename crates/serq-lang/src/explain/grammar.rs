//! E00 to E02: the file, spelling, grammar, the parts of a program.

use super::Entry;
use super::Example::{Program, Words};
use crate::diag::Code;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        code: Code::E0001,
        text: "
A program is read as UTF-8. This file has a byte that cannot be part of it; the place is shown.
Most often the file was saved in another encoding, or is no text at all.",
        example: Words,
    },
    Entry {
        code: Code::E0002,
        text: "
A program has at most 4 MiB. Data that large belongs into a trace file, which has no such limit.",
        example: Words,
    },
    Entry {
        code: Code::E0101,
        text: "
The character belongs to nothing in the language. Its signs are
{ } ( ) [ ] , ; : . = ~ ? + - * / ^ < > ! <= >= == != && ||.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (7 % 2); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0102,
        text: "
A comment that begins with `/*` goes on to the next `*/`, and there is none. Everything behind the
place that is shown was read as comment. A comment to the end of the line begins with `//`.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; } /* the end
"),
    },
    Entry {
        code: Code::E0103,
        text: "
A string ends on the line where it begins. Strings have no escapes.",
        example: Program("
stage s : fifo;
workload {
  arrive poisson(1);
  trace \"sessions.csv;
}
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0104,
        text: "
A number is digits, at most one point, `_` anywhere between the digits, and an exponent: 16_384,
0.25, .5, 2e-5. There are no units and no suffixes; write 16e3 or 16 * 1024. A number that is too
large for a 64-bit float is refused as well; the unlimited amount is `inf`.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (16k); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0105,
        text: "
The grammar wants something else at this place. The message says what, and what stands there
instead. A `;` that is missing at the end of a line is reported at that end.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s 1; }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0106,
        text: "
Outside of all blocks there are only declarations: let, pool, stage, workload, session, server, run,
gauge, share, slo, def, use, and calls of definitions that stand for declarations.",
        example: Program("
stage s : fifo;
link l : ps(1);
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0107,
        text: "
A statement begins with its word: turn, request, end, set, observe, hold, enter, admit, grow, drop,
release, load, run, branch, loop, while, until, shield, choose, book, content, renew, abandon, prefill,
decode, transfer, tool; or it is the name of a definition with its arguments.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { x = 1; run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0108,
        text: "
A block of options knows the options that the message lists, and no others.",
        example: Program("
pool kv { capacity 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0109,
        text: "
Parentheses and blocks are nested at most 100 deep, and an expression has at most 200 levels: a sum
of n terms has n. The limit keeps every later pass within its stack. Give parts of the expression a
name with `let` or `set`.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0110,
        text: "
A comparison gives 0 or 1, so `a < b < c` would compare that with c, which nobody means.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { branch (1 < turn_no < 3) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0111,
        text: "
The language once spelled this differently, and the old word is refused so that every program reads
the same: `fits` is `reserve`, `decode first;` is `serve decode first;`, and what `book` books is a hold,
written at its `enter NAME if P (units) fit { ... }`.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) fits (2) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0112,
        text: "
An option or clause may be given once. With two, one of them would silently not count.",
        example: Program("
pool kv { cap 100; cap 200; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (1) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0113,
        text: "
Each name in a list of bindings stands for one expression. Later bindings may use earlier ones.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (u) at admission (u = 1, u = 2) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0114,
        text: "
A binding stands for its text: every use of the name evaluates the expression again, at every
attempt to admit the hold. A draw in it would give different numbers each time. Draw once with
`set` before the hold.",
        example: Program("
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(1); }
session { hold kv (u) at admission (u = ~exp(3)) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0115,
        text: "
A definition stands for one thing: a value (`def f(x) = x + 1;`), statements, which are called where
statements stand, or declarations, which are called at the top. One block cannot be both of the
last two: make it two definitions.",
        example: Program("
def server(n) {
  pool slots { cap n; }
  set x = 1;
}
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0201,
        text: "
A server handles one request of a session. When the session's next turn is drawn, when it requests
and when it ends are the client's: `turn`, `request` and `end` stand in the workload's session.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); session { turn; request; } }
server { run s (1); end; }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0202,
        text: "
`request` hands over to the server. It has a meaning in the workload's session only, which a
`server` stands beside.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { request; run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0203,
        text: "
`enter` is how a session takes a pool. A server says whom it admits: `admit if pool (units) fit`.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); session { turn; request; } }
server { enter kv (1) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0204,
        text: "
`admit if ... fit` is a server's decision. A session enters a pool: `enter pool (units) { ... }`.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { admit if kv (1) fit { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0205,
        text: "
`where` belongs to `admit if`. A `hold` or `enter` writes its bindings `at admission (name = value)`.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { enter kv (u) where u = 2 { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0206,
        text: "
`admit if` writes its bindings `where name = value`, without parentheses.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); session { turn; request; } }
server { admit if kv (u) fit at admission (u = 2) { run s (1); } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0207,
        text: "
A transfer from one pool to another delivers units to an allocation that is already there: it is a
run, a `load` and a `release`. Nothing grows while the units travel. Where the destination must
grow, write `grow pool (units);` before.",
        example: Program("
pool a { cap 10; }
pool b { cap 10; }
stage link : ps(1);
workload { arrive poisson(1); session { turn; request; } }
server {
  admit if a (1) fit { } lease a (inf);
  admit if b (1) fit { transfer (1) from a to b (1) growing b; }
}
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0208,
        text: "
A session inside the workload is a client: it sends requests, and a `server` handles them. Add one,
or move the session out of the workload if it does everything itself.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); session { turn; request; } }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0209,
        text: "
A server runs when a client's session says `request`, and the workload has no session.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
server { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0210,
        text: "
There is a server, and no `request` in the client's session, so it would never do anything.",
        example: Program("
stage s : fifo;
stage think : delay;
workload { arrive poisson(1); session { turn; run think (1); } }
server { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0211,
        text: "
A deployment is written in one of two ways: a `session` that does everything, or a client (the
session in the workload) and a `server`. This program has both.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); session { turn; request; } }
server { run s (1); }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0212,
        text: "
There is one workload, one session, one server, one run, one `init` and one `turn`.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
run { warmup 1; }
"),
    },
    Entry {
        code: Code::E0213,
        text: "
A program says what an arrival does: in a `session`, or in a client's session and a `server`.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0214,
        text: "
A program says how its sessions come: `arrive poisson(rate)`, `closed(n)`, `batch(n)`, or `none`
where they come from data alone.",
        example: Program("
stage s : fifo;
workload { }
session { run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0215,
        text: "
`init` gives a new session its attributes and `turn` those of its next request. Both only `set` and
`observe`: they are the traffic, and must be the same for every deployment.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); turn { run s (1); } }
session { turn; run s (1); }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0216,
        text: "
`prefill`, `decode`, `tool` and `transfer` run at the stage of that name (`transfer` also at one
called `link`), declared above. Without one, `prefill` and `decode` take the only step stage. Here
there is none, or several could be meant. Declare one, or name it: `prefill on S (work);`.",
        example: Program("
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); tool 3; }
run { horizon 10; }
"),
    },
    Entry {
        code: Code::E0217,
        text: "
`book NAME` and `enter NAME if ...` are the server's: it decides what is allocated. A session that does
everything itself claims with `hold`, a client's with `enter pool (units) { ... }`.",
        example: Program("
pool kv { cap 10; }
stage s : fifo;
workload { arrive poisson(1); }
session { book blocks; run s (1); }
run { horizon 10; }
"),
    },
];
