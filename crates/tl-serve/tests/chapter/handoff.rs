//! One engine fills, the other goes on: the same tokens, and nothing left behind on any path.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    Decode, Prefill, chunks_of, colocated, request, resume, sampled_request, stats, tokens, used,
};
use tl_engine::kv_transfer::{
    GrpcTransport, KvReceiver, KvTransport, TransferError, prompt_hashes, transfer,
};
use tl_proto::engine::v1::{CancelRequest, DrainRequest, InfoRequest};
use tl_proto::kv::v1::kv_transfer_service_client::KvTransferServiceClient;
use tl_proto::kv::v1::{KvAck, KvChunk};
use tl_testkit::{Baseline, DEADLINE, FaultProxy, Faults, eventually, fake};
use tokio_stream::StreamExt;
use tonic::Code;

#[tokio::test]
async fn disaggregated_equals_colocated() {
    let (p, d) = (Prefill::start().await, Decode::start());
    let sampling = [(0.0, 0), (0.9, 11), (1.3, 1 << 40)];
    let cases: [(Vec<u32>, [&str; 3], [f32; 3]); 3] = [
        (
            tokens(1..=8),
            [
                "3 0 0 17 30 17 21 2 28 24 8 31",
                "29 28 13 23 15 30 15 26 25 24 8 7",
                "29 15 3 16 5 17 15 5 16 31 21 18",
            ],
            [-2.305_737_257, -2.537_737_369_5, -2.537_737_369_5],
        ),
        (
            tokens(3..=13),
            [
                "20 27 22 24 27 7 21 19 12 9 27 21",
                "31 21 18 28 20 29 9 27 22 23 5 3",
                "31 14 1 15 1 12 22 3 19 24 27 18",
            ],
            [-2.283_957_958_2, -2.783_957_958_2, -2.783_957_958_2],
        ),
        (
            vec![5, 5, 5, 9, 2],
            [
                "5 17 1 29 3 5 12 12 10 2 13 23",
                "31 29 7 20 18 31 18 26 25 25 3 5",
                "31 22 8 17 4 7 22 10 19 29 28 22",
            ],
            [-2.519_262_075_4, -2.811_261_892_3, -2.811_261_892_3],
        ),
    ];
    for (prompt, answers, logprobs) in &cases {
        for (i, &(temperature, seed)) in sampling.iter().enumerate() {
            let want: Vec<u32> =
                answers[i].split(' ').map(|t| t.parse().expect("a token")).collect();
            assert_eq!(colocated(prompt, temperature, seed, 12), want, "one engine");

            let id = format!("r-{}-{i}", prompt.len());
            let sent = sampled_request(&id, prompt, &d.target(), temperature, seed);
            let answer = p.run(sent).await.expect("both engines are up");
            let handle = answer.handle.clone().expect("a handle");
            assert_eq!(handle.handle_id, id);
            assert_eq!(handle.decode_target, d.target());
            assert_eq!((handle.first_token, answer.first_token), (want[0], want[0]));
            assert_eq!(
                (handle.n_tokens, handle.prompt_tokens),
                (prompt.len() as u32, prompt.len() as u32)
            );
            assert_eq!(handle.kv_format, 1);
            assert_eq!(handle.rng_draws_consumed, u32::from(temperature > 0.0));
            assert_eq!(handle.block_hashes, prompt_hashes(prompt, 4));
            assert_eq!(answer.prompt_tokens, prompt.len() as i32);
            assert_eq!(answer.first_logprob, logprobs[i]);
            assert_eq!(answer.first_logprob_f64 as f32, logprobs[i]);

            let claimed = d.receiver.claim_held(&id).expect("it waits");
            assert_eq!(claimed.n_tokens, prompt.len());
            let tokens = resume(claimed, &answer, temperature, seed, 12);
            assert_eq!(tokens, want, "two engines");
        }
    }
    assert_eq!((used(&p.pool), used(&d.pool)), (0, 0));
}

