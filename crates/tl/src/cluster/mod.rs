//! A whole cluster as child processes of this one: gateway, prefill engines, decode engines.
//!
//! Every part is the same binary with a configuration file, so what runs here runs on many machines as
//! well. A part that dies is started again on the addresses it had; parts drain when asked to stop, and go
//! when this process goes (each watches its standard input).

mod addrs;
mod config;
mod part;
mod selftest;
mod topology;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::sync::mpsc;

pub(crate) use addrs::{Addrs, announce};
pub(crate) use part::PartEvent;
pub(crate) use selftest::EdgeReport;
pub(crate) use topology::{Role, Topology};

use part::Part;

/// How long a part may take to listen: a model has to be read and converted.
const START_DEADLINE: Duration = Duration::from_secs(180);

/// How long after the engines listen the gateway may take to have heard of all of them.
const REGISTER_DEADLINE: Duration = Duration::from_secs(30);

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct ClusterSpec {
    pub(crate) topology: Topology,
    /// An engine's `model_dir`: a path, or `tiny`.
    pub(crate) model: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) kv_blocks: u32,
    /// Compute threads for all engines together; 0 is every core.
    pub(crate) threads: usize,
    /// A unified engine beside the cluster, unknown to the gateway: what `tl verify` compares with.
    pub(crate) reference: bool,
}

/// A running cluster. Dropping it kills every part at once; [`Cluster::stop`] drains them first.
#[derive(Debug)]
pub(crate) struct Cluster {
    gateway: Part,
    engines: Vec<Part>,
    reference: Option<Part>,
    dir: PathBuf,
}

impl Cluster {
    /// Starts everything, waits until the gateway knows every engine, and moves one block over every
    /// prefill-decode edge. On an error everything already started is gone again.
    pub(crate) async fn start(
        spec: &ClusterSpec,
        events: mpsc::UnboundedSender<PartEvent>,
    ) -> anyhow::Result<(Cluster, Vec<EdgeReport>)> {
        let dir = run_dir()?;
        let gateway = Part::start("gateway", 0, config::gateway(spec), &dir, &events)?;
        let gateway_addrs = gateway.listening(START_DEADLINE).await?;
        let registry = gateway_addrs
            .registry
            .clone()
            .context("the gateway did not say where its registry listens")?;

        let roles = spec.topology.roles();
        let shares =
            topology::thread_shares(spec.threads, roles.len() + usize::from(spec.reference));
        let mut engines = Vec::new();
        for (i, (name, role)) in roles.iter().enumerate() {
            let text = config::engine(spec, *role, Some(&registry), shares[i]);
            engines.push(Part::start(name, i + 1, text, &dir, &events)?);
        }
        let reference = if spec.reference {
            let text = config::engine(spec, Role::Unified, None, shares[roles.len()]);
            Some(Part::start("reference", engines.len() + 1, text, &dir, &events)?)
        } else {
            None
        };
        let cluster = Cluster { gateway, engines, reference, dir };
        for part in cluster.engines.iter().chain(&cluster.reference) {
            part.listening(START_DEADLINE).await?;
        }
        cluster.registered().await?;
        let edges = selftest::check_edges(&cluster.engines).await?;
        Ok((cluster, edges))
    }

    /// Waits until the gateway routes to every engine.
    async fn registered(&self) -> anyhow::Result<()> {
        let url = format!("http://{}/admin/v1/workers", self.gateway_addrs()?.http);
        let started = Instant::now();
        let client = reqwest::Client::new();
        loop {
            let answer = client.get(&url).timeout(Duration::from_secs(2)).send().await;
            let seen = match answer {
                Ok(answer) => answer.json::<serde_json::Value>().await.ok(),
                Err(_) => None,
            };
            let count = seen.as_ref().and_then(|v| v["data"].as_array()).map_or(0, Vec::len);
            if count >= self.engines.len() {
                return Ok(());
            }
            if started.elapsed() > REGISTER_DEADLINE {
                bail!(
                    "after {} s the gateway knows {count} of {} engines; the logs in {} say why",
                    REGISTER_DEADLINE.as_secs(),
                    self.engines.len(),
                    self.dir.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn gateway_addrs(&self) -> anyhow::Result<Addrs> {
        self.gateway.addrs().context("the gateway is not listening")
    }

    /// Name, role and addresses of every part that listens.
    pub(crate) fn parts(&self) -> Vec<(String, Addrs, Option<u32>)> {
        std::iter::once(&self.gateway)
            .chain(&self.engines)
            .chain(&self.reference)
            .filter_map(|part| Some((part.name().to_owned(), part.addrs()?, part.pid())))
            .collect()
    }

    pub(crate) fn reference_addrs(&self) -> Option<Addrs> {
        self.reference.as_ref()?.addrs()
    }

    /// What clients call the model.
    pub(crate) async fn served_model(&self) -> anyhow::Result<String> {
        let url = format!("http://{}/v1/models", self.gateway_addrs()?.http);
        let answer = reqwest::Client::new().get(url).timeout(Duration::from_secs(5)).send().await?;
        let list: serde_json::Value = answer.json().await?;
        Ok(list["data"][0]["id"].as_str().context("the gateway lists no model")?.to_owned())
    }

    /// Where the logs and configuration files of this run lie.
    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Drains: the gateway first, so that no new request arrives, then the engines.
    pub(crate) async fn stop(self, deadline: Duration) {
        self.gateway.stop(deadline).await;
        let engines =
            self.engines.into_iter().chain(self.reference).map(|part| part.stop(deadline));
        futures::future::join_all(engines).await;
    }
}

/// A folder of its own for each run, in the cache: logs outlive the run that wrote them.
fn run_dir() -> anyhow::Result<PathBuf> {
    let base = crate::models::cache_dir()?.join("runs");
    std::fs::create_dir_all(&base).with_context(|| format!("cannot create {}", base.display()))?;
    forget_old_runs(&base);
    let dir = tempfile::Builder::new()
        .prefix("run-")
        .tempdir_in(&base)
        .with_context(|| format!("cannot create a folder in {}", base.display()))?;
    Ok(dir.keep())
}

/// Keeps the newest runs only, so that the cache does not grow for ever.
fn forget_old_runs(base: &std::path::Path) {
    const KEEP: usize = 20;
    let Ok(entries) = std::fs::read_dir(base) else { return };
    let mut runs: Vec<_> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    runs.sort();
    let surplus = runs.len().saturating_sub(KEEP);
    for (_, path) in runs.into_iter().take(surplus) {
        let _ = std::fs::remove_dir_all(path);
    }
}
