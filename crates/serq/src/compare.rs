//! `oracle`: a program beside recorded runs of real schedulers.

use std::collections::BTreeMap;

use serq::oracle::{self, Agreement, PlayError, Trace};

use crate::cli::OracleArgs;
use crate::load::{self, Loaded, Refused};
use crate::out::{self, Done, Failure};
use crate::{check, fault};

pub(crate) fn run(args: &OracleArgs) -> Done {
    let plain = load::load(&args.file, &args.sets).map_err(Refused::failure)?;
    check::warn(&plain.warnings, &plain.sources);
    let traces = read(args)?;
    // Programs by their settings: most scenarios have the same few.
    let mut programs: BTreeMap<Vec<String>, Loaded> = BTreeMap::new();
    let mut agreements = Vec::with_capacity(traces.len());
    for trace in &traces {
        oracle::engines(trace, &plain.program).map_err(unfit)?;
        let mut sets = oracle::settings(trace, &plain.constants).map_err(unfit)?;
        sets.retain(|set| !args.sets.iter().any(|own| name(own) == name(set)));
        sets.extend(args.sets.iter().cloned());
        if !programs.contains_key(&sets) {
            let loaded = load::load(&args.file, &sets).map_err(Refused::failure)?;
            programs.insert(sets.clone(), loaded);
        }
        agreements.extend(programs.get(&sets).map(|p| play(args, trace, p)).transpose()?);
    }
    out::result(&oracle::report(&agreements))?;
    let all = agreements.iter().all(Agreement::all);
    if all { Ok(()) } else { Err(Failure::program("")) }
}

/// Every trace, or all that is wrong with the files.
fn read(args: &OracleArgs) -> Done<Vec<Trace>> {
    let (mut traces, mut wrong) = (Vec::new(), Vec::new());
    for path in &args.traces {
        match oracle::read(path) {
            Ok(trace) => traces.push(trace),
            Err(e) => wrong.push(format!("error: {e}")),
        }
    }
    if wrong.is_empty() { Ok(traces) } else { Err(Failure::program(wrong.join("\n"))) }
}

fn play(args: &OracleArgs, trace: &Trace, loaded: &Loaded) -> Done<Agreement> {
    oracle::play(trace, &loaded.program).map_err(|e| match e {
        PlayError::Unfit(e) => unfit(e),
        PlayError::Run(e) => {
            let mut failure = fault::failure(&e, &args.file, &loaded.sources);
            failure.text.push_str(&format!("\nthis was trace {}\n", trace.name));
            failure
        }
    })
}

fn unfit(e: oracle::Unfit) -> Failure {
    let help = "see examples/oracle for programs that have all that a scenario sets";
    Failure::program(format!("error: {e}\n  = help: {help}"))
}

fn name(set: &str) -> &str {
    set.split('=').next().unwrap_or("").trim()
}
