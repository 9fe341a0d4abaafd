//! The receiving side of one push: one stream of chunks, one block each, in prompt order.
//!
//! [`PushAssembly`] judges the heads of the chunks and counts; [`receive`] does what it decided
//! to a pool. Keeping them apart lets the order rules be tested without a pool, and keeps one
//! algorithm for every way chunks can arrive.

use crate::cfg::KvCfg;
use crate::crc::CRC32C_RESIDUE;
use crate::envelope::{EnvError, EnvelopeView};
use crate::error::{Code, KvError};
use crate::held::Held;
use crate::pool::{SharedKv, lock};
use crate::transfer::import_block;

/// A chunk without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead<'a> {
    /// Key of the handle, equal in every chunk.
    pub handle_id: &'a str,
    /// Name of the block, 0 for a partial tail.
    pub block_hash: u64,
    /// Place of the block in the prompt.
    pub block_index: u32,
    /// Chunks of this push, equal in every chunk.
    pub n_blocks_total: u32,
    /// Format of the payload.
    pub kv_format: u32,
    /// Bytes of payload; 0 asks for a reference to the cached block of that name.
    pub payload_len: usize,
    /// CRC-32C of the payload, 0 when it is empty.
    pub crc32c: u32,
}

/// What the receiving engine can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PushLimits {
    /// The format read here.
    pub kv_format: u32,
    /// Blocks of the pool: a longer push can never fit.
    pub max_blocks: u32,
}

/// What to do with an accepted chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkAction {
    /// Take a reference to the block of this name.
    Share {
        /// Name of the block.
        hash: u64,
    },
    /// Import the payload, named `hash` (0 for a partial tail).
    Import {
        /// Name of the block or 0.
        hash: u64,
    },
}

/// Answer to a complete push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushAck {
    /// Key of the handle.
    pub handle_id: String,
    /// Chunks with a payload.
    pub blocks_received: u32,
    /// Chunks without.
    pub blocks_deduped: u32,
}

/// Why a push was refused. Everything taken for it goes back when the driver drops it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// A format this engine does not read.
    #[error("kv_format {got} is not read here, expected {want}")]
    Format { got: u32, want: u32 },
    /// No key to hold the blocks under.
    #[error("handle_id is empty")]
    EmptyHandle,
    /// Chunks of two handles in one stream.
    #[error("handle_id changes within the stream at chunk {index}")]
    HandleChanged { index: u32 },
    /// Chunks disagree about their number.
    #[error("n_blocks_total changes from {want} to {got} within the stream")]
    TotalChanged { got: u32, want: u32 },
    /// A push of nothing.
    #[error("n_blocks_total is 0")]
    NoBlocks,
    /// More blocks than the pool has.
    #[error("{total} blocks can never fit into a pool of {room}")]
    NeverFits { total: u32, room: u32 },
    /// A chunk is missing, doubled or out of order.
    #[error("block_index {got}, expected {want}")]
    OutOfSequence { got: u32, want: u32 },
    /// More chunks than announced.
    #[error("chunk past n_blocks_total {total}")]
    PastEnd { total: u32 },
    /// Neither contents nor a name.
    #[error("chunk {index} has neither payload nor hash")]
    Nameless { index: u32 },
    /// The chunk's checksum is not that of a sound envelope.
    #[error("chunk {index}: crc32c {got:#010x}, expected {want:#010x}")]
    Checksum { index: u32, got: u32, want: u32 },
    /// The payload is no envelope that can be taken.
    #[error("chunk {index}: {error}")]
    Envelope { index: u32, error: EnvError },
    /// An envelope of another number of blocks than one.
    #[error("chunk {index}: envelope of {n} blocks, expected 1")]
    NotOneBlock { index: u32, n: usize },
    /// Chunk and envelope name different blocks.
    #[error("chunk {index} announces block {chunk:#018x}, its envelope is {envelope:#018x}")]
    NameDiffers { index: u32, chunk: u64, envelope: u64 },
    /// A named block that is not full.
    #[error("chunk {index} names a block with {fill} of {block_tokens} positions")]
    NotFull { index: u32, fill: u32, block_tokens: u32 },
    /// A partial block in the middle of a prompt.
    #[error("chunk {index} is partial but not the last of {total}")]
    Hole { index: u32, total: u32 },
    /// The block was evicted after the sender asked for it.
    #[error("chunk {index}: block {hash:#018x} is not cached here")]
    Gone { index: u32, hash: u64 },
    /// The pool refused.
    #[error("chunk {index}: {error}")]
    Pool { index: u32, error: KvError },
    /// The stream ended early.
    #[error("stream ended after {got} of {total} chunks")]
    Incomplete { got: u32, total: u32 },
    /// The stream had no chunk.
    #[error("empty stream")]
    NoChunks,
    /// Something arrived after an error ended the push.
    #[error("the push has already failed")]
    AlreadyFailed,
}

