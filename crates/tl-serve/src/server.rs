//! One engine process, wired for its role.
//!
//! Every role has an API listener, a health listener and an `EngineControl` service; a decode
//! engine has a `KvTransferService` beside them. The order of the start is the order of trust:
//! arithmetic is proved first, then everything is bound, and only then does the heartbeat tell a
//! gateway where. A shutdown goes the other way round: unready first, then no new work, then the
//! work in flight, then the listeners.

use crate::app::{self, App};
use crate::backend::{EngineBackend, MeteredTransport};
use crate::control::{ControlOptions, ControlService, TargetPolicy, serve_control_with};
use crate::health::{self, Health};
use crate::http::HttpServer;
use crate::lang::SharedModel;
use crate::selfcheck::{SelfCheckError, self_check};
use crate::settings::EngineSettings;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tl_api::config::EngineRole;
use tl_api::metrics::{EngineMetrics, RoleLabel};
use tl_engine::backend::{Backend, ModelBackend, StepError, pick_prefill_chunk};
use tl_engine::engine::{Engine, EngineError};
use tl_engine::heartbeat::{BeatState, Heartbeat, KeptRegistry, Load, WorkerIdentity};
use tl_engine::kv_transfer::{
    BlockTooLarge, GrpcServer, HandleCfg, KV_FORMAT, KvReceiver, PooledOptions, PooledTransport,
    check_block_size, serve_kv_with,
};
use tl_kv::{KvCfg, SharedKv, lock};
use tl_model::Threads;
use tokio_util::task::AbortOnDropHandle;

