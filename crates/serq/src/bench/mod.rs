//! `bench NAME`: figures that take a while, made again by one command.
//!
//! Every one has the same frame: it computes a [`Sheet`] of rows, which is shown as text, as Markdown for a
//! document, or as JSON for a script; what it asserts, it fails on.

mod figures;
mod replays;
mod sheet;

use crate::cli::{BenchArgs, BenchCommand};
use crate::out::{self, Done, Failure};

/// What one of them found.
struct Found {
    sheets: Vec<sheet::Sheet>,
    /// The same, as data.
    data: serde_json::Value,
    /// What should have been and is not.
    broken: Vec<String>,
}

pub(crate) fn run(args: &BenchArgs) -> Done {
    let found = match &args.command {
        BenchCommand::Figures(args) => figures::run(args)?,
        BenchCommand::Replays(args) => replays::run(args)?,
    };
    let text = if args.json {
        format!("{:#}\n", found.data)
    } else {
        let shown =
            found.sheets.iter().map(|s| if args.markdown { s.markdown() } else { s.text() });
        shown.collect::<Vec<_>>().join("\n")
    };
    out::result(&text)?;
    if found.broken.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = found.broken.iter().map(|b| format!("error: {b}")).collect();
    Err(Failure::program(lines.join("\n")))
}
