//! Ten thousand requests, clients that leave at random moments, transfers cut at random chunks.
//!
//! One process holds the gateway, a prefill engine and two decode engines; a proxy in front of each decode
//! engine's KV port cuts connections after a random number of bytes. Afterwards every pool, queue and
//! counter reads its baseline, and an answer is the one that an undisturbed engine gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tl_api::config::RuntimeConfig;
use tl_kv::lock;
use tl_proto::control::v1::WorkerStatus;
use tl_proto::control::v1::worker_registry_client::WorkerRegistryClient;
use tl_proto::engine::v1::InfoRequest;
use tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tl_serve::{EngineSettings, RunningEngine, start_engine};
use tl_testkit::{FaultProxy, Faults, eventually, eventually_async};

const REQUESTS: u64 = 10_000;
const CLIENTS: u64 = 16;

/// SplitMix64: a stream of its own for each client, the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

fn settings(role: &str) -> EngineSettings {
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
fn beat(
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

async fn metric(http: &reqwest::Client, health: std::net::SocketAddr, series: &str) -> Option<f64> {
    let text = http.get(format!("http://{health}/metrics")).send().await.ok()?.text().await.ok()?;
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

async fn ask(http: &reqwest::Client, url: &str, body: &Value) -> Option<String> {
    let answer = http.post(url).json(body).send().await.ok()?;
    // Whoever is refused or loses its transfer gets a clear status, never a wrong answer.
    let status = answer.status().as_u16();
    assert!(matches!(status, 200 | 429 | 502 | 503), "status {status}");
    let text = answer.text().await.ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    (status == 200).then(|| value["choices"][0]["text"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_leave_nothing_behind() {
    let config: RuntimeConfig = toml::from_str(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\nregistry_listen = \"127.0.0.1:0\"\n\
         admission_wait_ms = 2000\n",
    )
    .expect("a configuration");
    let gateway = tl_gateway::start_gateway(&config).await.expect("a gateway");
    let registry = gateway.addresses().registry.to_string();
    let mut engines = Vec::new();
    for role in ["prefill", "decode", "decode"] {
        engines.push(Arc::new(
            start_engine(settings(role), tl_model::tiny(7)).await.expect("an engine"),
        ));
    }
    let mut proxies = Vec::new();
    for engine in &engines[1..] {
        let kv = engine.addresses().kv.expect("a decode engine");
        proxies.push(Arc::new(FaultProxy::start(kv, Faults::default()).await.expect("a proxy")));
    }
    let mut beats = vec![beat(&engines[0], "prefill", String::new(), registry.clone())];
    for (engine, proxy) in engines[1..].iter().zip(&proxies) {
        beats.push(beat(engine, "decode", proxy.target(), registry.clone()));
    }
    let http =
        reqwest::Client::builder().timeout(Duration::from_secs(60)).build().expect("a client");
    let base = format!("http://{}", gateway.addresses().http);
    let url = format!("{base}/v1/completions");
    let reference = json!({"model": "tiny", "prompt": "what does the sea say", "max_tokens": 24, "temperature": 0.9, "seed": 3});
    let known =
        eventually_async(Duration::from_secs(60), || async { workers(&http, &base).await == 3 })
            .await;
    assert!(known, "the gateway has heard of every engine");
    let expected =
        eventually_ask(&http, &url, &reference).await.expect("an answer before anything is broken");

    let cutter = tokio::spawn({
        let proxies = proxies.clone();
        async move {
            // One link at a time and not always: a worker whose every transfer fails leaves rotation, rightly.
            let mut random = Random(99);
            loop {
                let proxy = &proxies[usize::try_from(random.below(2)).expect("small")];
                match random.below(3) {
                    0 => proxy.cut_all(),
                    1 => proxy
                        .set(Faults { cut_after: Some(random.below(60_000)), ..Faults::default() }),
                    _ => {}
                }
                tokio::time::sleep(Duration::from_millis(20 + random.below(60))).await;
                proxy.set(Faults::default());
                tokio::time::sleep(Duration::from_millis(random.below(200))).await;
            }
        }
    });
    let sent = Arc::new(AtomicU64::new(0));
    let answered = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (http, url, sent, answered) =
                (http.clone(), url.clone(), Arc::clone(&sent), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut random = Random(client);
                while sent.fetch_add(1, Ordering::Relaxed) < REQUESTS {
                    let words = "tide ".repeat(usize::try_from(random.below(24)).expect("small"));
                    let body = json!({
                        "model": "tiny",
                        "prompt": format!("{} {words}", random.below(50)),
                        "max_tokens": 1 + random.below(12),
                        "temperature": 0.9,
                        "seed": random.below(1000),
                        "n": 1 + random.below(8) / 7,
                    });
                    let leaves = random.below(2) == 0;
                    let patience = if leaves {
                        Duration::from_micros(random.below(50_000))
                    } else {
                        Duration::from_secs(120)
                    };
                    // Who is refused asks again, as the status says.
                    let answer = async {
                        while ask(&http, &url, &body).await.is_none() {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    };
                    match tokio::time::timeout(patience, answer).await {
                        Ok(()) => _ = answered.fetch_add(1, Ordering::Relaxed),
                        Err(_) => assert!(leaves, "a request that waits is answered"),
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("no panic");
    }
    cutter.abort();
    for proxy in &proxies {
        proxy.set(Faults::default());
    }
    assert!(
        answered.load(Ordering::Relaxed) > REQUESTS / 10,
        "most who stay are answered: {answered:?}"
    );

    for engine in &engines {
        let engine = Arc::clone(engine);
        let quiet = eventually(Duration::from_secs(60), move || {
            let stats = engine.engine().stats();
            let pool = engine.engine().pool();
            let pool = lock(&pool);
            let kv = pool.stats();
            let waiting = engine.receiver().map_or(0, |receiver| receiver.pending());
            kv.used == 0
                && stats.queued == 0
                && stats.running == 0
                && waiting == 0
                && pool.check().is_ok()
        });
        assert!(quiet.await, "an engine's pool, queue and handles return to baseline");
    }
    let health = gateway.addresses().health;
    let idle = eventually_async(Duration::from_secs(30), || async {
        metric(&http, health, "tl_gateway_inflight").await == Some(0.0)
    })
    .await;
    assert!(idle, "the gateway counts nothing in flight");
    let after = eventually_ask(&http, &url, &reference).await.expect("an answer afterwards");
    assert_eq!(after, expected, "the same question, the same answer");
    for beat in beats {
        beat.abort();
    }
    gateway.shutdown().await;
}

/// How many workers the gateway knows.
async fn workers(http: &reqwest::Client, base: &str) -> usize {
    let Ok(answer) = http.get(format!("{base}/admin/v1/workers")).send().await else {
        return 0;
    };
    let list: Value = answer.json().await.unwrap_or_default();
    list["data"].as_array().map_or(0, Vec::len)
}

/// Asks until there is an answer, at most a minute.
async fn eventually_ask(http: &reqwest::Client, url: &str, body: &Value) -> Option<String> {
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
