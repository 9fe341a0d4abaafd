//! Chunks that must not be taken, and what a refused push leaves: nothing.

use std::sync::Arc;

use tl_engine::kv_transfer::{EnvHeader, HandleCfg, KvReceiver, crc32c, write_envelope};
use tl_kv::BlockRecord;
use tl_proto::kv::v1::KvChunk;
use tl_testkit::{Baseline, fake};
use tonic::{Code, Status};

use crate::common::{chunks, ok, prompt, used};

/// Puts an envelope into a chunk with the checksum it really has.
fn carry(c: &mut KvChunk, envelope: Vec<u8>) {
    c.crc32c = crc32c(&envelope);
    c.payload = envelope.into();
}

#[test]
fn every_malformed_chunk_at_every_place_leaves_the_pool_alone() {
    let pool = fake::pool(16);
    let receiver = KvReceiver::new(pool.clone());
    let tokens = prompt(1, 14);
    let sound = chunks("h", &tokens);
    let header = EnvHeader::v1(&fake::cfg(1), 1);
    let record = |hash, n_tokens, len| BlockRecord { hash, n_tokens, payload: vec![7; len] };

    type Change<'a> = &'a dyn Fn(&mut KvChunk);
    let kinds: [(&str, Code, Change<'_>); 21] = [
        ("empty handle", Code::InvalidArgument, &|c| c.handle_id.clear()),
        ("no blocks announced", Code::InvalidArgument, &|c| c.n_blocks_total = 0),
        ("index ahead", Code::InvalidArgument, &|c| c.block_index += 1),
        ("index far ahead", Code::InvalidArgument, &|c| c.block_index = u32::MAX),
        ("format 0", Code::FailedPrecondition, &|c| c.kv_format = 0),
        ("format 2", Code::FailedPrecondition, &|c| c.kv_format = 2),
        ("nothing at all", Code::InvalidArgument, &|c| {
            (c.payload, c.block_hash, c.crc32c) = (Vec::new().into(), 0, 0);
        }),
        ("unknown name", Code::NotFound, &|c| {
            (c.payload, c.block_hash, c.crc32c) = (Vec::new().into(), 0xDEAD, 0);
        }),
        ("checksum of nothing", Code::DataLoss, &|c| {
            (c.payload, c.block_hash) = (Vec::new().into(), 0xDEAD);
        }),
        ("checksum field", Code::DataLoss, &|c| c.crc32c ^= 0x8000_0000),
        ("checksum absent", Code::DataLoss, &|c| c.crc32c = 0),
        ("cut short", Code::DataLoss, &|c| {
            let shorter = c.payload[..c.payload.len() - 1].to_vec();
            carry(c, shorter);
        }),
        ("too long", Code::DataLoss, &|c| {
            let longer = [&c.payload[..], &[0]].concat();
            carry(c, longer);
        }),
        ("a few bytes", Code::DataLoss, &|c| carry(c, vec![1, 2, 3])),
        ("version 2", Code::FailedPrecondition, &|c| {
            let v2 = EnvHeader { version: 2, dtype: 3, ..header };
            carry(c, write_envelope(&v2, &[record(0, 4, fake::PAYLOAD_BYTES)]));
        }),
        ("another shape", Code::DataLoss, &|c| {
            let wide = EnvHeader { head_dim: 8, ..header };
            carry(c, write_envelope(&wide, &[record(0, 4, 2 * fake::PAYLOAD_BYTES)]));
        }),
        ("dimensions that overflow", Code::DataLoss, &|c| {
            let vast = EnvHeader { n_layers: u32::MAX, head_dim: u32::MAX, ..header };
            carry(c, write_envelope(&vast, &[record(0, 4, fake::PAYLOAD_BYTES)]));
        }),
        ("two blocks", Code::DataLoss, &|c| {
            let two = EnvHeader { n_blocks: 2, ..header };
            let block = record(0, 4, fake::PAYLOAD_BYTES);
            carry(c, write_envelope(&two, &[block.clone(), block]));
        }),
        ("no block", Code::DataLoss, &|c| {
            carry(c, write_envelope(&EnvHeader { n_blocks: 0, ..header }, &[]));
        }),
        ("fill 0", Code::DataLoss, &|c| {
            carry(c, write_envelope(&header, &[record(0, 0, fake::PAYLOAD_BYTES)]));
        }),
        ("another block's name", Code::DataLoss, &|c| {
            carry(c, write_envelope(&header, &[record(0xBAD, 4, fake::PAYLOAD_BYTES)]));
        }),
    ];
    for (name, code, change) in kinds {
        for at in 0..sound.len() {
            let baseline = Baseline::of(&[("D", &pool)]);
            let mut push = sound.clone();
            change(&mut push[at]);
            let refused = receiver.accept_all(ok(&push)).expect_err(name);
            assert_eq!(refused.code(), code, "{name} in chunk {at}: {}", refused.message());
            baseline.assert_restored();
            assert_eq!(receiver.pending(), 0, "{name} in chunk {at}");
        }
    }
    receiver.accept_all(ok(&sound)).expect("none of them has spoilt the id");
    let claimed = receiver.claim_held("h").expect("it waits");
    fake::check_contents(&pool, claimed.held.ids(), &tokens).expect("the same cache");
}

#[test]
fn every_single_bit_matters() {
    let pool = fake::pool(4);
    let receiver = KvReceiver::new(pool.clone());
    let sound = chunks("h", &prompt(1, 4));
    let baseline = Baseline::of(&[("D", &pool)]);
    for bit in 0..sound[0].payload.len() * 8 {
        let mut push = sound.clone();
        let mut bytes = push[0].payload.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        push[0].payload = bytes.into();
        let refused = receiver.accept_all(ok(&push)).expect_err("a flipped bit");
        assert_eq!(refused.code(), Code::DataLoss, "bit {bit}");
        baseline.assert_unchanged();
    }
}

#[test]
fn a_failure_at_chunk_k_frees_the_k_before_it() {
    let pool = fake::pool(16);
    let receiver = KvReceiver::new(pool.clone());
    let sound = chunks("h", &prompt(1, 38));
    assert_eq!(sound.len(), 10);
    for k in 0..=sound.len() {
        let baseline = Baseline::of(&[("D", &pool)]);
        let seen = std::cell::Cell::new(0);
        let broken = ok(&sound[..k]).chain([Err(Status::unavailable("the link broke"))]);
        let watched = broken.inspect(|_| seen.set(seen.get().max(used(&pool))));
        let refused = receiver.accept_all(watched).expect_err("it broke");
        assert_eq!(refused.code(), Code::Unavailable);
        assert_eq!(seen.get() as usize, k, "chunks were taken before it broke");
        baseline.assert_restored();
    }
    let early = receiver.accept_all(ok(&sound[..9])).expect_err("one is missing");
    assert_eq!(early.code(), Code::InvalidArgument);
    let mut surplus = sound.clone();
    surplus.push(sound[9].clone());
    let late = receiver.accept_all(ok(&surplus)).expect_err("one too many");
    assert_eq!(late.code(), Code::InvalidArgument);
    assert_eq!((used(&pool), receiver.pending()), (0, 0));
    let counters = receiver.counters();
    assert_eq!((counters.pushes_abandoned, counters.pushes_refused), (11, 2));
    assert_eq!(counters.handles_created, 0);
}

#[test]
fn a_live_handle_keeps_what_it_has() {
    let pool = fake::pool(16);
    let receiver = KvReceiver::new(pool.clone());
    let (first, second) = (prompt(1, 9), prompt(2, 9));
    receiver.accept_all(ok(&chunks("h", &first))).expect("the first");
    let before = Baseline::of(&[("D", &pool)]);
    let refused = receiver.accept_all(ok(&chunks("h", &second))).expect_err("the id is taken");
    assert_eq!(refused.code(), Code::AlreadyExists);
    before.assert_unchanged();
    let claimed = receiver.claim_held("h").expect("the first one's");
    fake::check_contents(&pool, claimed.held.ids(), &first).expect("unharmed");
}

#[test]
fn a_full_pool_refuses_and_stays_whole() {
    let pool = fake::pool(4);
    let receiver = KvReceiver::new(pool.clone());
    let holder = fake::prefill(&pool, &prompt(9, 8)).expect("half of it");
    let before = Baseline::of(&[("D", &pool)]);
    let refused = receiver.accept_all(ok(&chunks("h", &prompt(1, 12)))).expect_err("3 of 2");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    before.assert_restored();
    let never = receiver.accept_all(ok(&chunks("h", &prompt(1, 20)))).expect_err("5 of 4");
    assert_eq!(never.code(), Code::ResourceExhausted);
    before.assert_restored();
    drop(holder);
    receiver.accept_all(ok(&chunks("h", &prompt(1, 12)))).expect("room now");
}

#[test]
fn bounds_per_sender_hold() {
    let pool = fake::pool(16);
    let cfg = HandleCfg { max_handles: 2, max_blocks: 6, ..HandleCfg::default() };
    let receiver = KvReceiver::with_config(pool.clone(), cfg);
    receiver.accept_all(ok(&chunks("a", &prompt(1, 12)))).expect("3 of 6 blocks");
    let many = receiver.accept_all(ok(&chunks("b", &prompt(2, 16)))).expect_err("7 of 6");
    assert_eq!(many.code(), Code::ResourceExhausted);
    receiver.accept_all(ok(&chunks("b", &prompt(2, 4)))).expect("4 of 6");
    let third = receiver.accept_all(ok(&chunks("c", &prompt(3, 4)))).expect_err("3 of 2 handles");
    assert_eq!(third.code(), Code::ResourceExhausted);
    receiver.release("a");
    receiver.accept_all(ok(&chunks("c", &prompt(3, 4)))).expect("a place again");
    assert_eq!(used(&pool), 2);
}

#[test]
fn one_chunk_at_a_time_is_the_same_path() {
    let pool = fake::pool(8);
    let receiver = KvReceiver::new(pool.clone());
    let tokens = prompt(1, 9);
    let push = chunks("h", &tokens);
    let mut taken = Vec::new();
    for (i, chunk) in push.iter().enumerate() {
        let wrong = receiver.accept_chunk(chunk, i as u32 + 1, &mut taken).expect_err("sequence");
        assert_eq!(wrong.code(), Code::InvalidArgument);
        assert!(receiver.accept_chunk(chunk, i as u32, &mut taken).expect("sound"));
    }
    fake::check_contents(&pool, &taken, &tokens).expect("the same cache");
    let mut named = push[1].clone();
    (named.payload, named.crc32c) = (Vec::new().into(), 0);
    assert!(!receiver.accept_chunk(&named, 1, &mut taken).expect("it is here"));
    assert_eq!((taken.len(), taken[3]), (4, taken[1]));
    assert_eq!((used(&pool), receiver.pending()), (3, 0));
    drop(tl_kv::Held::adopt(&pool, taken));
    assert_eq!(used(&pool), 0);
}

#[test]
fn concurrent_pushes_of_many_prompts_each_arrive() {
    let pool = fake::pool(64 * 5);
    let receiver = Arc::new(KvReceiver::new(pool.clone()));
    let threads: Vec<_> = (0..64)
        .map(|n| {
            let receiver = receiver.clone();
            std::thread::spawn(move || {
                let (id, tokens) = (format!("h{n}"), prompt(n + 1, 18));
                receiver.accept_all(ok(&chunks(&id, &tokens))).expect("room for all");
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
    assert_eq!((used(&pool), receiver.pending()), (64 * 5, 64));
    for n in 0..64 {
        let claimed = receiver.claim_held(&format!("h{n}")).expect("it waits");
        let tokens = prompt(n + 1, 18);
        fake::check_contents(&pool, claimed.held.ids(), &tokens).expect("what the pool holds");
        assert_eq!(claimed.n_tokens, 18);
    }
    assert_eq!(used(&pool), 0);
}
