//! Engines as real schedulers are: memory shared by content, conditions, victims by key, runs that prefill and
//! decode, steps, leases that engines mind, deadlines, engines a step ahead, bookings.
//!
//! Most of it is seen in what an observer is told: [`check`] runs a program and compares the happenings,
//! one line each, with those that the rules give by hand.

mod ahead;
mod coast;
mod deadlines;
mod duties;
mod memory;
mod random;
mod upkeep;

use std::fmt::Write as _;

use serq_lang::ir::Program;
use serq_sim::{
    EngineState, Happening, Iteration, Observer, Options, Phase, Releases, Report, What,
};

use crate::support::compile;

/// Writes down what it is told.
#[derive(Default)]
struct Diary {
    pools: Vec<String>,
    stages: Vec<String>,
    text: String,
    iterations: bool,
    memory: bool,
}

impl Observer for Diary {
    fn wants_happenings(&self) -> bool {
        true
    }

    fn wants_iterations(&self) -> bool {
        self.iterations
    }

    fn happened(&mut self, h: &Happening) {
        let (pool, stage) = (|k: usize| &self.pools[k], |k: usize| &self.stages[k]);
        let what = match h.what {
            What::Admitted { pool: p, cached } => format!("gets {} with {cached}", pool(p)),
            What::Preempted { pool: p } => format!("gives way in {}", pool(p)),
            What::Sampled { stage: s } => format!("sample of {}", stage(s)),
            What::RunOver { stage: s } if stage(s) == "clock" => return,
            What::RunOver { stage: s } => format!("run over on {}", stage(s)),
            What::StepsOver { stage: s } => format!("steps over on {}", stage(s)),
            What::LeaseGranted { pool: p } => format!("leases {}", pool(p)),
            What::LeaseNoticed { pool: p } => format!("end of lease of {} noticed", pool(p)),
            What::LeaseEnded { pool: p } => format!("lease of {} ends", pool(p)),
            What::BookingEnded { pool: p } => format!("gives up {}", pool(p)),
            What::Cut { shielded } => if shielded { "is to be cut" } else { "is cut" }.to_owned(),
        };
        let _ = writeln!(self.text, "{} {} {what}", h.time, h.session);
    }

    fn iteration(&mut self, i: &Iteration<'_>) {
        let tokens: Vec<String> =
            i.tokens.iter().map(|t| format!("{}:{}@{}", t.session, t.count, t.position)).collect();
        let _ = writeln!(self.text, "{} {} [{}]", i.time, self.stages[i.stage], tokens.join(" "));
    }

    fn engine(&mut self, e: &EngineState) {
        if let (true, Some(free)) = (self.memory, e.free) {
            let when = match e.phase {
                Phase::PutTogether => "begins",
                Phase::Delivered => "ends",
                Phase::Idle => "idles",
            };
            let _ = writeln!(self.text, "{} {} {when}, free {free}", e.time, self.stages[e.stage]);
        }
    }

    fn releases(&mut self, r: &Releases<'_>) {
        let _ =
            writeln!(self.text, "{} group {} on {}: {:?}", r.time, r.group, r.stage, r.sessions);
    }
}

#[track_caller]
fn diary(program: &Program, options: &Options, mut diary: Diary) -> (Report, String) {
    diary.pools = program.pools.iter().map(|p| p.name.clone()).collect();
    diary.stages = program.stages.iter().map(|s| s.name.clone()).collect();
    match serq_sim::run(program, options, &mut diary) {
        Ok(report) => (report, diary.text),
        Err(e) => panic!("{e}\n{}", diary.text),
    }
}

/// What happens, by hand: `;` between lines.
#[track_caller]
fn same(found: &str, expected: &str) {
    let lines: Vec<&str> = expected.split(';').map(str::trim).collect();
    assert_eq!(found.trim_end(), lines.join("\n").trim_end());
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let (_, found) = diary(&compile(text), &Options::default(), Diary::default());
    same(&found, expected);
}

/// The same with what iterations compute, and how much is free before and after each.
#[track_caller]
fn check_engines(text: &str, expected: &str) {
    let all = Diary { iterations: true, memory: true, ..Diary::default() };
    let (_, found) = diary(&compile(text), &Options::default(), all);
    same(&found, expected);
}

/// An engine of one token per second and row, its memory shared; sessions come a second apart.
fn shared(pool: &str, stage: &str, session: &str) -> String {
    format!(
        "pool kv {{ cap 40; block 4; shared; admit via E; {pool} }}
         pool slots {{ cap 9; admit via E; }}
         stage E : step {{ budget 100; cost 1; memory kv; {stage} }};
         stage clock : delay;
         workload {{ arrive batch (2); init {{ set a = 0; set t = 0; }} }}
         session {{ run clock (serial); {session} }}
         run {{ horizon 30; }}"
    )
}
