//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serq_sim::Slo;

const ABOUT: &str = "Deployments of language models as programs, and a simulator that runs them";

const EXAMPLES: &str = "\
Examples:
  serq new mine                               write mine.sq, a small deployment to start from
  serq run mine.sq                            run it and show what was measured
  serq run mine.sq --set lambda=2 --seeds 8   another load, eight seeds, intervals over them
  serq check mine.sq                          only check it
  serq explain E0501                          what a message means, with a program that gives it

Exit codes: 0 done, 1 the program does not load, link or run, 2 wrong usage.";

#[derive(Debug, Parser)]
#[command(name = "serq", version, about = ABOUT, after_help = EXAMPLES)]
#[command(arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Check(CheckArgs),
    Run(RunArgs),
    Ir(IrArgs),
    Fmt(FmtArgs),
    Explain(ExplainArgs),
    New(NewArgs),
    Oracle(OracleArgs),
    Bench(BenchArgs),
}

/// Check programs without running them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  serq check mine.sq
  serq check mine.sq --set blocks=100        is it still valid with less memory?
  serq check --json mine.sq                  findings for an editor or a script

With --json, standard output is an array with one object per finding: code, severity, message,
primary and labels (file, line, column, end_line, end_column, offset, length, text), help,
suggestion.")]
pub(crate) struct CheckArgs {
    /// Programs: text (`-` is standard input), or the JSON form if the name ends in .json
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Give a `let` another value, as name=expression
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Findings as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is run, and on what.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// The program: text (`-` is standard input), or the JSON form if the name ends in .json
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Give a `let` another value, as name=expression; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Seed of the random numbers, instead of the program's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Seconds to simulate, instead of the program's
    #[arg(long, value_name = "SECONDS")]
    pub(crate) horizon: Option<f64>,
    /// Seconds before measurements begin, instead of the program's
    #[arg(long, value_name = "SECONDS")]
    pub(crate) warmup: Option<f64>,
    /// What to replay instead of the program's trace: sessions (rows
    /// session,turn,new,out,think[,forced]), or requests with times (Azure's CSV, Mooncake's JSON
    /// lines), one session each
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Let the requests of a trace come this many times as fast (programs with `arrive trace;`)
    #[arg(long, value_name = "K")]
    pub(crate) rate_scale: Option<f64>,
    /// Look for the files of tables here: this, with the file's name behind it
    #[arg(long, value_name = "PREFIX")]
    pub(crate) tables: Option<String>,
}

/// Make figures of this project again
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
    /// The figures as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Tables in Markdown
    #[arg(long, global = true, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Figures(FiguresArgs),
    Replays(ReplaysArgs),
}

/// Simulate tables of published figures again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  serq bench figures                         all of them, which takes a while
  serq bench figures --seeds 1 --horizon 500 a quick look, which is not judged
  serq bench figures --markdown > figures.md

Exit code 1 if a figure is further from its reference than its table allows.")]
pub(crate) struct FiguresArgs {
    /// Which tables; all of them if none is named
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// At most so many seeds
    #[arg(long, value_name = "N")]
    pub(crate) seeds: Option<u64>,
    /// Simulated seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) horizon: Option<f64>,
}

/// Replay recorded runs of real engines and compare latencies
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  serq bench replays                         the recordings in examples/replays
  serq bench replays --markdown
  serq bench replays my/run --tables my/profile/a100_ --set C.blocks=20000

A recording is a folder with requests.jsonl, one request a line (input_toks, output_toks, arrival_time,
queued_ts, first_token_ts, last_token_ts); meta.json, from which settings of the engine are taken; and
replay.json, which says the rest (name, program, trace, tables, set, within). Options go before both.

Exit code 1 if a figure is further off than `within` allows: [per cent of means, per cent of P99].")]
pub(crate) struct ReplaysArgs {
    /// Folders of recordings
    #[arg(value_name = "FOLDER")]
    pub(crate) folders: Vec<PathBuf>,
    /// The program that replays them
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// What the prompts share: JSON lines with block ids, requests in the order of the log
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Look for the files of tables here: this, with the file's name behind it
    #[arg(long, value_name = "PREFIX")]
    pub(crate) tables: Option<String>,
    /// Give a `let` another value, as name=expression; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) sets: Vec<String>,
}

/// Run a program and show what was measured
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  serq run mine.sq
  serq run mine.sq --set lambda=2 --set 'blocks=4*1024'
  serq run mine.sq --seeds 8                  seeds 1 to 8 on all cores, intervals over the seeds
  serq run mine.sq --horizon 60 --warmup 10   a quick look
  serq run mine.sq --json > report.json       errors too: docs/language/report.md
  serq run mine.sq --csv samples              one file per observe: time,session,turn,value
  serq run mine.sq --slo ttft=0.5,tpot=0.05   share of requests served in time, and goodput
  serq run mine.sq --requests requests.csv    one row per request
  serq run mine.sq --trace sessions.csv       replay recorded sessions
  serq run mine.sq --trace azure.csv --rate-scale 2

