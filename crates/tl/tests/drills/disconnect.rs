//! Clients that leave.

use std::time::{Duration, Instant};

use super::client::{body, complete, open, read};
use super::parts::{Drill, Part, Shape};

async fn running(drill: &Drill, part: &Part) -> f64 {
    drill.metric(part, "tl_engine_active_sequences").await.unwrap_or(f64::NAN)
}

/// A client that leaves is noticed within 100 ms, at the gateway and on the engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_noticed() {
    let drill = Drill::start(Shape::new(1, 1)).await;
    let mut best = f64::INFINITY;
    for seed in 0..5 {
        // Four choices, so that one that happens to end early does not end the request.
        let mut request = body("a very long answer", 1500, seed);
        request["n"] = 4.into();
        let answer = open(&drill, &request).await;
        drill.until("it runs", async || running(&drill, &drill.decode[0]).await >= 1.0).await;
        drop(answer);
        let left = Instant::now();
        drill
            .until("it no longer runs", async || running(&drill, &drill.decode[0]).await == 0.0)
            .await;
        best = best.min(left.elapsed().as_secs_f64());
    }
    // The best of several: the machine under test may be busy, the mechanism may not be slow.
    assert!(best < 0.1, "noticed after {best} s");
    drill.until_baseline().await;
}

/// Hundreds of clients leave at random moments; afterwards everything reads its baseline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_leave_at_random_moments() {
    let drill = Drill::start(Shape::new(1, 2)).await;
    let mut random = 12345_u64;
    let mut next = move || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for round in 0..40 {
        let mut clients = Vec::new();
        for i in 0..10 {
            let patience = Duration::from_micros(next() % 60_000);
            let request = body(
                &format!("{} and {}", next() % 7, "waves ".repeat((next() % 40) as usize)),
                40,
                i,
            );
            let sent = drill.http.post(drill.url("/v1/completions")).json(&request).send();
            clients.push(async move {
                let stays = async {
                    if let Ok(answer) = sent.await {
                        read(answer, |_| ()).await;
                    }
                };
                let _ = tokio::time::timeout(patience, stays).await;
            });
        }
        futures::future::join_all(clients).await;
        if round % 10 == 9 {
            complete(&drill, &body("somebody who stays", 8, round)).await;
        }
    }
    drill.until_baseline().await;
}
