//! What the gateway adds to a request: the same question to an engine directly, through the gateway to the
//! same engine, and through the gateway to a prefill and a decode engine, interleaved in one run.
//!
//! `cargo bench -p tl --bench gateway_latency`. The built-in model is used, so that the engine's own time is
//! small and the difference is the gateway's. Loopback, one request at a time.

use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::json;
use tl_api::config::{EngineRole, RuntimeConfig};
use tl_serve::{EngineSettings, RunningEngine, start_engine};

const ROUNDS: usize = 300;

async fn gateway() -> tl_gateway::Gateway {
    let config: RuntimeConfig = toml::from_str(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\nregistry_listen = \"127.0.0.1:0\"\n",
    )
    .expect("a configuration");
    tl_gateway::start_gateway(&config).await.expect("a gateway")
}

async fn engine(role: EngineRole, gateway: &tl_gateway::Gateway) -> RunningEngine {
    let settings = EngineSettings {
        role,
        threads: 1,
        gateway_registry: Some(gateway.addresses().registry.to_string()),
        ..EngineSettings::default()
    };
    start_engine(settings, tl_model::tiny(7)).await.expect("an engine")
}

/// Time to the first byte of the stream, and to its end.
async fn ask(http: &reqwest::Client, base: &str, i: usize) -> Option<(Duration, Duration)> {
    let body = json!({
        "model": "tiny", "prompt": format!("{i} a question of some forty bytes for the model"), "max_tokens": 16, "temperature": 0,
        "stream": true,
    });
    let started = Instant::now();
    let answer = http.post(format!("{base}/v1/completions")).json(&body).send().await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let mut bytes = answer.bytes_stream();
    bytes.next().await?.ok()?;
    let first = started.elapsed();
    while let Some(piece) = bytes.next().await {
        piece.ok()?;
    }
    Some((first, started.elapsed()))
}

fn quantile(sorted: &[Duration], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e3
}

#[allow(clippy::print_stdout, reason = "a bench prints its figures")]
fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (one, split) = (gateway().await, gateway().await);
        let unified = engine(EngineRole::Unified, &one).await;
        let _prefill = engine(EngineRole::Prefill, &split).await;
        let _decode = engine(EngineRole::Decode, &split).await;
        let http = reqwest::Client::new();
        let ways = [
            ("engine, directly", format!("http://{}", unified.addresses().http)),
            ("gateway, one engine", format!("http://{}", one.addresses().http)),
            ("gateway, prefill and decode", format!("http://{}", split.addresses().http)),
        ];
        for (_, base) in &ways {
            while ask(&http, base, 0).await.is_none() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        let mut times = [const { (Vec::new(), Vec::new()) }; 3];
        for i in 0..ROUNDS {
            for ((_, base), (first, whole)) in ways.iter().zip(&mut times) {
                let (f, w) = ask(&http, base, i).await.expect("an answer");
                first.push(f);
                whole.push(w);
            }
        }
        println!("{ROUNDS} rounds, 16 tokens each; milliseconds, and what is added to the direct way at the median");
        println!("{:<28} {:>9} {:>9} {:>9} {:>9} {:>9}", "", "ttfb p50", "p99", "whole p50", "p99", "added");
        let mut direct = 0.0;
        for ((name, _), (first, whole)) in ways.iter().zip(&mut times) {
            first.sort_unstable();
            whole.sort_unstable();
            let median = quantile(whole, 0.5);
            if direct == 0.0 {
                direct = median;
            }
            println!(
                "{name:<28} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2}",
                quantile(first, 0.5),
                quantile(first, 0.99),
                median,
                quantile(whole, 0.99),
                median - direct
            );
        }
    });
}
