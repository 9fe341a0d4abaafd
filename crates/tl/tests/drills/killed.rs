//! Parts that die without a word.

use std::time::Instant;

use serde_json::Value;

use super::client::{End, body, complete, open, read};
use super::parts::{Drill, Shape};

/// Long enough that a kill falls into the middle of it.
const LONG: u32 = 1200;

fn worker_at<'a>(workers: &'a [Value], http: &str) -> Option<&'a Value> {
    workers.iter().find(|worker| worker["http_address"] == http)
}

/// A decode engine is killed while it streams. Its streams end with an error event, the others go on, new
/// requests succeed, the prefill engine's pool returns to baseline; the worker is gone when its third beat is
/// missed, and back when it is started again on the same address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decode_engine_is_killed_mid_stream() {
    let mut drill = Drill::start(Shape::new(1, 2)).await;
    // One stream on each decode engine at least; affinity spreads different prompts.
    let mut streams = Vec::new();
    for i in 0..8 {
        let answer =
            open(&drill, &body(&format!("{i} keeper counts the waves of the night"), LONG, i))
                .await;
        streams.push(answer);
    }
    let decode_of = |answer: &reqwest::Response| {
        answer.headers()["x-tl-route-decode"].to_str().expect("a worker id").to_owned()
    };
    let workers = drill.workers().await;
    let victim_http = drill.decode[0].addr("http");
    let victim_id = worker_at(&workers, &victim_http).expect("it is known")["worker_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let on_victim: Vec<bool> =
        streams.iter().map(|answer| decode_of(answer) == victim_id).collect();
    assert!(
        on_victim.contains(&true) && on_victim.contains(&false),
        "both decode engines have streams: {on_victim:?}"
    );

    let reading: Vec<_> =
        streams.into_iter().map(|answer| tokio::spawn(read(answer, |_| ()))).collect();
    drill.decode[0].kill();
    let killed = Instant::now();
    for (task, lost) in reading.into_iter().zip(on_victim) {
        let streamed = task.await.expect("no panic");
        match (lost, &streamed.end) {
            // It may have been quicker than the kill.
            (_, End::Done) | (true, End::Error(_)) => {}
            _ => panic!(
                "a stream on {}: {streamed:?}",
                if lost { "the victim" } else { "the other engine" }
            ),
        }
    }
    for i in 0..4 {
        complete(&drill, &body(&format!("after the loss {i}"), 8, i)).await;
    }
    drill
        .until("the killed worker is gone", async || {
            worker_at(&drill.workers().await, &victim_http).is_none()
        })
        .await;
    let gone = killed.elapsed().as_secs_f64();
    // Its last beat was at most one interval before the kill.
    assert!((3.5..12.0).contains(&gone), "gone after {gone} s");
    drill.until_baseline_of_living(&[0]).await;

    drill.decode[0].restart();
    drill
        .until("the worker is back", async || {
            worker_at(&drill.workers().await, &victim_http).is_some()
        })
        .await;
    complete(&drill, &body("back again", 8, 1)).await;
    drill.until_baseline().await;
}

/// The only prefill engine is killed: decode engines serve alone until it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefill_engine_is_killed() {
    let mut drill = Drill::start(Shape::new(1, 2)).await;
    let expected = complete(&drill, &body("the same question", 24, 5)).await;
    assert!(expected.prefill.is_some(), "it was handed over");
    let streaming = open(&drill, &body("a stream that began before", LONG, 3)).await;
    drill.prefill[0].kill();
    // What a client has begun to see does not depend on the prefill engine any more.
    assert_eq!(read(streaming, |_| ()).await.end, End::Done);
    let alone = complete(&drill, &body("the same question", 24, 5)).await;
    assert_eq!(alone.text, expected.text, "alone or not, the same tokens");
    drill.prefill[0].restart();
    drill
        .until("answers are handed over again", async || {
            complete(&drill, &body("the same question", 24, 5)).await.prefill.is_some()
        })
        .await;
    drill.until_baseline().await;
}

/// The gateway is killed and started again: the workers are known after one beat, without a manual step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_is_restarted() {
    let mut drill = Drill::start(Shape::new(1, 2)).await;
    let expected = complete(&drill, &body("before and after", 24, 9)).await;
    let cut = open(&drill, &body("a stream through the old gateway", LONG, 4)).await;
    drill.gateway.kill();
    assert_eq!(read(cut, |_| ()).await.end, End::Cut, "its connection is gone with it");
    drill.gateway.restart();
    drill.until_workers(3).await;
    let after = complete(&drill, &body("before and after", 24, 9)).await;
    assert_eq!(after.text, expected.text);
    // Blocks handed over for requests that never came end with their lease or their connection.
    drill.until_baseline().await;
}
