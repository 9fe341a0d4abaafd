//! What operators change while the gateway runs.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::Cluster;

struct Said {
    status: u16,
    etag: Option<String>,
    body: Value,
}

impl Cluster {
    async fn admin(
        &self,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Option<Value>,
    ) -> Said {
        let method = method.parse().unwrap();
        let mut request = self.http.request(method, self.url(path));
        if let Some(tag) = if_match {
            request = request.header("if-match", tag);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let etag = answer.headers().get("etag").map(|v| v.to_str().unwrap().to_owned());
        Said { status, etag, body: answer.json().await.unwrap() }
    }

    async fn drain(&self, path: &str, body: Value) -> (u16, Value) {
        let said = self.admin("POST", path, None, Some(body)).await;
        (said.status, said.body)
    }
}

#[tokio::test]
async fn routes_are_replaced_by_who_has_seen_the_latest_ones() {
    let c = Cluster::start("p d").await;
    let path = "/admin/v1/routes";
    let read = c.admin("GET", path, None, None).await;
    assert_eq!((read.status, read.etag.as_deref()), (200, Some("\"routes-0\"")));
    assert_eq!(read.body, json!({"data": [], "route_epoch": 0}));
    assert_eq!(c.chat(json!({"model": "nice"})).await.status, 404);
    let table =
        json!({"data": [{"model": "m", "aliases": ["nice"], "targets": ["disaggregated"]}]});
    let put =
        async |tag: Option<&str>, body: &Value| c.admin("PUT", path, tag, Some(body.clone())).await;
    let code = |said: &Said| (said.status, said.body["error"]["code"].clone());
    assert_eq!(code(&put(None, &table).await), (428, json!("if_match_required")));
    assert_eq!(code(&put(Some("\"routes-7\""), &table).await), (412, json!("etag_mismatch")));
    let epoch = |c: &Cluster| {
        let c = c.http.get(c.url("/admin/v1/workers"));
        async { c.send().await.unwrap().json::<Value>().await.unwrap()["route_epoch"].as_u64() }
    };
    let before = epoch(&c).await;
    let done = put(read.etag.as_deref(), &table).await;
    assert_eq!((done.status, done.etag.as_deref()), (200, Some("\"routes-1\"")));
    assert_eq!(done.body["data"], table["data"]);
    assert!(epoch(&c).await > before);
    assert_eq!(c.chat(json!({"model": "nice"})).await.text(), "Hey");
    // What was read goes back as it is, and the tag of before it is stale.
    let again = put(Some("\"routes-1\""), &done.body).await;
    assert_eq!((again.status, again.etag.as_deref()), (200, Some("\"routes-2\"")));
    assert_eq!(put(Some("\"routes-1\""), &table).await.status, 412);
    for bad in [
        json!({"data": [{"model": "m"}, {"model": "x", "aliases": ["m"]}]}),
        json!({"data": [{"model": ""}]}),
        json!({"data": [{"model": "m", "backends": [{"served_model": "m", "weight": 1}]}]}),
        json!({"data": [{"model": "m", "targets": ["elsewhere"]}]}),
        json!({"data": [{"name": "m"}]}),
        json!([]),
    ] {
        let said = put(Some("\"routes-2\""), &bad).await;
        assert_eq!(said.status, 400, "{bad}: {}", said.body);
    }
    assert_eq!(c.admin("GET", path, None, None).await.body["data"], table["data"]);
    // A form of a web page is no JSON.
    let form = c.http.put(c.url(path)).header("if-match", "*").body(table.to_string());
    assert_eq!(form.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn a_model_is_drained_everywhere_and_comes_back() {
    let c = Cluster::start("p d").await;
    let (status, body) = c.drain("/admin/v1/models/m:drain", json!({"deadline_s": 7})).await;
    assert_eq!((status, body), (202, json!({"model": "m", "workers": 2})));
    assert_eq!(c.chat(json!({})).await.error(), "503 server_error/no_capacity");
    c.until("both are told", async |c| {
        let told = c.world.count("p drain 7000") + c.world.count("d drain 7000");
        let by_beat = |e: &crate::support::Engine| e.drain.load(Ordering::Relaxed);
        told == 2 && c.engines.iter().all(by_beat)
    })
    .await;
    assert_eq!(c.worker("d").await["state"], "draining");
    let (status, _) = c.drain("/admin/v1/models/m:undrain", json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(c.chat(json!({})).await.text(), "Hey");
    c.until("no beat asks for it", async |c| {
        c.engines.iter().all(|e| !e.drain.load(Ordering::Relaxed))
    })
    .await;
    for (path, body, expect) in [
        ("/admin/v1/models/other:drain", json!({}), 404),
        ("/admin/v1/models/m:undrain", json!({}), 404),
        ("/admin/v1/models/m:explode", json!({}), 404),
        ("/admin/v1/models/m", json!({}), 404),
        ("/admin/v1/models/m:drain", json!({"deadline_s": 3601}), 400),
        ("/admin/v1/models/m:drain", json!({"deadline_s": -1}), 400),
        ("/admin/v1/models/m:drain", json!({"soon": true}), 400),
        ("/admin/v1/workers/nobody:drain", json!({}), 404),
        ("/admin/v1/workers/d:explode", json!({}), 404),
    ] {
        assert_eq!(c.drain(path, body.clone()).await.0, expect, "{path} {body}");
    }
    assert_eq!(c.chat(json!({})).await.text(), "Hey");
}

#[tokio::test]
async fn one_worker_is_drained_and_finishes_what_it_has() {
    let c = Cluster::start("p d1 d2").await;
    c.engine("d1").decode(&[crate::support::Decode::GatedMiddle]);
    let mut stream = c.chat_stream().await;
    assert!(stream.step().await);
    let (status, body) = c.drain("/admin/v1/workers/d1:drain", json!({})).await;
    assert_eq!((status, body), (202, json!({"worker_id": "d1"})));
    for _ in 0..3 {
        let answer = c.chat(json!({})).await;
        assert_eq!(
            (answer.text(), &answer.headers["x-tl-route-decode"]),
            ("Hey", &"d2".parse().unwrap())
        );
    }
    c.engine("d1").gate();
    assert_eq!(stream.finish().await.0, "Hey|stop done");
    // A new life of it serves again.
    c.engine("d1").status.lock().incarnation = 2;
    c.until("it is back", async |c| c.worker("d1").await["state"] == "healthy").await;
    c.until_clean().await;
}

#[tokio::test]
async fn changes_are_for_this_machine_alone() {
    let c = Cluster::with("p d", |config| {
        config.gateway.listen = ":0".parse().unwrap();
    })
    .await;
    let api = std::net::SocketAddr::from(([127, 0, 0, 1], c.at.http.port()));
    for (at, expect) in [(api, 404), (c.at.health, 200)] {
        let got = c.http.get(format!("http://{at}/admin/v1/routes")).send().await.unwrap();
        assert_eq!(got.status(), expect, "{at}");
    }
    let drain = c.http.post(format!("http://{api}/admin/v1/models/m:drain")).json(&json!({}));
    assert_eq!(drain.send().await.unwrap().status(), 404);
    assert_eq!(c.worker("d").await["state"], "healthy");
}
