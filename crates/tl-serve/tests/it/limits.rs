//! Too much work, clients that leave, and the end of an engine. The model stands behind a gate
//! here, so that a test decides how far it gets.

use crate::common::slow::Gate;
use crate::common::{
    Answer, CHAT, COMPLETIONS, Server, body, check_error, eventually, settings, within,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tl_api::config::EngineRole;
use tl_serve::EngineSettings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How soon a client that left must be noticed.
const NOTICED: Duration = Duration::from_millis(100);

async fn gated(change: impl FnOnce(&mut EngineSettings)) -> (Server, Arc<Gate>) {
    let gate = Gate::new();
    let mut settings = settings(EngineRole::Unified);
    change(&mut settings);
    (Server::start_with(settings, gate.wrap()).await, gate)
}

/// Sends a request over a socket of its own.
async fn send(s: &Server, path: &str, request: &Value) -> TcpStream {
    let mut socket = TcpStream::connect(s.running.addresses().http).await.unwrap();
    let body = request.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(body.as_bytes()).await.unwrap();
    socket
}

async fn running(s: &Server) {
    eventually("a sequence has blocks", || s.kv().used > 0).await;
}

/// A step of a model of a size that matters.
const STEP: Duration = Duration::from_millis(2);
/// Tokens of an answer that takes far longer than a departure may go unnoticed.
const LONG: u64 = 300;

/// A request whose answer has [`LONG`] tokens, on an engine whose steps then take [`STEP`].
async fn long_request(s: &Server, gate: &Gate, path: &str, extra: Value) -> Value {
    gate.open();
    for seed in 0..50 {
        let mut request = body(path, "hello", extra.clone());
        request["max_tokens"] = json!(LONG);
        request["seed"] = json!(seed);
        let mut whole = request.clone();
        whole["stream"] = json!(false);
        if s.post(path, &whole).await.ok()["choices"][0]["finish_reason"] == "length" {
            s.idle().await;
            gate.slow(STEP);
            return request;
        }
    }
    panic!("no seed gives a long answer");
}

async fn departures(s: &Server) -> f64 {
    let text = s.health("/metrics").await.text;
    let counts = text.lines().filter(|l| {
        l.starts_with("gen_ai_server_request_duration_seconds_count")
            && l.contains("\"client_closed_request\"")
    });
    counts.map(|l| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// After the client has left: blocks, queue and batch are empty, and it was the departure that did
/// it.
async fn freed(s: &Server) {
    within(NOTICED, "the blocks are back", || s.kv().used == 0).await;
    within(NOTICED, "nothing waits or runs", || {
        let stats = s.running.engine().stats();
        stats.queued + stats.running == 0
    })
    .await;
    assert_eq!(departures(s).await, 1.0, "the answer ended by itself");
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_its_blocks() {
    let (s, gate) = gated(|_| {}).await;
    let request = long_request(&s, &gate, CHAT, json!({"stream": true, "n": 3})).await;
    let mut socket = send(&s, CHAT, &request).await;
    let mut first = [0; 64];
    assert!(socket.read(&mut first).await.unwrap() > 0);
    running(&s).await;
    drop(socket);
    freed(&s).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_a_whole_answer_frees_its_blocks() {
    let (s, gate) = gated(|_| {}).await;
    let request = long_request(&s, &gate, COMPLETIONS, json!({})).await;
    let socket = send(&s, COMPLETIONS, &request).await;
    running(&s).await;
    drop(socket);
    freed(&s).await;
}

#[tokio::test]
async fn a_half_closed_connection_counts_as_left() {
    for stream in [false, true] {
        let (s, gate) = gated(|_| {}).await;
        let request = long_request(&s, &gate, COMPLETIONS, json!({"stream": stream})).await;
        let mut socket = send(&s, COMPLETIONS, &request).await;
        running(&s).await;
        socket.shutdown().await.unwrap();
        freed(&s).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_leaves_the_queue() {
    let (s, gate) = gated(|c| c.engine.max_seqs = 1).await;
    let request = long_request(&s, &gate, CHAT, json!({})).await;
    let first = send(&s, CHAT, &request).await;
    running(&s).await;
    let waits = send(&s, CHAT, &request).await;
    eventually("it waits", || s.running.engine().stats().queued == 1).await;
    drop(waits);
    within(NOTICED, "the queue is empty", || s.running.engine().stats().queued == 0).await;
    assert!(s.kv().used > 0, "the other one goes on");
    drop(first);
    within(NOTICED, "the blocks are back", || s.kv().used == 0).await;
    assert_eq!(departures(&s).await, 2.0);
}

#[tokio::test]
async fn a_crowd_that_leaves_leaves_nothing() {
    let (s, gate) = gated(|_| {}).await;
    let request = long_request(&s, &gate, CHAT, json!({"stream": true})).await;
    for round in 0..4_usize {
        let mut crowd = Vec::new();
        for i in 0..60 {
            let mut socket = send(&s, CHAT, &request).await;
            // some leave at once, some when they have seen something
            if (i + round) % 3 == 0 {
                let mut first = [0; 16];
                assert!(socket.read(&mut first).await.unwrap() > 0);
            }
            crowd.push(socket);
        }
        drop(crowd);
        s.idle().await;
        eventually("nothing waits or runs", || {
            let stats = s.running.engine().stats();
            stats.queued + stats.running == 0
        })
        .await;
    }
    gate.open();
    assert_eq!(s.post(CHAT, &body(CHAT, "hello", json!({"max_tokens": 2}))).await.status, 200);
}

#[tokio::test]
async fn a_full_queue_is_a_429_at_once() {
    let (s, gate) = gated(|c| {
        c.engine.max_seqs = 1;
        c.engine.queue_capacity = 2;
    })
    .await;
    let request = body(CHAT, "hello", json!({"max_tokens": 4, "seed": 1}));
    let mut open = vec![send(&s, CHAT, &request).await];
    gate.permit(1);
    running(&s).await;
    for waiting in 1..=2 {
        open.push(send(&s, CHAT, &request).await);
        eventually("it waits", || s.running.engine().stats().queued == waiting).await;
    }
    let start = Instant::now();
    let refused = s.post(CHAT, &request).await;
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.error().1.as_deref(), Some("rate_limit_exceeded"));
    gate.open();
    for mut socket in open {
        let mut head = [0; 15];
        socket.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
    eventually("room again", || s.running.engine().stats().queued == 0).await;
    assert_eq!(s.post(CHAT, &request).await.status, 200);
    s.idle().await;
}

#[tokio::test]
async fn waiting_past_the_queue_deadline_is_a_503() {
    for stream in [false, true] {
        let (s, gate) = gated(|c| {
            c.engine.max_seqs = 1;
            c.engine.queue_deadline = Duration::from_millis(60);
        })
        .await;
        let first = send(&s, CHAT, &body(CHAT, "one", json!({"max_tokens": 500}))).await;
        gate.permit(1);
        running(&s).await;
        let waited = s.post(CHAT, &body(CHAT, "two", json!({"stream": stream}))).await;
        assert_eq!(waited.status, 503, "{}", waited.text);
        assert_eq!(waited.error().1.as_deref(), Some("no_capacity"));
        drop(first);
        gate.open();
        s.idle().await;
    }
}

#[tokio::test]
async fn a_failed_step_is_a_500_or_an_error_event_and_keeps_its_text() {
    let (s, gate) = gated(|_| {}).await;
    let request = body(CHAT, "hello", json!({"max_tokens": 500, "stream": true}));
    let response = s.client.post(s.url(CHAT)).body(request.to_string());
    let response = tokio::spawn(response.send());
    gate.permit(3);
    eventually("three steps", || gate.steps.load(Ordering::Relaxed) == 3).await;
    gate.fail();
    gate.permit(1);
    let answer = Answer::read(response.await.unwrap().unwrap()).await;
    let (events, done) = answer.events_so_far();
    assert!(!done, "an answer that failed is not [DONE]");
    let last = events.last().unwrap();
    check_error(500, last);
    assert!(!last.to_string().contains("secret"));
    gate.permit(1);
    let whole = s.post(COMPLETIONS, &body(COMPLETIONS, "hello", json!({}))).await;
    assert_eq!(whole.status, 500);
    assert!(!whole.error().3.contains("secret"));
    s.idle().await;
}

#[tokio::test]
async fn an_idle_stream_is_pinged() {
    let (s, gate) = gated(|c| c.limits.ping = Duration::from_millis(20)).await;
    let mut socket =
        send(&s, CHAT, &body(CHAT, "hello", json!({"max_tokens": 2, "stream": true}))).await;
    gate.permit(1);
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while seen.matches(": ping\n\n").count() < 2 {
        let n = socket.read(&mut buffer).await.unwrap();
        assert!(n > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    gate.open();
    while !seen.contains("data: [DONE]\n\n") {
        let n = socket.read(&mut buffer).await.unwrap();
        assert!(n > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
}

#[tokio::test]
async fn a_step_that_hangs_makes_the_engine_unready_and_not_dead() {
    let (s, gate) = gated(|c| c.stall_after = Duration::from_millis(30)).await;
    assert_eq!(s.health("/readyz").await.status, 200);
    let socket = send(&s, CHAT, &body(CHAT, "hello", json!({"max_tokens": 3}))).await;
    let deadline = Instant::now() + Duration::from_secs(5);
    while s.health("/readyz").await.status == 200 {
        assert!(Instant::now() < deadline, "never unready");
    }
    assert!(s.health("/readyz").await.text.contains("stalled"));
    assert_eq!(s.health("/healthz").await.status, 200);
    gate.open();
    drop(socket);
    s.idle().await;
    assert_eq!(s.health("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_drain_lets_work_end_and_takes_no_more() {
    let (s, gate) = gated(|_| {}).await;
    let request = body(CHAT, "hello", json!({"max_tokens": 6, "seed": 1, "stream": true}));
    let (url, health, client) = (s.url(CHAT), s.health_url(""), s.client.clone());
    // a second connection that stays open over the shutdown
    let mut open = TcpStream::connect(s.running.addresses().http).await.unwrap();
    let ask = "GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n";
    open.write_all(ask.as_bytes()).await.unwrap();
    let mut buffer = [0; 4096];
    assert!(open.read(&mut buffer).await.unwrap() > 0);

    let stream = tokio::spawn(client.post(&url).body(request.to_string()).send());
    gate.permit(2);
    running(&s).await;
    let shutdown = tokio::spawn(s.running.shutdown());
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let answer =
            Answer::read(client.get(format!("{health}/readyz")).send().await.unwrap()).await;
        if answer.status == 503 {
            assert_eq!(answer.text, "draining\n");
            break;
        }
        assert!(Instant::now() < deadline, "still ready");
    }
    assert_eq!(client.get(format!("{health}/healthz")).send().await.unwrap().status(), 200);
    let body = request.to_string();
    let again =
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    open.write_all(again.as_bytes()).await.unwrap();
    let n = open.read(&mut buffer).await.unwrap();
    let refused = std::str::from_utf8(&buffer[..n]).unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("connection: close"), "{refused}");
    assert!(!shutdown.is_finished());
    gate.open();
    let answer = Answer::read(stream.await.unwrap().unwrap()).await;
    answer.events();
    tokio::time::timeout(Duration::from_secs(5), shutdown).await.unwrap().unwrap();
    assert!(client.get(format!("{health}/healthz")).send().await.is_err());
}

#[tokio::test]
async fn work_that_outlasts_the_drain_is_cut_with_an_error_event() {
    let (s, gate) = gated(|c| c.drain_deadline = Duration::from_millis(50)).await;
    let request = long_request(&s, &gate, CHAT, json!({"stream": true})).await;
    let response = s.client.post(s.url(CHAT)).body(request.to_string()).send().await.unwrap();
    let shutdown = tokio::spawn(s.running.shutdown());
    let answer =
        tokio::time::timeout(Duration::from_secs(5), Answer::read(response)).await.unwrap();
    let (events, done) = answer.events_so_far();
    assert!(!done);
    check_error(503, events.last().unwrap());
    tokio::time::timeout(Duration::from_secs(5), shutdown).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_metrics_name_what_happened() {
    let s = Server::unified().await;
    s.post(CHAT, &body(CHAT, "hello", json!({"max_tokens": 6, "temperature": 0}))).await.ok();
    s.post(CHAT, &body(CHAT, "hello", json!({"model": "other"}))).await.error();
    s.get("/nowhere").await.error();
    let value = async |series: &str| {
        let text = s.health("/metrics").await.text;
        let line = text.lines().find(|l| l.starts_with(series)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no {series} in\n{text}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    let who = "gen_ai_operation_name=\"chat\",gen_ai_request_model=\"tiny\"";
    let route = |route: &str, status: u16| {
        format!(
            "http_server_request_duration_seconds_count{{http_request_method=\"{}\",http_route=\"{route}\",http_response_status_code=\"{status}\"}}",
            if route == CHAT { "POST" } else { "GET" }
        )
    };
    for (series, expected) in [
        (format!("gen_ai_server_request_duration_seconds_count{{{who},error_type=\"\"}}"), 1.0),
        (
            format!(
                "gen_ai_server_time_to_first_token_seconds_count{{{who},tl_engine_role=\"unified\"}}"
            ),
            1.0,
        ),
        (format!("gen_ai_client_token_usage_count{{{who},gen_ai_token_type=\"input\"}}"), 1.0),
        (route(CHAT, 200), 1.0),
        (route(CHAT, 404), 1.0),
        (route("_unmatched", 404), 1.0),
        ("tl_engine_queue_depth".into(), 0.0),
        ("tl_engine_active_sequences".into(), 0.0),
        ("tl_engine_kv_blocks{state=\"used\"}".into(), 0.0),
    ] {
        assert_eq!(value(&series).await, expected, "{series}");
    }
    assert!(value("tl_engine_kv_blocks{state=\"free\"}").await > 0.0);
}