#[tokio::test]
async fn bytes_moved_are_missing_blocks_plus_tail() {
    let (p, d) = (fake::pool(64), Decode::start());
    let shared = tokens(100..=111);
    let seeded: Vec<u32> = shared.iter().copied().chain([7, 8]).collect();
    drop(fake::prefill(&d.pool, &seeded).expect("room"));
    let transport = GrpcTransport { timeout: Duration::from_secs(5) };

    // The envelope is 28 + 12 + 128 + 4 bytes.
    let cases: [(&str, Vec<u32>, usize, usize, usize); 3] = [
        ("17 tokens, 3 blocks cached", (100..=116).collect(), 2, 3, 344),
        ("13 tokens, 3 blocks cached", (100..=112).collect(), 1, 3, 172),
        ("8 tokens, all cached", (100..=107).collect(), 0, 2, 0),
    ];
    for (name, prompt, sent, deduped, bytes) in cases {
        let seq = fake::prefill(&p, &prompt).expect("room");
        let moved = transfer(&transport, &d.target(), &p, name, seq.held.ids(), &seq.hashes)
            .await
            .expect(name);
        assert_eq!(moved.chunks, prompt.len().div_ceil(4), "{name}");
        assert_eq!((moved.sent, moved.deduped), (sent, deduped), "{name}");
        assert_eq!(moved.payload_bytes, bytes, "{name}");
        let claimed = d.receiver.claim_held(name).expect("it waits");
        fake::check_contents(&d.pool, claimed.held.ids(), &prompt).expect(name);
    }
    assert_eq!((used(&p), used(&d.pool)), (0, 0));
    let counters = d.receiver.counters();
    assert_eq!((counters.blocks_received, counters.blocks_deduped), (3, 8));
    assert_eq!(counters.bytes_received, 516);
}

