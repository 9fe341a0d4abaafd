use bytes::BytesMut;
use prost::Message;
use tl_kv::handoff::BlockSend;
use tl_kv::{Held, KvCfg};
use tl_proto::kv::v1::KvChunk;
use tl_testkit::fake;
use tonic::Code;
use tonic::metadata::MetadataMap;

use super::outgoing::Outgoing;
use super::*;

fn push_of(held: &Held, hashes: &[u64], present: &[bool]) -> Outgoing {
    let blocks: Vec<BlockSend> = (0..held.len())
        .map(|i| match hashes.get(i) {
            None => BlockSend::Tail,
            Some(&hash) if present.get(i) == Some(&true) => BlockSend::Dedup { hash },
            Some(&hash) => BlockSend::Send { hash },
        })
        .collect();
    Outgoing::new(held, "h", &blocks).expect("blocks in hand")
}

#[test]
fn a_chunk_written_in_place_is_the_generated_one() {
    let pool = fake::pool(8);
    let prompt: Vec<u32> = (10..=18).collect();
    let seq = fake::prefill(&pool, &prompt).expect("room");
    for present in [[false, false], [true, false], [true, true]] {
        let push = push_of(&seq.held, &seq.hashes, &present);
        let chunks = push.chunks().expect("not fenced");
        assert_eq!(push.payload_bytes(), chunks.iter().map(|c| c.payload.len()).sum::<usize>());
        for (i, chunk) in chunks.iter().enumerate() {
            let mut message = BytesMut::new();
            wire::write_chunk(&push, i, &mut message).expect("not fenced");
            assert!(message.len() <= push.largest_message());
            assert_eq!(message.len(), chunk.encoded_len());
            assert_eq!(&KvChunk::decode(message.freeze()).expect("protobuf"), chunk);
            assert_eq!(chunk.payload.is_empty(), present.get(i) == Some(&true));
            assert_eq!(crc32c(&chunk.payload), chunk.crc32c);
        }
    }
}

#[test]
fn a_fenced_push_reads_no_more() {
    let pool = fake::pool(8);
    let seq = fake::prefill(&pool, &[1, 2, 3, 4, 5]).expect("room");
    let push = push_of(&seq.held, &seq.hashes, &[]);
    let progress = push.progress();
    let mut buf = BytesMut::new();
    wire::write_chunk(&push, 0, &mut buf).expect("not fenced yet");
    assert_eq!(*progress.borrow(), 1);
    drop(push.fence_on_drop());
    let written = buf.len();
    let refused = wire::write_chunk(&push, 1, &mut buf).expect_err("fenced");
    assert_eq!((refused.code, buf.len()), (Code::Aborted, written));
    assert_eq!(*progress.borrow(), 1);
}

#[test]
fn a_push_that_contradicts_the_pool_is_not_made() {
    let pool = fake::pool(8);
    let seq = fake::prefill(&pool, &[1, 2, 3, 4, 5]).expect("room");
    let ids = seq.held.ids();
    #[track_caller]
    fn check(made: Result<Vec<KvChunk>, TransferError>, code: Code) {
        assert_eq!(made.expect_err("refused").code, code);
    }
    let build = |id: &str, ids: &[u32], hashes: &[u64], present: &[bool]| {
        build_chunks(&pool, id, ids, hashes, present)
    };
    check(build("", ids, &seq.hashes, &[]), Code::InvalidArgument);
    check(build(&"x".repeat(MAX_HANDLE_ID + 1), ids, &seq.hashes, &[]), Code::InvalidArgument);
    check(build("h", &[], &[], &[]), Code::InvalidArgument);
    check(build("h", ids, &[1, 2, 3], &[]), Code::InvalidArgument);
    check(build("h", ids, &seq.hashes, &[true, true]), Code::InvalidArgument);
    // Another name than the pool knows; a name for the tail; a block nobody holds.
    check(build("h", ids, &[seq.hashes[0] ^ 1], &[]), Code::InvalidArgument);
    check(build("h", ids, &[seq.hashes[0], 7], &[]), Code::InvalidArgument);
    check(build("h", &[7], &[], &[]), Code::Internal);
    check(build("h", &[99], &[], &[]), Code::Internal);
    assert_eq!(lock(&pool).stats().used, 2);
}

#[test]
fn blocks_larger_than_a_message_are_refused_by_name() {
    let llama_70b =
        KvCfg { block_tokens: 16, n_layers: 80, n_kv_heads: 8, head_dim: 128, ..fake::cfg(1) };
    let refused = check_block_size(&llama_70b).expect_err("5 242 880 bytes and a little");
    assert_eq!(refused.envelope, 5_242_880 + 44);
    assert!(refused.to_string().contains("[engine].block_size"));
    check_block_size(&KvCfg { block_tokens: 8, ..llama_70b }).expect("half of it");
    check_block_size(&fake::cfg(1)).expect("172 bytes");
}

#[test]
fn the_token_is_demanded_whole() {
    let token = ClusterToken::new("correct-horse-battery").expect("long enough");
    let with = |text: Option<&str>| {
        let mut metadata = MetadataMap::new();
        if let Some(text) = text {
            metadata.insert(TOKEN_KEY, text.parse().expect("ascii"));
        }
        token.check(&metadata).map_err(|s| s.code())
    };
    assert_eq!(with(Some("correct-horse-battery")), Ok(()));
    for wrong in [
        None,
        Some(""),
        Some("correct-horse-batterz"),
        Some("correct-horse-batter"),
        Some("correct-horse-battery-"),
        Some("xorrect-horse-battery"),
    ] {
        assert_eq!(with(wrong), Err(Code::Unauthenticated), "{wrong:?}");
    }
    let mut attached = MetadataMap::new();
    token.attach(&mut attached);
    token.check(&attached).expect("its own");
    assert_eq!(ClusterToken::new("short").expect_err("guessable"), TokenError::Short(5));
    assert_eq!(ClusterToken::new("with a space in it").expect_err("space"), TokenError::NotAscii);
    assert!(!format!("{token:?} {attached:?}").contains("horse"), "secrets stay out of logs");
}

#[test]
fn targets_are_host_and_port() {
    let options = PeerOptions::default();
    for good in ["127.0.0.1:1", "localhost:65535", "[::1]:50052", "d-0.decode.svc:50052"] {
        options.endpoint(good).expect(good);
    }
    for bad in [
        "",
        ":1",
        "host",
        "host:",
        "host:x",
        "host:65536",
        "http://host:1",
        "u@host:1",
        "host:1/path",
        "host :1",
        "host:1?q",
        "ho\nst:1",
    ] {
        assert_eq!(options.endpoint(bad).expect_err(bad).code, Code::InvalidArgument, "{bad}");
    }
}

/// Blocks that somebody gave back under a waiting handle are found by its claim, in a debug build.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "NoStaleRead")]
fn a_claim_of_blocks_that_were_given_back_is_stopped() {
    let source = fake::pool(8);
    let seq = fake::prefill(&source, &[1, 2, 3, 4, 5]).expect("room");
    let chunks = push_of(&seq.held, &seq.hashes, &[]).chunks().expect("not fenced");
    let receiver = KvReceiver::new(fake::pool(8));
    receiver.accept_all(chunks.into_iter().map(Ok)).expect("it lands");
    let id = (0..8).rfind(|&id| tl_kv::lock(receiver.pool()).refs(id) == 1).expect("a block");
    tl_kv::lock(receiver.pool()).release(id).expect("a reference");
    drop(receiver.claim_held("h"));
}