/// How long answers may still take to leave once the engine is idle.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    SelfCheck(#[from] SelfCheckError),
    #[error("{what} cannot listen on {addr}: {source}")]
    Bind { what: &'static str, addr: String, source: io::Error },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{role} engine: {source}")]
    BlockSize { role: &'static str, source: BlockTooLarge },
    #[error("{what} could not be started: {source}")]
    Service { what: &'static str, source: io::Error },
    #[error("no prefill chunk could be measured: {source}; set [engine].prefill_chunk")]
    Calibration { source: StepError },
    #[error("the system gives no random bytes: {0}")]
    Randomness(getrandom::Error),
}

/// Where a running engine listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    pub http: SocketAddr,
    pub health: SocketAddr,
    pub grpc: SocketAddr,
    /// `None` unless the role is decode.
    pub kv: Option<SocketAddr>,
}

/// A running engine. Dropping it stops everything at once; [`RunningEngine::shutdown`] drains
/// first.
#[derive(Debug)]
pub struct RunningEngine {
    addresses: Addresses,
    worker_id: String,
    app: Arc<App>,
    drain_deadline: Duration,
    heartbeat: Option<Heartbeat>,
    /// Holds a handle of the engine, so it must go with this value.
    drain_on_request: Option<AbortOnDropHandle<()>>,
    http: HttpServer,
    control: GrpcServer,
    kv: Option<GrpcServer>,
    health: HttpServer,
}

/// Runs an engine until `shutdown` resolves, then drains it. `started` learns the addresses.
pub async fn run_engine(
    settings: EngineSettings,
    model: impl Into<SharedModel>,
    started: impl FnOnce(&RunningEngine),
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let engine = start_engine(settings, model).await?;
    started(&engine);
    shutdown.await;
    engine.shutdown().await;
    Ok(())
}

/// Starts an engine; returns when every listener is bound.
pub async fn start_engine(
    settings: EngineSettings,
    model: impl Into<SharedModel>,
) -> Result<RunningEngine, StartError> {
    start_engine_with(settings, model, |backend| backend).await
}

/// As [`start_engine`], with something around the model: a test's gate, a recorder.
pub async fn start_engine_with(
    settings: EngineSettings,
    model: impl Into<SharedModel>,
    wrap: impl FnOnce(Box<dyn Backend>) -> Box<dyn Backend>,
) -> Result<RunningEngine, StartError> {
    self_check()?;
    let EngineSettings {
        role,
        model_id,
        http_listen,
        health_listen,
        grpc_listen,
        kv_listen,
        gateway_registry,
        advertise_host,
        worker_id,
        engine: engine_config,
        threads,
        handle_lease,
        drain_deadline,
        stall_after,
        heartbeat: beat,
        cluster_token,
        limits,
    } = settings;
    let SharedModel { model, language, name } = model.into();
    let fingerprint = model.fingerprint();
    let model_name = model_id.unwrap_or(name);
    let mut backend = ModelBackend::new(model, Threads::new(thread_count(threads)));
    let mut engine_config = engine_config;
    if engine_config.prefill_chunk == 0 {
        engine_config.prefill_chunk = pick_prefill_chunk(&mut backend, engine_config.block_tokens)
            .map_err(|source| StartError::Calibration { source })?;
        tracing::info!(
            prefill_chunk = engine_config.prefill_chunk,
            "a step of this size takes about 100 ms here"
        );
    }
    let engine = Engine::spawn(wrap(Box::new(backend)), engine_config)?;
    let pool = engine.pool();
    let kv_cfg = *lock(&pool).cfg();
    if role != EngineRole::Unified {
        check_block_size(&kv_cfg)
            .map_err(|source| StartError::BlockSize { role: role.as_str(), source })?;
    }

    let http_listener = bind("the api", &http_listen)?;
    let health_listener = bind("health", &health_listen)?;
    let grpc_listener = bind("engine control", &grpc_listen)?;
    let kv_listener = match role {
        EngineRole::Decode => Some(bind("kv transfer", &kv_listen)?),
        EngineRole::Unified | EngineRole::Prefill => None,
    };

    let incarnation = random_u64().map_err(StartError::Randomness)?;
    let metrics = Arc::new(EngineMetrics::new(role_label(role)));
    let receiver = kv_listener.is_some().then(|| new_receiver(&pool, handle_lease));
    let app = Arc::new(App {
        engine: engine.clone(),
        language: Arc::clone(&language),
        model: model_name.clone(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        metrics: Arc::clone(&metrics),
        receiver: receiver.clone(),
        block_tokens: kv_cfg.block_tokens as usize,
        limits,
        closing: AtomicBool::new(false),
    });

    let service = |what: &'static str| move |source| StartError::Service { what, source };
    let health = Arc::new(Health { app: Arc::clone(&app), stall_after });
    let health = HttpServer::spawn(tokio_listener(health_listener)?, health::router(health))
        .map_err(service("the health listener"))?;
    let http = HttpServer::spawn(tokio_listener(http_listener)?, app::router(Arc::clone(&app)))
        .map_err(service("the api listener"))?;
    let transport = PooledTransport::new(PooledOptions {
        incarnation,
        token: cluster_token.clone(),
        ..PooledOptions::default()
    });
    let control = ControlService {
        backend: Arc::new(EngineBackend {
            app: Arc::clone(&app),
            kv: kv_cfg,
            incarnation,
            fingerprint,
        }),
        transport: Arc::new(MeteredTransport::new(transport, metrics)),
        roles: vec![role.as_str().to_owned()],
    };
    let options = ControlOptions {
        token: cluster_token.clone(),
        targets: match &cluster_token {
            Some(_) => TargetPolicy::Registered,
            None => TargetPolicy::Loopback,
        },
    };
    let control =
        serve_control_with(grpc_listener, control, options).map_err(service("engine control"))?;
    let kv = match kv_listener.zip(receiver) {
        None => None,
        Some((listener, receiver)) => Some(
            serve_kv_with(listener, receiver, cluster_token.clone())
                .map_err(service("kv transfer"))?,
        ),
    };
    let addresses = Addresses {
        http: http.addr(),
        health: health.addr(),
        grpc: control.addr,
        kv: kv.as_ref().map(|s| s.addr),
    };

    let worker_id = worker_id.unwrap_or_else(|| format!("{}-{incarnation:016x}", role.as_str()));
    let advertise = |addr: SocketAddr| advertised(&advertise_host, addr.port());
    let identity = WorkerIdentity {
        worker_id: worker_id.clone(),
        http_address: advertise(addresses.http),
        grpc_address: advertise(addresses.grpc),
        kv_address: addresses.kv.map(advertise).unwrap_or_default(),
        role: role.as_str().to_owned(),
        model: model_name,
        incarnation,
        model_fingerprint: fingerprint,
        block_size: kv_cfg.block_tokens,
        layers: kv_cfg.n_layers,
        kv_heads: kv_cfg.n_kv_heads,
        head_dim: kv_cfg.head_dim,
        kv_formats_read: vec![KV_FORMAT],
    };
    let heartbeat = gateway_registry
        .map(|target| {
            let registry = Arc::new(KeptRegistry::new(target, beat, cluster_token));
            Heartbeat::spawn(registry, identity, load_of(&app, kv_cfg), beat, beat)
        })
        .transpose()
        .map_err(service("the heartbeat"))?;
    let drain_on_request = heartbeat.as_ref().map(|h| {
        let task = drain_on_request(h.state().clone(), engine, drain_deadline);
        AbortOnDropHandle::new(tokio::spawn(task))
    });
    tracing::info!(
        worker_id,
        role = role.as_str(),
        model = app.model,
        http = %addresses.http,
        health = %addresses.health,
        grpc = %addresses.grpc,
        kv = addresses.kv.map(tracing::field::display),
        "engine is up"
    );
    Ok(RunningEngine {
        addresses,
        worker_id,
        app,
        drain_deadline,
        heartbeat,
        drain_on_request,
        http,
        control,
        kv,
        health,
    })
}

impl RunningEngine {
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The name this engine goes by in the gateway's registry.
    pub fn worker_id(&self) -> &str {
        &self.worker_id
    }

    pub fn engine(&self) -> &Engine {
        &self.app.engine
    }

    /// Where handed-over blocks wait; `None` unless the role is decode.
    pub fn receiver(&self) -> Option<&Arc<KvReceiver>> {
        self.app.receiver.as_ref()
    }

    /// Drains: unready at once, no new connections, 503 for new requests on open ones, work in
    /// flight until the drain deadline, then everything closes.
    pub async fn shutdown(mut self) {
        self.app.closing.store(true, Ordering::Relaxed);
        self.http.stop_accepting();
        let aborted = self.app.engine.drain(self.drain_deadline).await;
        if aborted > 0 {
            tracing::warn!(aborted, "requests cut at the drain deadline");
        }
        drop(self.drain_on_request.take());
        // Kept beating until here, so that the gateway has known of the drain all along.
        if let Some(heartbeat) = self.heartbeat.take() {
            let stopped = tokio::task::spawn_blocking(move || heartbeat.stop()).await;
            if let Err(error) = stopped {
                tracing::error!(%error, "the heartbeat did not stop");
            }
        }
        let RunningEngine { app, http, control, kv, health, .. } = self;
        http.close(CLOSE_GRACE).await;
        control.shutdown().await;
        if let Some(kv) = kv {
            kv.shutdown().await;
        }
        app.engine.stop();
        health.close(CLOSE_GRACE).await;
        tracing::info!("engine is down");
    }
}

fn new_receiver(pool: &SharedKv, lease: Duration) -> Arc<KvReceiver> {
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    Arc::new(KvReceiver::with_config(
        Arc::clone(pool),
        HandleCfg { lease_ms, ..HandleCfg::default() },
    ))
}

/// The gateway has asked for a drain: the process stays, and takes no new work.
async fn drain_on_request(state: Arc<BeatState>, engine: Engine, deadline: Duration) {
    state.wait_for_drain().await;
    // A drain that was asked for by call has a deadline of its own.
    let deadline = if engine.is_draining() { Duration::MAX } else { deadline };
    let aborted = engine.drain(deadline).await;
    tracing::info!(aborted, "drained at the gateway's request");
    state.drained();
}

fn load_of(app: &Arc<App>, cfg: KvCfg) -> Arc<dyn Fn() -> Load + Send + Sync> {
    let app = Arc::clone(app);
    Arc::new(move || {
        let stats = app.engine.stats();
        let kv = lock(&app.engine.pool()).stats();
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        Load {
            queue_depth: count(stats.queued),
            running: count(stats.running),
            kv_free_blocks: count((kv.free + kv.cached) as usize),
            kv_total_blocks: count(cfg.n_blocks as usize),
            draining: stats.draining || app.closing.load(Ordering::Relaxed),
        }
    })
}

fn bind(what: &'static str, addr: &str) -> Result<std::net::TcpListener, StartError> {
    std::net::TcpListener::bind(addr).map_err(|source| StartError::Bind {
        what,
        addr: addr.to_owned(),
        source,
    })
}

fn tokio_listener(listener: std::net::TcpListener) -> Result<tokio::net::TcpListener, StartError> {
    listener
        .set_nonblocking(true)
        .and_then(|()| tokio::net::TcpListener::from_std(listener))
        .map_err(|source| StartError::Service { what: "a listener", source })
}

fn advertised(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn role_label(role: EngineRole) -> RoleLabel {
    match role {
        EngineRole::Unified => RoleLabel::Unified,
        EngineRole::Prefill => RoleLabel::Prefill,
        EngineRole::Decode => RoleLabel::Decode,
    }
}

/// Threads of a forward pass; 0 is one per core.
fn thread_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

fn random_u64() -> Result<u64, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
