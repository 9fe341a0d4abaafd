//! Where beats go.

use std::time::Duration;

use tl_proto::control::v1::worker_registry_client::WorkerRegistryClient;
use tl_proto::control::v1::{HeartbeatAck, WorkerStatus};
use tonic::transport::Channel;

use crate::kv_transfer::{ClusterToken, PeerOptions};

/// The gateway's worker registry, as the heartbeat sees it.
#[tonic::async_trait]
pub trait Registry: Send + Sync {
    /// Delivers one status. The error is a text for the log: whatever it says, the
    /// next beat is the remedy.
    async fn heartbeat(&self, s: WorkerStatus) -> Result<HeartbeatAck, String>;
}

/// A registry reached over gRPC with a new connection for every beat. A plain
/// value; [`KeptRegistry`] is what a running engine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcRegistry {
    /// `host:port` of the registry.
    pub target: String,
    /// Bounds the connection attempt and the call, each.
    pub timeout: Duration,
}

#[tonic::async_trait]
impl Registry for GrpcRegistry {
    async fn heartbeat(&self, s: WorkerStatus) -> Result<HeartbeatAck, String> {
        let options = PeerOptions { connect_timeout: self.timeout, ..PeerOptions::default() };
        let channel = options
            .endpoint(&self.target)
            .map_err(|e| e.message)?
            .timeout(self.timeout)
            .connect()
            .await
            .map_err(|e| format!("registry {}: {}", self.target, chain(&e)))?;
        beat(channel, &self.target, None, self.timeout, s).await
    }
}

/// A registry reached over one connection that is kept, and made again by itself
/// after it broke.
#[derive(Debug)]
pub struct KeptRegistry {
    target: String,
    timeout: Duration,
    token: Option<ClusterToken>,
    // Made at the first beat: a channel belongs to the runtime it was made on, and
    // that is the heartbeat thread's own.
    channel: tokio::sync::OnceCell<Channel>,
}

impl KeptRegistry {
    /// `token` is sent with every beat when the cluster demands one.
    pub fn new(target: String, timeout: Duration, token: Option<ClusterToken>) -> KeptRegistry {
        KeptRegistry { target, timeout, token, channel: tokio::sync::OnceCell::new() }
    }
}

#[tonic::async_trait]
impl Registry for KeptRegistry {
    async fn heartbeat(&self, s: WorkerStatus) -> Result<HeartbeatAck, String> {
        let options = PeerOptions { connect_timeout: self.timeout, ..PeerOptions::default() };
        let channel = self
            .channel
            .get_or_try_init(async || {
                options.endpoint(&self.target).map(|e| e.connect_lazy()).map_err(|e| e.message)
            })
            .await?;
        beat(channel.clone(), &self.target, self.token.as_ref(), self.timeout, s).await
    }
}

async fn beat(
    channel: Channel,
    target: &str,
    token: Option<&ClusterToken>,
    timeout: Duration,
    s: WorkerStatus,
) -> Result<HeartbeatAck, String> {
    let mut request = tonic::Request::new(s);
    request.set_timeout(timeout);
    if let Some(token) = token {
        token.attach(request.metadata_mut());
    }
    let answer = WorkerRegistryClient::new(channel)
        .max_decoding_message_size(tl_proto::MAX_MESSAGE_BYTES)
        .max_encoding_message_size(tl_proto::MAX_MESSAGE_BYTES)
        .heartbeat(request)
        .await;
    match answer {
        Ok(ack) => Ok(ack.into_inner()),
        Err(status) => Err(format!("registry {target}: {}: {}", status.code(), status.message())),
    }
}

/// An error with its causes, since tonic's own text is only "transport error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
