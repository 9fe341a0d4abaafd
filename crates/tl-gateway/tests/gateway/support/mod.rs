//! A gateway, engines that follow a script, and a client.

mod client;
mod engine;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tl_api::config::RuntimeConfig;
use tl_gateway::{Addresses, Gateway, start_gateway};

pub(crate) use client::{Answer, body};
pub(crate) use engine::{Decode, Engine, Prefill};

/// Far above what a loaded machine needs; reached only by a failing test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// What all engines of a test have in common.
#[derive(Default)]
pub(crate) struct World {
    /// What was asked of whom, in order.
    pub(crate) log: Mutex<Vec<String>>,
    /// Handles whose blocks wait on some decode engine.
    pub(crate) handles: Mutex<BTreeSet<String>>,
    /// Decode streams that are open.
    pub(crate) streams: Mutex<i64>,
}

impl World {
    pub(crate) fn say(&self, text: impl Into<String>) {
        self.log.lock().push(text.into());
    }

    pub(crate) fn count(&self, prefix: &str) -> usize {
        self.log.lock().iter().filter(|l| l.starts_with(prefix)).count()
    }

    pub(crate) fn lines(&self, prefix: &str) -> Vec<String> {
        self.log.lock().iter().filter(|l| l.starts_with(prefix)).cloned().collect()
    }
}

pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    pub(crate) engines: Vec<Engine>,
    pub(crate) at: Addresses,
    gateway: Option<Gateway>,
    pub(crate) http: reqwest::Client,
}

impl Cluster {
    /// `workers` as `"p"`, `"d1 d2"`: the first letter is the role (p, d, u).
    pub(crate) async fn start(workers: &str) -> Cluster {
        Cluster::with(workers, |_| {}).await
    }

    pub(crate) async fn with(workers: &str, change: impl FnOnce(&mut RuntimeConfig)) -> Cluster {
        let mut config = RuntimeConfig::default();
        for listen in [
            &mut config.gateway.listen,
            &mut config.gateway.health_listen,
            &mut config.gateway.registry_listen,
        ] {
            *listen = "127.0.0.1:0".parse().unwrap();
        }
        config.gateway.debug = true;
        config.gateway.route_policy = tl_api::config::RoutePolicy::LeastOutstanding;
        change(&mut config);
        let gateway = start_gateway(&config).await.unwrap();
        let at = gateway.addresses();
        let world = Arc::new(World::default());
        let mut cluster = Cluster {
            world: world.clone(),
            engines: Vec::new(),
            at,
            gateway: Some(gateway),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
        };
        for name in workers.split_whitespace() {
            let role = match &name[..1] {
                "p" => "prefill",
                "d" => "decode",
                _ => "unified",
            };
            let engine = Engine::start(name, role, world.clone()).await;
            engine.beat_to(at.registry);
            cluster.engines.push(engine);
        }
        let all = cluster.engines.len();
        cluster
            .until("all workers and their contexts known", async |c| {
                let workers = c.workers().await;
                workers.len() == all && workers.iter().all(|w| w["max_context"] == 512)
            })
            .await;
        cluster
    }

    pub(crate) fn engine(&self, name: &str) -> &Engine {
        self.engines.iter().find(|e| e.name == name).unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at.http)
    }

    async fn admin_workers(&self) -> serde_json::Value {
        let answer = self.http.get(self.url("/admin/v1/workers")).send().await.unwrap();
        answer.json().await.unwrap()
    }

    pub(crate) async fn workers(&self) -> Vec<serde_json::Value> {
        self.admin_workers().await["data"].as_array().unwrap().clone()
    }

    pub(crate) async fn refused_pairs(&self) -> serde_json::Value {
        self.admin_workers().await["refused_pairs"].take()
    }

    pub(crate) async fn worker(&self, name: &str) -> serde_json::Value {
        self.workers().await.into_iter().find(|w| w["worker_id"] == name).unwrap_or_default()
    }

    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let url = format!("http://{}/metrics", self.at.health);
        let text = self.http.get(url).send().await.unwrap().text().await.unwrap();
        text.lines()
            .filter_map(|l| l.split_once(' '))
            .find(|(n, _)| *n == name)
            .and_then(|(_, v)| v.parse().ok())
            .unwrap_or(f64::NAN)
    }

    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Cluster) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds(self).await {
            assert!(Instant::now() < end, "never: {what}\nlog: {:#?}", self.world.log.lock());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Nothing is held anywhere: no handle, no stream, no load.
    pub(crate) async fn until_clean(&self) {
        self.until("everything given back", async |c| {
            let idle = c.workers().await.iter().all(|w| w["in_flight"] == 0);
            let quiet = c.world.handles.lock().is_empty() && *c.world.streams.lock() == 0;
            idle && quiet && c.metric("tl_gateway_inflight").await == 0.0
        })
        .await;
    }

    pub(crate) async fn shutdown(&mut self) {
        self.gateway.take().unwrap().shutdown().await;
    }

    /// The gateway, for a test that stops it while it looks on.
    pub(crate) fn take_gateway(&mut self) -> Gateway {
        self.gateway.take().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for engine in &self.engines {
            engine.beating.store(false, Ordering::Relaxed);
        }
    }
}
