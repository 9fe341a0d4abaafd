//! Writing the pieces of an envelope, and bytes between a payload and a block.
//!
//! The wire is little-endian; on a machine that is too, a payload and a block are the same bytes.
//! Checksums run a tile behind the copy, while its bytes are still in the first cache: a block
//! is larger than that, and a second pass over all of it costs as much as the copy.

use bytes::BufMut;

use super::{CRC_BYTES, EnvHeader, HEADER_BYTES, MAGIC, RECORD_HEAD_BYTES};
use crate::cfg::KvCfg;
use crate::crc::Crc32c;

/// Bytes copied before they are summed.
const TILE: usize = 16 * 1024;

/// An envelope growing at the end of a buffer, with the checksum of what it has so far. The
/// buffer is written once and never read, so it may be a connection's.
pub(crate) struct Writer<'a, B> {
    out: &'a mut B,
    crc: Crc32c,
}

impl<'a, B: BufMut> Writer<'a, B> {
    pub(crate) fn new(out: &'a mut B, header: &EnvHeader) -> Self {
        let EnvHeader { version, dtype, n_blocks, block_tokens, n_layers, n_kv_heads, head_dim } =
            *header;
        let mut head = [0; HEADER_BYTES];
        let mut rest = &mut head[..];
        rest.put_slice(&MAGIC);
        rest.put_u16_le(version);
        rest.put_u16_le(dtype);
        for dim in [n_blocks, block_tokens, n_layers, n_kv_heads, head_dim] {
            rest.put_u32_le(dim);
        }
        let mut writer = Self { out, crc: Crc32c::new() };
        writer.bytes(&head);
        writer
    }

    pub(crate) fn record_head(&mut self, hash: u64, n_tokens: u32) {
        let mut head = [0; RECORD_HEAD_BYTES];
        head[..8].copy_from_slice(&hash.to_le_bytes());
        head[8..].copy_from_slice(&n_tokens.to_le_bytes());
        self.bytes(&head);
    }

    /// The contents of a block up to `fill`, zeros after.
    pub(crate) fn block(&mut self, cfg: &KvCfg, block: &[u16], fill: u32) {
        if fill >= cfg.block_tokens {
            self.elements(block);
            return;
        }
        let head_len = cfg.block_tokens as usize * cfg.head_dim as usize;
        let filled = fill as usize * cfg.head_dim as usize;
        for head in block.chunks_exact(head_len) {
            self.elements(&head[..filled]);
            self.zeros((head_len - filled) * 2);
        }
    }

    fn elements(&mut self, elements: &[u16]) {
        if cfg!(target_endian = "little") {
            self.bytes(bytemuck::cast_slice(elements));
        } else {
            elements.iter().for_each(|x| self.bytes(&x.to_le_bytes()));
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for tile in bytes.chunks(TILE) {
            self.out.put_slice(tile);
            self.crc.update(tile);
        }
    }

    fn zeros(&mut self, n: usize) {
        const ZEROS: [u8; 1024] = [0; 1024];
        let (whole, rest) = (n / ZEROS.len(), n % ZEROS.len());
        (0..whole).for_each(|_| self.bytes(&ZEROS));
        self.bytes(&ZEROS[..rest]);
    }

    /// Appends the checksum.
    pub(crate) fn finish(self) {
        let crc: [u8; CRC_BYTES] = self.crc.value().to_le_bytes();
        self.out.put_slice(&crc);
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
            && block.iter().zip(payload.chunks_exact(2)).all(|(x, b)| x.to_le_bytes() == *b)
    }
}
