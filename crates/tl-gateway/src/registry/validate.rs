//! A heartbeat, checked. Nothing of a peer is used before it went through here.

use tl_api::headers::is_well_formed_id;
use tl_proto::control::v1::WorkerStatus;

const MAX_TEXT: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerRole {
    Unified,
    Prefill,
    Decode,
}

impl WorkerRole {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerRole::Unified => "unified",
            WorkerRole::Prefill => "prefill",
            WorkerRole::Decode => "decode",
        }
    }
}

/// Why a heartbeat is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BeatError {
    /// Empty, longer than 128 characters, or with spaces or control characters.
    #[error("worker_id must be 1 to 128 printable characters without spaces")]
    Id,
    #[error("role must be unified, prefill or decode, not {0:?}")]
    Role(String),
    #[error("model must be 1 to {MAX_TEXT} characters")]
    Model,
    #[error("{field} must be host:port, not {value:?}")]
    Address { field: &'static str, value: String },
}

/// A worker as its latest beat describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerInfo {
    pub id: String,
    pub role: WorkerRole,
    pub model: String,
    pub http_address: String,
    pub grpc_address: String,
    /// Decode engines only.
    pub kv_address: Option<String>,
    /// Envelope version it writes.
    pub kv_format: u32,
    /// Envelope versions it reads; never empty.
    pub kv_formats_read: Vec<u32>,
    /// 0: unknown.
    pub incarnation: u64,
    /// 0: unknown.
    pub fingerprint: u64,
    /// Tokens per block; 0: unknown.
    pub block_size: u32,
    pub layers: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub queue_depth: u32,
    pub running: u32,
    /// At most `total_blocks`.
    pub free_blocks: u32,
    pub total_blocks: u32,
    pub draining: bool,
}

impl WorkerInfo {
    pub(super) fn read(status: &WorkerStatus) -> Result<WorkerInfo, BeatError> {
        if !is_well_formed_id(&status.worker_id) {
            return Err(BeatError::Id);
        }
        let role = match status.role.as_str() {
            "unified" => WorkerRole::Unified,
            "prefill" => WorkerRole::Prefill,
            "decode" => WorkerRole::Decode,
            other => return Err(BeatError::Role(other.chars().take(40).collect())),
        };
        if status.model.is_empty() || status.model.chars().count() > MAX_TEXT {
            return Err(BeatError::Model);
        }
        let kv_address = match role {
            WorkerRole::Decode => Some(address("kv_address", &status.kv_address)?),
            WorkerRole::Unified | WorkerRole::Prefill => None,
        };
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        let total_blocks = count(status.kv_total_blocks);
        let kv_formats_read = match status.kv_formats_read.as_slice() {
            [] => vec![status.kv_format],
            formats => formats.iter().copied().take(16).collect(),
        };
        Ok(WorkerInfo {
            id: status.worker_id.clone(),
            role,
            model: status.model.clone(),
            http_address: address("http_address", &status.http_address)?,
            grpc_address: address("grpc_address", &status.grpc_address)?,
            kv_address,
            kv_format: status.kv_format,
            kv_formats_read,
            incarnation: status.incarnation,
            fingerprint: status.model_fingerprint,
            block_size: status.block_size,
            layers: status.layers,
            kv_heads: status.kv_heads,
            head_dim: status.head_dim,
            queue_depth: count(status.queue_depth),
            running: count(status.running),
            free_blocks: count(status.kv_free_blocks).min(total_blocks),
            total_blocks,
            draining: status.draining,
        })
    }

    /// Whether `other`, a later beat of the same id, is the same process with the same offer.
    pub(super) fn same_life(&self, other: &WorkerInfo) -> bool {
        let offer = |w: &WorkerInfo| {
            (w.role, w.fingerprint, w.kv_format, w.block_size, w.layers, w.kv_heads, w.head_dim)
        };
        self.incarnation == other.incarnation
            && self.model == other.model
            && self.http_address == other.http_address
            && self.grpc_address == other.grpc_address
            && self.kv_address == other.kv_address
            && self.kv_formats_read == other.kv_formats_read
            && offer(self) == offer(other)
    }

    pub(super) fn shares_address(&self, other: &WorkerInfo) -> bool {
        self.http_address == other.http_address
            || self.grpc_address == other.grpc_address
            || (self.kv_address.is_some() && self.kv_address == other.kv_address)
    }

    /// Tokens per block; a peer that does not say has 16.
    pub fn block_tokens(&self) -> u32 {
        if self.block_size == 0 { 16 } else { self.block_size }
    }

    /// Blocks that `tokens` positions need here.
    pub fn blocks_for(&self, tokens: u64) -> u32 {
        u32::try_from(tokens.div_ceil(self.block_tokens().into())).unwrap_or(u32::MAX)
    }
}

/// `host:port` that is nothing else: no path, no user, no scheme.
fn address(field: &'static str, value: &str) -> Result<String, BeatError> {
    let bad = || BeatError::Address { field, value: value.chars().take(80).collect() };
    let (host, port) = value.rsplit_once(':').ok_or_else(bad)?;
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    let port_ok = digits && port.parse::<u16>().is_ok_and(|p| p > 0);
    let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let host_ok = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.len() <= 253 && host.bytes().all(in_name),
    };
    if port_ok && host_ok { Ok(value.to_owned()) } else { Err(bad()) }
}
