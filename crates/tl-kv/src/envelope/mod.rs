//! The wire form of KV blocks, version 1.
//!
//! All integers little-endian: a 28-byte header (`TLKV`, u16 version, u16 dtype, u32 blocks,
//! block tokens, layers, KV heads, head dimension), one record per block (u64 hash or 0, u32
//! fill, payload), and a u32 CRC-32C of everything before. A v1 payload is the block as the pool
//! stores it, f16 `[L][2][Hkv][B][D]`, zero past the fill.
//!
//! Reading checks, in this order: room for the fixed parts, magic, CRC, version and dtype, length
//! against the header's own sizes (multiplied checked: the dimensions are a stranger's), shape
//! against the receiving pool, records. The CRC comes before the version because it does not
//! depend on it: a damaged version field is damage, which may be retried, and not a format that
//! this reader will never know. The version comes before the length because other versions have
//! other lengths. Nothing is allocated for an envelope that is refused.

pub(crate) mod put;
#[cfg(test)]
mod tests;

use crate::cfg::{KvCfg, TL_F16};
use crate::crc::crc32c;
use crate::error::{Code, KvError};

/// First bytes of every envelope.
pub const MAGIC: [u8; 4] = *b"TLKV";
/// Bytes of the header.
pub const HEADER_BYTES: usize = 28;
/// Bytes of a record before its payload.
pub const RECORD_HEAD_BYTES: usize = 12;
/// Bytes of the trailing checksum.
pub const CRC_BYTES: usize = 4;

/// Header of an envelope, as it stands in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvHeader {
    /// Format version; this crate reads 1.
    pub version: u16,
    /// Element type: 1 (f16) in version 1, 3 (fp8 e4m3) in version 2.
    pub dtype: u16,
    /// Records that follow.
    pub n_blocks: u32,
    /// Positions per block.
    pub block_tokens: u32,
    /// Layers.
    pub n_layers: u32,
    /// KV heads per layer.
    pub n_kv_heads: u32,
    /// Elements per head.
    pub head_dim: u32,
}

/// One block of an envelope, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// Block hash, 0 for a partial or unregistered block.
    pub hash: u64,
    /// Positions filled, `1..=B`.
    pub n_tokens: u32,
    /// Payload bytes.
    pub payload: Vec<u8>,
}

/// Why an envelope was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// Damaged, or against a rule of the format.
    #[error("envelope format: {0}")]
    Format(String),
    /// Sound, but of a version or dtype that is not read here.
    #[error("envelope version: {0}")]
    Version(String),
    /// Sound, but of another shape than the receiving pool.
    #[error("envelope shape: {0}")]
    Shape(String),
}

impl EnvError {
    /// The wire code a peer gets: a version never works here, anything else may on a second try.
    pub fn code(&self) -> Code {
        match self {
            Self::Version(_) => Code::FailedPrecondition,
            Self::Format(_) | Self::Shape(_) => Code::DataLoss,
        }
    }
}

impl From<EnvError> for KvError {
    fn from(error: EnvError) -> Self {
        match error {
            EnvError::Shape(_) => KvError::shape(error.to_string()),
            EnvError::Format(_) | EnvError::Version(_) => KvError::format(error.to_string()),
        }
    }
}

impl EnvHeader {
    /// Header of a v1 envelope of `n_blocks` blocks of a pool.
    pub fn v1(cfg: &KvCfg, n_blocks: u32) -> Self {
        Self {
            version: 1,
            dtype: TL_F16 as u16,
            n_blocks,
            block_tokens: cfg.block_tokens,
            n_layers: cfg.n_layers,
            n_kv_heads: cfg.n_kv_heads,
            head_dim: cfg.head_dim,
        }
    }

