//! A model that is nothing but its cache.
//!
//! Each position leaves a fixed f16 pattern in the blocks, and the logits are a hash
//! of every value cached so far. A lost, stale, doubled or flipped value anywhere
//! changes the next token, so a test that compares tokens compares the whole cache.
//!
//! Sampling is the caller's, so that this crate needs nothing of the engine.

use tl_kv::{Held, KvCfg, KvError, SharedKv, Slabs, TL_F16, lock, prompt_hashes};

/// Size of the vocabulary.
pub const VOCAB: usize = 32;
/// Payload bytes of one block of [`cfg`].
pub const PAYLOAD_BYTES: usize = 128;
/// Bytes of a one-block envelope of [`cfg`].
pub const ENVELOPE_BYTES: usize = 172;

/// The shape of the tests: four tokens per block, two layers, one head of four.
pub fn cfg(n_blocks: u32) -> KvCfg {
    KvCfg {
        n_blocks,
        block_tokens: 4,
        n_layers: 2,
        n_kv_heads: 1,
        head_dim: 4,
        dtype: TL_F16,
        format: tl_kv::KV_FORMAT_V1,
    }
}

/// A pool of [`cfg`].
pub fn pool(n_blocks: u32) -> SharedKv {
    tl_kv::pool::shared(cfg(n_blocks)).expect("a small valid shape")
}

/// The stored bits at one place of the cache.
pub fn pattern(token: u32, pos: usize, layer: usize, is_v: bool, head: usize, dim: usize) -> u16 {
    let mixed = 31 * u64::from(token)
        + 7 * pos as u64
        + 3 * layer as u64
        + 5 * u64::from(is_v)
        + 11 * head as u64
        + dim as u64;
    0x3C00 + (mixed % 0x400) as u16
}

/// A sequence whose positions are in the pool.
#[derive(Debug)]
pub struct Sequence {
    /// Its blocks, in order.
    pub held: Held,
    /// Positions written.
    pub len: usize,
    /// Hashes of the prompt's full blocks.
    pub hashes: Vec<u64>,
    /// Positions found in the pool's index instead of being written.
    pub cached: usize,
}

impl Sequence {
    /// A sequence over blocks that hold `len` positions already.
    pub fn resume(held: Held, len: usize) -> Sequence {
        Sequence { held, len, hashes: Vec::new(), cached: 0 }
    }
}

/// Runs a prompt: blocks the index knows are referenced, the others written, and the
/// full ones registered.
pub fn prefill(pool: &SharedKv, prompt: &[u32]) -> Result<Sequence, KvError> {
    prefill_with(pool, prompt, true)
}

/// As [`prefill`], with nothing looked up and nothing registered.
pub fn prefill_unregistered(pool: &SharedKv, prompt: &[u32]) -> Result<Sequence, KvError> {
    prefill_with(pool, prompt, false)
}

fn prefill_with(pool: &SharedKv, prompt: &[u32], index: bool) -> Result<Sequence, KvError> {
    let b = lock(pool).cfg().block_tokens as usize;
    let hashes = prompt_hashes(prompt, b);
    let mut seq =
        Sequence { held: Held::empty(pool), len: prompt.len(), hashes: hashes.clone(), cached: 0 };
    for (i, tokens) in prompt.chunks(b).enumerate() {
        let hash = hashes.get(i).copied().filter(|_| index);
        if let Some(id) = hash.and_then(|h| lock(pool).lookup(h)) {
            seq.held.push(id);
            seq.cached += tokens.len();
            continue;
        }
        let block = Held::alloc(pool, 1)?;
        let id = block.ids()[0];
        seq.held.append(block);
        let slabs = lock(pool).slabs();
        for (slot, &token) in tokens.iter().enumerate() {
            write(&slabs, id, slot, i * b + slot, token)?;
        }
        let mut books = lock(pool);
        books.set_fill(id, tokens.len() as u32)?;
        if let Some(hash) = hash {
            books.register(id, hash)?;
        }
    }
    Ok(seq)
}

