//! `Prefill` under faults: whatever ends it, and whenever, both engines' pools end as
//! they began.

#[allow(unreachable_pub, reason = "shared by several test targets")]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::{Decode, Prefill, loopback, request, tokens, used};
use tl_engine::kv_transfer::{
    ClusterToken, GrpcTransport, KvTransport, PooledOptions, PooledTransport, TOKEN_KEY,
    TransferError,
};
use tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tl_proto::engine::v1::{CancelRequest, DrainRequest, InfoRequest};
use tl_proto::kv::v1::{KvAck, KvChunk};
use tl_serve::control::{ControlOptions, ControlService, TargetPolicy, serve_control_with};
use tl_testkit::{Baseline, DEADLINE, FaultProxy, Faults, eventually, fake};
use tonic::{Code, Request};

fn pooled(progress: Duration) -> Arc<PooledTransport> {
    PooledTransport::new(PooledOptions {
        call_timeout: progress,
        progress_timeout: progress,
        incarnation: 7,
        ..PooledOptions::default()
    })
}

async fn engine_with(transport: Arc<dyn KvTransport>) -> Prefill {
    Prefill::with(&["prefill"], transport, None).await
}

#[tokio::test]
async fn a_prefill_dropped_at_any_point_leaves_both_pools() {
    let d = Decode::start();
    let proxy = FaultProxy::start(d.server.addr, Faults::default()).await.expect("a relay");
    let p = engine_with(pooled(DEADLINE)).await;
    let baseline = Baseline::of(&[("P", &p.pool), ("D", &d.pool)]);
    let prompt = tokens(0..=61);
    // The relay delays each piece, so that the points fall into every phase: before the
    // question, between question and push, within the push, at its end.
    proxy.set(Faults { delay: Some(Duration::from_millis(3)), ..Faults::default() });
    for point in 0..40 {
        let id = format!("drop-{point}");
        let sent = request(&id, &prompt, &proxy.target());
        let answered = tokio::time::timeout(Duration::from_millis(point), p.run(sent)).await;
        if let Ok(answer) = answered {
            answer.expect("nothing is broken");
        }
        // What the gateway does about an attempt it gave up. Where the push was still
        // under way the engine does it too.
        d.receiver.release(&id);
        let restored = eventually(DEADLINE, || baseline.is_restored() && d.receiver.pending() == 0);
        assert!(
            restored.await,
            "dropped after {point} ms: P {}, D {}, pending {}, {:?}",
            used(&p.pool),
            used(&d.pool),
            d.receiver.pending(),
            d.receiver.counters()
        );
        baseline.assert_restored();
    }
    let sent = request("after", &prompt, &proxy.target());
    p.run(sent).await.expect("both still serve");
}

#[tokio::test]
async fn a_push_whose_answer_is_lost_is_undone() {
    let d = Decode::start();
    let proxy = FaultProxy::start(d.server.addr, Faults::default()).await.expect("a relay");
    let p = engine_with(pooled(Duration::from_millis(400))).await;
    let baseline = Baseline::of(&[("P", &p.pool), ("D", &d.pool)]);
    // No question is asked for a prompt without a full block: the first thing that is
    // lost is the acknowledgement.
    proxy.set(Faults { drop_answers: true, ..Faults::default() });
    let lost = p.run(request("lost", &[1, 2, 3], &proxy.target())).await.expect_err("no answer");
    assert_eq!(lost.code(), Code::Unavailable, "{lost}");
    assert!(lost.message().starts_with("kv transfer: "), "{lost}");
    assert_eq!(used(&p.pool), 0);
    let undone = eventually(DEADLINE, || baseline.is_restored() && d.receiver.pending() == 0);
    assert!(undone.await);
    // The push may never have been taken up, for the connection had not been set up;
    // then there was nothing to undo.
    let counters = d.receiver.counters();
    assert_eq!(counters.handles_created, counters.handles_released);
}