impl PushError {
    /// The code the sender gets.
    pub fn code(&self) -> Code {
        match self {
            Self::Format { .. } => Code::FailedPrecondition,
            Self::EmptyHandle
            | Self::HandleChanged { .. }
            | Self::TotalChanged { .. }
            | Self::NoBlocks
            | Self::OutOfSequence { .. }
            | Self::PastEnd { .. }
            | Self::Nameless { .. }
            | Self::Hole { .. }
            | Self::Incomplete { .. }
            | Self::NoChunks => Code::InvalidArgument,
            Self::NeverFits { .. } => Code::ResourceExhausted,
            Self::Checksum { .. }
            | Self::NotOneBlock { .. }
            | Self::NameDiffers { .. }
            | Self::NotFull { .. } => Code::DataLoss,
            Self::Envelope { error, .. } => error.code(),
            Self::Gone { .. } => Code::NotFound,
            Self::Pool { error, .. } => error.code(),
            Self::AlreadyFailed => Code::Aborted,
        }
    }
}

/// The order rules of one push.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PushAssembly {
    limits: PushLimits,
    /// Handle and total of the first chunk.
    first: Option<(String, u32)>,
    received: u32,
    deduped: u32,
    failed: bool,
}

impl PushAssembly {
    /// A push of which nothing has arrived.
    pub fn new(limits: PushLimits) -> Self {
        Self { limits, first: None, received: 0, deduped: 0, failed: false }
    }

    /// A push of which `accepted` chunks were judged elsewhere: the next one may be any push's
    /// chunk of that index.
    pub fn at(limits: PushLimits, accepted: u32) -> Self {
        Self { received: accepted, ..Self::new(limits) }
    }

    /// Chunks accepted so far.
    pub fn accepted(&self) -> u32 {
        self.received + self.deduped
    }

    /// Key of the handle and number of blocks, once a chunk was accepted.
    pub fn handle(&self) -> Option<(&str, u32)> {
        self.first.as_ref().map(|(handle, total)| (handle.as_str(), *total))
    }

    /// Judges the next chunk. After an error every further fact is refused.
    pub fn chunk(&mut self, head: &ChunkHead<'_>) -> Result<ChunkAction, PushError> {
        let verdict = self.judge(head);
        match verdict {
            Ok(ChunkAction::Share { .. }) => self.deduped += 1,
            Ok(ChunkAction::Import { .. }) => self.received += 1,
            Err(_) => self.failed = true,
        }
        verdict
    }

