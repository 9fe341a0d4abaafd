//! The command line, as data. Help texts teach: each says what the value means and what it is by default.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cluster::Topology;

/// Serve a language model with prefill and decode on separate engines.
#[derive(Debug, Parser)]
#[command(name = "tl", version, about, long_about = LONG_ABOUT, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const LONG_ABOUT: &str = "\
Serve a language model with prefill and decode on separate engines.

A request's prompt is processed on one engine process, its answer is produced on another, and the KV blocks
cross between them over gRPC, deduplicated and checksummed. `tl up` brings a whole cluster up on this machine.";

const AFTER_HELP: &str = "\
Examples:
  tl up                                a gateway, one prefill and two decode engines, SmolLM2-135M
  tl up --model tiny --port 0 --json   the built-in random model on a free port, addresses as JSON
  tl up --topology 2p2d                two prefill and two decode engines
  tl verify --model tiny               compare the split with one engine, answer by answer
  tl model pull                        fetch the default model now

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 verify found a difference.";

/// A mistake in the command line or a configuration file: exit code 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a whole cluster here: gateway and engines, one command
    Up(UpArgs),
    /// Send a corpus through the split and through one engine, and show the first difference
    Verify(VerifyArgs),
    /// Run one engine from a configuration file
    Engine(PartArgs),
    /// Run the gateway from a configuration file
    Gateway(PartArgs),
    /// Fetch and list models
    #[command(subcommand)]
    Model(ModelCommand),
}

/// What `up` and `verify` share: which model, how many engines, how large.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// Model: a name from `tl model list`, a .gguf file, a Hugging Face folder, or `tiny` (random, built in)
    #[arg(long, default_value = crate::models::DEFAULT_MODEL, value_name = "NAME|PATH")]
    pub(crate) model: String,

    /// Engines: `unified` (one engine does both), or NpMd: N prefill and M decode engines
    #[arg(long, default_value = "1p2d", value_name = "NpMd|unified")]
    pub(crate) topology: Topology,

    /// KV blocks in each engine's pool, 16 positions a block
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_048_576))]
    pub(crate) kv_blocks: u32,

    /// Compute threads for all engines together; 0 takes every core
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) threads: usize,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Address the gateway listens on. Everything else stays on loopback
    #[arg(long, default_value = "127.0.0.1", value_name = "HOST")]
    pub(crate) host: String,

    /// Port of the OpenAI-compatible API; 0 takes a free one
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    pub(crate) port: u16,

    /// Print one JSON line with every address when ready, and the events after it as JSON lines
    #[arg(long)]
    pub(crate) json: bool,

    /// Do not show the engines' logs (they are always kept in files)
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Compare a running gateway instead of starting a cluster (needs --reference)
    #[arg(long, value_name = "URL", requires = "reference")]
    pub(crate) gateway: Option<String>,

    /// The one engine to compare with: its API address
    #[arg(long, value_name = "URL", requires = "gateway")]
    pub(crate) reference: Option<String>,

    /// Answer length of each case, in tokens
    #[arg(long, default_value_t = 24, value_name = "N")]
    pub(crate) max_tokens: u32,

    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PartArgs {
    /// Configuration file (runtime.toml); TL_<SECTION>__<KEY> in the environment wins over it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// Print one JSON line with the bound addresses on standard output when listening
    #[arg(long)]
    pub(crate) announce: bool,

    /// Drain and stop when standard input ends: a supervisor that dies takes its parts along
    #[arg(long)]
    pub(crate) watch_stdin: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Fetch a model into the cache (progress, checksum; an interrupted fetch is taken up again)
    Pull(PullArgs),
    /// List the known models, and which of them are here
    List(ListArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PullArgs {
    /// Name of the model
    #[arg(default_value = crate::models::DEFAULT_MODEL)]
    pub(crate) name: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
