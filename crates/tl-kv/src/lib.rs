//! KV blocks: the pool, its storage, the wire form of a block, and the hand-off between engines.
//!
//! Everything here is synchronous and pure: no sockets, no runtime, no clock. Time comes in as an
//! argument, bytes come in as slices, and whoever drives the code does the waiting. That makes
//! every failure of a hand-off (abort, late chunk, restart, eviction in between) a plain test.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@cfg`] | the shape of a pool and its counters |
//! | [`slabs`] | the f16 storage of all blocks, one lock per block |
//! | [`pool`] | who owns which block: references, prefix index, eviction |
//! | [`held`] | references as a value that gives itself back |
//! | [`hash`], [`crc`], [`envelope`] | the bytes two engines agree on |
//! | [`transfer`] | one block out of a pool, one block into a pool, without holding its lock |
//! | [`handoff`] | push, handle and send as state machines |
//! | [`invariants`] | what must hold at every instant, as named predicates |
//! | [`fork`] | copies of all of it, for a checker that tries every way to go on |
//!
//! **Two locks, never one inside the other for long.** The pool's mutex covers bookkeeping: a few
//! dozen instructions per call. Bytes live in [`slabs::Slabs`] beside it, so that a forward pass,
//! a checksum and a copy run without the mutex.
#![forbid(unsafe_code)]

pub mod cfg;
pub mod crc;
pub mod envelope;
pub mod error;
pub mod fork;
pub mod handoff;
pub mod hash;
pub mod held;
pub mod invariants;
pub mod pool;
pub mod slabs;
pub mod transfer;

pub use cfg::{KV_FORMAT_V1, KvCfg, KvStats, TL_F16};
pub use crc::{CRC32C_RESIDUE, Crc32c, crc32c, crc32c_append};
pub use envelope::{BlockRecord, EnvError, EnvHeader, EnvelopeView, read_envelope, write_envelope};
pub use error::{Code, KvError};
pub use hash::{block_hash, fnv1a64, prompt_hashes};
pub use held::Held;
pub use pool::{KvPool, SharedKv, lock, shared};
pub use slabs::{BlockRead, BlockWrite, Slabs};
pub use transfer::{Imported, Proof, export_block, import_block};