    /// Payload bytes of one block of this version, `None` when they cannot be addressed.
    pub fn checked_payload_bytes(&self) -> Option<usize> {
        let positions = (self.block_tokens as usize).checked_mul(self.head_dim as usize)?;
        let slab = match self.version {
            2 => positions.checked_add(4)?,
            _ => positions.checked_mul(2)?,
        };
        slab.checked_mul(self.n_kv_heads as usize)?
            .checked_mul(self.n_layers as usize)?
            .checked_mul(2)
    }

    /// Bytes of the whole envelope, `None` when they cannot be addressed.
    pub fn checked_envelope_bytes(&self) -> Option<usize> {
        self.checked_payload_bytes()?
            .checked_add(RECORD_HEAD_BYTES)?
            .checked_mul(self.n_blocks as usize)?
            .checked_add(HEADER_BYTES + CRC_BYTES)
    }

    /// Payload bytes of one block; `usize::MAX`, which no buffer has, when they overflow.
    pub fn payload_bytes(&self) -> usize {
        self.checked_payload_bytes().unwrap_or(usize::MAX)
    }

    /// Bytes of the whole envelope; `usize::MAX`, which no buffer has, when they overflow.
    pub fn envelope_bytes(&self) -> usize {
        self.checked_envelope_bytes().unwrap_or(usize::MAX)
    }
}

/// The bytes of an envelope. Header and records are written as they are: what a reader would
/// refuse can be written too.
pub fn write_envelope(header: &EnvHeader, blocks: &[BlockRecord]) -> Vec<u8> {
    let payload: usize = blocks.iter().map(|b| RECORD_HEAD_BYTES + b.payload.len()).sum();
    let mut out = Vec::with_capacity(HEADER_BYTES + payload + CRC_BYTES);
    let mut writer = put::Writer::new(&mut out, header);
    for block in blocks {
        writer.record_head(block.hash, block.n_tokens);
        writer.bytes(&block.payload);
    }
    writer.finish();
    out
}

/// Reads an envelope into owned records; `expect` is the receiving pool's shape.
pub fn read_envelope(
    buf: &[u8],
    expect: Option<&KvCfg>,
) -> Result<(EnvHeader, Vec<BlockRecord>), EnvError> {
    let view = EnvelopeView::parse(buf, expect)?;
    let records = view
        .records()
        .map(|r| BlockRecord { hash: r.hash, n_tokens: r.n_tokens, payload: r.payload.to_vec() })
        .collect();
    Ok((*view.header(), records))
}

/// One block of an envelope, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Block hash, 0 for a partial or unregistered block.
    pub hash: u64,
    /// Positions filled, `1..=B`.
    pub n_tokens: u32,
    /// Payload bytes.
    pub payload: &'a [u8],
}

/// A checked envelope in somebody else's buffer: nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeView<'a> {
    buf: &'a [u8],
    header: EnvHeader,
    record_bytes: usize,
}

impl<'a> EnvelopeView<'a> {
    /// Checks an envelope; `expect` is the receiving pool's shape.
    pub fn parse(buf: &'a [u8], expect: Option<&KvCfg>) -> Result<Self, EnvError> {
        let header = read_header(buf)?;
        let body = &buf[..buf.len() - CRC_BYTES];
        let (want, got) = (le_u32(buf, body.len()), crc32c(body));
        if want != got {
            return Err(EnvError::Format(match header.checked_envelope_bytes() {
                Some(bytes) if header.version == 1 && bytes != buf.len() => {
                    format!("CRC mismatch and {} bytes, the header says {bytes}", buf.len())
                }
                _ => format!("CRC mismatch: {want:#010x} stored, {got:#010x} computed"),
            }));
        }
        if (header.version, i32::from(header.dtype)) != (1, TL_F16) {
            return Err(EnvError::Version(format!(
                "version {} with dtype {}, read here: version 1 with dtype {TL_F16} (f16)",
                header.version, header.dtype
            )));
        }
        if header.checked_envelope_bytes() != Some(buf.len()) {
            return Err(EnvError::Format(format!(
                "{} bytes, the header says {} blocks of {}",
                buf.len(),
                header.n_blocks,
                dims(&header)
            )));
        }
        if let Some(cfg) = expect {
            let here = EnvHeader::v1(cfg, header.n_blocks);
            if header != here {
                return Err(EnvError::Shape(format!(
                    "blocks of {}, this pool has {}",
                    dims(&header),
                    dims(&here)
                )));
            }
        }
        let record_bytes = RECORD_HEAD_BYTES + header.payload_bytes();
        let view = Self { buf, header, record_bytes };
        for (i, record) in view.records().enumerate() {
            check_record(i, &record, header.block_tokens)?;
        }
        Ok(view)
    }

