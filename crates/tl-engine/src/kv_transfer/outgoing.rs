//! One push on its way out: which blocks, and the right to read them.
//!
//! Chunks are made one at a time, when the connection takes them. So a push of any
//! length needs the memory of one chunk, and the pool is locked once, for its
//! bookkeeping, before anything is sent.
//!
//! A connection may hold on to the stream after the call that started it has failed
//! or been dropped. The blocks go back to the pool at that moment all the same, so
//! the stream's right to read them must end first: [`Outgoing::fence`] waits for the
//! block being copied, if there is one, and forbids the next.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use parking_lot::Mutex;
use tl_kv::handoff::{BlockSend, Lent, LentBlock};
use tl_kv::{CRC32C_RESIDUE, EnvHeader, Held, KvCfg};
use tl_proto::MAX_MESSAGE_BYTES;
use tl_proto::kv::v1::KvChunk;
use tokio::sync::watch;
use tonic::Code;

use super::receiver::code_of;
use super::{KV_FORMAT, TransferError};

/// Bytes of a message around its payload, at most, without the handle id: seven keys,
/// three varints of 32 bits, one of 64, two lengths, and the checksum.
const MESSAGE_OVERHEAD: usize = 64;

/// Why an engine's blocks cannot be sent at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "one kv block is {envelope} bytes on the wire and a message carries {MAX_MESSAGE_BYTES}: \
     use a smaller [engine].block_size than {block_tokens}"
)]
pub struct BlockTooLarge {
    /// Bytes of a one-block envelope.
    pub envelope: usize,
    /// Tokens per block.
    pub block_tokens: u32,
}

/// Refuses a pool whose blocks do not fit into a message. For the start of an engine:
/// every push would fail.
pub fn check_block_size(cfg: &KvCfg) -> Result<(), BlockTooLarge> {
    let envelope = EnvHeader::v1(cfg, 1).envelope_bytes();
    if envelope.saturating_add(MESSAGE_OVERHEAD + MAX_HANDLE_ID) > MAX_MESSAGE_BYTES {
        return Err(BlockTooLarge { envelope, block_tokens: cfg.block_tokens });
    }
    Ok(())
}

/// Longest handle id, in bytes; it travels in an HTTP header too.
pub const MAX_HANDLE_ID: usize = 128;

#[derive(Debug)]
struct Shared {
    handle_id: String,
    envelope_bytes: usize,
    len: usize,
    sent: usize,
    /// Locked while a block is copied out.
    lent: Mutex<Lent>,
    progress: watch::Sender<usize>,
}

/// One push; clones are the same push.
#[derive(Clone, Debug)]
pub struct Outgoing(Arc<Shared>);

/// One chunk of a push, not made yet.
#[derive(Clone, Debug)]
pub(super) struct ChunkRef {
    pub(super) push: Outgoing,
    pub(super) index: usize,
}

/// A block that is open for reading, with what its envelope says of it.
pub(super) struct OpenBlock<'a> {
    lent: &'a Lent,
    block: LentBlock,
    envelope_bytes: usize,
}

/// Ends the push's right to read its blocks when dropped.
#[derive(Debug)]
pub(super) struct Fence(Outgoing);

impl Drop for Fence {
    fn drop(&mut self) {
        self.0.fence();
    }
}

fn invalid(message: String) -> TransferError {
    TransferError::new(Code::InvalidArgument, message)
}

