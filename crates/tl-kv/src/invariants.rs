//! What must hold at every instant, by name.
//!
//! One list for the code that refuses, the tests that check after every step, and the messages a
//! person reads: a name in a log leads to the rule.

/// A rule of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// `free + used + cached == n_blocks`, and the counters equal a recount.
    PoolBalance,
    /// `used + cached <= n_blocks`: what is held, what is leased and what is cached fit the pool.
    WithinCapacity,
    /// `used == held + leased`: each reference to a block is owned by exactly one value.
    UsedIsOwned,
    /// A block without a reference is in exactly one list: free, or least recently used.
    UnusedListed,
    /// Hash to block and block to hash agree.
    IndexExact,
    /// Only full blocks are registered.
    RegisteredIsFull,
    /// Contents are read and written by holders of a reference only.
    HeldBlocksOnly,
    /// No block is read after it was given back, unless the reader is told so.
    NoStaleRead,
    /// A registered or shared block is never written.
    SharedIsReadOnly,
    /// A block being written is open to nobody else.
    OneWriter,
    /// Every handle begun is live or ended in exactly one counted way.
    HandleBalance,
    /// Every live handle ends in finite time: its deadline is at most one lease away.
    LeaseEnds,
    /// Ids, deadlines and sums of a handle table describe the same handles.
    HandleIndex,
    /// Handles, their blocks and tombstones stay within their limits.
    HandleBounds,
}

impl Invariant {
    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PoolBalance => "pool_balance",
            Self::WithinCapacity => "within_capacity",
            Self::UsedIsOwned => "used_is_owned",
            Self::UnusedListed => "unused_listed",
            Self::IndexExact => "index_exact",
            Self::RegisteredIsFull => "registered_is_full",
            Self::HeldBlocksOnly => "held_blocks_only",
            Self::NoStaleRead => "no_stale_read",
            Self::SharedIsReadOnly => "shared_is_read_only",
            Self::OneWriter => "one_writer",
            Self::HandleBalance => "handle_balance",
            Self::LeaseEnds => "lease_ends",
            Self::HandleIndex => "handle_index",
            Self::HandleBounds => "handle_bounds",
        }
    }

    /// `Err` with the detail unless `holds`.
    pub fn require(self, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(Violation { invariant: self, detail: detail() }) }
    }
}

impl std::fmt::Display for Invariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invariant {invariant} broken: {detail}")]
pub struct Violation {
    /// Which rule.
    pub invariant: Invariant,
    /// What was found.
    pub detail: String,
}