#[tokio::test]
async fn a_taken_handle_stays_its_holders() {
    let d = Decode::start();
    let p = engine_with(pooled(DEADLINE)).await;
    p.run(request("same", &tokens(1..=9), &d.target())).await.expect("the first");
    let second = p.run(request("same", &tokens(11..=19), &d.target())).await;
    assert_eq!(second.expect_err("the id is taken").code(), Code::AlreadyExists);
    assert_eq!(used(&p.pool), 0);
    // A release for the refused one would have come by now or comes before this ends.
    let gone = eventually(Duration::from_millis(100), || d.receiver.pending() == 0).await;
    assert!(!gone, "what the holder has stays");
    let claimed = d.receiver.claim_held("same").expect("the first one's");
    fake::check_contents(&d.pool, claimed.held.ids(), &tokens(1..=9)).expect("unharmed");
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

#[tokio::test]
async fn a_deadline_ends_a_push_that_hangs() {
    let d = Decode::start();
    let faults = Faults { stall_after: Some(1500), ..Faults::default() };
    let proxy = FaultProxy::start(d.server.addr, faults).await.expect("a relay");
    let p = engine_with(pooled(Duration::from_secs(60))).await;
    let mut sent = request("late", &tokens(0..=61), &proxy.target());
    sent.deadline_unix_ms = unix_ms() + 300;
    let start = Instant::now();
    let late = p.run(sent).await.expect_err("it hangs");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(used(&p.pool), 0);
    drop(proxy);
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
}

#[tokio::test]
async fn cancel_and_drain_reach_a_push_under_way() {
    let d = Decode::start();
    let faults = Faults { stall_after: Some(1500), ..Faults::default() };
    let proxy = FaultProxy::start(d.server.addr, faults).await.expect("a relay");
    let p = Arc::new(engine_with(pooled(Duration::from_secs(60))).await);
    let start = |id: &str| {
        let (p, sent) = (p.clone(), request(id, &tokens(0..=61), &proxy.target()));
        tokio::spawn(async move { p.run(sent).await })
    };
    let mut client = p.client.clone();

    let stalled = |bytes| used(&p.pool) > 0 && proxy.upstream_bytes() >= bytes;
    let hanging = start("cancel-me");
    assert!(eventually(DEADLINE, || stalled(1500)).await);
    let cancel = CancelRequest { request_id: "cancel-me".into() };
    assert!(client.cancel(cancel.clone()).await.expect("cancel").into_inner().found);
    let ended = hanging.await.expect("no panic").expect_err("cancelled");
    assert_eq!((ended.code(), used(&p.pool)), (Code::Cancelled, 0));
    assert!(!client.cancel(cancel).await.expect("cancel").into_inner().found);

    let hanging = start("drain-me");
    assert!(eventually(DEADLINE, || stalled(1500)).await);
    let drained = client.drain(DrainRequest { deadline_ms: 100 }).await.expect("drain");
    assert_eq!(drained.into_inner().aborted, 1);
    assert_eq!(used(&p.pool), 0, "nothing is in flight when it answers");
    assert!(hanging.await.expect("no panic").is_err());
    drop(proxy);
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
    assert_eq!(d.receiver.pending(), 0);
}

/// Fails every push with one code.
struct Failing(Code);

#[tonic::async_trait]
impl KvTransport for Failing {
    async fn has_blocks(&self, _: &str, h: &[u64], _: u32) -> Result<Vec<bool>, TransferError> {
        Ok(vec![false; h.len()])
    }

    async fn push(&self, _: &str, _: Vec<KvChunk>) -> Result<KvAck, TransferError> {
        Err(TransferError { code: self.0, message: "as the test says".into() })
    }
}

#[tokio::test]
async fn what_only_says_that_nobody_was_heard_is_unavailable() {
    for (failed, answered) in [
        (Code::Unknown, Code::Unavailable),
        (Code::Cancelled, Code::Unavailable),
        (Code::DeadlineExceeded, Code::Unavailable),
        (Code::Unavailable, Code::Unavailable),
        (Code::DataLoss, Code::DataLoss),
        (Code::FailedPrecondition, Code::FailedPrecondition),
        (Code::ResourceExhausted, Code::ResourceExhausted),
        (Code::Aborted, Code::Aborted),
        (Code::NotFound, Code::NotFound),
    ] {
        let p = engine_with(Arc::new(Failing(failed))).await;
        let error = p.run(request("r", &tokens(1..=9), "127.0.0.1:1")).await.expect_err("fails");
        assert_eq!(error.code(), answered, "{failed:?}");
        assert_eq!(error.message(), "kv transfer: as the test says");
        assert_eq!(used(&p.pool), 0, "{failed:?}");
    }
}

#[tokio::test]
async fn nobody_listens_at_the_target() {
    let p = engine_with(Arc::new(GrpcTransport { timeout: Duration::from_secs(5) })).await;
    let dead = loopback().local_addr().expect("an address").to_string();
    let error = p.run(request("r", &tokens(1..=9), &dead)).await.expect_err("nobody there");
    assert_eq!((error.code(), used(&p.pool)), (Code::Unavailable, 0));
    for elsewhere in ["10.0.0.1:50052", "example.org:80", "169.254.169.254:80"] {
        let error = p.run(request("r", &tokens(1..=9), elsewhere)).await.expect_err("not here");
        assert_eq!(error.code(), Code::PermissionDenied, "{elsewhere}");
    }
}

#[tokio::test]
async fn an_id_nobody_gave_is_one_nobody_guesses() {
    let (p, d) = (Prefill::start().await, Decode::start());
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = p.run(request("", &tokens(1..=9), &d.target())).await.expect("both are up");
        let id = answer.handle.expect("a handle").handle_id;
        assert!(id.len() == 33 && id.starts_with('h'), "{id}");
        assert!(d.receiver.claim_held(&id).is_some());
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1], "the same request twice");
}

#[tokio::test]
async fn control_demands_the_token() {
    let pool = fake::pool(8);
    let service = || ControlService {
        backend: Arc::new(support::FakeBackend { pool: pool.clone(), finish: None }),
        transport: Arc::new(GrpcTransport { timeout: Duration::from_secs(5) }),
        roles: vec!["prefill".into()],
    };
    let token = ClusterToken::new("a-secret-of-the-cluster").expect("long enough");
    let options = ControlOptions { token: Some(token.clone()), targets: TargetPolicy::Registered };
    let server = serve_control_with(loopback(), service(), options).expect("a server");
    let mut client = EngineControlClient::connect(format!("http://{}", server.addr))
        .await
        .expect("the server listens");
    let refused = client.info(InfoRequest {}).await.expect_err("no token");
    assert_eq!(refused.code(), Code::Unauthenticated);
    let drain = client.drain(DrainRequest::default()).await.expect_err("no token");
    assert_eq!(drain.code(), Code::Unauthenticated);
    let mut wrong = Request::new(InfoRequest {});
    wrong.metadata_mut().insert(TOKEN_KEY, "not-the-cluster-secret".parse().expect("ascii"));
    assert_eq!(client.info(wrong).await.expect_err("wrong").code(), Code::Unauthenticated);
    let mut right = Request::new(InfoRequest {});
    token.attach(right.metadata_mut());
    client.info(right).await.expect("the right one");

    let open = std::net::TcpListener::bind(("0.0.0.0", 0)).expect("a free port");
    let refused = serve_control_with(open, service(), ControlOptions::default());
    assert!(refused.expect_err("anybody could drain").to_string().contains("[cluster].token"));
}
