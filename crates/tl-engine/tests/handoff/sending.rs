//! The sender: one resend and no more, kept connections, bounded silence, and blocks
//! that are nobody's the moment a transfer is given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tl_engine::kv_transfer::{
    KvReceiver, KvTransport, TransferError, lock, serve_kv, transfer, transfer_held,
};
use tl_kv::{Held, KvCfg, SharedKv};
use tl_proto::kv::v1::{KvAck, KvChunk};
use tl_testkit::{Baseline, DEADLINE, FaultProxy, Faults, eventually, fake};
use tonic::Code;

use crate::common::{Decode, loopback, pooled, prompt, used};

/// A transport that answers as the test says.
#[derive(Default)]
struct Scripted {
    asked: Mutex<Vec<Vec<u64>>>,
    pushed: Mutex<Vec<Vec<KvChunk>>>,
    present: Option<Vec<bool>>,
    /// What each push is answered; an ack that fits when there is none.
    refusals: Mutex<Vec<Code>>,
    ack: Option<KvAck>,
}

#[tonic::async_trait]
impl KvTransport for Scripted {
    async fn has_blocks(&self, _: &str, h: &[u64], _: u32) -> Result<Vec<bool>, TransferError> {
        self.asked.lock().push(h.to_vec());
        Ok(self.present.clone().unwrap_or_else(|| vec![true; h.len()]))
    }

    async fn push(&self, _: &str, chunks: Vec<KvChunk>) -> Result<KvAck, TransferError> {
        let sent = chunks.iter().filter(|c| !c.payload.is_empty()).count() as u32;
        let fitting = KvAck {
            handle_id: chunks[0].handle_id.clone(),
            blocks_received: sent,
            blocks_deduped: chunks.len() as u32 - sent,
        };
        self.pushed.lock().push(chunks);
        match self.refusals.lock().pop() {
            Some(code) => Err(TransferError { code, message: "as the test says".into() }),
            None => Ok(self.ack.clone().unwrap_or(fitting)),
        }
    }
}

#[tokio::test]
async fn one_resend_after_not_found_and_only_then() {
    #[track_caller]
    fn check(t: &Scripted, pushes: usize, last_with_payload: usize) {
        let pushed = t.pushed.lock();
        assert_eq!(pushed.len(), pushes);
        let last = pushed.last().expect("a push");
        let full = last.iter().filter(|c| !c.payload.is_empty()).count();
        assert_eq!((last.len(), full), (3, last_with_payload));
    }
    let p = fake::pool(8);
    let seq = fake::prefill(&p, &prompt(1, 9)).expect("room");
    let run = async |t: &Scripted| transfer_held(t, "d:1", &seq.held, "h", &seq.hashes).await;

    let once = Scripted { refusals: vec![Code::NotFound].into(), ..Scripted::default() };
    let moved = run(&once).await.expect("the second has everything");
    assert_eq!((moved.sent, moved.deduped, moved.payload_bytes), (3, 0, 516));
    check(&once, 2, 3);

    let always = Scripted { refusals: vec![Code::NotFound; 5].into(), ..Scripted::default() };
    assert_eq!(run(&always).await.expect_err("not a third time").code, Code::NotFound);
    check(&always, 2, 3);

    let nothing_named = Scripted {
        refusals: vec![Code::NotFound; 5].into(),
        present: Some(vec![false, false]),
        ..Scripted::default()
    };
    assert_eq!(run(&nothing_named).await.expect_err("no use").code, Code::NotFound);
    check(&nothing_named, 1, 3);

    for code in [
        Code::DataLoss,
        Code::Unavailable,
        Code::ResourceExhausted,
        Code::AlreadyExists,
        Code::Unauthenticated,
    ] {
        let refused = Scripted { refusals: vec![code; 5].into(), ..Scripted::default() };
        assert_eq!(run(&refused).await.expect_err("refused").code, code, "as the peer said it");
        check(&refused, 1, 1);
    }
}

