//! What must be true of the readers for any bytes at all. Shared with the fuzz targets.

use tl_kv::handoff::{ChunkHead, PushAssembly, PushLimits, receive};
use tl_kv::{
    BlockRecord, EnvError, EnvHeader, EnvelopeView, Held, KV_FORMAT_V1, KvCfg, KvError, KvPool,
    SharedKv, TL_F16, crc32c, import_block, lock, read_envelope, shared, write_envelope,
};

pub const SHAPE: KvCfg = KvCfg {
    n_blocks: 4,
    block_tokens: 2,
    n_layers: 1,
    n_kv_heads: 1,
    head_dim: 2,
    dtype: TL_F16,
    format: KV_FORMAT_V1,
};

/// The same bytes with a right checksum, so that what lies behind it is reached.
pub fn with_crc(data: &[u8]) -> Vec<u8> {
    let body = &data[..data.len().saturating_sub(4)];
    let mut out = body.to_vec();
    out.extend(crc32c(body).to_le_bytes());
    out
}

/// Whatever the reader accepts is what the writer writes, byte for byte; owned and borrowed
/// reader agree; nothing panics.
pub fn envelope(data: &[u8]) {
    for buf in [data, &with_crc(data)] {
        for expect in [None, Some(&SHAPE)] {
            let view = EnvelopeView::parse(buf, expect);
            match read_envelope(buf, expect) {
                Ok((header, records)) => {
                    let view = view.expect("the readers disagree");
                    assert_eq!(write_envelope(&header, &records), buf);
                    assert_eq!(view.len(), records.len());
                    assert_eq!((header.version, header.dtype), (1, 1));
                }
                Err(error) => assert_eq!(view.err(), Some(error)),
            }
        }
    }
}

/// An import either takes every block or changes nothing, and what it takes is exported as the
/// same bytes apart from positions past a fill.
pub fn import(data: &[u8]) {
    let buf = with_crc(data);
    let mut pool = KvPool::new(SHAPE).expect("a small pool");
    match pool.import(&buf) {
        Ok(ids) => {
            let (header, records) = read_envelope(&buf, Some(&SHAPE)).expect("was imported");
            assert_eq!(header.n_blocks as usize, ids.len());
            let again = pool.export(&ids).expect("every block has a fill");
            let (_, exported) = read_envelope(&again, Some(&SHAPE)).expect("own export");
            for (a, b) in records.iter().zip(&exported) {
                let filled = |p: &[u8]| -> Vec<u8> {
                    p.chunks(8).flat_map(|slab| &slab[..a.n_tokens as usize * 4]).copied().collect()
                };
                assert_eq!(filled(&a.payload), filled(&b.payload));
                assert_eq!(a.n_tokens, b.n_tokens);
            }
            ids.iter().rev().for_each(|&id| pool.release(id).expect("was allocated"));
            assert_eq!(pool.stats().used, 0);
        }
        Err(error) => {
            assert!([KvError::EFORMAT, KvError::ESHAPE, KvError::EFULL].contains(&error.status));
            assert_eq!(pool.stats().free, SHAPE.n_blocks);
        }
    }
    pool.check().expect("invariants");
    one_block(&buf);
}

fn one_block(buf: &[u8]) {
    let pool: SharedKv = shared(SHAPE).expect("a small pool");
    let view = match EnvelopeView::parse(buf, Some(&SHAPE)) {
        Ok(view) => view,
        Err(EnvError::Format(_) | EnvError::Version(_) | EnvError::Shape(_)) => return,
    };
    let hash = view.record(0).map_or(0, |record| record.hash);
    if let Ok(block) = import_block(&pool, &view, hash) {
        assert_eq!(view.len(), 1);
        assert_eq!(lock(&pool).hash_of(block.id()), hash);
    }
    let pool = lock(&pool);
    assert_eq!(pool.stats().used, 0);
    pool.check().expect("invariants");
}

const HANDLES: [&str; 3] = ["h", "i", ""];

fn payload(kind: u8, hash: u64) -> Vec<u8> {
    let (named, fill) = if kind == 2 { (0, 1) } else { (hash, SHAPE.block_tokens) };
    let record = BlockRecord { hash: named, n_tokens: fill, payload: vec![kind; 16] };
    let mut bytes = write_envelope(&EnvHeader::v1(&SHAPE, 1), &[record]);
    match kind {
        0 => bytes.clear(),
        3 => bytes[40] ^= 1,
        4 => bytes.truncate(50),
        5 => bytes[4] = 2,
        _ => {}
    }
    bytes
}

/// A stream of chunks, eight bytes each: differences to a sound chunk, so that zeros are sound.
/// It ends in an ack for a whole prompt, every block of it held, or leaves the pool as it was.
pub fn push(data: &[u8]) {
    let pool: SharedKv = shared(SHAPE).expect("a small pool");
    let limits = PushLimits { kv_format: KV_FORMAT_V1, max_blocks: SHAPE.n_blocks };
    let mut push = PushAssembly::new(limits);
    let mut held = Held::empty(&pool);
    let mut failed = false;
    for (i, b) in (0u32..).zip(data.chunks_exact(8)) {
        let kind = if b[4] == 0 { 1 } else { b[4] % 6 };
        let block_hash = u64::from(i) * u64::from(b[3] % 2 == 0) + u64::from(b[3] / 2);
        let payload = payload(kind, block_hash);
        let crc = if payload.is_empty() { 0 } else { crc32c(&payload) };
        let head = ChunkHead {
            handle_id: HANDLES[b[2] as usize % 3],
            block_hash,
            block_index: i.wrapping_add(u32::from(b[0])),
            n_blocks_total: (data.len() as u32 / 8).wrapping_add(u32::from(b[1])),
            kv_format: KV_FORMAT_V1 + u32::from(b[5] % 2),
            payload_len: payload.len(),
            crc32c: crc ^ u32::from(b[6] % 2),
        };
        let before = (held.len(), lock(&pool).stats());
        let taken =
            push.chunk(&head).and_then(|action| receive(action, &head, &payload, &mut held));
        if taken.is_err() {
            let after = lock(&pool).stats();
            assert_eq!((held.len(), after.used), (before.0, before.1.used));
            failed = true;
            break;
        }
        assert_eq!(held.len(), before.0 + 1);
    }
    if let (false, Ok(ack)) = (failed, push.finish()) {
        assert_eq!(held.len() as u32, ack.blocks_received + ack.blocks_deduped);
        assert_eq!(held.len(), data.len() / 8);
    }
    drop(held);
    let pool = lock(&pool);
    assert_eq!((pool.stats().used, pool.violations()), (0, 0));
    pool.check().expect("invariants");
}
