//! More than there is room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::StatusCode;

use super::client::{body, complete};
use super::parts::{Drill, Shape};

/// Three times what fits is offered for a minute: every request gets its answer or a 429 with Retry-After,
/// in bounded time; five seconds later nothing is left of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_times_the_capacity_for_a_minute() {
    // 64 blocks of 16 hold four requests of 16 blocks.
    let shape = Shape::new(1, 1).engine("kv_blocks", 64).gateway("admission_wait_ms", 1000);
    let drill = Arc::new(Drill::start(shape).await);
    let stop = Arc::new(AtomicBool::new(false));
    let (answered, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..12_u64)
        .map(|client| {
            let (drill, stop) = (Arc::clone(&drill), Arc::clone(&stop));
            let (answered, refused) = (Arc::clone(&answered), Arc::clone(&refused));
            tokio::spawn(async move {
                let mut slowest = Duration::ZERO;
                let mut seed = client;
                while !stop.load(Ordering::Relaxed) {
                    seed += 100;
                    let mut request = body(&format!("{seed} {}", "tide ".repeat(10)), 180, seed);
                    request["stream"] = false.into();
                    request.as_object_mut().expect("an object").remove("stream_options");
                    let started = Instant::now();
                    let answer = drill
                        .http
                        .post(drill.url("/v1/completions"))
                        .json(&request)
                        .send()
                        .await
                        .expect("an answer");
                    match answer.status() {
                        StatusCode::OK => {
                            answer.bytes().await.expect("a whole body");
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        StatusCode::TOO_MANY_REQUESTS => {
                            assert!(
                                answer.headers().contains_key("retry-after"),
                                "a 429 says when to come back"
                            );
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        status => {
                            panic!("status {status}: {}", answer.text().await.unwrap_or_default())
                        }
                    }
                    slowest = slowest.max(started.elapsed());
                }
                slowest
            })
        })
        .collect();
    let minute = tokio::time::Instant::now() + Duration::from_secs(60);
    tokio::time::sleep_until(minute).await;
    stop.store(true, Ordering::Relaxed);
    let mut slowest = Duration::ZERO;
    for client in clients {
        slowest = slowest.max(client.await.expect("no panic"));
    }
    assert!(answered.load(Ordering::Relaxed) > 0, "some are served");
    assert!(slowest < Duration::from_secs(30), "nobody waits for ever: {slowest:?}");
    let stopped = Instant::now();
    complete(&drill, &body("afterwards", 8, 1)).await;
    drill.until_baseline().await;
    assert!(stopped.elapsed() < Duration::from_secs(5), "recovered after {:?}", stopped.elapsed());
}
