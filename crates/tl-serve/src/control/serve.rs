//! The service and its server.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tl_api::headers::{OPERATION_KEY, request_id};
use tl_api::openai::Kind;
use tl_api::trace::Trace;
use tl_engine::kv_transfer::{
    ClusterToken, GrpcServer, Guard, KvTransport, check_block_size, demand_token, server_builder,
    spawn_router,
};
use tl_proto::MAX_MESSAGE_BYTES;
use tl_proto::engine::v1::engine_control_server::{EngineControl, EngineControlServer};
use tl_proto::engine::v1::{
    CancelRequest, CancelResponse, DrainRequest, DrainResponse, InfoRequest, InfoResponse,
    PrefillRequest, PrefillResponse,
};
use tokio::time::Instant;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status};
use tracing::Instrument;

use super::pending::Pending;
use super::{PrefillBackend, TargetPolicy};
use crate::app::request_span;

/// An engine under the gateway's control.
pub struct ControlService<B: PrefillBackend> {
    /// The engine.
    pub backend: Arc<B>,
    /// How blocks reach decode engines.
    pub transport: Arc<dyn KvTransport>,
    /// What this engine does: `unified`, `prefill`, `decode`. Without `prefill` it runs
    /// no prompts for others.
    pub roles: Vec<String>,
}

impl<B: PrefillBackend> std::fmt::Debug for ControlService<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlService").field("roles", &self.roles).finish_non_exhaustive()
    }
}

/// Who may call, and where blocks may go.
#[derive(Clone, Debug, Default)]
pub struct ControlOptions {
    /// Demanded of every call; without it the listener must be on loopback.
    pub token: Option<ClusterToken>,
    /// Accepted decode targets.
    pub targets: TargetPolicy,
}

/// The service with what it remembers.
pub(super) struct Control<B: PrefillBackend> {
    pub(super) service: ControlService<B>,
    pub(super) targets: TargetPolicy,
    pub(super) pending: Arc<Pending>,
}

#[tonic::async_trait]
impl<B: PrefillBackend> EngineControl for Control<B> {
    async fn prefill(
        &self,
        request: Request<PrefillRequest>,
    ) -> Result<Response<PrefillResponse>, Status> {
        let headers = request.metadata().as_ref();
        let span = request_span(&request_id(headers), Trace::continued(Trace::of(headers)));
        let kind = headers
            .get(OPERATION_KEY)
            .and_then(|v| Kind::of_operation(v.to_str().ok()?))
            .unwrap_or(Kind::Completion);
        self.run_prefill(request.into_inner(), kind).instrument(span).await.map(Response::new)
    }

    async fn info(&self, _: Request<InfoRequest>) -> Result<Response<InfoResponse>, Status> {
        let roles = self.service.roles.clone();
        Ok(Response::new(InfoResponse { roles, ..self.service.backend.info() }))
    }

    async fn cancel(
        &self,
        request: Request<CancelRequest>,
    ) -> Result<Response<CancelResponse>, Status> {
        let request_id = request.into_inner().request_id;
        let pending = self.pending.cancel(&request_id);
        let running = self.service.backend.cancel(&request_id).await;
        Ok(Response::new(CancelResponse { found: pending || running }))
    }

    async fn drain(
        &self,
        request: Request<DrainRequest>,
    ) -> Result<Response<DrainResponse>, Status> {
        let deadline_ms = request.into_inner().deadline_ms.max(0);
        let end = Instant::now() + Duration::from_millis(deadline_ms.unsigned_abs());
        let aborted = self.service.backend.drain(deadline_ms).await;
        // The backend's requests have ended; a push of one of them may still run.
        let left = end.saturating_duration_since(Instant::now());
        let cut = self.pending.drain(left).await;
        let cut = i32::try_from(cut).unwrap_or(i32::MAX);
        Ok(Response::new(DrainResponse { aborted: aborted.saturating_add(cut) }))
    }
}

/// Serves an engine on a loopback listener, with decode targets on this machine.
pub fn serve_control<B: PrefillBackend>(
    listener: TcpListener,
    svc: ControlService<B>,
) -> io::Result<GrpcServer> {
    serve_control_with(listener, svc, ControlOptions::default())
}

/// Serves an engine.
///
/// Must be called within a tokio runtime. Refuses a listener off loopback without a
/// token, and an engine for prefill whose blocks do not fit into a message.
pub fn serve_control_with<B: PrefillBackend>(
    listener: TcpListener,
    svc: ControlService<B>,
    options: ControlOptions,
) -> io::Result<GrpcServer> {
    demand_token(&listener, options.token.as_ref(), "grpc_listen")?;
    if svc.may_prefill() {
        let cfg = *tl_kv::lock(&svc.backend.pool()).cfg();
        check_block_size(&cfg).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    }
    let control = Control { service: svc, targets: options.targets, pending: Pending::new() };
    let service = EngineControlServer::new(control)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let guarded = InterceptedService::new(service, Guard(options.token));
    spawn_router(listener, server_builder().add_service(guarded))
}

impl<B: PrefillBackend> ControlService<B> {
    pub(super) fn may_prefill(&self) -> bool {
        self.roles.iter().any(|role| role == "prefill")
    }
}
