use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tl_proto::control::v1::{HeartbeatAck, WorkerStatus};

use super::*;

struct Answers(parking_lot::Mutex<Vec<Result<HeartbeatAck, String>>>);

#[tonic::async_trait]
impl Registry for Answers {
    async fn heartbeat(&self, _: WorkerStatus) -> Result<HeartbeatAck, String> {
        self.0.lock().pop().unwrap_or_else(|| Err("nothing left to answer".into()))
    }
}

fn ack(drain: bool) -> Result<HeartbeatAck, String> {
    Ok(HeartbeatAck { drain, route_epoch: 1 })
}

#[tokio::test]
async fn a_drain_wakes_whoever_waits_for_it_and_ends_only_when_done() {
    let state = Arc::new(BeatState::default());
    let waiting = tokio::spawn({
        let state = state.clone();
        async move { state.wait_for_drain().await }
    });
    tokio::task::yield_now().await;
    let registry = Answers(parking_lot::Mutex::new(vec![ack(false), ack(true), ack(false)]));
    for _ in 0..3 {
        let answered =
            beat_once(&registry, WorkerStatus::default(), Duration::from_secs(5), &state).await;
        assert!(answered);
    }
    tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("no panic");
    assert!(state.drain_requested(), "a later answer does not call it off");
    state.wait_for_drain().await;
    state.drained();
    assert!(!state.drain_requested());
}

#[test]
fn a_status_carries_what_pairing_needs() {
    let id = WorkerIdentity {
        worker_id: "w".into(),
        role: "decode".into(),
        kv_address: "127.0.0.1:1".into(),
        incarnation: 7,
        model_fingerprint: 8,
        block_size: 16,
        layers: 30,
        kv_heads: 3,
        head_dim: 64,
        kv_formats_read: vec![1],
        ..WorkerIdentity::default()
    };
    let s = worker_status(&id, &Load::default());
    assert_eq!((s.incarnation, s.model_fingerprint, s.block_size), (7, 8, 16));
    assert_eq!((s.layers, s.kv_heads, s.head_dim, s.kv_formats_read), (30, 3, 64, vec![1]));
}

#[test]
fn dropping_a_heartbeat_ends_its_thread() {
    let registry = Arc::new(Answers(parking_lot::Mutex::new(Vec::new())));
    let beating = Heartbeat::spawn(
        registry.clone(),
        WorkerIdentity::default(),
        Arc::new(Load::default),
        Duration::ZERO,
        Duration::from_secs(1),
    )
    .expect("a thread");
    let state = beating.state().clone();
    let beaten = tl_testkit::eventually_blocking(tl_testkit::DEADLINE, || {
        state.sent.load(Ordering::Acquire) >= 2
    });
    assert!(beaten, "a failing registry does not end the loop");
    drop(beating);
    assert_eq!(Arc::strong_count(&registry), 1, "the loop held the registry and is gone");
}
