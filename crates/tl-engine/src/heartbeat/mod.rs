//! The engine's report to the gateway's worker registry.
//!
//! Every interval the engine sends who it is and how loaded it is. Two rules give
//! the module its shape. A beat is bounded by a timeout and runs on a thread of
//! its own, so that a registry that hangs cannot hold up the engine. And no
//! failure ends the loop: a registry that restarts is not the engine's problem, so
//! a missed beat is counted and the next one is due at the next interval.

mod beat;
mod registry;
mod thread;

#[cfg(test)]
mod tests;

use tl_proto::control::v1::WorkerStatus;

pub use beat::{BeatState, beat_once};
pub use registry::{GrpcRegistry, KeptRegistry, Registry};
pub use thread::Heartbeat;

/// What stays the same for the life of the engine process.
///
/// The fields after `model` let the gateway refuse to pair two engines whose KV
/// does not fit together. Left at zero they mean "unknown": such an engine is
/// paired by model name alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerIdentity {
    /// Stable for the life of the process; the pod's name in Kubernetes.
    pub worker_id: String,
    /// `host:port` of the OpenAI server.
    pub http_address: String,
    /// `host:port` of `EngineControl`.
    pub grpc_address: String,
    /// `host:port` of `KvTransferService`; reported only while the role is decode.
    pub kv_address: String,
    /// `unified`, `prefill` or `decode`.
    pub role: String,
    /// The model id as served.
    pub model: String,
    /// Random number of this process's life.
    pub incarnation: u64,
    /// Digest of the model's shape and weights.
    pub model_fingerprint: u64,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Layers that hold KV.
    pub layers: u32,
    /// KV heads per layer.
    pub kv_heads: u32,
    /// Elements per head.
    pub head_dim: u32,
    /// Envelope versions this engine reads.
    pub kv_formats_read: Vec<u32>,
}

/// What changes from beat to beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests admitted and not running.
    pub queue_depth: i32,
    /// Sequences in the batch.
    pub running: i32,
    /// Blocks a new request could have: free ones and cached ones.
    pub kv_free_blocks: i32,
    /// Blocks of the pool.
    pub kv_total_blocks: i32,
    /// No new work, please.
    pub draining: bool,
}

/// The message of one beat. Only a decode engine takes KV pushes, so only a decode
/// engine says where to send them.
pub fn worker_status(id: &WorkerIdentity, load: &Load) -> WorkerStatus {
    let kv_address = if id.role == "decode" { id.kv_address.clone() } else { String::new() };
    WorkerStatus {
        worker_id: id.worker_id.clone(),
        http_address: id.http_address.clone(),
        grpc_address: id.grpc_address.clone(),
        kv_address,
        role: id.role.clone(),
        model: id.model.clone(),
        kv_format: crate::kv_transfer::KV_FORMAT,
        queue_depth: load.queue_depth,
        running: load.running,
        kv_free_blocks: load.kv_free_blocks,
        kv_total_blocks: load.kv_total_blocks,
        draining: load.draining,
        incarnation: id.incarnation,
        model_fingerprint: id.model_fingerprint,
        block_size: id.block_size,
        layers: id.layers,
        kv_heads: id.kv_heads,
        head_dim: id.head_dim,
        kv_formats_read: id.kv_formats_read.clone(),
    }
}