A run depends on the program, its settings and the seed alone: the same three give the same bytes
on every machine.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Run this many seeds, from the seed on, over all cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) seeds: u32,
    /// Another quantile of every measure, between 0 and 1; may be repeated
    #[arg(long = "quantile", value_name = "Q")]
    pub(crate) quantiles: Vec<f64>,
    /// The same between 0 and 100, such as 99.9; may be repeated
    #[arg(long = "percentile", value_name = "P", value_parser = percentile)]
    pub(crate) percentiles: Vec<f64>,
    /// What a request must meet, in seconds: bounds on ttft, tpot, itl (every gap) and e2e
    #[arg(long, value_name = "BOUNDS", value_parser = slo)]
    pub(crate) slo: Option<Slo>,
    /// The report as JSON; of a program that is refused or fails, what is wrong with it
    #[arg(long)]
    pub(crate) json: bool,
    /// Write every sample into this folder, one file per observe, and by-request.csv
    #[arg(long, value_name = "DIR")]
    pub(crate) csv: Option<PathBuf>,
    /// Write one row per request into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,
    /// With --csv: also by-iteration.csv, what every engine computes when
    #[arg(long, requires = "csv")]
    pub(crate) iterations: bool,
    /// Fail (exit code 1) if work was rejected or left over, the deployment was overloaded or not
    /// steady, or sessions can never go on
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Show the representation that a program stands for, as JSON
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  serq ir mine.sq > mine.json
  serq run mine.json                         the same run
  serq ir mine.sq --no-spans | diff - old.json")]
pub(crate) struct IrArgs {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Put the sessions of the trace into the result
    #[arg(long)]
    pub(crate) inline_trace: bool,
    /// Leave out source positions
    #[arg(long)]
    pub(crate) no_spans: bool,
}

/// Lay out programs in the one common way
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  serq fmt mine.sq             rewrite the file
  serq fmt --check *.sq        exit code 1 if a file would change
  serq fmt - < mine.sq         standard input to standard output")]
pub(crate) struct FmtArgs {
    /// Programs; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Change nothing; name the files that would change
    #[arg(long)]
    pub(crate) check: bool,
}

/// Explain a code of a message
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  serq explain E0501
  serq explain               all codes")]
pub(crate) struct ExplainArgs {
    /// Such as E0303; without one, every code is listed
    #[arg(value_name = "CODE")]
    pub(crate) code: Option<String>,
}

/// Write a small deployment to start from
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  serq new mine && serq run mine.sq")]
pub(crate) struct NewArgs {
    /// The file to write; `.sq` is added if it has no ending
    #[arg(value_name = "NAME")]
    pub(crate) name: PathBuf,
}

/// Compare a program step by step with recorded runs of vLLM's schedulers
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  serq oracle examples/oracle/vllm_colocated.sq traces/co*.json
  serq oracle examples/oracle/vllm_pull.sq traces/pd01_basic.json

Each trace's scenario gives the program's settings and its requests, a session each. For each trace and
for all, the result says how many requests had the same fate at the same ticks, and in how many
steps the same number of blocks was free; then the first difference of each trace that has one, with
both sides' state. Traces are made with tools/vllm-oracle.

Exit codes: 0 everything agrees, 1 something differs or cannot be compared, 2 wrong usage.")]
pub(crate) struct OracleArgs {
    /// The program: text; its engines are step stages named C, or P and D
    #[arg(value_name = "PROGRAM")]
    pub(crate) file: PathBuf,
    /// Recorded runs, as JSON
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Give a `let` another value, as name=expression; the scenario's settings come first
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) sets: Vec<String>,
}

/// A percentile as a quantile.
fn percentile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=100.0).contains(&p) => Ok(p / 100.0),
        _ => Err("give a number between 0 and 100".to_owned()),
    }
}

/// `ttft=0.5,tpot=0.05`.
fn slo(text: &str) -> Result<Slo, String> {
    let mut slo = Slo::default();
    for part in text.split(',') {
        let Some((name, bound)) = part.split_once('=') else {
            return Err(format!("`{part}` is no bound: give name=seconds"));
        };
        let Some(place) = slo.bound_mut(name.trim()) else {
            return Err(format!("`{}` is not ttft, tpot, itl or e2e", name.trim()));
        };
        match bound.trim().parse::<f64>() {
            Ok(seconds) if seconds >= 0.0 && seconds.is_finite() && place.is_none() => {
                *place = Some(seconds)
            }
            Ok(seconds) if seconds >= 0.0 && seconds.is_finite() => {
                return Err(format!("`{name}` is bounded twice"));
            }
            _ => return Err(format!("`{bound}` is no number of seconds")),
        }
    }
    Ok(slo)
}
