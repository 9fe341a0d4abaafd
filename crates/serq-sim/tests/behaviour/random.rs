//! Random programs: they run to the end or fail with an error, never break an invariant (debug
//! builds check them after every event), and give the same report twice.

use std::fmt::Write as _;

use proptest::prelude::*;
use serq_sim::Options;

use crate::support::{compile, runs_or_fails_in_order, same_without_coalescing};

/// Writes programs from a list of numbers: the same numbers, the same program, so that a failing
/// one can be shrunk.
struct Writer<'a> {
    choices: &'a [u8],
    at: usize,
    out: String,
    /// References of the holds around, outermost first.
    held: Vec<String>,
    depth: usize,
}

const POOLS: [&str; 5] = ["slots", "kv", "mem", "F[j]", "F[1 - j]"];

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
        let preempt = ["none", "lifo", "lifo"];
        let evict = ["lru", "by (size)", "by (queued, 0 - age)", "by (x)"];
        let queue = ["fifo", "by (x)", "by (0 - serial)"];
        let via = ["", "admit via E;", "admit via E;"];
        for (pool, cap, block) in [
            ("slots", "6", ""),
            ("kv", "40", "block 4;"),
            ("mem", "40", ""),
            ("F[2]", "24", "block 3;"),
        ] {
            let via = if pool == "mem" { "" } else { self.pick(&via) };
            let spill = if pool == "kv" && self.below(2) == 0 {
                "spill mem via link (size / 8) when (size > 2);"
            } else {
                ""
            };
            let _ = writeln!(
                self.out,
                "pool {pool} {{ cap {cap}; {block} evict {}; preempt {}; queue {}; {via} {spill} }}",
                evict[self.at % 4],
                self.choices.get(self.at).map_or("none", |c| preempt[usize::from(*c) % 3]),
                queue[self.at / 4 % 3],
            );
            self.at += 1;
        }
        let budget = self.pick(&["8", "20", "4 + ndec", "inf"]);
        let chunk = self.pick(&["0", "3"]);
        let serve = self.pick(&[
            "admission",
            "decode first",
            "by (remaining, admission)",
            "by (used(kv) - remaining)",
            "exclusive prefill",
            "prefill alone",
        ]);
        let cost = self.pick(&[
            "1",
            "0.25 + ntok / 8",
            "max(0.5, kvb / 16 + attn / 100)",
            "measured(ntok, ctxb) + (ctxp + nchunk) / 64",
        ]);
        let _ = writeln!(
            self.out,
            "table measured(tokens, context) {{ (1, 0): 0.5, (1, 9): 0.75, (12, 3): 1, (12, 40): 1.5 }}
             stage E : step {{ budget {budget}; chunk {chunk}; cost {cost}; memory kv; serve {serve}; }}
             stage link : ps (min(n, 2)); stage disk : fifo (2); stage tool : delay;"
        );
        let arrive = self.pick(&["poisson (2)", "closed (10)", "batch (20)"]);
        let _ = writeln!(
            self.out,
            "workload {{ arrive {arrive}; init {{ set x = floor(~uniform(1, 12)); set j = ~bernoulli(0.5); }}
             turn {{ set x = 1 + floor(~exp(5)); }} }}
             run {{ horizon 60; warmup 5; }}
             session {{ loop {{ turn; "
        );
        self.statements();
        self.out.push_str("tool ~exp(1); branch with (0.2) { end; } } }\n");
        self.out
    }

    fn statements(&mut self) {
        let n = 1 + self.below(3);
        for _ in 0..n {
            self.statement();
        }
    }

    fn statement(&mut self) {
        let units = ["x", "1", "2 + 0 * x", "x / 2", "floor(x / 3)"];
        if self.depth > 3 {
            self.out.push_str("tool 0.5; ");
            return;
        }
        let held = self.held.clone();
        let here: Vec<&str> = held.iter().map(String::as_str).collect();
        match self.below(16) {
            0..=2 if self.held.len() < 3 => self.hold(),
            3 | 4 | 14 | 15 => {
                let (e, mode) = (self.pick(&units), self.pick(&["prefill", "decode"]));
                let growing = if here.is_empty() || self.below(5) == 0 {
                    String::new()
                } else {
                    format!(" growing {}", self.pick(&here))
                };
                let _ = write!(self.out, "run E {mode} ({e}){growing}; ");
            }
            5 => {
                let (s, e) = (self.pick(&["link", "disk", "tool"]), self.pick(&units));
                let _ = write!(self.out, "run {s} ({e}); ");
            }
            6 if !here.is_empty() => {
                let (p, e) = (self.pick(&here), self.pick(&units));
                let _ = write!(self.out, "grow {p} ({e}); ");
            }
            7 if !here.is_empty() => {
                let p = self.pick(&here);
                let _ = write!(self.out, "release {p}; ");
            }
            8 if !here.is_empty() => {
                let p = self.pick(&here);
                let _ = write!(self.out, "load {p} (0); ");
            }
            9 => {
                let p = self.pick(&POOLS);
                let _ = write!(self.out, "drop {p}; ");
            }
            10 | 11 => {
                let guard =
                    self.pick(&["~bernoulli(0.5)", "x > 4", "serial < 3", "queued(kv) > 1"]);
                let _ = write!(self.out, "branch ({guard}) {{ ");
                self.depth += 1;
                self.statements();
                self.out.push_str("} else { ");
                self.statements();
                self.depth -= 1;
                self.out.push_str("} ");
            }
            12 => self.out.push_str("observe value = cached + computed + work(E) + queue(link); "),
            _ => self.out.push_str("choose y in 2 by (used(F[y]) + queued(F[y])); "),
        }
    }

    fn hold(&mut self) {
        let units = ["x", "1", "x / 2", "min(x, budget_left(E))"];
        let first = self.pick(&POOLS);
        let first = if self.held.iter().any(|h| h == first) { "kv" } else { first };
        let mut pools = vec![first];
        if self.below(2) == 0 {
            let second = self.pick(&POOLS);
            if !pools.contains(&second) {
                pools.push(second);
            }
        }
        self.out.push_str("hold ");
        for (i, p) in pools.iter().enumerate() {
            let e = if *p == "slots" { "1" } else { self.pick(&units) };
            let reserve = self.pick(&["", "", " reserve (x)"]);
            let reserve = if *p == "slots" { "" } else { reserve };
            let _ = write!(self.out, "{}{p} ({e}){reserve}", if i > 0 { ", " } else { "" });
        }
        let reuse = self.pick(&["", "", " reuse (8)"]);
        let _ = write!(self.out, "{reuse} {{ ");
        let before = self.held.len();
        self.held.extend(pools.iter().map(ToString::to_string));
        self.depth += 1;
        self.statements();
        self.depth -= 1;
        self.held.truncate(before);
        self.out.push_str("} ");
        let cache = self.pick(&["cache (x)", "", "cache (100)"]);
        let lease = match self.below(16) {
            1 | 2 => format!("lease {} (3)", pools[0]),
            3 => format!("lease {} (inf)", pools[pools.len() - 1]),
            _ => String::new(),
        };
        let _ = write!(self.out, "{cache} {lease}; ");
    }
}

fn write(choices: &[u8]) -> String {
    let writer = Writer { choices, at: 0, out: String::new(), held: Vec::new(), depth: 0 };
    writer.program()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_run_or_fail_in_order(choices in prop::collection::vec(any::<u8>(), 20..160)) {
        let text = write(&choices);
        let program = compile(&text);
        // What these programs can do wrong: hold a pool twice by two names, act on what was
        // released, size a hold by an infinite budget, reuse more than they
        // allocate, preempt themselves and start over without time passing.
        runs_or_fails_in_order(&program, &["hold-twice", "no-hold", "amount", "zero-cost", "load-beyond", "instant-loop"], &text);
    }

    /// No bit of a result, samples and mistakes included, depends on iterations run together.
    #[test]
    fn coalescing_changes_nothing(
        choices in prop::collection::vec(any::<u8>(), 20..160),
        work in 1u32..60,
    ) {
        let text = write(&choices);
        // Longer decodes than the programs have by themselves, over pools that may hold them.
        let long = text
            .replace("decode (x)", &format!("decode (x + {work})"))
            .replace("cap 40", "cap 160")
            .replace("cap 24", "cap 96");
        for text in [&text, &long] {
            same_without_coalescing(&compile(text), &Options::default(), text);
        }
    }
}
