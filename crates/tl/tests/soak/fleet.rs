//! A gateway and engines in one process, with a relay that breaks the links between them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tl_kv::lock;
use tl_proto::control::v1::WorkerStatus;
use tl_proto::control::v1::worker_registry_client::WorkerRegistryClient;
use tl_proto::engine::v1::InfoRequest;
use tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tl_serve::{EngineSettings, RunningEngine};
use tl_testkit::eventually_async;

/// SplitMix64: a stream of its own for each client, the same on every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

pub fn settings(role: &str) -> EngineSettings {
    let role = match role {
        "prefill" => tl_api::config::EngineRole::Prefill,
        _ => tl_api::config::EngineRole::Decode,
    };
    let defaults = EngineSettings::default();
    let mut engine = defaults.engine.clone();
    engine.kv_blocks = 256;
    // A lease shorter than the test: what nobody claims must not need a restart.
    EngineSettings { role, engine, threads: 1, handle_lease: Duration::from_secs(5), ..defaults }
}

/// Tells the gateway of an engine, with the KV address a test wants it to use.
pub fn beat(
    engine: &Arc<RunningEngine>,
    role: &'static str,
    kv_address: String,
    registry: String,
) -> tokio::task::JoinHandle<()> {
    let engine = Arc::clone(engine);
    tokio::spawn(async move {
        let at = engine.addresses();
        let mut control =
            EngineControlClient::connect(format!("http://{}", at.grpc)).await.expect("control");
        let info = control.info(InfoRequest {}).await.expect("info").into_inner();
        let mut client =
            WorkerRegistryClient::connect(format!("http://{registry}")).await.expect("registry");
        loop {
            let kv = lock(&engine.engine().pool()).stats();
            let stats = engine.engine().stats();
            let status = WorkerStatus {
                worker_id: engine.worker_id().to_owned(),
                http_address: at.http.to_string(),
                grpc_address: at.grpc.to_string(),
                kv_address: kv_address.clone(),
                role: role.to_owned(),
                model: info.model.clone(),
                kv_format: info.kv_format,
                queue_depth: i32::try_from(stats.queued).expect("small"),
                running: i32::try_from(stats.running).expect("small"),
                kv_free_blocks: i32::try_from(kv.free + kv.cached).expect("small"),
                kv_total_blocks: 256,
                draining: false,
                incarnation: info.incarnation,
                model_fingerprint: info.model_fingerprint,
                block_size: u32::try_from(info.block_size).expect("small"),
                layers: info.layers,
                kv_heads: info.kv_heads,
                head_dim: info.head_dim,
                kv_formats_read: info.kv_formats_read.clone(),
            };
            client.heartbeat(status).await.expect("a beat");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
}

pub async fn metric(
    http: &reqwest::Client,
    health: std::net::SocketAddr,
    series: &str,
) -> Option<f64> {
    let text = http.get(format!("http://{health}/metrics")).send().await.ok()?.text().await.ok()?;
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

pub async fn ask(http: &reqwest::Client, url: &str, body: &Value) -> Option<String> {
    let answer = http.post(url).json(body).send().await.ok()?;
    // Whoever is refused or loses its transfer gets a clear status, never a wrong answer.
    let status = answer.status().as_u16();
    assert!(matches!(status, 200 | 429 | 502 | 503), "status {status}");
    let text = answer.text().await.ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    (status == 200).then(|| value["choices"][0]["text"].as_str().unwrap_or_default().to_owned())
}

/// How many workers the gateway knows.
pub async fn workers(http: &reqwest::Client, base: &str) -> usize {
    let Ok(answer) = http.get(format!("{base}/admin/v1/workers")).send().await else {
        return 0;
    };
    let list: Value = answer.json().await.unwrap_or_default();
    list["data"].as_array().map_or(0, Vec::len)
}

/// Asks until there is an answer, at most a minute.
pub async fn eventually_ask(http: &reqwest::Client, url: &str, body: &Value) -> Option<String> {
    let answer = std::sync::Mutex::new(None);
    eventually_async(Duration::from_secs(60), || async {
        let got = ask(http, url, body).await;
        let found = got.is_some();
        *answer.lock().expect("one at a time") = got;
        found
    })
    .await;
    answer.into_inner().expect("one at a time")
}
