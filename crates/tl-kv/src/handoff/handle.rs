//! The words of the handle table: its limits, the ways a handle ends, and why something is refused.

use crate::error::Code;

/// Times and bounds of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleCfg {
    /// How long a complete handle waits for its claim.
    pub lease_ms: u64,
    /// How long a push may go without a chunk.
    pub receive_ms: u64,
    /// How long a released attempt cannot begin (again).
    pub tombstone_ms: u64,
    /// Handles receiving or ready.
    pub max_handles: usize,
    /// The same for one pusher's incarnation. Incarnation 0 (unknown) is not counted.
    pub max_handles_per_peer: usize,
    /// Sum of the blocks that receiving and ready handles announced.
    pub max_blocks: u64,
    /// Bytes of a handle id.
    pub max_handle_len: usize,
    /// Ended handles and fenced incarnations remembered.
    pub max_tombstones: usize,
}

impl Default for HandleCfg {
    fn default() -> Self {
        Self {
            lease_ms: 30_000,
            receive_ms: 30_000,
            tombstone_ms: 60_000,
            max_handles: 4096,
            max_handles_per_peer: 4096,
            max_blocks: u64::MAX,
            max_handle_len: 256,
            max_tombstones: 4096,
        }
    }
}

/// How a handle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// A request took the blocks.
    Claimed,
    /// The gateway gave it up.
    Released,
    /// Nobody claimed it in time, or its push stalled.
    Expired,
    /// Its pusher is gone.
    Fenced,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Claimed => "claimed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Fenced => "fenced",
        })
    }
}

/// Why a push may not begin, go on or complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// An id nobody can claim.
    #[error("handle_id of {len} bytes, expected 1 to {max}")]
    BadId { len: usize, max: usize },
    /// The id is in use; what its holder has stays.
    #[error("a live handle has this id")]
    AlreadyLive,
    /// Too many handles wait already.
    #[error("{live} handles wait already, limit {max}")]
    TooMany { live: usize, max: usize },
    /// The waiting handles already announced too many blocks.
    #[error("{blocks} blocks on top of {live} that handles hold, limit {max}")]
    NoRoom { blocks: u64, live: u64, max: u64 },
    /// The pusher's incarnation was declared dead.
    #[error("the sender's incarnation has been fenced")]
    Fenced,
    /// The attempt is over.
    #[error("the handle was {0}")]
    Ended(End),
}

impl HandleError {
    /// The code the pusher gets.
    pub fn code(&self) -> Code {
        match self {
            Self::BadId { .. } => Code::InvalidArgument,
            Self::AlreadyLive => Code::AlreadyExists,
            Self::TooMany { .. } | Self::NoRoom { .. } => Code::ResourceExhausted,
            Self::Fenced | Self::Ended(_) => Code::Aborted,
        }
    }
}

/// Why a claim got nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// No such handle, or one that ended too long ago to be remembered.
    #[error("no such handle")]
    Unknown,
    /// Its push has not completed.
    #[error("the handle's push is still running")]
    Receiving,
    /// It ended before.
    #[error("the handle was {0}")]
    Ended(End),
}

/// A completion that came too late, with the value to drop.
#[derive(Debug)]
pub struct Refused<T> {
    /// What was to be landed.
    pub value: T,
    /// Why it was not.
    pub error: HandleError,
}

/// The right of one push attempt to land. Not cloneable; used up by `complete` or `abort`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "complete or abort the attempt"]
pub struct Ticket {
    pub(crate) seq: u64,
    pub(crate) handle: String,
}

impl Ticket {
    /// The handle the attempt pushes to.
    pub fn handle(&self) -> &str {
        &self.handle
    }
}

/// Events since the table was made.
/// `created == live + claimed + released + expired + fenced + aborted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounters {
    /// Pushes begun.
    pub created: u64,
    /// Pushes completed.
    pub completed: u64,
    /// Handles claimed.
    pub claimed: u64,
    /// Handles released, receiving or ready.
    pub released: u64,
    /// Handles expired, receiving or ready.
    pub expired: u64,
    /// Handles ended with their pusher.
    pub fenced: u64,
    /// Pushes that failed.
    pub aborted: u64,
    /// Beginnings and completions refused.
    pub refused: u64,
}
