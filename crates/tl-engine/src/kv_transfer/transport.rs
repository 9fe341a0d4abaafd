//! The way to a decode engine, and the plain form of it.

use std::time::Duration;

use tl_proto::kv::v1::{KvAck, KvChunk};
use tonic::{Code, Status};

use super::call::{self, Metadata};
use super::{Outgoing, PeerOptions};

/// Why a transfer failed: the decode engine's verdict, or `UNAVAILABLE` and its kin
/// when it could not be heard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct TransferError {
    /// gRPC code, as the peer or the connection gave it.
    pub code: Code,
    /// For the log of the engine that sends; never shown to a client unread.
    pub message: String,
}

impl TransferError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> TransferError {
        TransferError { code, message: message.into() }
    }
}

impl From<Status> for TransferError {
    fn from(status: Status) -> TransferError {
        TransferError::new(status.code(), status.message())
    }
}

/// How blocks and questions about blocks reach a decode engine, `target` being its
/// `host:port`.
///
/// A test double needs the first two methods only.
#[tonic::async_trait]
pub trait KvTransport: Send + Sync {
    /// Which of the blocks `target` holds, in the order asked.
    async fn has_blocks(
        &self,
        target: &str,
        hashes: &[u64],
        fmt: u32,
    ) -> Result<Vec<bool>, TransferError>;

    /// Delivers the chunks of one push, in one stream.
    async fn push(&self, target: &str, chunks: Vec<KvChunk>) -> Result<KvAck, TransferError>;

    /// Delivers a push whose chunks are made while they are sent. The default makes
    /// them all first.
    async fn push_blocks(&self, target: &str, push: Outgoing) -> Result<KvAck, TransferError> {
        let chunks = push.chunks()?;
        self.push(target, chunks).await
    }

    /// Gives back what `target` may hold under `handle_id`. The default is for
    /// transports whose peer holds nothing once a push has failed.
    async fn release(&self, _target: &str, _handle_id: &str) -> Result<(), TransferError> {
        Ok(())
    }
}

/// A new connection for each call. A plain value; [`super::PooledTransport`] is what
/// a running engine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcTransport {
    /// Bounds each call as a whole, the connection attempt included.
    pub timeout: Duration,
}

impl GrpcTransport {
    async fn within<T>(
        &self,
        target: &str,
        what: &str,
        call: impl Future<Output = Result<T, TransferError>>,
    ) -> Result<T, TransferError> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(TransferError::new(
                Code::DeadlineExceeded,
                format!("{what} to {target}: no answer within {:?}", self.timeout),
            )),
        }
    }

    async fn connect(&self, target: &str) -> Result<tonic::transport::Channel, TransferError> {
        let options = PeerOptions { connect_timeout: self.timeout, ..PeerOptions::default() };
        options
            .endpoint(target)?
            .connect()
            .await
            .map_err(|e| TransferError::new(Code::Unavailable, call::connect_failure(target, &e)))
    }
}

#[tonic::async_trait]
impl KvTransport for GrpcTransport {
    async fn has_blocks(
        &self,
        target: &str,
        hashes: &[u64],
        fmt: u32,
    ) -> Result<Vec<bool>, TransferError> {
        self.within(target, "HasBlocks", async {
            call::has_blocks(self.connect(target).await?, &Metadata::default(), hashes, fmt).await
        })
        .await
    }

    async fn push(&self, target: &str, chunks: Vec<KvChunk>) -> Result<KvAck, TransferError> {
        self.within(target, "PushKv", async {
            call::push(self.connect(target).await?, &Metadata::default(), chunks).await
        })
        .await
    }

    async fn push_blocks(&self, target: &str, push: Outgoing) -> Result<KvAck, TransferError> {
        self.within(target, "PushKv", async {
            call::push_blocks(self.connect(target).await?, &Metadata::default(), push).await
        })
        .await
    }

    async fn release(&self, target: &str, handle_id: &str) -> Result<(), TransferError> {
        self.within(target, "Release", async {
            call::release(self.connect(target).await?, &Metadata::default(), handle_id).await
        })
        .await
    }
}
