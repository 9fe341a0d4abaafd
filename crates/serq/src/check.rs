//! `check` and `ir`.

use serq_lang::diag::{plural, render_all, to_json};
use serq_lang::ir::{self, Program};
use serq_lang::source::Sources;

use crate::cli::{CheckArgs, IrArgs};
use crate::load::{self, Refused};
use crate::out::{self, Done, Failure};

pub(crate) fn check(args: &CheckArgs) -> Done {
    let mut worst: Option<Failure> = None;
    let mut findings = Vec::new();
    let mut good = String::new();
    for file in &args.files {
        let failure = match load::load(file, &args.sets) {
            Ok(loaded) if args.json => {
                findings.push(to_json(&loaded.warnings, &loaded.sources));
                continue;
            }
            Ok(loaded) => {
                out::note(render_all(&loaded.warnings, &loaded.sources).trim_end());
                good.push_str(&format!("{}: ok: {}\n", file.display(), sizes(&loaded.program)));
                continue;
            }
            Err(Refused::Findings(list, sources)) if args.json => {
                findings.push(to_json(&list, &sources));
                Failure { text: String::new(), ..Refused::Findings(list, sources).failure() }
            }
            Err(refused) => refused.failure(),
        };
        out::note(failure.text.trim_end());
        let code = worst.as_ref().map_or(0, |f| f.code).max(failure.code);
        worst = Some(Failure { code, text: String::new(), json: None });
    }
    if args.json {
        let all: Vec<serde_json::Value> = findings
            .into_iter()
            .flat_map(|list| match list {
                serde_json::Value::Array(list) => list,
                other => vec![other],
            })
            .collect();
        out::result(&format!("{:#}\n", serde_json::Value::Array(all)))?;
    } else {
        out::result(&good)?;
    }
    worst.map_or(Ok(()), Err)
}

fn sizes(program: &Program) -> String {
    [
        plural(program.pools.len(), "pool"),
        plural(program.stages.len(), "stage"),
        plural(program.attrs.len(), "attribute"),
        plural(program.blocks.len(), "block"),
    ]
    .join(", ")
}

pub(crate) fn ir(args: &IrArgs) -> Done {
    let mut loaded = load::input(&args.input, args.inline_trace)?;
    warn(&loaded.warnings, &loaded.sources);
    if args.no_spans {
        loaded.program.spans = None;
    }
    out::result(&ir::to_json(&loaded.program))
}

/// Shows warnings about a program that is used all the same.
pub(crate) fn warn(warnings: &[serq_lang::diag::Diagnostic], sources: &Sources) {
    out::note(render_all(warnings, sources).trim_end());
}
