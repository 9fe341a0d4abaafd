//! Pushes over real connections that break, hang, or come from those who may not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tl_engine::kv_transfer::{
    ClusterToken, HandleCfg, KvReceiver, KvTransport, PooledOptions, PooledTransport, lock,
    serve_kv_with, transfer,
};
use tl_proto::kv::v1::kv_transfer_service_client::KvTransferServiceClient;
use tl_proto::kv::v1::{KvAck, KvChunk};
use tl_proto::{INCARNATION_KEY, incarnation_value};
use tl_testkit::{Baseline, DEADLINE, FaultProxy, Faults, eventually, fake};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status};

use crate::common::{Decode, chunks, loopback, pooled, prompt, used};

/// Pushes the first `n` chunks and then neither goes on nor ends.
fn hanging_push(
    target: &str,
    chunks: &[KvChunk],
    n: usize,
    incarnation: u64,
) -> JoinHandle<Result<KvAck, Status>> {
    let (target, some) = (target.to_owned(), chunks[..n].to_vec());
    tokio::spawn(async move {
        let mut client = KvTransferServiceClient::connect(format!("http://{target}"))
            .await
            .expect("the server listens");
        let stream = tokio_stream::iter(some).chain(tokio_stream::pending());
        let mut request = Request::new(stream);
        let value = incarnation_value(incarnation).parse().expect("ascii");
        request.metadata_mut().insert(INCARNATION_KEY, value);
        client.push_kv(request).await.map(tonic::Response::into_inner)
    })
}

async fn ends_with(push: JoinHandle<Result<KvAck, Status>>, code: Code) {
    let answer = tokio::time::timeout(DEADLINE, push).await.expect("an answer").expect("no panic");
    assert_eq!(answer.expect_err("refused").code(), code);
}