    /// The header.
    pub fn header(&self) -> &EnvHeader {
        &self.header
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.header.n_blocks as usize
    }

    /// Whether the envelope holds no block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Block `i`, `None` past the end.
    pub fn record(&self, i: usize) -> Option<RecordView<'a>> {
        if i >= self.len() {
            return None;
        }
        let start = HEADER_BYTES + i * self.record_bytes;
        let bytes = &self.buf[start..start + self.record_bytes];
        let (head, payload) = bytes.split_at(RECORD_HEAD_BYTES);
        Some(RecordView { hash: le_u64(head, 0), n_tokens: le_u32(head, 8), payload })
    }

    /// All blocks in order.
    pub fn records(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a> {
        let view = *self;
        (0..view.len()).filter_map(move |i| view.record(i))
    }

    /// The checksum stored at the end, which [`EnvelopeView::parse`] found right.
    pub fn crc(&self) -> u32 {
        le_u32(self.buf, self.buf.len() - CRC_BYTES)
    }

    /// Everything before the first payload.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        &self.buf[..HEADER_BYTES + RECORD_HEAD_BYTES]
    }
}

fn read_header(buf: &[u8]) -> Result<EnvHeader, EnvError> {
    if buf.len() < HEADER_BYTES + CRC_BYTES {
        return Err(EnvError::Format(format!(
            "{} bytes, header and CRC alone are {}",
            buf.len(),
            HEADER_BYTES + CRC_BYTES
        )));
    }
    if buf[..4] != MAGIC {
        return Err(EnvError::Format(format!("magic {:02x?}, expected {MAGIC:02x?}", &buf[..4])));
    }
    Ok(EnvHeader {
        version: u16::from_le_bytes([buf[4], buf[5]]),
        dtype: u16::from_le_bytes([buf[6], buf[7]]),
        n_blocks: le_u32(buf, 8),
        block_tokens: le_u32(buf, 12),
        n_layers: le_u32(buf, 16),
        n_kv_heads: le_u32(buf, 20),
        head_dim: le_u32(buf, 24),
    })
}

fn check_record(i: usize, record: &RecordView<'_>, block_tokens: u32) -> Result<(), EnvError> {
    if record.n_tokens == 0 || record.n_tokens > block_tokens {
        return Err(EnvError::Format(format!(
            "record {i} has fill {}, expected 1 to {block_tokens}",
            record.n_tokens
        )));
    }
    if record.hash != 0 && record.n_tokens != block_tokens {
        return Err(EnvError::Format(format!(
            "record {i} has hash {:#018x} but {} of {block_tokens} positions; only full blocks \
             have a hash",
            record.hash, record.n_tokens
        )));
    }
    Ok(())
}

fn dims(h: &EnvHeader) -> String {
    format!(
        "{} tokens, {} layers, {} KV heads, head dimension {}",
        h.block_tokens, h.n_layers, h.n_kv_heads, h.head_dim
    )
}

fn le_u32(buf: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([buf[at], buf[at + 1], buf[at + 2], buf[at + 3]])
}

fn le_u64(buf: &[u8], at: usize) -> u64 {
    u64::from(le_u32(buf, at)) | u64::from(le_u32(buf, at + 4)) << 32
}
