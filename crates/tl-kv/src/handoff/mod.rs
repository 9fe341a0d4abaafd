//! The hand-off between engines as state machines: facts in, actions out.
//!
//! * [`send`]: the prefill side. Which blocks travel, which are only named, and the one resend.
//! * [`push`]: the decode side of one push. Every chunk in order or an error with a code.
//! * [`table`] (and its words, [`handle`]): the decode side's handles. Who may land, who may claim, and until when.
//! * [`incoming`]: the three steps above, in the order that a driver on the decode side takes them.
//! * [`lent`]: the prefill side's right to read blocks while a connection sends them.
//!
//! None of them waits, reads a clock or owns a socket. The driver feeds what happened and does
//! what it is told, so a test can let anything happen at any point.
//!
//! What a driver on the decode side does with one stream of chunks:
//!
//! ```text
//! each chunk  -> Incoming::judge, Incoming::admit (table), Incoming::take (pool)
//! half-close  -> Incoming::whole, Incoming::land (table) -> ack
//! any error, a dropped stream, a panic -> Incoming::abort (table); the blocks free themselves
//! ```

pub mod handle;
pub mod incoming;
pub mod lent;
pub mod push;
pub mod send;
pub mod table;
mod tombs;

pub use handle::{ClaimError, End, HandleCfg, HandleError, Refused, TableCounters, Ticket};
pub use incoming::{Claimed, Incoming, Landing};
pub use lent::{LendError, Lent, LentBlock};
pub use push::{ChunkAction, ChunkHead, PushAck, PushAssembly, PushError, PushLimits, receive};
pub use send::{BlockSend, SendAction, SendFact, SendPlan, SendStats};
pub use table::HandleTable;
