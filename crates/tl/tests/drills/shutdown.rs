//! Parts that are asked to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;
use serde_json::json;

use super::client::{End, body, complete, open, read};
use super::parts::{Drill, Shape};

/// SIGTERM on a decode engine with running streams: all of them finish, no new ones come, it exits with 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_engine_finishes_its_streams() {
    let mut drill = Drill::start(Shape::new(1, 2)).await;
    let mut streams = Vec::new();
    for i in 0..8 {
        let answer = open(&drill, &body(&format!("{i} streams that must end well"), 400, i)).await;
        streams.push(tokio::spawn(read(answer, |_| ())));
    }
    drill.decode[0].signal(Signal::SIGTERM);
    for stream in streams {
        assert_eq!(stream.await.expect("no panic").end, End::Done);
    }
    assert_eq!(drill.decode[0].exit_code(), Some(0));
    complete(&drill, &body("the other engine goes on", 8, 1)).await;
}

/// SIGTERM on the gateway: what runs finishes, it exits with 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_gateway_finishes_its_streams() {
    let mut drill = Drill::start(Shape::new(1, 1)).await;
    let mut streams = Vec::new();
    for i in 0..4 {
        let answer =
            open(&drill, &body(&format!("{i} streams through a leaving gateway"), 300, i)).await;
        streams.push(tokio::spawn(read(answer, |_| ())));
    }
    drill.gateway.signal(Signal::SIGTERM);
    for stream in streams {
        assert_eq!(stream.await.expect("no panic").end, End::Done);
    }
    assert_eq!(drill.gateway.exit_code(), Some(0));
}

/// Every engine is restarted in turn while requests keep coming: none of them fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_no_request() {
    let mut drill = Drill::start(Shape::new(2, 2)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let url = drill.url("/v1/completions");
    let clients: Vec<_> = (0..4_u64)
        .map(|client| {
            let (stop, url, http) = (Arc::clone(&stop), url.clone(), drill.http.clone());
            tokio::spawn(async move {
                let mut answered = 0;
                while !stop.load(Ordering::Relaxed) {
                    answered += 1;
                    let prompt = format!("{client} asks for the {answered}. time");
                    let body =
                        json!({"model": "tiny", "prompt": prompt, "max_tokens": 16, "seed": 1});
                    let answer = http.post(&url).json(&body).send().await.expect("an answer");
                    let status = answer.status();
                    let text = answer.text().await.expect("a whole body");
                    assert_eq!(status, 200, "request {answered} of client {client}: {text}");
                }
                answered
            })
        })
        .collect();
    for turn in 0..4 {
        let part = match turn {
            0 | 1 => &mut drill.prefill[turn],
            _ => &mut drill.decode[turn - 2],
        };
        let http = part.addr("http");
        assert_eq!(part.stop(), Some(0), "{}; its log:\n{}", part.name, part.log());
        part.restart();
        drill
            .until("it serves again", async || {
                let workers = drill.workers().await;
                workers.iter().any(|w| w["http_address"] == *http && w["state"] == "healthy")
            })
            .await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.expect("no request failed") > 0);
    }
    drill.until_baseline().await;
}
