//! The `tl` command. Thin: it reads the command line, starts a runtime, and renders errors; what it does
//! lies in the modules below, and everything a server does lies in the crates under it.

#![forbid(unsafe_code)]

mod cli;
mod cluster;
mod engine;
mod gateway;
mod log;
mod models;
mod stopping;
mod ui;
mod up;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, ModelCommand};

/// Exit codes that scripts can use: 0 done, 1 failed (the reason is on stderr), 2 wrong usage or
/// configuration, 3 `tl verify` found a difference.
fn main() -> ExitCode {
    let cli = Cli::parse();
    log::init(&cli.command);
    let runtime = match runtime(&cli.command) {
        Ok(runtime) => runtime,
        Err(error) => {
            ui::error(&format!("cannot start the asynchronous runtime: {error}"));
            return ExitCode::from(1);
        }
    };
    let code = match runtime.block_on(run(cli.command)) {
        Ok(code) => code,
        Err(error) => {
            ui::error(&format!("{error:#}"));
            if error.downcast_ref::<cli::UsageError>().is_some() { 2 } else { 1 }
        }
    };
    // Blocking helpers (a log pump on a dead pipe) must not keep a finished command alive.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ExitCode::from(code)
}

async fn run(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Up(args) => up::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Engine(args) => engine::run(args).await,
        Command::Gateway(args) => gateway::run(args).await,
        Command::Model(ModelCommand::Pull(args)) => models::pull_command(args).await,
        Command::Model(ModelCommand::List(args)) => models::list_command(args),
    }
}

/// Servers share the cores with the engines' own compute threads, so their runtimes stay small: two
/// workers are enough to answer a health probe while a large body is being written.
fn runtime(_command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
