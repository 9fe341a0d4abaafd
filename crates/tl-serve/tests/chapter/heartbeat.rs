//! What an engine tells the registry, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::loopback;
use parking_lot::Mutex;
use tl_engine::heartbeat::{
    BeatState, GrpcRegistry, Heartbeat, Load, Registry, WorkerIdentity, beat_once, worker_status,
};
use tl_engine::kv_transfer::spawn_router;
use tl_proto::control::v1::worker_registry_server::{WorkerRegistry, WorkerRegistryServer};
use tl_proto::control::v1::{HeartbeatAck, WorkerStatus};
use tl_testkit::{DEADLINE, eventually};
use tonic::{Request, Response, Status};

fn identity(role: &str) -> WorkerIdentity {
    WorkerIdentity {
        worker_id: "w1".into(),
        http_address: "127.0.0.1:8000".into(),
        grpc_address: "127.0.0.1:50051".into(),
        kv_address: "127.0.0.1:50052".into(),
        role: role.into(),
        model: "fake".into(),
        ..WorkerIdentity::default()
    }
}

#[test]
fn worker_status_fields() {
    let load = Load {
        queue_depth: 3,
        running: 2,
        kv_free_blocks: 10,
        kv_total_blocks: 64,
        draining: true,
    };
    for (role, kv) in [("decode", "127.0.0.1:50052"), ("prefill", ""), ("unified", "")] {
        let s = worker_status(&identity(role), &load);
        assert_eq!(s.kv_address, kv, "{role}");
        assert_eq!((s.worker_id.as_str(), s.role.as_str(), s.model.as_str()), ("w1", role, "fake"));
        assert_eq!(s.http_address, "127.0.0.1:8000");
        assert_eq!(s.grpc_address, "127.0.0.1:50051");
        assert_eq!(s.kv_format, 1);
        assert_eq!((s.queue_depth, s.running), (3, 2));
        assert_eq!((s.kv_free_blocks, s.kv_total_blocks, s.draining), (10, 64, true));
    }
}

/// A registry that does what the test says next.
#[derive(Default)]
struct Scripted {
    next: Mutex<Vec<Option<Result<HeartbeatAck, String>>>>,
}

#[tonic::async_trait]
impl Registry for Scripted {
    async fn heartbeat(&self, _: WorkerStatus) -> Result<HeartbeatAck, String> {
        let next = self.next.lock().remove(0);
        match next {
            Some(answer) => answer,
            None => {
                tokio::time::sleep(Duration::from_secs(30)).await;
                Err("the hang ended".into())
            }
        }
    }
}

#[tokio::test]
async fn beat_once_counts_failures_and_drain() {
    let ok = |drain, route_epoch| Some(Ok(HeartbeatAck { drain, route_epoch }));
    let failure = || Some(Err("down".to_owned()));
    let registry = Scripted::default();
    *registry.next.lock() =
        vec![ok(false, 5), failure(), failure(), None, ok(true, 6), ok(false, 7)];
    let st = BeatState::default();
    let timeout = Duration::from_millis(100);
    let counts = |st: &BeatState| {
        let [sent, failed] = [&st.sent, &st.failed].map(|n| n.load(Ordering::SeqCst));
        (sent, failed, st.consecutive_failures.load(Ordering::SeqCst))
    };
    assert!(beat_once(&registry, WorkerStatus::default(), timeout, &st).await);
    assert_eq!(counts(&st), (1, 0, 0));
    for _ in 0..2 {
        assert!(!beat_once(&registry, WorkerStatus::default(), timeout, &st).await);
    }
    assert_eq!(counts(&st), (3, 2, 2));
    let start = Instant::now();
    assert!(!beat_once(&registry, WorkerStatus::default(), timeout, &st).await, "it hangs");
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(counts(&st), (4, 3, 3));
    assert!(!st.drain_requested());
    assert!(beat_once(&registry, WorkerStatus::default(), timeout, &st).await);
    assert_eq!(counts(&st), (5, 3, 0));
    assert!(st.drain_requested());
    assert!(beat_once(&registry, WorkerStatus::default(), timeout, &st).await);
    assert!(st.drain_requested(), "a later answer does not call it off");
    assert_eq!(st.route_epoch.load(Ordering::SeqCst), 7);
}

/// Keeps the loads it is told.
#[derive(Default)]
struct Seen {
    loads: Mutex<Vec<i32>>,
}

#[tonic::async_trait]
impl Registry for Seen {
    async fn heartbeat(&self, s: WorkerStatus) -> Result<HeartbeatAck, String> {
        self.loads.lock().push(s.queue_depth);
        Ok(HeartbeatAck::default())
    }
}

#[tokio::test]
async fn heartbeat_beats_on_schedule() {
    let seen = Arc::new(Seen::default());
    let reads = Arc::new(AtomicI32::new(0));
    let load = Arc::new(move || Load {
        queue_depth: reads.fetch_add(1, Ordering::SeqCst),
        ..Load::default()
    });
    let heartbeat = Heartbeat::spawn(
        seen.clone(),
        identity("decode"),
        load,
        Duration::from_millis(20),
        Duration::from_secs(1),
    )
    .expect("a thread");
    assert!(eventually(DEADLINE, || seen.loads.lock().len() >= 4).await);
    let state = heartbeat.state().clone();
    let stopping = Instant::now();
    heartbeat.stop();
    assert!(stopping.elapsed() < Duration::from_secs(1));
    let after = seen.loads.lock().clone();
    assert!(after.windows(2).all(|pair| pair[0] < pair[1]), "a fresh load each time: {after:?}");
    let more = eventually(Duration::from_millis(80), || seen.loads.lock().len() > after.len());
    assert!(!more.await, "stopped means no more beats");
    assert_eq!(state.sent.load(Ordering::SeqCst) as usize, after.len());
}

/// A gateway's registry that counts.
#[derive(Default)]
struct Counting {
    epoch: AtomicU64,
    last: Arc<Mutex<Option<WorkerStatus>>>,
}

#[tonic::async_trait]
impl WorkerRegistry for Counting {
    async fn heartbeat(
        &self,
        request: Request<WorkerStatus>,
    ) -> Result<Response<HeartbeatAck>, Status> {
        *self.last.lock() = Some(request.into_inner());
        let route_epoch = self.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(Response::new(HeartbeatAck { drain: false, route_epoch }))
    }
}

#[tokio::test]
async fn grpc_registry_roundtrip() {
    let counting = Counting::default();
    let last = counting.last.clone();
    let router =
        tonic::transport::Server::builder().add_service(WorkerRegistryServer::new(counting));
    let server = spawn_router(loopback(), router).expect("a server");
    let registry =
        GrpcRegistry { target: server.addr.to_string(), timeout: Duration::from_secs(5) };
    let status = worker_status(&identity("decode"), &Load::default());
    for epoch in 1..=2 {
        let ack = registry.heartbeat(status.clone()).await.expect("the registry is up");
        assert_eq!((ack.route_epoch, ack.drain), (epoch, false));
        assert_eq!(last.lock().as_ref(), Some(&status));
    }
    server.shutdown().await;

    let dead = loopback().local_addr().expect("an address");
    let unreachable =
        GrpcRegistry { target: dead.to_string(), timeout: Duration::from_millis(500) };
    let start = Instant::now();
    unreachable.heartbeat(status).await.expect_err("nobody listens there");
    assert!(start.elapsed() < Duration::from_secs(3));
}
