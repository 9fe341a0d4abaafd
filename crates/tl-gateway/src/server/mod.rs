//! The gateway as a process: its three listeners, and how it starts and stops.

mod admin;
mod api;
mod body;
mod drive;
mod handover;
mod http;
mod meter;
mod names;
mod pages;
mod peers;
mod registry_service;
mod shared;
mod story;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tl_api::config::{Listen, RuntimeConfig};
use tl_proto::MAX_MESSAGE_BYTES;
use tl_proto::control::v1::worker_registry_server::WorkerRegistryServer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;

use http::HttpServer;
use peers::Peers;
use registry_service::RegistryService;
use shared::{Parts, Shared};

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(transparent)]
    Config(#[from] tl_api::config::ConfigError),
    /// The address is taken or not this machine's.
    #[error("{key} = {listen}: cannot listen: {error}; choose another port or stop who has it")]
    Listen { key: &'static str, listen: String, error: std::io::Error },
    #[error("the http client cannot be built: {0}")]
    HttpClient(reqwest::Error),
    #[error("cluster.token is not printable ascii")]
    Token,
    #[error("the system gives no randomness: {0}")]
    Randomness(getrandom::Error),
}

/// Where a gateway listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The API.
    pub http: SocketAddr,
    /// Health, metrics, workers.
    pub health: SocketAddr,
    /// WorkerRegistry, gRPC.
    pub registry: SocketAddr,
}

/// A running gateway. Stop it with [`Gateway::shutdown`]; dropping it cuts everything.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    addresses: Addresses,
    api: HttpServer,
    health: HttpServer,
    registry: GrpcServer,
    ticker: Ticker,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct Ticker(JoinHandle<()>);

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct GrpcServer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// How often the dead are looked for.
const TICK: Duration = Duration::from_millis(500);
/// What drivers may take after the last connection, to tell the engines.
const CLEAN_UP: Duration = Duration::from_secs(5);
const STOP_SERVERS: Duration = Duration::from_secs(1);

async fn bind(key: &'static str, listen: &Listen) -> Result<TcpListener, GatewayError> {
    let error = |error| GatewayError::Listen { key, listen: listen.to_string(), error };
    TcpListener::bind(listen.bind_address()).await.map_err(error)
}

/// Starts a gateway; port 0 in a listen address lets the system choose.
pub async fn start_gateway(config: &RuntimeConfig) -> Result<Gateway, GatewayError> {
    config.check_gateway()?;
    let section = &config.gateway;
    let token = config.cluster.token.clone();
    let listener = bind("gateway.listen", &section.listen).await?;
    let health_listener = bind("gateway.health_listen", &section.health_listen).await?;
    let registry_listener = bind("gateway.registry_listen", &section.registry_listen).await?;
    let registry_addr = registry_listener.local_addr().map_err(|error| GatewayError::Listen {
        key: "gateway.registry_listen",
        listen: section.registry_listen.to_string(),
        error,
    })?;
    let incarnation = getrandom::u64().map_err(GatewayError::Randomness)?;
    let shared = Arc::new(Shared::new(Parts {
        config: section.clone(),
        peers: Peers::new(token.as_ref(), incarnation)?,
        started: api::unix_seconds(),
    }));
    let start = |key: &'static str, listener: TcpListener, router: Router| {
        HttpServer::start(listener, router).map_err(|error| GatewayError::Listen {
            key,
            listen: String::new(),
            error,
        })
    };
    let api = start("gateway.listen", listener, api_router(&shared))?;
    let health = start("gateway.health_listen", health_listener, health_router(&shared))?;
    let registry = serve_registry(&shared, token, registry_listener);
    let ticker = Ticker(tokio::spawn({
        let shared = shared.clone();
        async move {
            let mut interval = tokio::time::interval(TICK);
            loop {
                interval.tick().await;
                shared.tick();
            }
        }
    }));
    let addresses = Addresses { http: api.addr(), health: health.addr(), registry: registry_addr };
    tracing::info!(?addresses, "gateway listens");
    Ok(Gateway { shared, addresses, api, health, registry, ticker })
}

fn serve_registry(
    shared: &Arc<Shared>,
    token: Option<tl_api::config::Secret>,
    listener: TcpListener,
) -> GrpcServer {
    let service = WorkerRegistryServer::new(RegistryService::new(shared.clone(), token))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            let _ = stopped.await;
        });
    let task = tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "the worker registry stopped");
        }
    });
    GrpcServer { stop, task }
}

fn operator_routes(router: Router<Arc<Shared>>, debug: bool) -> Router<Arc<Shared>> {
    let router = router
        .route("/workers", get(pages::workers_page))
        .route("/admin/v1/workers", get(pages::workers_json));
    if debug { router.route("/debug/why/{request_id}", get(pages::why)) } else { router }
}

/// What changes something, for this machine alone.
fn admin_routes(router: Router<Arc<Shared>>, listen: &Listen) -> Router<Arc<Shared>> {
    if !listen.is_loopback() {
        return router;
    }
    router
        .route("/admin/v1/routes", get(admin::routes).put(admin::put_routes))
        .route("/admin/v1/models/{*rest}", post(admin::model))
        .route("/admin/v1/workers/{*rest}", post(admin::worker))
}

fn finish(router: Router<Arc<Shared>>, shared: &Arc<Shared>) -> Router {
    router
        .fallback(api::unknown_path)
        .method_not_allowed_fallback(api::wrong_method)
        .layer(axum::middleware::from_fn(api::edge))
        .with_state(shared.clone())
}

fn api_router(shared: &Arc<Shared>) -> Router {
    let router = Router::new()
        .route("/v1/chat/completions", post(api::chat))
        .route("/v1/completions", post(api::completions))
        .route("/v1/models", get(api::models))
        .route("/v1/models/{*id}", get(api::model))
        .route("/healthz", get(pages::healthz))
        .route("/readyz", get(pages::readyz));
    // Who can reach the API from elsewhere need not see the addresses of the cluster.
    let open = shared.config.listen.is_loopback() || shared.config.debug;
    let router = if open { operator_routes(router, shared.config.debug) } else { router };
    finish(admin_routes(router, &shared.config.listen), shared)
}

fn health_router(shared: &Arc<Shared>) -> Router {
    let router = Router::new()
        .route("/healthz", get(pages::healthz))
        .route("/readyz", get(pages::readyz))
        .route("/metrics", get(pages::metrics));
    let router = operator_routes(router, shared.config.debug);
    finish(admin_routes(router, &shared.config.health_listen), shared)
}

impl Gateway {
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Stops in the order that lets everything under way finish: not ready, no new
    /// connections, a wait until the configured deadline, a cut, and only then the registry,
    /// without which queued requests would lose their engines.
    pub async fn shutdown(self) {
        let Gateway { shared, addresses: _, api, health, registry, ticker } = self;
        shared.draining.store(true, Ordering::Relaxed);
        let deadline = Duration::from_secs(shared.config.drain_deadline_s);
        api.shut_down(deadline).await;
        shared.tasks.close();
        if tokio::time::timeout(CLEAN_UP, shared.tasks.wait()).await.is_err() {
            tracing::warn!(left = shared.tasks.len(), "requests were cut without a clean end");
        }
        let _ = registry.stop.send(());
        let abort = registry.task.abort_handle();
        if tokio::time::timeout(STOP_SERVERS, registry.task).await.is_err() {
            abort.abort();
        }
        drop(ticker);
        health.shut_down(STOP_SERVERS).await;
    }
}
