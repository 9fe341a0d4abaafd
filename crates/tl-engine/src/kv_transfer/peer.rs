//! How a process connects to another one.

use std::time::Duration;

use tonic::Code;
use tonic::transport::Endpoint;

use super::TransferError;
use super::server::{CONNECTION_WINDOW, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, STREAM_WINDOW};

/// Settings of outgoing connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerOptions {
    /// Bound of one connection attempt.
    pub connect_timeout: Duration,
    /// How often a connection with calls in flight is pinged.
    pub keepalive: Duration,
}

impl Default for PeerOptions {
    fn default() -> PeerOptions {
        PeerOptions { connect_timeout: Duration::from_secs(2), keepalive: KEEPALIVE_INTERVAL }
    }
}

impl PeerOptions {
    /// An endpoint for `target`, a `host:port`. INVALID_ARGUMENT when it is none.
    pub fn endpoint(&self, target: &str) -> Result<Endpoint, TransferError> {
        let invalid = |why: String| TransferError {
            code: Code::InvalidArgument,
            message: format!("target {target:?} is not host:port: {why}"),
        };
        // A scheme, a path or a user in the text would make it an address of
        // something else than the port it claims to be.
        if target.contains(['/', '@', '?', '#']) || target.contains(char::is_whitespace) {
            return Err(invalid("unexpected character".into()));
        }
        match target.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {}
            _ => return Err(invalid("no port".into())),
        }
        let endpoint = Endpoint::from_shared(format!("http://{target}"))
            .map_err(|e| invalid(e.to_string()))?;
        Ok(endpoint
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(self.keepalive)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT))
    }
}
