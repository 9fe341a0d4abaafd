//! Writing the pieces of an envelope, and bytes between a payload and a block.
//!
//! The wire is little-endian; on a machine that is too, a payload and a block are the same bytes.
//! Checksums run a tile behind the copy, while its bytes are still in the first cache: a block
//! is larger than that, and a second pass over all of it costs as much as the copy.

use super::{CRC_BYTES, EnvHeader, MAGIC};
use crate::cfg::KvCfg;
use crate::crc::Crc32c;

/// Bytes copied before they are summed.
const TILE: usize = 16 * 1024;

/// An envelope growing at the end of a buffer, with the checksum of what it has so far.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Everything before this is in `crc`.
    summed: usize,
    crc: Crc32c,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, header: &EnvHeader) -> Self {
        let summed = out.len();
        let mut writer = Self {
            out,
            summed,
            crc: Crc32c::new(),
        };
        writer.bytes(&MAGIC);
        writer.bytes(&header.version.to_le_bytes());
        writer.bytes(&header.dtype.to_le_bytes());
        let EnvHeader {
            n_blocks,
            block_tokens,
            n_layers,
            n_kv_heads,
            head_dim,
            ..
        } = *header;
        for dim in [n_blocks, block_tokens, n_layers, n_kv_heads, head_dim] {
            writer.bytes(&dim.to_le_bytes());
        }
        writer
    }

    pub(crate) fn record_head(&mut self, hash: u64, n_tokens: u32) {
        self.bytes(&hash.to_le_bytes());
        self.bytes(&n_tokens.to_le_bytes());
    }

    /// The contents of a block up to `fill`, zeros after.
    pub(crate) fn block(&mut self, cfg: &KvCfg, block: &[u16], fill: u32) {
        if fill >= cfg.block_tokens {
            block.chunks(TILE / 2).for_each(|tile| self.elements(tile));
            return;
        }
        let head_len = cfg.block_tokens as usize * cfg.head_dim as usize;
        let filled = fill as usize * cfg.head_dim as usize;
        for head in block.chunks_exact(head_len) {
            self.elements(&head[..filled]);
            self.out.resize(self.out.len() + (head_len - filled) * 2, 0);
        }
    }

    fn elements(&mut self, elements: &[u16]) {
        if cfg!(target_endian = "little") {
            self.bytes(bytemuck::cast_slice(elements));
        } else {
            self.out
                .extend(elements.iter().flat_map(|x| x.to_le_bytes()));
            self.sum(TILE);
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.sum(TILE);
    }

    fn sum(&mut self, at_least: usize) {
        if self.out.len() - self.summed >= at_least {
            self.crc.update(&self.out[self.summed..]);
            self.summed = self.out.len();
        }
    }

    /// Appends the checksum.
    pub(crate) fn finish(mut self) {
        self.sum(0);
        let crc: [u8; CRC_BYTES] = self.crc.value().to_le_bytes();
        self.out.extend_from_slice(&crc);
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

/// As [`into_block`], and adds what the block holds afterwards to a checksum.
pub(crate) fn into_block_summed(block: &mut [u16], payload: &[u8], crc: &mut Crc32c) {
    for (tile, bytes) in block.chunks_mut(TILE / 2).zip(payload.chunks(TILE)) {
        into_block(tile, bytes);
        if cfg!(target_endian = "little") {
            crc.update(bytemuck::cast_slice(tile));
        } else {
            tile.iter().for_each(|x| crc.update(&x.to_le_bytes()));
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
