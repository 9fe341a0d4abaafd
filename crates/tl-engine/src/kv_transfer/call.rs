//! The three calls of `tl.kv.v1`, on a connection somebody else made.

use tl_proto::kv::v1::kv_transfer_service_client::KvTransferServiceClient;
use tl_proto::kv::v1::{HasBlocksRequest, KvAck, KvChunk, ReleaseRequest};
use tl_proto::{INCARNATION_KEY, MAX_MESSAGE_BYTES, incarnation_value};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::wire::ChunkCodec;
use super::{ClusterToken, Outgoing, TransferError};

/// What goes with every call.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    incarnation: Option<MetadataValue<Ascii>>,
    token: Option<ClusterToken>,
}

impl Metadata {
    /// `incarnation` 0 is "unknown" and sends none.
    pub(super) fn new(incarnation: u64, token: Option<ClusterToken>) -> Metadata {
        let incarnation = (incarnation != 0)
            .then(|| MetadataValue::try_from(incarnation_value(incarnation)).ok())
            .flatten();
        Metadata { incarnation, token }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(value) = &self.incarnation {
            request.metadata_mut().insert(INCARNATION_KEY, value.clone());
        }
        if let Some(token) = &self.token {
            token.attach(request.metadata_mut());
        }
        request
    }
}

fn client(channel: Channel) -> KvTransferServiceClient<Channel> {
    KvTransferServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}

pub(super) async fn has_blocks(
    channel: Channel,
    metadata: &Metadata,
    hashes: &[u64],
    kv_format: u32,
) -> Result<Vec<bool>, TransferError> {
    let request = HasBlocksRequest { block_hashes: hashes.to_vec(), kv_format };
    let answer = client(channel).has_blocks(metadata.request(request)).await?;
    Ok(answer.into_inner().present)
}

pub(super) async fn push(
    channel: Channel,
    metadata: &Metadata,
    chunks: Vec<KvChunk>,
) -> Result<KvAck, TransferError> {
    let request = metadata.request(tokio_stream::iter(chunks));
    Ok(client(channel).push_kv(request).await?.into_inner())
}

pub(super) async fn push_blocks(
    channel: Channel,
    metadata: &Metadata,
    push: Outgoing,
) -> Result<KvAck, TransferError> {
    let mut grpc = tonic::client::Grpc::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    grpc.ready().await.map_err(|e| TransferError::new(Code::Unavailable, e.to_string()))?;
    let path = PathAndQuery::from_static("/tl.kv.v1.KvTransferService/PushKv");
    let chunks = tokio_stream::iter((0..push.len()).map(move |index| push.chunk_at(index)));
    let answer = grpc.client_streaming(metadata.request(chunks), path, ChunkCodec).await?;
    Ok(answer.into_inner())
}

pub(super) async fn release(
    channel: Channel,
    metadata: &Metadata,
    handle_id: &str,
) -> Result<(), TransferError> {
    let request = ReleaseRequest { handle_id: handle_id.to_owned() };
    client(channel).release(metadata.request(request)).await?;
    Ok(())
}

/// The text of a failed connection with its causes: tonic's own is "transport error".
pub(super) fn connect_failure(target: &str, error: &dyn std::error::Error) -> String {
    let mut text = format!("connecting to {target}: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