impl Outgoing {
    /// A push of the blocks `held`, each as `blocks` says. `held` outlives the fence.
    ///
    /// INVALID_ARGUMENT when the two do not fit together or the pool's books contradict
    /// them; FAILED_PRECONDITION when a block does not fit into a message.
    pub(super) fn new(
        held: &Held,
        handle_id: &str,
        blocks: &[BlockSend],
    ) -> Result<Outgoing, TransferError> {
        if handle_id.is_empty() || handle_id.len() > MAX_HANDLE_ID {
            return Err(invalid(format!(
                "handle id of {} bytes, expected 1 to {MAX_HANDLE_ID}",
                handle_id.len()
            )));
        }
        let lent = Lent::new(held, blocks)
            .map_err(|e| TransferError::new(code_of(e.code()), e.to_string()))?;
        check_block_size(lent.cfg())
            .map_err(|e| TransferError::new(Code::FailedPrecondition, e.to_string()))?;
        Ok(Outgoing(Arc::new(Shared {
            handle_id: handle_id.to_owned(),
            envelope_bytes: EnvHeader::v1(lent.cfg(), 1).envelope_bytes(),
            len: lent.len(),
            sent: lent.sent(),
            lent: Mutex::new(lent),
            progress: watch::Sender::new(0),
        })))
    }

    /// Names the push at the receiver.
    pub fn handle_id(&self) -> &str {
        &self.0.handle_id
    }

    /// Chunks of the push.
    #[allow(clippy::len_without_is_empty, reason = "a push has at least one chunk")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Chunks with a payload.
    pub fn sent(&self) -> usize {
        self.0.sent
    }

    /// Bytes of all payloads.
    pub fn payload_bytes(&self) -> usize {
        self.0.sent * self.0.envelope_bytes
    }

    /// Every chunk, made now. ABORTED once the push is fenced.
    pub fn chunks(&self) -> Result<Vec<KvChunk>, TransferError> {
        (0..self.len()).map(|index| self.chunk(index)).collect()
    }

    fn chunk(&self, index: usize) -> Result<KvChunk, TransferError> {
        self.with_block(index, |mut chunk, block| {
            if let Some(block) = block {
                let mut payload = Vec::with_capacity(block.envelope_bytes);
                block.write(&mut payload)?;
                chunk.payload = Bytes::from(payload);
                chunk.crc32c = CRC32C_RESIDUE;
            }
            Ok(chunk)
        })
    }

    pub(super) fn chunk_at(&self, index: usize) -> ChunkRef {
        ChunkRef { push: self.clone(), index }
    }

    /// Room for the largest message of the push.
    pub(super) fn largest_message(&self) -> usize {
        self.0.envelope_bytes + self.0.handle_id.len() + MESSAGE_OVERHEAD
    }

    /// Counts the chunks taken; closed when the push is gone.
    pub(super) fn progress(&self) -> watch::Receiver<usize> {
        self.0.progress.subscribe()
    }

    /// From here on no chunk can be made, and none is being made.
    pub(super) fn fence(&self) {
        self.0.lent.lock().fence();
    }

    pub(super) fn fence_on_drop(&self) -> Fence {
        Fence(self.clone())
    }

    /// Gives `f` the chunk without its payload, and the block when it has to travel.
    pub(super) fn with_block<T>(
        &self,
        index: usize,
        f: impl FnOnce(KvChunk, Option<OpenBlock<'_>>) -> Result<T, TransferError>,
    ) -> Result<T, TransferError> {
        let shared = &*self.0;
        let lent = shared.lent.lock();
        let Some(block) = lent.block(index) else {
            return Err(TransferError::new(Code::Aborted, "the push has been given up"));
        };
        let chunk = KvChunk {
            handle_id: shared.handle_id.clone(),
            block_hash: block.hash,
            block_index: index as u32,
            n_blocks_total: shared.len as u32,
            kv_format: KV_FORMAT,
            payload: Bytes::new(),
            crc32c: 0,
        };
        let open = (!block.present).then(|| OpenBlock {
            lent: &lent,
            block,
            envelope_bytes: shared.envelope_bytes,
        });
        let made = f(chunk, open)?;
        shared.progress.send_replace(index + 1);
        Ok(made)
    }
}

impl OpenBlock<'_> {
    pub(super) fn envelope_bytes(&self) -> usize {
        self.envelope_bytes
    }

    /// Appends the block's envelope.
    pub(super) fn write(&self, out: &mut impl BufMut) -> Result<(), TransferError> {
        self.lent.write(&self.block, out).map_err(|e| {
            TransferError::new(Code::Internal, format!("block {}: {e}", self.block.id))
        })
    }
}