    fn judge(&mut self, head: &ChunkHead<'_>) -> Result<ChunkAction, PushError> {
        if self.failed {
            return Err(PushError::AlreadyFailed);
        }
        let want = self.limits.kv_format;
        if head.kv_format != want {
            return Err(PushError::Format { got: head.kv_format, want });
        }
        let index = self.accepted();
        let total = match &self.first {
            Some((handle, _)) if handle != head.handle_id => {
                return Err(PushError::HandleChanged { index });
            }
            Some((_, total)) => *total,
            None => self.check_first(head)?,
        };
        if head.n_blocks_total != total {
            return Err(PushError::TotalChanged { got: head.n_blocks_total, want: total });
        }
        if index >= total {
            return Err(PushError::PastEnd { total });
        }
        if head.block_index != index {
            return Err(PushError::OutOfSequence { got: head.block_index, want: index });
        }
        let hash = head.block_hash;
        let (action, crc) = match (head.payload_len, hash) {
            (0, 0) => return Err(PushError::Nameless { index }),
            (0, _) => (ChunkAction::Share { hash }, 0),
            _ => (ChunkAction::Import { hash }, CRC32C_RESIDUE),
        };
        // Every sound envelope has one checksum, so a chunk that states another one is damaged
        // or carries a damaged envelope; which it is needs no pass over the bytes.
        if head.crc32c != crc {
            return Err(PushError::Checksum { index, got: head.crc32c, want: crc });
        }
        if self.first.is_none() {
            self.first = Some((head.handle_id.to_owned(), total));
        }
        Ok(action)
    }

    fn check_first(&self, head: &ChunkHead<'_>) -> Result<u32, PushError> {
        let (total, room) = (head.n_blocks_total, self.limits.max_blocks);
        if head.handle_id.is_empty() {
            return Err(PushError::EmptyHandle);
        }
        if total == 0 {
            return Err(PushError::NoBlocks);
        }
        if total > room {
            return Err(PushError::NeverFits { total, room });
        }
        Ok(total)
    }

    /// The sender half-closed: the ack, or what is missing.
    pub fn finish(self) -> Result<PushAck, PushError> {
        let got = self.accepted();
        match self.first {
            _ if self.failed => Err(PushError::AlreadyFailed),
            None => Err(PushError::NoChunks),
            Some((_, total)) if got < total => Err(PushError::Incomplete { got, total }),
            Some((handle_id, _)) => Ok(PushAck {
                handle_id,
                blocks_received: self.received,
                blocks_deduped: self.deduped,
            }),
        }
    }
}

/// Checks the payload of an accepted chunk against its head and the pool's shape.
pub fn check_payload<'a>(
    head: &ChunkHead<'_>,
    payload: &'a [u8],
    cfg: &KvCfg,
) -> Result<EnvelopeView<'a>, PushError> {
    let index = head.block_index;
    let view = EnvelopeView::parse(payload, Some(cfg))
        .map_err(|error| PushError::Envelope { index, error })?;
    let Some(record) = view.record(0).filter(|_| view.len() == 1) else {
        return Err(PushError::NotOneBlock { index, n: view.len() });
    };
    let (chunk, envelope) = (head.block_hash, record.hash);
    if envelope != 0 && envelope != chunk {
        return Err(PushError::NameDiffers { index, chunk, envelope });
    }
    let (fill, block_tokens) = (record.n_tokens, cfg.block_tokens);
    if fill < block_tokens {
        if chunk != 0 {
            return Err(PushError::NotFull { index, fill, block_tokens });
        }
        if index + 1 < head.n_blocks_total {
            return Err(PushError::Hole { index, total: head.n_blocks_total });
        }
    }
    Ok(view)
}

/// Does to `into`'s pool what [`PushAssembly::chunk`] decided about a chunk: one more block in
/// `into`, or an error and nothing taken. The pool is locked for bookkeeping only.
pub fn receive(
    action: ChunkAction,
    head: &ChunkHead<'_>,
    payload: &[u8],
    into: &mut Held,
) -> Result<(), PushError> {
    let index = head.block_index;
    let pool = SharedKv::clone(into.pool());
    match action {
        ChunkAction::Share { hash } => {
            let found = lock(&pool).lookup(hash);
            into.push(found.ok_or(PushError::Gone { index, hash })?);
        }
        ChunkAction::Import { hash } => {
            let cfg = *lock(&pool).cfg();
            let view = check_payload(head, payload, &cfg)?;
            let block = import_block(&pool, &view, hash)
                .map_err(|error| PushError::Pool { index, error })?;
            into.append(block.held);
        }
    }
    Ok(())
}
