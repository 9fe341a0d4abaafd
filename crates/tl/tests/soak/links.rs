//! A link that damages, or is gone for good: an answer is the right one or an error, and never
//! anything else.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tl_api::config::RuntimeConfig;
use tl_kv::lock;
use tl_serve::{RunningEngine, start_engine};
use tl_testkit::{FaultProxy, Faults, eventually, eventually_async};

use super::fleet::{ask, beat, eventually_ask, settings, workers};

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
/// frames, in a chunk's fields, in the blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_damaged_bit_never_changes_an_answer() {
    let fleet = Fleet::start(2).await;
    let (mut right, mut refused) = (0, 0);
    for number in 0..150 {
        for proxy in &fleet.proxies {
            proxy.set(Faults { flip_at: Some(number * 197 % 30_011), ..Faults::default() });
            proxy.cut_all();
        }
        match fleet.ask(number).await {
            Some(true) => right += 1,
            Some(false) => panic!("request {number}: another answer than one engine's"),
            None => refused += 1,
        }
    }
    assert!(right > 30, "{right} right, {refused} refused");
    for proxy in &fleet.proxies {
        proxy.set(Faults::default());
        proxy.cut_all();
    }
    let healed =
        eventually_async(Duration::from_secs(60), || async { fleet.ask(1000).await == Some(true) });
    assert!(healed.await, "the link is whole again and so are the answers");
    fleet.end().await;
}

/// The links break for good after good transfers, and come back much later: no restart is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_gone_gives_errors_and_never_wrong_answers() {
    let fleet = Fleet::start(1).await;
    for number in 0..10 {
        assert_eq!(fleet.ask(number).await, Some(true));
    }
    fleet.proxies[0].set(Faults { cut_after: Some(0), ..Faults::default() });
    fleet.proxies[0].cut_all();
    for number in 100..120 {
        assert_ne!(fleet.ask(number).await, Some(false), "request {number}");
    }
    fleet.proxies[0].set(Faults::default());
    let body = json!({"model": "tiny", "prompt": "back", "max_tokens": 4, "seed": 1});
    assert!(eventually_ask(&fleet.http, &fleet.url, &body).await.is_some(), "without a restart");
    assert_eq!(fleet.ask(200).await, Some(true));
    fleet.end().await;
}