#[tokio::test]
async fn what_the_peer_says_must_fit() {
    let p = fake::pool(8);
    let seq = fake::prefill(&p, &prompt(1, 9)).expect("room");
    let run = async |t: &Scripted| transfer_held(t, "d:1", &seq.held, "h", &seq.hashes).await;
    for present in [vec![], vec![true], vec![true; 3]] {
        let t = Scripted { present: Some(present), ..Scripted::default() };
        assert_eq!(run(&t).await.expect_err("another count").code, Code::Internal);
        assert!(t.pushed.lock().is_empty());
    }
    let fits = KvAck { handle_id: "h".into(), blocks_received: 1, blocks_deduped: 2 };
    for ack in [
        KvAck { handle_id: "other".into(), ..fits.clone() },
        KvAck { blocks_received: 0, ..fits.clone() },
        KvAck { blocks_deduped: 3, ..fits.clone() },
        KvAck::default(),
    ] {
        let t = Scripted { ack: Some(ack), ..Scripted::default() };
        assert_eq!(run(&t).await.expect_err("another ack").code, Code::Internal);
    }
    run(&Scripted { ack: Some(fits), ..Scripted::default() }).await.expect("it fits");
}

#[tokio::test]
async fn blocks_without_a_name_are_sent_and_never_asked_for() {
    let p = fake::pool(8);
    let seq = fake::prefill_unregistered(&p, &prompt(1, 14)).expect("room");
    let hashes = [seq.hashes[0], 0, seq.hashes[2]];
    let t = Scripted::default();
    transfer_held(&t, "d:1", &seq.held, "h", &hashes).await.expect("an answer");
    assert_eq!(*t.asked.lock(), [vec![hashes[0], hashes[2]]]);
    let named: Vec<(u64, bool)> =
        t.pushed.lock()[0].iter().map(|c| (c.block_hash, c.payload.is_empty())).collect();
    assert_eq!(named, [(hashes[0], true), (0, false), (hashes[2], true), (0, false)]);

    let t = Scripted::default();
    transfer_held(&t, "d:1", &seq.held, "h", &[]).await.expect("an answer");
    assert!(t.asked.lock().is_empty(), "no names, no question");
}

#[tokio::test]
async fn a_connection_is_kept_and_made_again_after_it_broke() {
    let d = Decode::start(32);
    let proxy = FaultProxy::start(d.server.addr, Faults::default()).await.expect("a relay");
    let p = fake::pool(8);
    let seq = fake::prefill(&p, &prompt(1, 9)).expect("room");
    let t = pooled(DEADLINE, 7);
    for n in 0..3 {
        let (id, target) = (format!("h{n}"), proxy.target());
        transfer(t.as_ref(), &target, &p, &id, seq.held.ids(), &seq.hashes).await.expect("up");
        d.receiver.release(&id);
    }
    assert_eq!((proxy.connections(), t.connections()), (1, 1));
    proxy.cut_all();
    let again = eventually_up(&t, &proxy.target(), &p, &seq).await;
    assert!(again, "a broken connection does not stay");
    assert_eq!((proxy.connections(), t.connections()), (2, 1));
    d.receiver.release("again");
    assert_eq!((used(&d.pool), d.receiver.pending()), (0, 0));
}

