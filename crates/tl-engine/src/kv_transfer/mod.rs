//! KV blocks between engines: the decode side that receives, the prefill side that
//! sends, and the formats both agree on.
//!
//! A prompt's blocks leave the prefill engine as one stream of chunks, one block each.
//! Blocks the decode engine already holds are named instead of sent. They wait there
//! under a handle until the request that resumes claims them. The rules of what may
//! happen when are pure state machines in [`tl_kv::handoff`]; this module gives them
//! sockets, a clock and a runtime:
//!
//! | part | does |
//! |---|---|
//! | [`KvReceiver`], [`KvService`] | take pushes in, hand them out, let leases end |
//! | [`transfer`], [`Outgoing`] | send a prompt's blocks, one chunk in memory at a time |
//! | [`GrpcTransport`], [`PooledTransport`] | connections, new for each call or kept |
//! | [`ClusterToken`] | who may call at all |
//!
//! Whatever fails, both sides are left as they were: a block in transit is owned by the
//! value that stands for the push, and goes back when that is dropped.

mod call;
mod counters;
mod lease;
mod outgoing;
mod peer;
mod pooled;
mod receiver;
mod rng;
mod send;
mod server;
mod service;
mod session;
mod token;
mod transport;
mod whole;
mod wire;

#[cfg(test)]
mod tests;

pub use tl_kv::{
    BlockRecord, EnvError, EnvHeader, SharedKv, block_hash, crc32c, fnv1a64, lock, prompt_hashes,
    read_envelope, write_envelope,
};
pub use {tl_proto, tokio, tonic};

pub use counters::{ReceiverCounters, ReceiverSnapshot};
pub use outgoing::{BlockTooLarge, MAX_HANDLE_ID, Outgoing, check_block_size};
pub use peer::PeerOptions;
pub use pooled::{PooledOptions, PooledTransport};
pub use receiver::KvReceiver;
pub use rng::resume_rng;
pub use send::{TransferStats, build_chunks, transfer, transfer_held};
pub use server::{GrpcServer, server_builder, spawn_router};
pub use service::{KvService, demand_token, serve_kv, serve_kv_with};
pub use tl_kv::handoff::{Claimed, HandleCfg};
pub use token::{ClusterToken, Guard, MIN_TOKEN_LEN, TOKEN_KEY, TokenError};
pub use transport::{GrpcTransport, KvTransport, TransferError};

/// The envelope version this engine writes and the one it reads.
pub const KV_FORMAT: u32 = tl_kv::KV_FORMAT_V1;
