//! What a part says of itself once it listens: one JSON line on its standard output.

use serde::{Deserialize, Serialize};

/// Bound addresses, host:port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Addrs {
    /// The API.
    pub(crate) http: String,
    /// /healthz, /readyz, /metrics.
    pub(crate) health: String,
    /// EngineControl, on engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grpc: Option<String>,
    /// KvTransferService, on decode engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kv: Option<String>,
    /// WorkerRegistry, on the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) registry: Option<String>,
}

/// The line: `{"listening": {...}}`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub(crate) listening: Addrs,
}

/// Says it on standard output, where a supervisor reads it.
pub(crate) fn announce(listening: &Addrs) {
    let line = serde_json::json!({ "listening": listening });
    crate::ui::out(&line.to_string());
}
