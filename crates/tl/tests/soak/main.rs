//! Ten thousand requests, clients that leave at random moments, transfers cut at random chunks.
//!
//! One process holds the gateway, a prefill engine and two decode engines; a proxy in front of each decode
//! engine's KV port cuts connections after a random number of bytes. Afterwards every pool, queue and
//! counter reads its baseline, and an answer is the one that an undisturbed engine gives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet::{Random, ask, beat, eventually_ask, metric, settings, workers};
use serde_json::json;
use tl_api::config::RuntimeConfig;
use tl_kv::lock;
use tl_serve::start_engine;
use tl_testkit::{FaultProxy, Faults, eventually, eventually_async};

#[allow(unreachable_pub, reason = "test support")]
mod fleet;
mod links;

const REQUESTS: u64 = 10_000;
const CLIENTS: u64 = 16;

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