/// Feeds one token at the next position, allocating a block when the last is full.
pub fn append(seq: &mut Sequence, token: u32) -> Result<(), KvError> {
    let pool = seq.held.pool().clone();
    let (slabs, b) = {
        let books = lock(&pool);
        (books.slabs(), books.cfg().block_tokens as usize)
    };
    if seq.len.is_multiple_of(b) {
        seq.held.append(Held::alloc(&pool, 1)?);
    }
    let id = seq.held.ids()[seq.len / b];
    write(&slabs, id, seq.len % b, seq.len, token)?;
    lock(&pool).set_fill(id, (seq.len % b + 1) as u32)?;
    seq.len += 1;
    Ok(())
}

fn write(slabs: &Slabs, id: u32, slot: usize, pos: usize, token: u32) -> Result<(), KvError> {
    let cfg = *slabs.cfg();
    let (b, d) = (cfg.block_tokens as usize, cfg.head_dim as usize);
    let mut block = slabs.write(id)?;
    for layer in 0..cfg.n_layers as usize {
        for is_v in [false, true] {
            let slab = if is_v { block.v_mut(layer) } else { block.k_mut(layer) };
            for head in 0..cfg.n_kv_heads as usize {
                for dim in 0..d {
                    slab[(head * b + slot) * d + dim] = pattern(token, pos, layer, is_v, head, dim);
                }
            }
        }
    }
    Ok(())
}

/// Logits after the positions written so far: a hash of every value they left.
pub fn logits(seq: &Sequence) -> Result<Vec<f32>, KvError> {
    let slabs = lock(seq.held.pool()).slabs();
    let cfg = *slabs.cfg();
    let (b, d) = (cfg.block_tokens as usize, cfg.head_dim as usize);
    let mut acc = 0xCBF2_9CE4_8422_2325u64;
    for pos in 0..seq.len {
        let block = slabs.read(seq.held.ids()[pos / b])?;
        for layer in 0..cfg.n_layers as usize {
            for slab in [block.k(layer), block.v(layer)] {
                for head in 0..cfg.n_kv_heads as usize {
                    for &value in &slab[(head * b + pos % b) * d..][..d] {
                        acc = (acc ^ u64::from(value)).wrapping_mul(0x0000_0100_0000_01B3);
                    }
                }
            }
        }
    }
    let logit = |i: usize| {
        let mixed = acc.rotate_left(7 * i as u32) ^ (i as u64 * 0x9E37);
        (mixed % 1000) as f32 / 250.0
    };
    Ok((0..VOCAB).map(logit).collect())
}

/// Whether `ids` hold exactly what [`prefill`] writes for `prompt`; the error names
/// the first place that differs.
pub fn check_contents(pool: &SharedKv, ids: &[u32], prompt: &[u32]) -> Result<(), String> {
    let slabs = lock(pool).slabs();
    let cfg = *slabs.cfg();
    let (b, d) = (cfg.block_tokens as usize, cfg.head_dim as usize);
    if ids.len() != prompt.len().div_ceil(b) {
        return Err(format!("{} blocks for {} tokens", ids.len(), prompt.len()));
    }
    for (pos, &token) in prompt.iter().enumerate() {
        let id = ids[pos / b];
        let block = slabs.read(id).map_err(|e| e.to_string())?;
        for layer in 0..cfg.n_layers as usize {
            for is_v in [false, true] {
                let slab = if is_v { block.v(layer) } else { block.k(layer) };
                for head in 0..cfg.n_kv_heads as usize {
                    for dim in 0..d {
                        let want = pattern(token, pos, layer, is_v, head, dim);
                        let got = slab[(head * b + pos % b) * d + dim];
                        if got != want {
                            return Err(format!(
                                "position {pos} (block {id}) layer {layer} v {is_v} head {head} \
                                 dim {dim}: {got:#06x}, expected {want:#06x}"
                            ));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
