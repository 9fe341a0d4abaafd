//! The pieces of an envelope, appended to a buffer. The wire is little-endian; on a machine that
//! is too, a full block is one copy.

use super::{EnvHeader, MAGIC};
use crate::cfg::KvCfg;
use crate::crc::crc32c;

pub(crate) fn header(out: &mut Vec<u8>, h: &EnvHeader) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&h.version.to_le_bytes());
    out.extend_from_slice(&h.dtype.to_le_bytes());
    for dim in [
        h.n_blocks,
        h.block_tokens,
        h.n_layers,
        h.n_kv_heads,
        h.head_dim,
    ] {
        out.extend_from_slice(&dim.to_le_bytes());
    }
}

pub(crate) fn record_head(out: &mut Vec<u8>, hash: u64, n_tokens: u32) {
    out.extend_from_slice(&hash.to_le_bytes());
    out.extend_from_slice(&n_tokens.to_le_bytes());
}

/// The contents of a block up to `fill`, zeros after.
pub(crate) fn payload(out: &mut Vec<u8>, cfg: &KvCfg, block: &[u16], fill: u32) {
    if fill >= cfg.block_tokens {
        elements(out, block);
        return;
    }
    let head_len = cfg.block_tokens as usize * cfg.head_dim as usize;
    let filled = fill as usize * cfg.head_dim as usize;
    for head in block.chunks_exact(head_len) {
        elements(out, &head[..filled]);
        out.resize(out.len() + (head_len - filled) * 2, 0);
    }
}

/// The checksum of everything from `start` on.
pub(crate) fn crc(out: &mut Vec<u8>, start: usize) {
    let crc = crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

fn elements(out: &mut Vec<u8>, block: &[u16]) {
    if cfg!(target_endian = "little") {
        out.extend_from_slice(bytemuck::cast_slice(block));
    } else {
        out.extend(block.iter().flat_map(|x| x.to_le_bytes()));
    }
}

/// Copies a payload into a block of the same size.
pub(crate) fn into_block(block: &mut [u16], payload: &[u8]) {
    if cfg!(target_endian = "little") {
        bytemuck::cast_slice_mut(block).copy_from_slice(payload);
    } else {
        for (x, bytes) in block.iter_mut().zip(payload.chunks_exact(2)) {
            *x = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
    }
}

/// Whether a block holds exactly this payload.
pub(crate) fn is_block(block: &[u16], payload: &[u8]) -> bool {
    if cfg!(target_endian = "little") {
        bytemuck::cast_slice::<u16, u8>(block) == payload
    } else {
        block.len() * 2 == payload.len()
            && block
                .iter()
                .zip(payload.chunks_exact(2))
                .all(|(x, b)| x.to_le_bytes() == *b)
    }
}
