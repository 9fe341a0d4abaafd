//! What a decode engine holds, takes and refuses.

use crate::support::{Decode, Prefill, request, stats, tokens, used};
use tl_engine::kv_transfer::{KvReceiver, build_chunks, lock, prompt_hashes, read_envelope};
use tl_proto::kv::v1::kv_transfer_service_client::KvTransferServiceClient;
use tl_proto::kv::v1::{KvAck, KvChunk, ReleaseRequest};
use tl_testkit::fake;
use tonic::{Code, Status};

#[test]
fn has_blocks_takes_no_reference() {
    let pool = fake::pool(16);
    let prompt = tokens(1..=9);
    drop(fake::prefill(&pool, &prompt).expect("room"));
    let before = stats(&pool);
    assert_eq!((before.used, before.cached), (0, 2));
    let receiver = KvReceiver::new(pool.clone());
    let hashes = prompt_hashes(&prompt, 4);
    let asked = [hashes[0], 12345, hashes[1]];
    assert_eq!(receiver.has_blocks(&asked, 1).expect("format 1"), [true, false, true]);
    assert_eq!(stats(&pool), before);
    let refused = receiver.has_blocks(&asked, 2).expect_err("format 2");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(stats(&pool), before);
}

#[test]
fn push_accepts_dedups_and_refuses() {
    let (p, d) = (fake::pool(32), fake::pool(32));
    let receiver = KvReceiver::new(d.clone());
    let prompt = tokens(10..=18);
    let seq = fake::prefill(&p, &prompt).expect("room");
    let hashes = seq.hashes.clone();
    let build = |id: &str, present: &[bool]| {
        build_chunks(&p, id, seq.held.ids(), &hashes, present).expect("blocks in hand")
    };
    let accept = |chunks: Vec<KvChunk>| receiver.accept_all(chunks.into_iter().map(Ok));
    let ack = |id: &str, blocks_received, blocks_deduped| KvAck {
        handle_id: id.into(),
        blocks_received,
        blocks_deduped,
    };

    let chunks = build("h1", &[]);
    assert!(chunks.iter().all(|c| c.crc32c == 0x4867_4BC7 && c.payload.len() == 172));
    assert_eq!(accept(chunks).expect("a sound push"), ack("h1", 3, 0));
    assert_eq!((used(&d), receiver.pending()), (3, 1));
    let ids = receiver.claim("h1").expect("it waits");
    assert_eq!((ids.len(), receiver.pending()), (3, 0));
    assert_eq!(receiver.claim("h1"), None, "claimed once");
    fake::check_contents(&d, &ids, &prompt).expect("the same cache");
    ids.iter().for_each(|&id| lock(&d).release(id).expect("mine"));
    assert_eq!((stats(&d).used, stats(&d).cached), (0, 2));

    let deduped = build("h2", &[true, true]);
    assert!(deduped[..2].iter().all(|c| c.payload.is_empty() && c.crc32c == 0));
    assert_eq!(accept(deduped.clone()).expect("both cached"), ack("h2", 1, 2));
    assert_eq!(used(&d), 3);
    receiver.release("h2");
    assert_eq!((used(&d), receiver.pending()), (0, 0));

    let refuse = |name: &str, chunks: Vec<Result<KvChunk, Status>>, code: Code| {
        let before = stats(&d);
        let refused = receiver.accept_all(chunks).expect_err(name);
        assert_eq!(refused.code(), code, "{name}: {}", refused.message());
        assert_eq!(stats(&d), before, "{name}");
        assert_eq!(receiver.pending(), 0, "{name}");
    };
    let full = build("h3", &[]);
    let changed = |at: usize, change: &dyn Fn(&mut KvChunk)| {
        let mut chunks = full.clone();
        change(&mut chunks[at]);
        chunks.into_iter().map(Ok).collect::<Vec<_>>()
    };
    let flip = |c: &mut KvChunk| {
        let mut bytes = c.payload.to_vec();
        bytes[40] ^= 1;
        c.payload = bytes.into();
    };
    refuse("a flipped bit", changed(2, &flip), Code::DataLoss);
    refuse("another format", changed(1, &|c| c.kv_format = 2), Code::FailedPrecondition);
    let gone = |c: &mut KvChunk| {
        (c.payload, c.block_hash, c.crc32c) = (Vec::new().into(), 0xDEAD, 0);
    };
    refuse("a block that is gone", changed(1, &gone), Code::NotFound);
    let two = full[..2].iter().cloned().map(Ok).collect();
    refuse("two of three chunks", two, Code::InvalidArgument);
    refuse("no chunk", Vec::new(), Code::InvalidArgument);
    refuse("a broken crc field", changed(1, &|c| c.crc32c ^= 1), Code::DataLoss);
    refuse("another handle", changed(1, &|c| c.handle_id = "h4".into()), Code::InvalidArgument);
    refuse("another total", changed(1, &|c| c.n_blocks_total = 4), Code::InvalidArgument);
    refuse("out of order", changed(1, &|c| c.block_index = 2), Code::InvalidArgument);
    refuse("another name", changed(1, &|c| c.block_hash ^= 1), Code::DataLoss);
    refuse("a partial block with a name", changed(2, &|c| c.block_hash = 9), Code::DataLoss);
    let broken = Err(Status::unavailable("the stream broke"));
    let cut = full[..2].iter().cloned().map(Ok).chain([broken]).collect();
    refuse("a broken stream", cut, Code::Unavailable);

    let unregistered = fake::prefill_unregistered(&p, &tokens(50..=53)).expect("room");
    let hash = prompt_hashes(&tokens(50..=53), 4);
    let ids = unregistered.held.ids();
    let chunks = build_chunks(&p, "h3", ids, &hash, &[false]).expect("blocks in hand");
    let (_, records) = read_envelope(&chunks[0].payload, None).expect("a sound envelope");
    assert_eq!((records[0].hash, chunks[0].block_hash), (0, hash[0]));
    assert_eq!(accept(chunks).expect("named by its chunk"), ack("h3", 1, 0));
    receiver.release("h3");
    assert_eq!(receiver.has_blocks(&hash, 1).expect("format 1"), [true]);
    assert_eq!(used(&d), 0);
}

#[tokio::test]
async fn release_frees_the_handle() {
    let (p, d) = (Prefill::start().await, Decode::start());
    let prompt = tokens(0..=9);
    p.run(request("abort-me", &prompt, &d.target())).await.expect("both engines are up");
    assert_eq!((used(&d.pool), d.receiver.pending()), (3, 1));
    let mut client = KvTransferServiceClient::connect(format!("http://{}", d.target()))
        .await
        .expect("the server listens");
    for handle_id in ["abort-me", "abort-me", "never-was"] {
        let release = ReleaseRequest { handle_id: handle_id.into() };
        client.release(release).await.expect("release is always fine");
    }
    assert_eq!((used(&d.pool), d.receiver.pending()), (0, 0));
    assert_eq!(used(&p.pool), 0);
    assert!(d.receiver.claim("abort-me").is_none());
}
