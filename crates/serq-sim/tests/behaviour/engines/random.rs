//! Random programs of engines: shared memory, results an iteration late, leases that engines mind, deadlines,
//! bookings. They run to the end or fail with an error they may fail with, break no invariant (debug builds
//! check them after every event), and give the same report twice.

use std::fmt::Write as _;

use proptest::prelude::*;
use serq_sim::Options;

use crate::support::{compile, runs_or_fails_in_order, same_without_coalescing};

/// Writes programs from a list of numbers, as the other random programs.
struct Writer<'a> {
    choices: &'a [u8],
    at: usize,
    out: String,
    /// Memories of the holds around.
    held: Vec<&'static str>,
    depth: usize,
    booked: bool,
}

/// A memory, its engine, its queues.
const ENGINES: [(&str, &str); 2] = [("kv", "E"), ("kw", "F")];

impl Writer<'_> {
    fn below(&mut self, n: usize) -> usize {
        let choice = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(choice) % n
    }

    fn pick<'b>(&mut self, of: &[&'b str]) -> &'b str {
        of[self.below(of.len())]
    }

    fn program(mut self) -> String {
        for (memory, engine) in ENGINES {
            let preempt = self.pick(&[
                "lifo",
                "by (x, admission) requeue (0)",
                "by (decoding, 0 - admission) requeue (x)",
                "none",
            ]);
            let shared = self.pick(&["shared;", ""]);
            let shared = if memory == "kv" { "shared;" } else { shared };
            let cap = self.pick(&["24", "16", "40"]);
            let queue = self.pick(&["fifo", "by (x, admission)", "by (0 - serial)"]);
            let ahead = self.pick(&["0", "1", "1"]);
            let fenced = if ahead == "1" { self.pick(&["0", "1"]) } else { "0" };
            let stops = self.pick(&["inf", "inf", "inf", "20"]);
            let budget = self.pick(&["8", "20", "inf"]);
            let chunk = self.pick(&["0", "3", "queued(turn) > 1 ? 2 : 0"]);
            let cost = self.pick(&["1", "0.25 + ntok / 8"]);
            let serve = self.pick(&["admission", "decode first", "by (used(kv) - remaining)"]);
            let _ = writeln!(
                self.out,
                "pool {memory} {{ cap {cap}; block 4; {shared} preempt {preempt}; queue {queue}; admit via {engine}; }}
                 stage {engine} : step {{ budget {budget}; cost {cost}; chunk {chunk}; memory {memory};
                   serve {serve}; ahead {ahead}; fenced {fenced}; stops {stops}; }};"
            );
        }
        let arrive = self.pick(&["poisson (1)", "closed (10)", "batch (20)"]);
        let keys = self.pick(&["1: 8, serial: inf", "x: inf", "x: 4, 2: 9, serial: inf"]);
        let _ = writeln!(
            self.out,
            "pool turn {{ cap inf; admit via E; }} pool slots {{ cap 4; admit via F; }}
             stage tool : delay; stage link : ps (2);
             workload {{
               arrive {arrive};
               init {{ set x = 0; set y = 0; set a = 0; set t = 0; }}
               turn {{ set x = floor(~uniform(1, 9)); set y = ~bernoulli(0.5); set a = 0; set t = 0; }}
               session {{ loop {{ turn; request; tool ~exp(1); branch with (0.2) {{ end; }} }} }}
             }}
             run {{ horizon 60; warmup 5; }}
             server {{
               content ({keys});
               admit if turn (0), kv (x) fit reuse (x - 1) {{ run E prefill (x - min(cached, x - 1)) growing kv; }} lease kv (4) on E;
               admit if kw (4) fit {{ run F prefill (3) growing kw; }} lease kw (6);"
        );
        self.statements();
        self.out.push_str("}\n");
        self.out
    }

    fn statements(&mut self) {
        for _ in 0..=self.below(4) {
            self.statement();
        }
    }

    fn block(&mut self) {
        self.out.push_str("{ ");
        self.depth += 1;
        self.statements();
        self.depth -= 1;
        self.out.push_str("} ");
    }

    fn statement(&mut self) {
        if self.depth > 4 {
            self.out.push_str("run tool (0.5); ");
            return;
        }
        let (memory, engine) = ENGINES[self.below(2)];
        let few = self.pick(&["1", "2", "x", "4"]);
        match self.below(18) {
            0..=3 => self.hold(memory, "admit"),
            4..=6 => {
                let n = self.pick(&["x", "0", "5", "12"]);
                let m = self.pick(&["x", "0", "11"]);
                let growing = match self.held.last().copied() {
                    Some(p) if self.below(9) > 0 => format!(" growing {p}"),
                    _ => String::new(),
                };
                let samples = self.pick(&["", " answers a first t", " answers a"]);
                let _ =
                    write!(self.out, "run {engine} prefill ({n}) decode ({m}){growing}{samples}; ");
            }
            7 => {
                let telling = self.pick(&[
                    "",
                    " telling kv on E",
                    " telling kv on E after (0.7)",
                    " telling kv",
                    " telling kw on F after (2)",
                ]);
                let _ = write!(self.out, "run {engine} steps ({few}){telling}; ");
            }
            8 => {
                let what = self.pick(&[
                    "release kv on E; ",
                    "release kv on E after (1.5); ",
                    "release kv; ",
                    "release kw on F after (x); ",
                    "abandon kv; ",
                    "abandon kw; ",
                ]);
                self.out.push_str(what);
            }
            9 => {
                let every = self.pick(&["0", "1", "2.5"]);
                let _ = write!(self.out, "renew kv (3) every ({every}) from {engine}; ");
            }
            10 | 11 => {
                let at = self.pick(&["now + x", "now + 1.5", "now", "x", "inf", "now + 6"]);
                let _ = write!(self.out, "until ({at}) ");
                self.block();
                self.out.push_str("else ");
                self.block();
            }
            12 => {
                self.out.push_str("shield ");
                self.block();
            }
            13 => {
                self.out.push_str("branch (y) ");
                self.block();
                self.out.push_str("else ");
                self.block();
            }
            14 if !self.booked && self.held.is_empty() => {
                self.booked = true;
                self.out.push_str("book mine; run tool (x); ");
                self.hold(memory, "enter mine");
            }
            15 if self.held.is_empty() => {
                let what = self
                    .pick(&["content (7: 3, x: inf); ", "content (x: 12); content add (7: 3); "]);
                self.out.push_str(what);
            }
            16 => self.out.push_str(
                "observe seen = cachedin(kv) + owed(kv) + share(E, 5) + admission + a + work(F); ",
            ),
            _ => {
                let stage = self.pick(&["tool", "link"]);
                let _ = write!(self.out, "run {stage} ({few}); ");
            }
        }
    }

    fn hold(&mut self, memory: &'static str, form: &str) {
        if self.held.contains(&memory) {
            self.out.push_str("run link (1); ");
            return;
        }
        let beside = self.pick(&["", "slots (1), ", "turn (0), ", "turn (0), slots (1), "]);
        let units = self.pick(&["x", "2", "min(x, share(E, 6))", "0", "8"]);
        let reuse = self.pick(&["", " reuse (x)", " reuse (7)"]);
        let when = match self.below(3) {
            0 => format!(" when (free({memory}) - taking({memory}, x + 4) >= 0)"),
            1 => " when (owed(kv) < 40)".to_owned(),
            _ => String::new(),
        };
        let bind = self.pick(&["", " where z = x + a"]);
        let _ = write!(self.out, "{form} if {beside}{memory} ({units}) fit{reuse}{when}{bind} ");
        self.held.push(memory);
        self.block();
        self.held.pop();
        let engine = if memory == "kv" { "E" } else { "F" };
        let lease = match self.below(4) {
            0 => format!(" lease {memory} (2) on {engine}"),
            1 => format!(" lease {memory} (1.5)"),
            _ => String::new(),
        };
        let _ = write!(self.out, "{lease}; ");
    }
}

fn write(choices: &[u8]) -> String {
    let writer =
        Writer { choices, at: 0, out: String::new(), held: Vec::new(), depth: 0, booked: false };
    writer.program()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn engines_run_or_fail_in_order(choices in prop::collection::vec(any::<u8>(), 20..200)) {
        let text = write(&choices);
        let program = compile(&text);
        // What these programs can do wrong: act on what is not there (any more), hold twice, reuse or load
        // more than they allocate, add to content without end, change it while they hold some,
        // preempt themselves without time passing.
        runs_or_fails_in_order(&program, &["hold-twice", "no-hold", "content", "instant-loop", "zero-cost", "enter", "booked-twice", "amount"], &text);
        same_without_coalescing(&program, &Options::default(), &text);
        // Longer answers over larger memories: engines that coast.
        let long = text.replace("decode (x)", "decode (x + 40)").replace("cap 24", "cap 400").replace("cap 16", "cap 240");
        same_without_coalescing(&compile(&long), &Options::default(), &long);
    }
}
