//! Clients that go away, and a gateway that does.

use std::time::{Duration, Instant};

use serde_json::json;
use tl_api::openai::Kind;

use crate::support::{Cluster, Decode, Prefill};

#[tokio::test]
async fn leaving_during_prefill_cancels_it_and_releases_what_landed() {
    for stream in [true, false] {
        let c = Cluster::start("p d").await;
        c.engine("p").prefill(&[Prefill::Hangs]);
        let body = crate::support::body(Kind::Chat, json!({"stream": stream}));
        let request = c.http.post(c.url("/v1/chat/completions")).body(body.to_string()).send();
        let asked = tokio::spawn(request);
        c.until("the prefill runs", async |c| c.world.count("p prefill") == 1).await;
        asked.abort();
        c.until("it is cancelled", async |c| c.world.count("p cancel") == 1).await;
        c.until("its handle is released", async |c| c.world.count("d release") == 1).await;
        assert_eq!(c.world.count("d decode"), 0);
        c.until_clean().await;
    }
}

#[tokio::test]
async fn leaving_while_decode_is_asked_releases_the_handle() {
    let c = Cluster::start("p d").await;
    c.engine("d").decode(&[Decode::Gated]);
    let mut stream = c.chat_stream().await;
    assert!(stream.step().await);
    c.until("decode is asked", async |c| c.world.count("d decode ") == 1).await;
    assert_eq!(c.world.handles.lock().len(), 1);
    drop(stream);
    c.until("the handle is released", async |c| c.world.count("d release") == 1).await;
    c.until_clean().await;
}

#[tokio::test]
async fn leaving_a_stream_stops_its_engine() {
    let c = Cluster::start("p d").await;
    c.engine("d").decode(&[Decode::Hangs(&["e"])]);
    let mut stream = c.chat_stream().await;
    assert!(stream.step().await && stream.step().await);
    assert_eq!(stream.texts, ["He"]);
    assert_eq!(*c.world.streams.lock(), 1);
    let left = Instant::now();
    drop(stream);
    c.until("the engine's stream is dropped", async |c| *c.world.streams.lock() == 0).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
    assert_eq!(c.world.count("d release"), 0, "the blocks were the stream's");
    c.until_clean().await;
}

#[tokio::test]
async fn leaving_an_answer_that_is_not_streamed_stops_its_engine() {
    let c = Cluster::start("p d").await;
    c.engine("d").decode(&[Decode::Hangs(&["e"])]);
    let body = crate::support::body(Kind::Chat, json!({}));
    let request = c.http.post(c.url("/v1/chat/completions")).body(body.to_string()).send();
    let asked = tokio::spawn(request);
    c.until("it decodes", async |c| *c.world.streams.lock() == 1).await;
    asked.abort();
    c.until_clean().await;
}

#[tokio::test]
async fn leaving_while_waiting_for_room_leaves_no_trace() {
    let c = Cluster::start("p d").await;
    c.engine("d").decode(&[Decode::GatedMiddle, Decode::GatedMiddle]);
    let large = json!({"max_tokens": 500});
    let mut one = c.stream(Kind::Chat, large.clone()).await;
    let mut two = c.stream(Kind::Chat, large.clone()).await;
    assert!(one.step().await && two.step().await);
    let body = crate::support::body(Kind::Chat, large);
    let request = c.http.post(c.url("/v1/chat/completions")).body(body.to_string()).send();
    let waiting = tokio::spawn(request);
    c.until("three are in flight", async |c| c.metric("tl_gateway_inflight").await == 3.0).await;
    waiting.abort();
    c.until("two are in flight", async |c| c.metric("tl_gateway_inflight").await == 2.0).await;
    drop((one, two));
    c.until_clean().await;
    assert_eq!(c.world.count("p prefill"), 2);
}

#[tokio::test]
async fn load_counts_until_the_last_byte() {
    let c = Cluster::start("p d").await;
    c.engine("d").decode(&[Decode::GatedMiddle]);
    let mut stream = c.chat_stream().await;
    assert!(stream.step().await && stream.step().await);
    let d = c.worker("d").await;
    assert_eq!(d["in_flight"], 1);
    // 5 prompt tokens and the reserve of 256 are 17 blocks; a beat may have counted the first.
    let room = d["room"].as_u64().unwrap();
    assert!((47..=48).contains(&room), "{room}");
    assert_eq!(c.worker("p").await["in_flight"], 0, "its part is done");
    c.engine("d").gate();
    assert_eq!(stream.finish().await.0, "Hey|stop done");
    c.until_clean().await;
    assert_eq!(c.worker("d").await["room"], 64);
}

#[tokio::test]
async fn shutdown_lets_what_runs_finish_and_takes_nothing_new() {
    let mut c = Cluster::start("p d").await;
    c.engine("d").decode(&[Decode::GatedMiddle]);
    let mut stream = c.chat_stream().await;
    assert!(stream.step().await);
    let gateway = c.take_gateway();
    let stopping = tokio::spawn(gateway.shutdown());
    let ready = format!("http://{}/readyz", c.at.health);
    c.until("not ready", async |c| {
        c.http.get(&ready).send().await.is_ok_and(|a| a.status() == 503)
    })
    .await;
    c.until("the listener is closed", async |c| {
        tokio::net::TcpStream::connect(c.at.http).await.is_err()
    })
    .await;
    // Its engine is still known: the registry goes last.
    let before = c.engine("d").beats.load(std::sync::atomic::Ordering::Relaxed);
    let d = c.engine("d");
    let beats = &d.beats;
    let end = Instant::now() + crate::support::DEADLINE;
    while beats.load(std::sync::atomic::Ordering::Relaxed) == before {
        assert!(Instant::now() < end, "the registry still answers");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    d.gate();
    assert_eq!(stream.finish().await.0, "Hey|stop done");
    tokio::time::timeout(crate::support::DEADLINE, stopping).await.unwrap().unwrap();
}

#[tokio::test]
async fn shutdown_cuts_what_is_late_and_still_tells_the_engines() {
    let mut c = Cluster::with("p d", |config| config.gateway.drain_deadline_s = 0).await;
    c.engine("d").decode(&[Decode::Hangs(&["e"])]);
    let mut stream = c.chat_stream().await;
    assert!(stream.step().await && stream.step().await);
    c.shutdown().await;
    assert_eq!(stream.finish().await.0, "He| cut");
    c.until("the engine was told", async |c| *c.world.streams.lock() == 0).await;
    assert!(c.world.handles.lock().is_empty());
}
