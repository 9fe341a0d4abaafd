//! Pools of the shape the pushes of these tests use: 172 bytes per one-block envelope.

use tl_kv::{Held, KV_FORMAT_V1, KvCfg, KvStats, SharedKv, TL_F16, lock, prompt_hashes, shared};

pub const B: usize = 4;

pub fn cfg(n_blocks: u32) -> KvCfg {
    KvCfg {
        n_blocks,
        block_tokens: B as u32,
        n_layers: 2,
        n_kv_heads: 1,
        head_dim: 4,
        dtype: TL_F16,
        format: KV_FORMAT_V1,
    }
}

pub fn pool(n_blocks: u32) -> SharedKv {
    shared(cfg(n_blocks)).unwrap()
}

/// `(free, used, cached)`, after a recount.
pub fn counts(pool: &SharedKv) -> (u32, u32, u32) {
    let pool = lock(pool);
    pool.check().unwrap();
    assert_eq!(pool.violations(), 0);
    let KvStats { free, used, cached, .. } = pool.stats();
    (free, used, cached)
}

/// The f16 bits a position of a token has in these tests: a function of the whole prefix, as in
/// a real model.
pub fn pattern(prefix: &[u32], element: usize) -> u16 {
    let h = prefix.iter().fold(17u32, |h, &t| h.wrapping_mul(31).wrapping_add(t + 1));
    (h.wrapping_add(element as u32 * 97) & 0x3FFF) as u16
}

/// A prompt's blocks as a prefill engine leaves them: written, filled, full ones registered.
pub fn prefill(pool: &SharedKv, tokens: &[u32]) -> (Held, Vec<u64>) {
    let held = Held::alloc(pool, tokens.len().div_ceil(B)).unwrap();
    let slabs = lock(pool).slabs();
    for (block, &id) in held.ids().iter().enumerate() {
        let end = tokens.len().min((block + 1) * B);
        let mut open = slabs.write(id).unwrap();
        for (slot, position) in (block * B..end).enumerate() {
            for (slab, values) in open.all_mut().chunks_exact_mut(B * 4).enumerate() {
                for d in 0..4 {
                    values[slot * 4 + d] = pattern(&tokens[..=position], slab * 4 + d);
                }
            }
        }
        drop(open);
        lock(pool).set_fill(id, (end - block * B) as u32).unwrap();
    }
    let hashes = prompt_hashes(tokens, B);
    for (&id, &hash) in held.ids().iter().zip(&hashes) {
        lock(pool).register(id, hash).unwrap();
    }
    (held, hashes)
}

/// Whether blocks hold what [`prefill`] writes for `tokens`.
pub fn holds(pool: &SharedKv, ids: &[u32], tokens: &[u32]) -> bool {
    let slabs = lock(pool).slabs();
    (0..tokens.len()).all(|position| {
        let block = slabs.read(ids[position / B]).unwrap();
        block.all().chunks_exact(B * 4).enumerate().all(|(slab, values)| {
            (0..4).all(|d| {
                values[position % B * 4 + d] == pattern(&tokens[..=position], slab * 4 + d)
            })
        })
    })
}

/// Reproducible bytes without a dependency.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}
