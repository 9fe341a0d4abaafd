//! What the blocks hold and what the tokens are: functions of the prompt, as in a real model.

use tl_kv::{KV_FORMAT_V1, KvCfg, TL_F16};

/// Tokens per block.
pub const B: usize = 2;
/// Longest prompt in blocks.
pub const BLOCKS: usize = 2;

/// The prompt of a request: one full block that all share, one position of its own.
pub fn prompt(request: u8) -> [u32; 3] {
    [1, 2, 3 + u32::from(request)]
}

/// The smallest pool there is: one layer, one head, one element.
pub fn pool_cfg(n_blocks: u32) -> KvCfg {
    KvCfg {
        n_blocks,
        block_tokens: B as u32,
        n_layers: 1,
        n_kv_heads: 1,
        head_dim: 1,
        dtype: TL_F16,
        format: KV_FORMAT_V1,
    }
}

/// K and V of the last position of `prefix`.
pub fn kv_of(prefix: &[u32]) -> (u16, u16) {
    let h = prefix.iter().fold(17u32, |h, &t| h.wrapping_mul(31).wrapping_add(t + 1));
    ((h & 0x3FFF) as u16, (h.wrapping_mul(7) & 0x3FFF) as u16)
}

/// The filled positions of one block of a prompt, `[K.., V..]`.
pub fn block_of(request: u8, index: usize) -> Vec<u16> {
    let prompt = prompt(request);
    let ends = (index * B + 1)..=prompt.len().min((index + 1) * B);
    let pairs: Vec<(u16, u16)> = ends.map(|end| kv_of(&prompt[..end])).collect();
    pairs.iter().map(|p| p.0).chain(pairs.iter().map(|p| p.1)).collect()
}

/// What the prefill engine samples.
pub fn first_token(request: u8) -> u16 {
    100 + u16::from(request)
}

/// What a decode engine samples that has read `blocks` after `first`.
pub fn next_token(first: u16, blocks: &[Vec<u16>]) -> u16 {
    blocks.iter().flatten().fold(first, |h, &x| h.wrapping_mul(31).wrapping_add(x) ^ (h >> 7))
}

/// The whole right answer.
pub fn answer(request: u8) -> [u16; 2] {
    let blocks: Vec<Vec<u16>> = (0..BLOCKS).map(|i| block_of(request, i)).collect();
    [first_token(request), next_token(first_token(request), &blocks)]
}
