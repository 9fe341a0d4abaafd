//! An engine as a member of a fleet: what it tells a registry, and how it is told to go.

use crate::common::{CHAT, Server, body, eventually, settings};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tl_api::config::EngineRole;
use tl_engine::kv_transfer::{GrpcServer, server_builder, spawn_router};
use tl_proto::control::v1::worker_registry_server::{WorkerRegistry, WorkerRegistryServer};
use tl_proto::control::v1::{HeartbeatAck, WorkerStatus};
use tl_proto::engine::v1::DrainRequest;
use tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tonic::{Request, Response, Status};

/// A registry that keeps what it is told.
#[derive(Clone, Default)]
struct Registry {
    seen: Arc<Mutex<Vec<WorkerStatus>>>,
    drain: Arc<AtomicBool>,
}

#[tonic::async_trait]
impl WorkerRegistry for Registry {
    async fn heartbeat(
        &self,
        request: Request<WorkerStatus>,
    ) -> Result<Response<HeartbeatAck>, Status> {
        self.seen.lock().push(request.into_inner());
        let drain = self.drain.load(Ordering::Relaxed);
        Ok(Response::new(HeartbeatAck { drain, route_epoch: 1 }))
    }
}

impl Registry {
    fn serve(&self) -> GrpcServer {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let service = WorkerRegistryServer::new(self.clone());
        spawn_router(listener, server_builder().add_service(service)).unwrap()
    }

    fn last(&self) -> Option<WorkerStatus> {
        self.seen.lock().last().cloned()
    }
}

async fn member(registry: &GrpcServer, role: EngineRole) -> Server {
    let mut settings = settings(role);
    settings.gateway_registry = Some(registry.addr.to_string());
    settings.heartbeat = Duration::from_millis(20);
    Server::start(settings).await
}

#[tokio::test]
async fn the_heartbeat_tells_where_and_what_the_engine_is() {
    let registry = Registry::default();
    let grpc = registry.serve();
    let s = member(&grpc, EngineRole::Decode).await;
    eventually("a beat", || registry.last().is_some()).await;
    let status = registry.last().unwrap();
    let addresses = s.running.addresses();
    assert_eq!(status.worker_id, s.running.worker_id());
    assert_eq!(status.http_address, addresses.http.to_string());
    assert_eq!(status.grpc_address, addresses.grpc.to_string());
    assert_eq!(status.kv_address, addresses.kv.unwrap().to_string());
    assert_eq!((status.role.as_str(), status.model.as_str()), ("decode", "tiny"));
    assert_eq!((status.kv_total_blocks, status.kv_free_blocks), (256, 256));
    assert_eq!((status.block_size, status.layers), (4, 3));
    assert_eq!((status.kv_heads, status.head_dim), (2, 16));
    assert_eq!(status.kv_formats_read, [1]);
    assert_ne!(status.incarnation, 0);
    assert_ne!(status.model_fingerprint, 0);
    assert!(!status.draining);
    // Cached blocks are room too: a new request may have them.
    s.post(CHAT, &body(CHAT, "hello", json!({"max_tokens": 8, "temperature": 0}))).await.ok();
    s.idle().await;
    assert!(s.kv().cached > 0);
    let beats = registry.seen.lock().len();
    eventually("two more beats", || registry.seen.lock().len() > beats + 1).await;
    assert_eq!(registry.last().unwrap().kv_free_blocks, 256);
}

#[tokio::test]
async fn two_engines_of_one_model_differ_in_nothing_but_their_lives() {
    let registry = Registry::default();
    let grpc = registry.serve();
    let _engines =
        (member(&grpc, EngineRole::Prefill).await, member(&grpc, EngineRole::Decode).await);
    let of = |role: &str| registry.seen.lock().iter().find(|s| s.role == role).cloned();
    eventually("both beat", || of("prefill").is_some() && of("decode").is_some()).await;
    let (p, d) = (of("prefill").unwrap(), of("decode").unwrap());
    assert_eq!(p.model_fingerprint, d.model_fingerprint);
    assert_ne!(p.incarnation, d.incarnation);
    assert_ne!(p.worker_id, d.worker_id);
    assert_eq!(p.kv_address, "", "only a decode engine takes blocks");
}

async fn becomes_unready(s: &Server) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while s.health("/readyz").await.status == 200 {
        assert!(Instant::now() < deadline, "still ready");
    }
    assert_eq!(s.health("/readyz").await.text, "draining\n");
    let refused = s.post(CHAT, &body(CHAT, "hello", json!({"max_tokens": 1}))).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.error().1.as_deref(), Some("no_capacity"));
    assert_eq!(s.health("/healthz").await.status, 200);
}

#[tokio::test]
async fn the_gateway_asks_for_a_drain_in_its_answer() {
    let registry = Registry::default();
    let grpc = registry.serve();
    let s = member(&grpc, EngineRole::Unified).await;
    assert_eq!(s.health("/readyz").await.status, 200);
    registry.drain.store(true, Ordering::Relaxed);
    becomes_unready(&s).await;
    eventually("it says so", || registry.last().unwrap().draining).await;
}

#[tokio::test]
async fn a_drain_over_grpc_answers_when_nothing_is_in_flight() {
    let s = Server::start(settings(EngineRole::Prefill)).await;
    let target = format!("http://{}", s.running.addresses().grpc);
    let mut client = EngineControlClient::connect(target).await.unwrap();
    let drained = client.drain(DrainRequest { deadline_ms: 2000 }).await.unwrap().into_inner();
    assert_eq!(drained.aborted, 0);
    becomes_unready(&s).await;
}

#[tokio::test]
async fn an_engine_outlives_its_registry() {
    let registry = Registry::default();
    let grpc = registry.serve();
    let s = member(&grpc, EngineRole::Unified).await;
    eventually("a beat", || registry.last().is_some()).await;
    grpc.shutdown().await;
    let request = body(CHAT, "hello", json!({"max_tokens": 4}));
    s.post(CHAT, &request).await.ok();
    let started = Instant::now();
    s.running.shutdown().await;
    assert!(started.elapsed() < Duration::from_secs(3), "a dead registry holds up nothing");
}

#[tokio::test]
async fn a_dropped_engine_leaves_nothing_behind() {
    let registry = Registry::default();
    let grpc = registry.serve();
    let s = member(&grpc, EngineRole::Decode).await;
    s.post(CHAT, &body(CHAT, "hello", json!({"max_tokens": 4}))).await.ok();
    let engine = s.running.engine().clone();
    let pool = std::sync::Arc::downgrade(&engine.pool());
    let url = s.url("/v1/models");
    drop((engine, s));
    // The pool lives as long as the engine's thread and whoever can reach it.
    eventually("the engine is gone", || pool.upgrade().is_none()).await;
    assert!(reqwest::get(url).await.is_err());
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let mut settings = settings(EngineRole::Decode);
    settings.kv_listen = addr.clone();
    let error = tl_serve::start_engine(settings, tl_model::tiny(1)).await.unwrap_err().to_string();
    assert!(error.contains("kv transfer cannot listen on") && error.contains(&addr), "{error}");
}
