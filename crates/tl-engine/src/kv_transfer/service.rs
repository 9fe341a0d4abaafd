//! `tl.kv.v1.KvTransferService` over a [`KvReceiver`].

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use tl_proto::kv::v1::kv_transfer_service_server::{KvTransferService, KvTransferServiceServer};
use tl_proto::kv::v1::{
    HasBlocksRequest, HasBlocksResponse, KvAck, KvChunk, ReleaseRequest, ReleaseResponse,
};
use tl_proto::{INCARNATION_KEY, MAX_MESSAGE_BYTES, parse_incarnation};
use tonic::metadata::MetadataMap;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status, Streaming};

use super::server::server_builder;
use super::whole::WholeRequests;
use super::{ClusterToken, GrpcServer, Guard, KvReceiver, check_block_size, spawn_router};

/// The service; its calls may come from anywhere, see [`serve_kv_with`].
#[derive(Clone, Debug)]
pub struct KvService(pub Arc<KvReceiver>);

#[tonic::async_trait]
impl KvTransferService for KvService {
    async fn has_blocks(
        &self,
        request: Request<HasBlocksRequest>,
    ) -> Result<Response<HasBlocksResponse>, Status> {
        let asked = request.into_inner();
        let present = self.0.has_blocks(&asked.block_hashes, asked.kv_format)?;
        Ok(Response::new(HasBlocksResponse { present }))
    }

    async fn push_kv(
        &self,
        request: Request<Streaming<KvChunk>>,
    ) -> Result<Response<KvAck>, Status> {
        let mut session = self.0.session(incarnation(request.metadata()));
        let idle = self.0.idle_timeout();
        let ended = session.ended();
        let mut chunks = request.into_inner();
        loop {
            let next = tokio::select! {
                biased;
                () = ended.cancelled() => {
                    return Err(Status::aborted("the handle ended while its push was under way"));
                }
                next = tokio::time::timeout(idle, chunks.message()) => next,
            };
            match next {
                Ok(Ok(Some(chunk))) => session.chunk(&chunk)?,
                Ok(Ok(None)) => return session.finish().map(Response::new),
                Ok(Err(broken)) => return Err(broken),
                Err(_) => {
                    return Err(Status::deadline_exceeded(format!("no chunk for {idle:?}")));
                }
            }
        }
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        self.0.release(&request.into_inner().handle_id);
        Ok(Response::new(ReleaseResponse {}))
    }
}

fn incarnation(metadata: &MetadataMap) -> u64 {
    let text = metadata.get(INCARNATION_KEY).and_then(|value| value.to_str().ok());
    text.map_or(0, parse_incarnation)
}

/// Serves a receiver on a loopback listener, see [`serve_kv_with`].
pub fn serve_kv(listener: TcpListener, recv: Arc<KvReceiver>) -> io::Result<GrpcServer> {
    serve_kv_with(listener, recv, None)
}

/// Serves a receiver; every call must carry `token` if there is one.
///
/// Must be called within a tokio runtime. Refuses a listener off loopback without a
/// token, and a pool whose blocks do not fit into a message.
pub fn serve_kv_with(
    listener: TcpListener,
    recv: Arc<KvReceiver>,
    token: Option<ClusterToken>,
) -> io::Result<GrpcServer> {
    demand_token(&listener, token.as_ref(), "kv_listen")?;
    let cfg = *tl_kv::lock(recv.pool()).cfg();
    check_block_size(&cfg).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let service = KvTransferServiceServer::new(KvService(recv))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let guarded = WholeRequests(InterceptedService::new(service, Guard(token)));
    spawn_router(listener, server_builder().add_service(guarded))
}

/// Refuses to listen off loopback without a token. `key` is the configuration key of
/// the listener.
pub fn demand_token(
    listener: &TcpListener,
    token: Option<&ClusterToken>,
    key: &str,
) -> io::Result<()> {
    let addr = listener.local_addr()?;
    if token.is_some() || addr.ip().is_loopback() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("[engine].{key} {addr} is reachable from other machines: set [cluster].token"),
    ))
}
