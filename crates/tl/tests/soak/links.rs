//! A link that damages, or is gone for good: every answer is still the right one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tl_api::config::RuntimeConfig;
use tl_kv::lock;
use tl_serve::{RunningEngine, start_engine};
use tl_testkit::{FaultProxy, Faults, eventually, eventually_async};

use super::fleet::{ask, beat, metric, settings, workers};

struct Fleet {
    gateway: tl_gateway::Gateway,
    engines: Vec<Arc<RunningEngine>>,
    proxies: Vec<FaultProxy>,
    beats: Vec<tokio::task::JoinHandle<()>>,
    http: reqwest::Client,
    url: String,
}

impl Fleet {
    /// One prefill and `decodes` decode engines, a relay before the KV port of each.
    async fn start(decodes: usize) -> Fleet {
        let config: RuntimeConfig = toml::from_str(
            "[gateway]\nlisten = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\n\
             registry_listen = \"127.0.0.1:0\"\nadmission_wait_ms = 1000\n",
        )
        .expect("a configuration");
        let gateway = tl_gateway::start_gateway(&config).await.expect("a gateway");
        let registry = gateway.addresses().registry.to_string();
        let mut engines = Vec::new();
        for role in std::iter::once("prefill").chain(std::iter::repeat_n("decode", decodes)) {
            let engine = start_engine(settings(role), tl_model::tiny(7)).await.expect("an engine");
            engines.push(Arc::new(engine));
        }
        let mut beats = vec![beat(&engines[0], "prefill", String::new(), registry.clone())];
        let mut proxies = Vec::new();
        for engine in &engines[1..] {
            let kv = engine.addresses().kv.expect("a decode engine");
            let proxy = FaultProxy::start(kv, Faults::default()).await.expect("a proxy");
            beats.push(beat(engine, "decode", proxy.target(), registry.clone()));
            proxies.push(proxy);
        }
        let http =
            reqwest::Client::builder().timeout(Duration::from_secs(60)).build().expect("a client");
        let base = format!("http://{}", gateway.addresses().http);
        let all = decodes + 1;
        let known = eventually_async(Duration::from_secs(60), || async {
            workers(&http, &base).await == all
        });
        assert!(known.await, "the gateway has heard of every engine");
        let url = format!("{base}/v1/completions");
        Fleet { gateway, engines, proxies, beats, http, url }
    }

    /// A new prompt each time, so that blocks have to cross; the answer is known from one engine.
    async fn ask(&self, number: u64) -> Option<bool> {
        let body = json!({
            "model": "tiny", "prompt": format!("{number} {}", "tide ".repeat(20)),
            "max_tokens": 12, "temperature": 0.9, "seed": number,
        });
        let got = ask(&self.http, &self.url, &body).await?;
        let one = format!("http://{}/v1/completions", self.engines[0].addresses().http);
        let expected = ask(&self.http, &one, &body).await.expect("one engine answers");
        Some(got == expected)
    }

    /// Requests that a decode engine served without a hand-off.
    async fn served_alone(&self) -> u64 {
        self.count("tl_gateway_decode_alone_total").await
    }

    /// Asks, with prompts numbered from `number`, until an answer came by a hand-off: an engine may
    /// have a dead connection to find out about. All answers are right.
    async fn until_handed_over(&self, number: u64) {
        let next = AtomicU64::new(number);
        let handed_over = eventually_async(Duration::from_secs(60), || async {
            let before = self.served_alone().await;
            let number = next.fetch_add(1, Ordering::Relaxed);
            assert_eq!(self.ask(number).await, Some(true), "request {number}");
            self.served_alone().await == before
        });
        assert!(handed_over.await, "the way is used again");
    }

    async fn count(&self, series: &str) -> u64 {
        let health = self.gateway.addresses().health;
        metric(&self.http, health, series).await.expect("the counter is shown") as u64
    }

    async fn end(self) {
        for engine in &self.engines {
            let engine = Arc::clone(engine);
            let quiet = eventually(Duration::from_secs(60), move || {
                let pool = engine.engine().pool();
                let waiting = engine.receiver().map_or(0, |receiver| receiver.pending());
                lock(&pool).stats().used == 0 && waiting == 0
            });
            assert!(quiet.await, "every block is back");
        }
        for beat in self.beats {
            beat.abort();
        }
        self.gateway.shutdown().await;
    }
}

/// One bit of what the prefill engine sends is turned, at every kind of place: in the connection's
/// frames, in a chunk's fields, in the blocks. Whatever does not get across is sent again, or
/// computed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_bit_never_changes_an_answer() {
    let fleet = Fleet::start(1).await;
    let proxy = &fleet.proxies[0];
    for number in 0..150 {
        let before = proxy.upstream_bytes();
        fleet.until_handed_over(1000 * (number + 1)).await;
        // Less than what crosses for the next one, whose prompt is as long.
        let size = usize::try_from(proxy.upstream_bytes() - before).expect("small") / 10 * 9;
        proxy.flip(Some(usize::try_from(number * 197).expect("small") % size));
        assert_eq!(fleet.ask(1000 * (number + 1) + 999).await, Some(true), "request {number}");
        proxy.flip(None);
    }
    let again = fleet.count("tl_gateway_failovers_total").await;
    let flipped = proxy.flipped();
    assert!(flipped > 140, "{flipped} bits were turned");
    assert!(again > 100, "{flipped} bits were turned, {again} attempts made again");
    fleet.end().await;
}

/// The links break for good after good transfers, and come back much later: decode engines serve
/// whole in the meantime, and no restart is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_gone_costs_the_hand_off_and_no_answer() {
    let fleet = Fleet::start(2).await;
    for number in 0..10 {
        assert_eq!(fleet.ask(number).await, Some(true));
    }
    assert_eq!(fleet.served_alone().await, 0);
    for proxy in &fleet.proxies {
        proxy.set(Faults { cut_after: Some(0), ..Faults::default() });
        proxy.cut_all();
    }
    for number in 100..140 {
        assert_eq!(fleet.ask(number).await, Some(true), "request {number}");
    }
    let alone = fleet.served_alone().await;
    assert_eq!(alone, 40, "whole on a decode engine");
    for proxy in &fleet.proxies {
        proxy.set(Faults::default());
    }
    fleet.until_handed_over(1000).await;
    fleet.end().await;
}
