use tl_kv::{
    BlockRecord, EnvHeader, EnvelopeView, Held, KvError, Proof, crc32c, export_block, import_block,
    lock, transfer, write_envelope,
};

use crate::common::{cfg, counts, holds, pool, prefill};

#[test]
fn one_block_equals_the_pools_own_export() {
    let p = pool(8);
    let (held, hashes) = prefill(&p, &[10, 11, 12, 13, 14, 15, 16, 17, 18]);
    for (i, &id) in held.ids().iter().enumerate() {
        let bytes = export_block(&p, id).unwrap();
        assert_eq!(bytes, lock(&p).export(&[id]).unwrap());
        let view = EnvelopeView::parse(&bytes, Some(&cfg(8))).unwrap();
        let record = view.record(0).unwrap();
        assert_eq!(record.hash, hashes.get(i).copied().unwrap_or(0));
        assert_eq!(record.n_tokens, [4, 4, 1][i]);
        assert_eq!(view.crc(), crc32c(&bytes[..168]));
        assert_eq!(bytes.len(), 172);
    }
    let all = lock(&p).export(held.ids()).unwrap();
    assert_eq!(all.len(), 28 + 3 * 140 + 4);
}

#[test]
fn blocks_arrive_once() {
    let (p, d) = (pool(8), pool(8));
    let tokens: Vec<u32> = (10..=18).collect();
    let (held, hashes) = prefill(&p, &tokens);
    let mut here = Held::empty(&d);
    for (i, &id) in held.ids().iter().enumerate() {
        let bytes = export_block(&p, id).unwrap();
        let view = EnvelopeView::parse(&bytes, Some(&cfg(8))).unwrap();
        let hash = hashes.get(i).copied().unwrap_or(0);
        let first = import_block(&d, &view, hash).unwrap();
        let again = import_block(&d, &view, hash).unwrap();
        assert_eq!((first.shared, again.shared), (false, hash != 0));
        assert_eq!(first.id() == again.id(), hash != 0, "a tail has no name to share");
        here.append(first.held);
    }
    assert!(holds(&d, here.ids(), &tokens));
    assert_eq!(lock(&d).export(here.ids()).unwrap(), lock(&p).export(held.ids()).unwrap());
    drop(here);
    assert_eq!(counts(&d), (6, 0, 2));
}

/// The name the sender gives wins over a missing one in the envelope.
#[test]
fn an_unregistered_block_gets_the_announced_name() {
    let d = pool(2);
    let bytes = envelope(0, 4, 7);
    let view = EnvelopeView::parse(&bytes, None).unwrap();
    let block = import_block(&d, &view, 0xABCD).unwrap();
    assert_eq!(lock(&d).hash_of(block.id()), 0xABCD);
}

/// Two contents of one name: both stay what they are, and the first keeps the name.
#[test]
fn other_bytes_of_the_same_name_are_kept_apart() {
    let d = pool(4);
    let take = |value| {
        let bytes = envelope(0, 4, value);
        let view = EnvelopeView::parse(&bytes, Some(&cfg(4))).unwrap();
        import_block(&d, &view, 5).unwrap()
    };
    let (first, same, other) = (take(1), take(1), take(2));
    assert_eq!((first.shared, same.shared, other.shared), (false, true, false));
    assert_eq!(first.id(), same.id());
    let books = lock(&d);
    assert_eq!((books.hash_of(first.id()), books.hash_of(other.id())), (5, 0));
    assert_eq!(books.conflicts(), 1);
    assert_eq!(books.slab(first.id(), 0, false).unwrap()[0], 0x0101);
    assert_eq!(books.slab(other.id(), 0, false).unwrap()[0], 0x0202);
    drop(books);
}

