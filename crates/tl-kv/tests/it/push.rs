use tl_kv::handoff::push::check_payload;
use tl_kv::handoff::{ChunkAction, ChunkHead, PushAssembly, PushError, PushLimits, receive};
use tl_kv::{BlockRecord, CRC32C_RESIDUE, Code, EnvHeader, Held, SharedKv, lock, write_envelope};

use crate::common::{cfg, counts, pool};

const LIMITS: PushLimits = PushLimits { kv_format: 1, max_blocks: 8 };

/// Chunk `index` of a push of three: two named blocks with payload and a tail.
fn head(index: u32) -> ChunkHead<'static> {
    ChunkHead {
        handle_id: "h",
        block_hash: [0xA, 0xB, 0][index.min(2) as usize],
        block_index: index,
        n_blocks_total: 3,
        kv_format: 1,
        payload_len: 172,
        crc32c: CRC32C_RESIDUE,
    }
}

fn named(index: u32) -> ChunkHead<'static> {
    ChunkHead { payload_len: 0, crc32c: 0, ..head(index) }
}

#[test]
fn a_complete_push_counts_both_kinds() {
    let mut push = PushAssembly::new(LIMITS);
    assert_eq!(push.handle(), None);
    assert_eq!(push.chunk(&named(0)), Ok(ChunkAction::Share { hash: 0xA }));
    assert_eq!(push.handle(), Some(("h", 3)));
    assert_eq!(push.chunk(&head(1)), Ok(ChunkAction::Import { hash: 0xB }));
    assert_eq!(push.chunk(&head(2)), Ok(ChunkAction::Import { hash: 0 }));
    let ack = push.finish().unwrap();
    assert_eq!((ack.handle_id.as_str(), ack.blocks_received, ack.blocks_deduped), ("h", 2, 1));
}

#[test]
fn order_rules() {
    #[track_caller]
    fn check(heads: &[ChunkHead<'_>], code: Code, want: &str) {
        let mut push = PushAssembly::new(LIMITS);
        let (last, before) = heads.split_last().unwrap();
        for head in before {
            push.chunk(head).unwrap();
        }
        let error = push.chunk(last).unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (code, want));
        assert_eq!(push.chunk(&head(1)), Err(PushError::AlreadyFailed), "an error is final");
        assert_eq!(push.finish(), Err(PushError::AlreadyFailed));
    }
    use Code::{DataLoss, FailedPrecondition, InvalidArgument, ResourceExhausted};
    let format = "kv_format 2 is not read here, expected 1";
    check(&[ChunkHead { kv_format: 2, ..head(0) }], FailedPrecondition, format);
    check(&[head(0), ChunkHead { kv_format: 2, ..head(1) }], FailedPrecondition, format);
    check(&[ChunkHead { handle_id: "", ..head(0) }], InvalidArgument, "handle_id is empty");
    check(&[ChunkHead { n_blocks_total: 0, ..head(0) }], InvalidArgument, "n_blocks_total is 0");
    check(
        &[ChunkHead { n_blocks_total: 9, ..head(0) }],
        ResourceExhausted,
        "9 blocks can never fit into a pool of 8",
    );
    check(&[head(1)], InvalidArgument, "block_index 1, expected 0");
    check(&[head(0), head(2)], InvalidArgument, "block_index 2, expected 1");
    check(&[head(0), head(0)], InvalidArgument, "block_index 0, expected 1");
    check(
        &[head(0), ChunkHead { handle_id: "i", ..head(1) }],
        InvalidArgument,
        "handle_id changes within the stream at chunk 1",
    );
    check(
        &[head(0), ChunkHead { n_blocks_total: 4, ..head(1) }],
        InvalidArgument,
        "n_blocks_total changes from 3 to 4 within the stream",
    );
    check(
        &[head(0), head(1), head(2), ChunkHead { block_index: 3, ..head(2) }],
        InvalidArgument,
        "chunk past n_blocks_total 3",
    );
    check(&[head(0), head(1), named(2)], InvalidArgument, "chunk 2 has neither payload nor hash");
    check(
        &[ChunkHead { crc32c: 1, ..head(0) }],
        DataLoss,
        "chunk 0: crc32c 0x00000001, expected 0x48674bc7",
    );
    check(
        &[ChunkHead { crc32c: 1, ..named(0) }],
        DataLoss,
        "chunk 0: crc32c 0x00000001, expected 0x00000000",
    );
}

