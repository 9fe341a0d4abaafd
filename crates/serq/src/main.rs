//! The `serq` command.
//!
//! Thin: it reads files, calls the compiler and the simulator, and shows what they answer. Exit
//! codes: 0 done; 1 the program does not load, link or run (the reason is on standard error);
//! 2 wrong usage.

#![forbid(unsafe_code)]

mod bench;
mod check;
mod cli;
mod compare;
mod csv;
mod explain;
mod fault;
mod fmt;
mod load;
mod new;
mod out;
mod run;
mod seeds;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use out::Failure;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Check(args) => check::check(&args),
        Command::Run(args) => run::run(&args),
        Command::Ir(args) => check::ir(&args),
        Command::Fmt(args) => fmt::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::New(args) => new::run(&args),
        Command::Oracle(args) => compare::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, text, .. }) => {
            out::note(text.trim_end());
            ExitCode::from(code)
        }
    }
}