#[test]
fn a_prompt_is_checked_against_the_blocks_that_came_for_it() {
    let d = pool(8);
    let tokens: Vec<u32> = (10..=18).collect();
    let (held, _) = prefill(&d, &tokens);
    #[track_caller]
    fn check(d: &tl_kv::SharedKv, ids: &[u32], tokens: &[u32], want: Option<u32>) {
        assert_eq!(lock(d).attach_prompt(ids, tokens).ok(), want);
    }
    check(&d, held.ids(), &tokens, Some(2));
    check(&d, held.ids(), &tokens, Some(2));
    check(&d, &held.ids()[..2], &tokens, None);
    check(&d, held.ids(), &tokens[..8], None);
    check(&d, held.ids(), &(10..=19).collect::<Vec<_>>(), None);
    check(&d, held.ids(), &(11..=19).collect::<Vec<_>>(), None);
    let mut last = tokens.clone();
    last[7] = 99;
    check(&d, held.ids(), &last, None);
    check(&d, &[7, 7, 7], &tokens, None);
    assert_eq!(lock(&d).match_prefix(&tokens).len(), 2);
}

fn envelope(hash: u64, n_tokens: u32, value: u8) -> Vec<u8> {
    let record = BlockRecord { hash, n_tokens, payload: vec![value; 128] };
    write_envelope(&EnvHeader::v1(&cfg(1), 1), &[record])
}

#[test]
fn refusals_take_nothing() {
    let d = pool(2);
    #[track_caller]
    fn check(d: &tl_kv::SharedKv, bytes: &[u8], hash: u64, status: i32) {
        let view = EnvelopeView::parse(bytes, None).unwrap();
        let before = counts(d);
        assert_eq!(import_block(d, &view, hash).unwrap_err().status, status);
        assert_eq!(counts(d), before);
    }
    check(&d, &envelope(5, 4, 7), 6, KvError::EFORMAT);
    check(&d, &envelope(5, 4, 7), 0, KvError::EFORMAT);
    check(&d, &envelope(0, 3, 7), 6, KvError::EFORMAT);
    let two = {
        let record = BlockRecord { hash: 0, n_tokens: 4, payload: vec![7; 128] };
        write_envelope(&EnvHeader::v1(&cfg(1), 2), &[record.clone(), record])
    };
    check(&d, &two, 0, KvError::EFORMAT);
    check(&d, &write_envelope(&EnvHeader::v1(&cfg(1), 0), &[]), 0, KvError::EFORMAT);
    let other = tl_kv::KvCfg { n_layers: 1, head_dim: 8, ..cfg(1) };
    let record = BlockRecord { hash: 0, n_tokens: 4, payload: vec![7; 128] };
    check(&d, &write_envelope(&EnvHeader::v1(&other, 1), &[record]), 0, KvError::ESHAPE);
    let _all = Held::alloc(&d, 2).unwrap();
    check(&d, &envelope(5, 4, 7), 5, KvError::EFULL);
}

/// The proof reads the pool, so it also works for whoever opens the block in between.
#[test]
fn without_proof_the_bytes_are_the_same() {
    let d = pool(4);
    let bytes = envelope(5, 4, 9);
    let view = EnvelopeView::parse(&bytes, Some(&cfg(4))).unwrap();
    let block = transfer::import_block_with(&d, &view, 5, Proof::Skip).unwrap();
    assert_eq!(export_block(&d, block.id()).unwrap(), bytes);
}

#[test]
fn writing_a_block_out_needs_a_reference_and_a_sound_fill() {
    let p = pool(2);
    let slabs = lock(&p).slabs();
    let mut out = vec![1, 2, 3];
    let einval = |r: Result<(), KvError>| assert_eq!(r.unwrap_err().status, KvError::EINVAL);
    einval(transfer::write_block(&slabs, 0, 0, 4, &mut out));
    let held = Held::alloc(&p, 1).unwrap();
    let id = held.ids()[0];
    einval(transfer::write_block(&slabs, id, 0, 0, &mut out));
    einval(transfer::write_block(&slabs, id, 0, 5, &mut out));
    einval(transfer::write_block(&slabs, id, 9, 3, &mut out));
    assert_eq!(out, [1, 2, 3]);
    transfer::write_block(&slabs, id, 0, 2, &mut out).unwrap();
    assert!(EnvelopeView::parse(&out[3..], Some(&cfg(2))).is_ok(), "appended after other bytes");
    let open = slabs.write(id).unwrap();
    assert_eq!(
        transfer::write_block(&slabs, id, 0, 2, &mut out).unwrap_err().status,
        KvError::EBUSY
    );
    drop(open);
}
