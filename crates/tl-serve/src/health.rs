//! The health listener: is the process alive, should it get work, what does it count.
//!
//! Alive and ready are different questions. A draining engine is alive until its last request has
//! ended and must not be restarted for it; an engine whose step hangs answers HTTP as well as ever
//! and must not get work, so readiness asks whether what is pending still moves.

use crate::app::{App, method_not_allowed, unknown_path};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tl_api::metrics::{CONTENT_TYPE, EngineSample};
use tl_kv::lock;

#[derive(Debug)]
pub(crate) struct Health {
    pub app: Arc<App>,
    /// Work that has not moved for so long makes the engine unready.
    pub stall_after: Duration,
}

pub(crate) fn router(health: Arc<Health>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(unknown_path)
        .with_state(health)
}

/// Why an engine should get no work; `None` when it should.
pub(crate) fn unready(health: &Health, now: Instant) -> Option<&'static str> {
    let stats = health.app.engine.stats();
    if stats.stopped {
        Some("stopped")
    } else if stats.draining || health.app.closing.load(Ordering::Relaxed) {
        Some("draining")
    } else if stats.stalled(now, health.stall_after) {
        Some("stalled: requests are pending and no step has ended in time")
    } else {
        None
    }
}

async fn readyz(State(health): State<Arc<Health>>) -> Response {
    match unready(&health, Instant::now()) {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    let app = &health.app;
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], app.metrics.render(&sample(app))).into_response()
}

fn sample(app: &App) -> EngineSample {
    let stats = app.engine.stats();
    let kv = lock(&app.engine.pool()).stats();
    let mut sample = EngineSample {
        kv_free: kv.free.into(),
        kv_used: kv.used.into(),
        kv_cached: kv.cached.into(),
        kv_evictions: kv.evictions,
        queue_depth: stats.queued as u64,
        active_sequences: stats.running as u64,
        batch_tokens: stats.batch_tokens as u64,
        prefix_query_tokens: stats.prefix_query_tokens,
        prefix_hit_tokens: stats.prefix_hit_tokens,
        preemptions: stats.preemptions,
        remote_prefills: stats.remote_prefill_total,
        resume_recomputed_tokens: stats.resumed_prompt_tokens,
        ..EngineSample::default()
    };
    if let Some(receiver) = &app.receiver {
        let counters = receiver.counters();
        sample.handles_waiting = receiver.pending() as u64;
        sample.handles_claimed = counters.handles_claimed;
        sample.handles_released = counters.handles_released;
        sample.handles_expired = counters.handles_expired;
        sample.kv_bytes_received = counters.bytes_received;
    }
    sample
}