#[tokio::test]
async fn transfer_reset_frees_both_sides() {
    let (p, d) = (Prefill::start().await, Decode::start());
    let faults = Faults { cut_after: Some(1200), ..Faults::default() };
    let proxy = FaultProxy::start(d.server.addr, faults).await.expect("a relay");
    let prompt = tokens(0..=63);
    let failed = p.run(request("cut", &prompt, &proxy.target())).await.expect_err("it is cut");
    let expected = [Code::Unavailable, Code::Internal, Code::Unknown, Code::Cancelled];
    assert!(expected.contains(&failed.code()), "{failed}");
    assert_eq!(used(&p.pool), 0, "before the answer");
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
    assert_eq!(d.receiver.pending(), 0);

    let answer = p.run(request("after", &prompt, &d.target())).await.expect("a direct way");
    let claimed = d.receiver.claim_held("after").expect("it waits");
    fake::check_contents(&d.pool, claimed.held.ids(), &prompt).expect("the same cache");
    assert_eq!(resume(claimed, &answer, 0.0, 0, 4), colocated(&prompt, 0.0, 0, 4));
    assert_eq!((used(&p.pool), used(&d.pool)), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_push_frees_decode_blocks() {
    let (p, d) = (fake::pool(32), Decode::with(32, tl_engine::kv_transfer::HandleCfg::default()));
    let chunks = chunks_of(&p, "left", &tokens(0..=39), &[]);
    assert_eq!(chunks.len(), 10);
    let client = KvTransferServiceClient::connect(format!("http://{}", d.target()))
        .await
        .expect("the server listens");
    let push = tokio::spawn({
        let mut client = client.clone();
        async move {
            let half = tokio_stream::iter(chunks.into_iter().take(5));
            client.push_kv(half.chain(tokio_stream::pending())).await
        }
    });
    assert!(eventually(DEADLINE, || used(&d.pool) == 5).await);
    push.abort();
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
    assert_eq!(d.receiver.pending(), 0);
}

/// Says that everything is there, and counts the pushes.
struct Liar {
    receiver: Arc<KvReceiver>,
    pushes: AtomicUsize,
}

#[tonic::async_trait]
impl KvTransport for Liar {
    async fn has_blocks(&self, _: &str, h: &[u64], _: u32) -> Result<Vec<bool>, TransferError> {
        Ok(vec![true; h.len()])
    }

    async fn push(&self, _: &str, chunks: Vec<KvChunk>) -> Result<KvAck, TransferError> {
        self.pushes.fetch_add(1, Ordering::SeqCst);
        Ok(self.receiver.accept_all(chunks.into_iter().map(Ok))?)
    }
}

#[tokio::test]
async fn evicted_block_is_resent() {
    let (p, d) = (fake::pool(32), fake::pool(32));
    let liar = Liar { receiver: Arc::new(KvReceiver::new(d.clone())), pushes: AtomicUsize::new(0) };
    let prompt = tokens(0..=8);
    let seq = fake::prefill(&p, &prompt).expect("room");
    let moved = transfer(&liar, "nowhere:1", &p, "again", seq.held.ids(), &seq.hashes)
        .await
        .expect("the second push carries everything");
    assert_eq!(liar.pushes.load(Ordering::SeqCst), 2);
    assert_eq!((moved.chunks, moved.sent, moved.deduped), (3, 3, 0));
    let ids = liar.receiver.claim("again").expect("it waits");
    assert_eq!(ids.len(), 3);
    fake::check_contents(&d, &ids, &prompt).expect("the same cache");
    assert_eq!(used(&d), 3, "the first push left nothing");
}

#[tokio::test]
async fn prefill_rpc_validation_and_info() {
    let d = Decode::start();
    let transport = Arc::new(GrpcTransport { timeout: Duration::from_secs(5) });
    let decode = Prefill::with(&["decode"], transport, None).await;
    let sound = request("r", &tokens(1..=8), &d.target());
    let refused = decode.run(sound.clone()).await.expect_err("it does not prefill");
    assert_eq!(refused.code(), Code::FailedPrecondition);

    let p = Prefill::start().await;
    let mut cases: HashMap<&str, _> = HashMap::new();
    let mut changed = |name, change: &dyn Fn(&mut tl_proto::engine::v1::PrefillRequest)| {
        let mut request = sound.clone();
        change(&mut request);
        cases.insert(name, request);
    };
    changed("empty prompt", &|r| r.prompt_ids.clear());
    changed("empty target", &|r| r.decode_target.clear());
    changed("temperature -1", &|r| r.sampling.as_mut().expect("set").temperature = -1.0);
    changed("no new tokens", &|r| r.sampling.as_mut().expect("set").max_new_tokens = 0);
    for (name, request) in cases {
        let refused = p.run(request).await.expect_err(name);
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}: {refused}");
        assert_eq!(used(&p.pool), 0, "{name}");
    }
    let mut past = sound.clone();
    past.deadline_unix_ms = 1;
    let refused = p.run(past).await.expect_err("long ago");
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    assert_eq!((stats(&p.pool).cached, used(&d.pool)), (0, 0), "nothing was computed or sent");

    let mut client = p.client.clone();
    let info = client.info(InfoRequest {}).await.expect("info").into_inner();
    assert_eq!(info.roles, ["prefill"]);
    assert_eq!((info.kv_format, info.kv_formats_read, info.block_size), (1, vec![1], 4));
    for (id, known) in [("known", true), ("other", false)] {
        let cancel = CancelRequest { request_id: id.into() };
        assert_eq!(client.cancel(cancel).await.expect("cancel").into_inner().found, known);
    }
    let drained = client.drain(DrainRequest { deadline_ms: 3000 }).await.expect("drain");
    assert_eq!(drained.into_inner().aborted, 3);
}

#[tokio::test]
async fn a_finished_first_token_moves_nothing() {
    let d = Decode::start();
    let transport = Arc::new(GrpcTransport { timeout: Duration::from_secs(5) });
    let finish = Some(tl_serve::control::FirstFinish::Length);
    let p = Prefill::with(&["prefill"], transport, finish).await;
    let baseline = Baseline::of(&[("P", &p.pool), ("D", &d.pool)]);
    let answer = p.run(request("done", &tokens(1..=8), &d.target())).await.expect("it ran");
    assert_eq!((answer.finish_reason.as_str(), answer.first_token), ("length", 3));
    assert_eq!(answer.handle, None);
    assert_eq!(d.receiver.pending(), 0);
    baseline.assert_restored();
}
