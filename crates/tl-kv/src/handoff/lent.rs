//! Blocks lent to a connection that reads them one by one, until it is fenced.
//!
//! A connection may hold on to a push after the call that started it has ended. The blocks go
//! back to the pool at that moment all the same, so the right to read them must end first:
//! [`Lent::fence`] forgets which blocks they are, and whoever asks later is told so.

use std::sync::Arc;

use bytes::BufMut;

use super::send::BlockSend;
use crate::cfg::KvCfg;
use crate::error::{Code, KvError};
use crate::held::Held;
use crate::pool::lock;
use crate::slabs::Slabs;
use crate::transfer::write_block;

/// What is known of a block to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LentBlock {
    /// Its place in the pool.
    pub id: u32,
    /// Name on the chunk; 0 for none.
    pub hash: u64,
    /// Name in the pool, and so in the envelope; 0 when the pool has none for it.
    pub registered: u64,
    /// Positions that hold tokens.
    pub fill: u32,
    /// The receiver has it: no payload.
    pub present: bool,
}

/// Why blocks cannot be lent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LendError {
    /// No blocks, or another number of them than is to be sent.
    #[error("{held} blocks held, {send} to send")]
    Number { held: usize, send: usize },
    /// The pool has no such block in use.
    #[error("block {index}: {error}")]
    Pool { index: usize, error: KvError },
    /// An empty block, or a name for one that is not full.
    #[error("block {index} has {fill} of {block_tokens} positions and hash {hash:#018x}")]
    NotFull { index: usize, fill: u32, block_tokens: u32, hash: u64 },
    /// The pool knows the block by another name.
    #[error("block {index} is registered as {registered:#018x}, not {hash:#018x}")]
    OtherName { index: usize, registered: u64, hash: u64 },
}

impl LendError {
    /// What the caller is told.
    pub fn code(&self) -> Code {
        match self {
            Self::Pool { .. } => Code::Internal,
            Self::Number { .. } | Self::NotFull { .. } | Self::OtherName { .. } => {
                Code::InvalidArgument
            }
        }
    }
}

/// The blocks of one push, as its connection may read them.
#[derive(Clone, Debug)]
pub struct Lent {
    pub(crate) slabs: Arc<Slabs>,
    /// Empty once fenced.
    pub(crate) blocks: Vec<LentBlock>,
}

impl Lent {
    /// Lends the blocks of `held`, each as `send` says. The fence comes before `held` is dropped.
    pub fn new(held: &Held, send: &[BlockSend]) -> Result<Self, LendError> {
        if send.is_empty() || send.len() != held.len() {
            return Err(LendError::Number { held: held.len(), send: send.len() });
        }
        let books = lock(held.pool());
        let cfg = *books.cfg();
        let placed = |(index, (&id, send)): (usize, (&u32, &BlockSend))| {
            let hash = send.hash();
            let fill = books.fill(id).map_err(|error| LendError::Pool { index, error })?;
            let registered = books.hash_of(id);
            if fill == 0 || (hash != 0 && fill != cfg.block_tokens) {
                let block_tokens = cfg.block_tokens;
                return Err(LendError::NotFull { index, fill, block_tokens, hash });
            }
            if registered != 0 && registered != hash {
                return Err(LendError::OtherName { index, registered, hash });
            }
            Ok(LentBlock { id, hash, registered, fill, present: !send.has_payload() })
        };
        let blocks = held.ids().iter().zip(send).enumerate().map(placed);
        let blocks = blocks.collect::<Result<_, _>>()?;
        Ok(Self { slabs: books.slabs(), blocks })
    }

    /// Shape of the blocks.
    pub fn cfg(&self) -> &KvCfg {
        self.slabs.cfg()
    }

    /// Blocks that may be read; 0 once fenced.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether nothing may be read (any more).
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Blocks that travel with their contents.
    pub fn sent(&self) -> usize {
        self.blocks.iter().filter(|b| !b.present).count()
    }

    /// One of the blocks; `None` past the end and once fenced.
    pub fn block(&self, index: usize) -> Option<LentBlock> {
        self.blocks.get(index).copied()
    }

    /// From here on nothing can be read.
    pub fn fence(&mut self) {
        self.blocks.clear();
    }

    /// Appends the one-block envelope of a block that [`Lent::block`] gave; see [`write_block`].
    pub fn write(&self, block: &LentBlock, out: &mut impl BufMut) -> Result<(), KvError> {
        write_block(&self.slabs, block.id, block.registered, block.fill, out)
    }
}