/// The first call after a break may still fail; one of the next must not.
async fn eventually_up(
    t: &Arc<tl_engine::kv_transfer::PooledTransport>,
    target: &str,
    p: &SharedKv,
    seq: &fake::Sequence,
) -> bool {
    for _ in 0..3 {
        let moved = transfer(t.as_ref(), target, p, "again", seq.held.ids(), &seq.hashes).await;
        if moved.is_ok() {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn silence_is_bounded() {
    let d = Decode::start(32);
    let p = fake::pool(8);
    let seq = fake::prefill(&p, &prompt(1, 18)).expect("room");
    let faults = [
        ("a black hole", Faults { black_hole: true, ..Faults::default() }),
        ("a stall", Faults { stall_after: Some(900), ..Faults::default() }),
        ("lost answers", Faults { drop_answers: true, ..Faults::default() }),
    ];
    for (name, faults) in faults {
        let proxy = FaultProxy::start(d.server.addr, faults).await.expect("a relay");
        let t = pooled(Duration::from_millis(300), 7);
        let start = Instant::now();
        let moved =
            transfer(t.as_ref(), &proxy.target(), &p, name, seq.held.ids(), &seq.hashes).await;
        let error = moved.expect_err(name);
        assert!(
            matches!(error.code, Code::DeadlineExceeded | Code::Unavailable),
            "{name}: {error}"
        );
        assert!(start.elapsed() < Duration::from_secs(8), "{name}");
        assert_eq!(t.connections(), 0, "{name}: the connection is given up");
    }
    assert!(eventually(DEADLINE, || used(&d.pool) == 0).await);
}

/// Blocks of a mebibyte: a push of them does not fit into the buffers on the way.
const LARGE: KvCfg =
    KvCfg { n_blocks: 40, block_tokens: 16, n_layers: 16, n_kv_heads: 8, head_dim: 128, ..SHAPE };
const SHAPE: KvCfg = KvCfg {
    n_blocks: 1,
    block_tokens: 1,
    n_layers: 1,
    n_kv_heads: 1,
    head_dim: 1,
    dtype: tl_kv::TL_F16,
    format: tl_kv::KV_FORMAT_V1,
};

fn fill(pool: &SharedKv, held: &Held, value: u16) {
    let slabs = lock(pool).slabs();
    for &id in held.ids() {
        slabs.write(id).expect("mine alone").all_mut().fill(value);
        lock(pool).set_fill(id, LARGE.block_tokens).expect("within the block");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_transfer_reads_no_block_that_is_not_its_own() {
    let (p, d) =
        (tl_kv::pool::shared(LARGE).expect("valid"), tl_kv::pool::shared(LARGE).expect("valid"));
    let receiver = Arc::new(KvReceiver::new(d.clone()));
    let server = serve_kv(loopback(), receiver.clone()).expect("a server");
    let faults = Faults { bytes_per_second: Some(20_000_000), ..Faults::default() };
    let proxy = FaultProxy::start(server.addr, faults).await.expect("a relay");
    let baseline = Baseline::of(&[("P", &p), ("D", &d)]);
    let moved = Arc::new(AtomicUsize::new(0));
    let task = tokio::spawn({
        let (p, moved, target) = (p.clone(), moved.clone(), proxy.target());
        async move {
            let held = Held::alloc(&p, LARGE.n_blocks as usize).expect("all of it");
            fill(&p, &held, 0x3C00);
            let t = pooled(DEADLINE, 7);
            transfer_held(t.as_ref(), &target, &held, "h", &[]).await.expect("it is slow");
            moved.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert!(eventually(DEADLINE, || used(&d) >= 2).await, "it is under way");
    task.abort();
    task.await.expect_err("dropped in the middle");
    assert_eq!(used(&p), 0, "the blocks are back at once");

    // They go to somebody else, who writes at once: nothing of that may arrive.
    let next = Held::alloc(&p, LARGE.n_blocks as usize).expect("all of it");
    fill(&p, &next, 0x4000);
    drop(next);
    proxy.set(Faults::default());
    let slabs = lock(&d).slabs();
    let clean = || {
        (0..LARGE.n_blocks)
            .all(|id| slabs.read(id).map_or(true, |block| block.all().iter().all(|&x| x != 0x4000)))
    };
    assert!(
        eventually(DEADLINE, || {
            assert!(clean(), "a block of the next owner has arrived");
            used(&d) == 0
        })
        .await
    );
    assert_eq!((receiver.pending(), moved.load(Ordering::SeqCst)), (0, 0));
    baseline.assert_restored();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_is_not_a_dead_one() {
    let (p, d) =
        (tl_kv::pool::shared(LARGE).expect("valid"), tl_kv::pool::shared(LARGE).expect("valid"));
    let receiver = Arc::new(KvReceiver::new(d.clone()));
    let server = serve_kv(loopback(), receiver.clone()).expect("a server");
    let faults = Faults { bytes_per_second: Some(20_000_000), ..Faults::default() };
    let proxy = FaultProxy::start(server.addr, faults).await.expect("a relay");
    let held = Held::alloc(&p, LARGE.n_blocks as usize).expect("all of it");
    fill(&p, &held, 0x3C00);
    // The whole takes 2 s and more, far beyond the bound on silence.
    let t = pooled(Duration::from_millis(1500), 7);
    let start = Instant::now();
    let moved = transfer_held(t.as_ref(), &proxy.target(), &held, "h", &[]).await.expect("slow");
    assert!(start.elapsed() > Duration::from_millis(1500), "the relay did slow it down");
    assert_eq!((moved.chunks, moved.sent), (40, 40));
    let claimed = receiver.claim_held("h").expect("it waits");
    let slabs = lock(&d).slabs();
    for &id in claimed.held.ids() {
        assert!(slabs.read(id).expect("held").all().iter().all(|&x| x == 0x3C00));
    }
}
