//! What one engine process is told, with the defaults of an empty configuration.

use crate::app::Limits;
use std::time::Duration;
use tl_api::config::{EngineRole, PrefixCache, RuntimeConfig};
use tl_engine::engine::EngineConfig;
use tl_engine::kv_transfer::{ClusterToken, TokenError};

/// Between two heartbeats. The gateway's count of missed beats is in these units, so it is no
/// setting.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Settings of one engine. Addresses are `host:port`; port 0 lets the system choose.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    pub role: EngineRole,
    /// The model's name to clients; the loaded model's own when `None`.
    pub model_id: Option<String>,
    pub http_listen: String,
    pub health_listen: String,
    pub grpc_listen: String,
    /// Bound by a decode engine only.
    pub kv_listen: String,
    /// `host:port` of the gateway's registry; `None` sends no heartbeats.
    pub gateway_registry: Option<String>,
    /// The host others reach this engine at.
    pub advertise_host: String,
    /// The name in the gateway's registry; one is made up when `None`.
    pub worker_id: Option<String>,
    pub engine: EngineConfig,
    /// Threads of a forward pass; 0 is one per core.
    pub threads: usize,
    /// How long handed-over blocks wait for their request.
    pub handle_lease: Duration,
    /// How long running requests may go on once a shutdown has begun.
    pub drain_deadline: Duration,
    /// Pending work that has not moved for so long makes the engine unready.
    pub stall_after: Duration,
    pub heartbeat: Duration,
    /// What gateway and engines show each other.
    pub cluster_token: Option<ClusterToken>,
    pub limits: Limits,
}

impl Default for EngineSettings {
    /// An engine on loopback with ports of the system's choice.
    fn default() -> EngineSettings {
        let any = || "127.0.0.1:0".to_owned();
        EngineSettings {
            role: EngineRole::Unified,
            model_id: None,
            http_listen: any(),
            health_listen: any(),
            grpc_listen: any(),
            kv_listen: any(),
            gateway_registry: None,
            advertise_host: "127.0.0.1".to_owned(),
            worker_id: None,
            engine: EngineConfig::default(),
            threads: 0,
            handle_lease: Duration::from_secs(30),
            drain_deadline: Duration::from_secs(30),
            stall_after: Duration::from_secs(30),
            heartbeat: HEARTBEAT,
            cluster_token: None,
            limits: Limits::default(),
        }
    }
}

impl EngineSettings {
    /// The settings a checked configuration stands for. The only error is a token that could not be
    /// sent.
    pub fn of(config: &RuntimeConfig) -> Result<EngineSettings, TokenError> {
        let e = &config.engine;
        let token =
            config.cluster.token.as_ref().map(|t| ClusterToken::new(t.expose())).transpose()?;
        let engine = EngineConfig {
            kv_blocks: e.kv_blocks,
            block_tokens: e.block_size,
            max_batch_tokens: e.max_batch_tokens as usize,
            max_seqs: e.max_seqs as usize,
            prefill_chunk: e.prefill_chunk as usize,
            queue_capacity: e.queue_capacity as usize,
            queue_deadline: Duration::from_millis(e.queue_deadline_ms),
            prefix_cache: e.prefix_cache != PrefixCache::None,
            // The gateway sends priorities; without any this is first come, first served.
            policy: tl_engine::sched::Policy::Priority,
            ..EngineConfig::default()
        };
        Ok(EngineSettings {
            role: e.role,
            model_id: e.model_id.clone(),
            http_listen: e.http_listen.bind_address(),
            health_listen: e.health_listen.bind_address(),
            grpc_listen: e.grpc_listen.bind_address(),
            kv_listen: e.kv_listen.bind_address(),
            gateway_registry: Some(e.gateway_registry.clone()).filter(|r| !r.is_empty()),
            advertise_host: e.advertise_host.clone(),
            worker_id: None,
            engine,
            threads: e.threads as usize,
            handle_lease: Duration::from_millis(e.handle_lease_ms),
            drain_deadline: Duration::from_secs(e.drain_deadline_s),
            cluster_token: token,
            ..EngineSettings::default()
        })
    }
}
