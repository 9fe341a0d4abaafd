//! The sections of `runtime.toml` and their defaults.

use std::fmt;
use std::path::PathBuf;

use figment::value::Dict;
use serde::{Deserialize, Serialize};

use super::listen::Listen;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeConfig {
    pub engine: EngineSection,
    pub gateway: GatewaySection,
    pub cluster: ClusterSection,
    pub otel: OtelSection,
    pub paths: PathsSection,
    /// Free for others: nothing in it is read or refused.
    pub ext: Dict,
}

/// Which part of a request an engine computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineRole {
    Unified,
    Prefill,
    Decode,
}

impl EngineRole {
    pub fn as_str(self) -> &'static str {
        match self {
            EngineRole::Unified => "unified",
            EngineRole::Prefill => "prefill",
            EngineRole::Decode => "decode",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrefixCache {
    None,
    Hash,
    /// Refused at start.
    Radix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quant {
    None,
    /// Refused at start, as is the next.
    Int8,
    Int4,
}

/// How weights are held in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    F16,
    F32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draft {
    None,
    /// Refused at start, as is the next.
    Ngram,
    PromptLookup,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Speculative {
    pub draft: Draft,
    /// 1 to 16.
    pub k: u32,
}

impl Default for Speculative {
    fn default() -> Speculative {
        Speculative { draft: Draft::None, k: 4 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSection {
    pub role: EngineRole,
    /// A GGUF file or a folder with safetensors; required.
    pub model_dir: Option<PathBuf>,
    /// The model's name to clients; the loaded model's own when absent.
    pub model_id: Option<String>,
    pub http_listen: Listen,
    pub health_listen: Listen,
    pub grpc_listen: Listen,
    /// Decode engines only.
    pub kv_listen: Listen,
    /// `host:port` of the gateway's registry; empty sends no heartbeats.
    pub gateway_registry: String,
    /// The host others reach this engine at.
    pub advertise_host: String,
    /// Blocks of the KV pool.
    pub kv_blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Envelope version to write; 2 is refused at start.
    pub kv_format: u32,
    pub prefix_cache: PrefixCache,
    /// Tokens per step.
    pub max_batch_tokens: u32,
    /// Sequences per step.
    pub max_seqs: u32,
    /// Prompt tokens per step of one request. 0: as many as take about 100 ms on this machine.
    pub prefill_chunk: u32,
    /// Requests that may wait; one more is answered 429.
    pub queue_capacity: u32,
    /// Longest wait for KV blocks, milliseconds.
    pub queue_deadline_ms: u64,
    /// 0: one per core.
    pub threads: u32,
    pub quant: Quant,
    pub speculative: Speculative,
    pub weights: Weights,
    /// How long a hand-off nobody claims holds its blocks, milliseconds.
    pub handle_lease_ms: u64,
    /// Seconds that running requests may still take after SIGTERM.
    pub drain_deadline_s: u64,
}

impl Default for EngineSection {
    fn default() -> EngineSection {
        EngineSection {
            role: EngineRole::Unified,
            model_dir: None,
            model_id: None,
            http_listen: Listen::loopback(8000),
            health_listen: Listen::loopback(9464),
            grpc_listen: Listen::loopback(50051),
            kv_listen: Listen::loopback(50052),
            gateway_registry: String::new(),
            advertise_host: "127.0.0.1".into(),
            kv_blocks: 2048,
            block_size: 16,
            kv_format: 1,
            prefix_cache: PrefixCache::Hash,
            max_batch_tokens: 2048,
            max_seqs: 64,
            prefill_chunk: 512,
            queue_capacity: 256,
            queue_deadline_ms: 30_000,
            threads: 0,
            quant: Quant::None,
            speculative: Speculative::default(),
            weights: Weights::F16,
            handle_lease_ms: 30_000,
            drain_deadline_s: 30,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutePolicy {
    Weighted,
    LeastOutstanding,
    Affinity,
}

/// How a model's requests are served, first choice first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Unified,
    Disaggregated,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The served model.
    pub model: String,
    /// Other names that clients may use for it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Empty: disaggregated, and unified engines where no pair is live.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Refused at start when present, as is the next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<Dict>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cascade: Vec<Dict>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewaySection {
    pub listen: Listen,
    pub health_listen: Listen,
    pub registry_listen: Listen,
    /// Refused at start when set: engines announce themselves.
    pub upstream: String,
    /// API keys, their cache, policies, ledger and answer cache: refused at start when set.
    pub keys_file: String,
    pub pepper_env: String,
    pub key_cache_ttl_s: u64,
    pub policy_file: String,
    pub usage_db: String,
    pub cache_entries: u64,
    pub cache_ttl_s: u64,
    /// Beats missed until a worker is dropped.
    pub heartbeat_miss_limit: u32,
    pub route_policy: RoutePolicy,
    /// At least 1: how far above the mean load a worker with affinity may go.
    pub affinity_load_factor: f64,
    pub drain_deadline_s: u64,
    pub routes: Vec<Route>,
    /// Answers `?debug=route` and `/debug/why/{request_id}`.
    pub debug: bool,
    /// Workers tried for one request before its first byte.
    pub max_attempts: u32,
    /// Longest wait for room on a decode engine before 429, milliseconds.
    pub admission_wait_ms: u64,
    /// Requests that may wait for room at one time; one more is answered 429 at once.
    pub admission_queue: u32,
    /// Tokens reserved for an answer whose request names no limit.
    pub reserve_tokens: u32,
    /// Deadline of one prefill, milliseconds.
    pub prefill_timeout_ms: u64,
    /// Longest wait for a decode engine's response head and first token, milliseconds.
    pub first_byte_timeout_ms: u64,
    /// Longest silence within a decode engine's stream, milliseconds. Engines send a
    /// comment every 15 s when they have nothing to say.
    pub stall_timeout_ms: u64,
}

impl Default for GatewaySection {
    fn default() -> GatewaySection {
        GatewaySection {
            listen: Listen::loopback(8080),
            health_listen: Listen::loopback(9464),
            registry_listen: Listen::loopback(50060),
            upstream: String::new(),
            keys_file: String::new(),
            pepper_env: String::new(),
            key_cache_ttl_s: 0,
            policy_file: String::new(),
            usage_db: String::new(),
            cache_entries: 0,
            cache_ttl_s: 0,
            heartbeat_miss_limit: 3,
            route_policy: RoutePolicy::Affinity,
            affinity_load_factor: 1.25,
            drain_deadline_s: 30,
            routes: Vec::new(),
            debug: false,
            max_attempts: 3,
            admission_wait_ms: 5_000,
            admission_queue: 256,
            reserve_tokens: 256,
            prefill_timeout_ms: 120_000,
            first_byte_timeout_ms: 120_000,
            stall_timeout_ms: 60_000,
        }
    }
}

/// A text that is neither printed nor logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `other` is the same text. Takes the same time wherever they differ.
    pub fn matches(&self, other: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differ = own.iter().zip(other).fold(0, |acc, (a, b)| acc | (a ^ b));
        own.len() == other.len() && differ == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSection {
    /// What gateway and engines show each other; required off loopback.
    pub token: Option<Secret>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtelSection {
    /// Refused at start when set.
    pub endpoint: String,
    pub service_namespace: String,
    /// 0 to 1.
    pub trace_sample_ratio: f64,
}

impl Default for OtelSection {
    fn default() -> OtelSection {
        OtelSection {
            endpoint: String::new(),
            service_namespace: String::new(),
            trace_sample_ratio: 1.0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathsSection {
    pub artifacts: PathBuf,
}

impl Default for PathsSection {
    fn default() -> PathsSection {
        PathsSection { artifacts: "/artifacts".into() }
    }
}