#[tokio::test]
async fn a_killed_pusher_blocks_nobody_else() {
    let d = Decode::start(16);
    let tokens = prompt(1, 18);
    let push = chunks("first", &tokens);
    let killed = hanging_push(&d.target(), &push, 1, 7);
    assert!(eventually(DEADLINE, || used(&d.pool) == 1).await);

    // Another engine has the same prompt, while the first one hangs and after it died.
    for id in ["second", "third"] {
        let p = fake::pool(8);
        let seq = fake::prefill(&p, &tokens).expect("room");
        let transport = pooled(DEADLINE, 8);
        transfer(transport.as_ref(), &d.target(), &p, id, seq.held.ids(), &seq.hashes)
            .await
            .expect("at once");
        let claimed = d.receiver.claim_held(id).expect("it waits");
        fake::check_contents(&d.pool, claimed.held.ids(), &tokens).expect("the same cache");
        killed.abort();
    }
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_pushes_of_one_prompt_share_one_copy() {
    let d = Decode::start(128);
    let p = fake::pool(8);
    let tokens = prompt(1, 14);
    let seq = fake::prefill(&p, &tokens).expect("room");
    let transport = pooled(DEADLINE, 7);
    let mut pushes = tokio::task::JoinSet::new();
    for n in 0..32 {
        let (transport, target, p) = (transport.clone(), d.target(), p.clone());
        let (ids, hashes) = (seq.held.ids().to_vec(), seq.hashes.clone());
        pushes.spawn(async move {
            transfer(transport.as_ref(), &target, &p, &format!("h{n}"), &ids, &hashes).await
        });
    }
    while let Some(moved) = pushes.join_next().await {
        moved.expect("no panic").expect("all of them succeed");
    }
    // Three full blocks, once; and a tail for each.
    assert_eq!((used(&d.pool), d.receiver.pending()), (3 + 32, 32));
    let claimed: Vec<_> =
        (0..32).map(|n| d.receiver.claim_held(&format!("h{n}")).expect("it waits")).collect();
    for one in &claimed {
        assert_eq!(one.held.ids()[..3], claimed[0].held.ids()[..3]);
        fake::check_contents(&d.pool, one.held.ids(), &tokens).expect("the same cache");
    }
    for &id in &claimed[0].held.ids()[..3] {
        assert_eq!(lock(&d.pool).refs(id), 32);
    }
    drop(claimed);
    assert_eq!(used(&d.pool), 0);
    assert_eq!(transport.connections(), 1);
}

#[tokio::test]
async fn a_push_that_hangs_loses_its_blocks() {
    let cfg = HandleCfg { receive_ms: 100, ..HandleCfg::default() };
    let d = Decode::with(16, cfg);
    let start = Instant::now();
    let push = hanging_push(&d.target(), &chunks("h", &prompt(1, 18)), 3, 7);
    let answer = tokio::time::timeout(DEADLINE, push).await.expect("an answer").expect("no panic");
    let code = answer.expect_err("given up").code();
    assert!(matches!(code, Code::DeadlineExceeded | Code::Aborted), "{code:?}");
    assert!(start.elapsed() >= Duration::from_millis(90));
    assert_eq!((used(&d.pool), d.receiver.pending()), (0, 0));
}

#[tokio::test]
async fn every_chunk_without_the_end_is_not_a_push() {
    let d = Decode::start(16);
    let push = chunks("h", &prompt(1, 18));
    let hanging = hanging_push(&d.target(), &push, push.len(), 7);
    assert!(eventually(DEADLINE, || used(&d.pool) == 5).await);
    assert_eq!(d.receiver.pending(), 0, "the sender may still take it back");
    hanging.abort();
    let freed = eventually(DEADLINE, || used(&d.pool) == 0).await;
    assert!(freed, "{} pending, {:?}", d.receiver.pending(), d.receiver.counters());
    assert_eq!((d.receiver.pending(), d.receiver.counters().pushes_abandoned), (0, 1));
}

#[tokio::test]
async fn a_release_ends_the_push_under_way() {
    let d = Decode::start(16);
    let push = hanging_push(&d.target(), &chunks("h", &prompt(1, 18)), 3, 7);
    assert!(eventually(DEADLINE, || used(&d.pool) == 3).await);
    d.receiver.release("h");
    ends_with(push, Code::Aborted).await;
    assert_eq!((used(&d.pool), d.receiver.pending()), (0, 0));
}

#[tokio::test]
async fn a_dead_incarnation_lands_nothing() {
    let d = Decode::start(32);
    let p = fake::pool(8);
    let seq = fake::prefill(&p, &prompt(1, 9)).expect("room");
    let (dead, alive) = (pooled(DEADLINE, 7), pooled(DEADLINE, 8));
    for (id, transport) in [("ready", &dead), ("other", &alive)] {
        transfer(transport.as_ref(), &d.target(), &p, id, seq.held.ids(), &seq.hashes)
            .await
            .expect("both are alive");
    }
    let running = hanging_push(&d.target(), &chunks("running", &prompt(2, 18)), 3, 7);
    assert!(eventually(DEADLINE, || used(&d.pool) == 4 + 3).await);

    assert_eq!(d.receiver.fence(7), 2);
    ends_with(running, Code::Aborted).await;
    assert_eq!(d.receiver.pending(), 1, "what another engine pushed stays");
    assert!(d.receiver.claim("ready").is_none());
    let late = transfer(dead.as_ref(), &d.target(), &p, "late", seq.held.ids(), &seq.hashes)
        .await
        .expect_err("fenced");
    assert_eq!(late.code, Code::Aborted);
    let claimed = d.receiver.claim_held("other").expect("it waits");
    assert_eq!(claimed.incarnation, 8);
    drop(claimed);
    assert_eq!((used(&d.pool), d.receiver.counters().handles_fenced), (0, 2));
}

#[tokio::test]
async fn a_server_that_goes_takes_its_pushes_with_it() {
    let d = Decode::start(16);
    let push = hanging_push(&d.target(), &chunks("h", &prompt(1, 18)), 3, 7);
    assert!(eventually(DEADLINE, || used(&d.pool) == 3).await);
    drop(d.server);
    let answer = tokio::time::timeout(DEADLINE, push).await.expect("an answer").expect("no panic");
    answer.expect_err("the server is gone");
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
    assert_eq!(d.receiver.pending(), 0);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused() {
    let d = Decode::start(16);
    let baseline = Baseline::of(&[("D", &d.pool)]);
    let mut push = chunks("h", &prompt(1, 9));
    push[1].payload = vec![0; tl_proto::MAX_MESSAGE_BYTES].into();
    let mut client = KvTransferServiceClient::connect(format!("http://{}", d.target()))
        .await
        .expect("the server listens");
    let refused = client.push_kv(tokio_stream::iter(push)).await.expect_err("too large");
    assert!(matches!(refused.code(), Code::OutOfRange | Code::ResourceExhausted), "{refused}");
    baseline.await_restored(DEADLINE).await;
    assert_eq!(d.receiver.pending(), 0);
}

#[tokio::test]
async fn without_the_token_nothing_is_answered() {
    let pool = fake::pool(16);
    let receiver = Arc::new(KvReceiver::new(pool.clone()));
    let token = ClusterToken::new("a-secret-of-the-cluster").expect("long enough");
    let server =
        serve_kv_with(loopback(), receiver.clone(), Some(token.clone())).expect("a server");
    let target = server.addr.to_string();
    let p = fake::pool(8);
    let seq = fake::prefill(&p, &prompt(1, 9)).expect("room");
    let with = |token: Option<ClusterToken>| {
        PooledTransport::new(PooledOptions { token, ..PooledOptions::default() })
    };
    let wrong = ClusterToken::new("another-secret-entirely").expect("long enough");
    for transport in [with(None), with(Some(wrong))] {
        let asked = transport.has_blocks(&target, &seq.hashes, 1).await.expect_err("no token");
        assert_eq!(asked.code, Code::Unauthenticated);
        let pushed = transport.push(&target, chunks("h", &prompt(1, 9))).await;
        assert_eq!(pushed.expect_err("no token").code, Code::Unauthenticated);
        let released = transport.release(&target, "h").await.expect_err("no token");
        assert_eq!(released.code, Code::Unauthenticated);
        let moved = transfer(transport.as_ref(), &target, &p, "h", seq.held.ids(), &seq.hashes);
        assert_eq!(moved.await.expect_err("no token").code, Code::Unauthenticated);
    }
    assert_eq!((used(&pool), receiver.pending()), (0, 0));
    let transport = with(Some(token));
    transfer(transport.as_ref(), &target, &p, "h", seq.held.ids(), &seq.hashes)
        .await
        .expect("the right one");
    assert_eq!(receiver.pending(), 1);

    // Off loopback there is no serving without one.
    let open = std::net::TcpListener::bind(("0.0.0.0", 0)).expect("a free port");
    let refused = serve_kv_with(open, receiver, None).expect_err("anybody could push");
    assert!(refused.to_string().contains("[cluster].token"), "{refused}");
}

#[tokio::test]
async fn a_link_cut_at_any_byte_leaves_nothing() {
    let d = Decode::start(64);
    let p = fake::pool(32);
    let tokens = prompt(1, 40);
    let seq = fake::prefill(&p, &tokens).expect("room");
    let baseline = Baseline::of(&[("P", &p), ("D", &d.pool)]);
    let proxy = FaultProxy::start(d.server.addr, Faults::default()).await.expect("a relay");
    for cut in (0..2400).step_by(150) {
        proxy.set(Faults { cut_after: Some(cut), ..Faults::default() });
        let transport = pooled(DEADLINE, 7);
        let id = format!("cut-{cut}");
        let moved =
            transfer(transport.as_ref(), &proxy.target(), &p, &id, seq.held.ids(), &seq.hashes)
                .await;
        if moved.is_ok() {
            let claimed = d.receiver.claim_held(&id).expect("it landed");
            fake::check_contents(&d.pool, claimed.held.ids(), &tokens).expect("whole");
        } else {
            // The answer alone may have been lost; then the release undoes it.
            d.receiver.release(&id);
        }
        proxy.cut_all();
        baseline.await_restored(DEADLINE).await;
        assert_eq!(d.receiver.pending(), 0, "cut after {cut} bytes");
        lock(&d.pool).reset_cache();
    }
}