#[test]
fn an_early_end_is_no_push() {
    let empty = PushAssembly::new(LIMITS).finish().unwrap_err();
    assert_eq!((empty.code(), empty), (Code::InvalidArgument, PushError::NoChunks));
    let mut push = PushAssembly::new(LIMITS);
    push.chunk(&head(0)).unwrap();
    push.chunk(&head(1)).unwrap();
    let early = push.finish().unwrap_err();
    assert_eq!(early.code(), Code::InvalidArgument);
    assert_eq!(early, PushError::Incomplete { got: 2, total: 3 });
}

fn envelope(header: EnvHeader, hash: u64, n_tokens: u32) -> Vec<u8> {
    write_envelope(&header, &[BlockRecord { hash, n_tokens, payload: vec![7; 128] }])
}

#[test]
fn payload_rules() {
    let v1 = EnvHeader::v1(&cfg(8), 1);
    #[track_caller]
    fn check(index: u32, payload: &[u8], want: Option<Code>) {
        let got = check_payload(&head(index), payload, &cfg(8));
        assert_eq!(got.map(|_| ()).err().map(|e| e.code()), want);
    }
    check(0, &envelope(v1, 0xA, 4), None);
    check(0, &envelope(v1, 0, 4), None);
    check(2, &envelope(v1, 0, 4), None);
    check(2, &envelope(v1, 0, 1), None);
    check(0, &envelope(v1, 0xB, 4), Some(Code::DataLoss));
    check(2, &envelope(v1, 0xB, 4), Some(Code::DataLoss));
    check(0, &envelope(v1, 0, 3), Some(Code::DataLoss));
    check(0, &envelope(v1, 0xA, 4)[..171], Some(Code::DataLoss));
    check(0, &envelope(EnvHeader { head_dim: 8, n_layers: 1, ..v1 }, 0, 4), Some(Code::DataLoss));
    let v2 = EnvHeader { version: 2, dtype: 3, ..v1 };
    check(0, &envelope(v2, 0xA, 4), Some(Code::FailedPrecondition));
    let record = BlockRecord { hash: 0, n_tokens: 4, payload: vec![7; 128] };
    let two = write_envelope(&EnvHeader::v1(&cfg(8), 2), &[record.clone(), record]);
    check(0, &two, Some(Code::DataLoss));
    let hole = ChunkHead { block_hash: 0, ..head(1) };
    let got = check_payload(&hole, &envelope(v1, 0, 3), &cfg(8)).unwrap_err();
    assert_eq!((got.code(), got), (Code::InvalidArgument, PushError::Hole { index: 1, total: 3 }));
}

#[test]
fn receiving_takes_one_block_or_nothing() {
    let d = pool(2);
    let mut held = Held::empty(&d);
    let good = envelope(EnvHeader::v1(&cfg(2), 1), 0xA, 4);
    let take = |d: &SharedKv, held: &mut Held, action, head: &ChunkHead<'_>, payload: &[u8]| {
        let (before, len) = (counts(d), held.len());
        let result = receive(action, head, payload, held);
        if result.is_err() {
            assert_eq!((counts(d), held.len()), (before, len));
        }
        result.map_err(|e| e.code())
    };
    let (share, import) = (ChunkAction::Share { hash: 0xA }, ChunkAction::Import { hash: 0xA });
    assert_eq!(take(&d, &mut held, share, &named(0), &[]), Err(Code::NotFound));
    let mut bad = good.clone();
    bad[40] ^= 1;
    assert_eq!(take(&d, &mut held, import, &head(0), &bad), Err(Code::DataLoss));
    assert_eq!(take(&d, &mut held, import, &head(0), &good), Ok(()));
    assert_eq!(take(&d, &mut held, share, &named(0), &[]), Ok(()));
    let refs = lock(&d).refs(held.ids()[0]);
    assert_eq!((held.len(), refs, counts(&d)), (2, 2, (1, 1, 0)));
    let _rest = Held::alloc(&d, 1).unwrap();
    let tail = envelope(EnvHeader::v1(&cfg(2), 1), 0, 2);
    let action = ChunkAction::Import { hash: 0 };
    assert_eq!(take(&d, &mut held, action, &head(2), &tail), Err(Code::ResourceExhausted));
}
