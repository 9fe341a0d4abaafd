//! A prefix cache that requests share, as a data structure.
//!
//! A pool of blocks keeps one cached prefix per session; an engine's real memory keeps one cache for
//! everybody: a system prompt computed by one request is found by the next. [`Pool`] is that memory.
//! It has as many blocks as the engine, each of a fixed number of tokens. A request's content is a
//! [`Chain`] of keyed segments, so that two requests share exactly the blocks in which their
//! chains agree from the first token on; no token is ever stored.
//!
//! The rules are those of vLLM 0.33.0's block pool:
//!
//! * a request that is admitted takes the longest run of full cached blocks that its chain begins
//!   with ([`Pool::hit`]), then blank blocks for the rest ([`Pool::open`]);
//! * a full block is registered, and so found by others, as soon as its content is decided
//!   ([`Pool::register`]); one content may have several copies, each counts, and the oldest
//!   is the one handed out;
//! * a block nobody holds is free, and keeps its content until it is reused. Free blocks without
//!   content are reused first, then the others, longest unused first, the end of a request
//!   before its beginning.
//!
//! Every operation costs a constant for each block it touches. What must hold at every instant is
//! spelled out in [`invariant`].

mod chain;
pub mod invariant;
#[cfg(debug_assertions)]
mod ledger;
mod list;
mod pool;
mod table;

#[cfg(test)]
mod tests;

#[cfg(debug_assertions)]
pub(crate) use ledger::Ledger;

pub use chain::{Chain, Segment};
pub use pool::{Hit, Holder, Pool, PoolError, Short};
