//! What operators look at: health, metrics, the workers, and why a request went where it did.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use tl_api::error::ApiError;

use super::api;
use super::shared::{Shared, now};
use crate::registry::pairing;
use crate::registry::{Registry, Worker, WorkerRole};

fn text(status: StatusCode, kind: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// The process runs.
pub(crate) async fn healthz() -> Response {
    text(StatusCode::OK, PLAIN, "ok\n".into())
}

/// A request would be taken: somebody is in rotation that can decode, and we are not leaving.
pub(crate) async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    if shared.is_draining() {
        return text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "draining\n".into());
    }
    let now = now();
    let ready = {
        let registry = shared.fleet.registry.lock();
        registry.live(now).any(|w| w.info.role != WorkerRole::Prefill && w.is_routable(now))
    };
    if ready {
        text(StatusCode::OK, PLAIN, "ready\n".into())
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "no engine that can decode\n".into())
    }
}

pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    shared.tick();
    text(StatusCode::OK, tl_api::metrics::CONTENT_TYPE, shared.metrics.render())
}

fn state(worker: &Worker, now: std::time::Instant) -> &'static str {
    if worker.is_draining() {
        "draining"
    } else if worker.breaker.is_closed() {
        "healthy"
    } else if worker.breaker.admits(now) {
        "probing"
    } else {
        "failing"
    }
}

/// Pairs that are not formed, as `(prefill, decode, reason)`.
fn refused_pairs<'a>(
    registry: &Registry,
    workers: &[&'a Worker],
    now: std::time::Instant,
) -> Vec<(&'a str, &'a str, String)> {
    let of = |role| workers.iter().filter(move |w| w.info.role == role);
    let mut refused = Vec::new();
    for p in of(WorkerRole::Prefill) {
        for d in of(WorkerRole::Decode).filter(|d| d.info.model == p.info.model) {
            if let Err(mismatch) = pairing::check(&p.info, &d.info) {
                refused.push((p.info.id.as_str(), d.info.id.as_str(), mismatch.to_string()));
            } else if !registry.link_admits(now, p.slot, d.slot) {
                let why = "its hand-offs failed a moment ago".to_owned();
                refused.push((p.info.id.as_str(), d.info.id.as_str(), why));
            }
        }
    }
    refused
}

/// `GET /admin/v1/workers`.
pub(crate) async fn workers_json(State(shared): State<Arc<Shared>>) -> Response {
    let now = now();
    let registry = shared.fleet.registry.lock();
    let workers: Vec<&Worker> = registry.live(now).collect();
    let data: Value = workers.iter().map(|w| worker_json(w, now)).collect();
    let pairs: Value = refused_pairs(&registry, &workers, now)
        .into_iter()
        .map(|(p, d, why)| json!({"prefill": p, "decode": d, "reason": why}))
        .collect();
    let body = json!({"data": data, "route_epoch": registry.route_epoch(), "refused_pairs": pairs});
    api::json(StatusCode::OK, &body)
}

fn worker_json(worker: &Worker, now: std::time::Instant) -> Value {
    let info = &worker.info;
    json!({
        "worker_id": info.id,
        "role": info.role.as_str(),
        "model": info.model,
        "state": state(worker, now),
        "http_address": info.http_address,
        "grpc_address": info.grpc_address,
        "kv_address": info.kv_address,
        "kv_format": info.kv_format,
        "block_size": info.block_size,
        "model_fingerprint": format!("{:016x}", info.fingerprint),
        "incarnation": format!("{:016x}", info.incarnation),
        "max_context": worker.max_context,
        "queue_depth": info.queue_depth,
        "running": info.running,
        "in_flight": worker.in_flight(),
        "kv_free_blocks": info.free_blocks,
        "kv_total_blocks": info.total_blocks,
        "room": worker.room(),
        "share": worker.share(now),
        "last_beat_ms": now.saturating_duration_since(worker.last_beat).as_millis() as u64,
        "draining": worker.is_draining(),
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;\
padding:0 1rem;color:#1b1f24;background:#fff}h1{font-size:1.3rem}table{border-collapse:collapse;\
width:100%}th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid #d8dee4;\
font-variant-numeric:tabular-nums}th{font-weight:600;color:#57606a}td.n,th.n{text-align:right}\
.healthy{color:#1a7f37}.draining,.probing{color:#9a6700}.failing{color:#cf222e}\
.room{display:inline-block;width:6rem;height:.6rem;background:#d8dee4;vertical-align:middle}\
.room i{display:block;height:100%;background:#0969da}p.note{color:#57606a}\
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,p.note{color:#8d96a0}\
th,td{border-color:#30363d}.room{background:#30363d}}";

/// `GET /workers`: the same for people.
pub(crate) async fn workers_page(State(shared): State<Arc<Shared>>) -> Response {
    let now = now();
    let registry = shared.fleet.registry.lock();
    let workers: Vec<&Worker> = registry.live(now).collect();
    let mut rows = String::new();
    for worker in &workers {
        let info = &worker.info;
        let used = info.total_blocks.saturating_sub(worker.room());
        let percent = if info.total_blocks == 0 {
            0
        } else {
            u64::from(used) * 100 / u64::from(info.total_blocks)
        };
        let state = state(worker, now);
        rows.push_str(&format!(
            "<tr><td>{}<td>{}<td>{}<td class={state}>{state}<td class=n>{}<td class=n>{}\
             <td class=n>{}<td><span class=room><i style=\"width:{percent}%\"></i></span> {used} / {}\
             <td class=n>{:.1} s\n",
            escaped(&info.id),
            info.role.as_str(),
            escaped(&info.model),
            worker.in_flight(),
            info.queue_depth,
            info.running,
            info.total_blocks,
            now.saturating_duration_since(worker.last_beat).as_secs_f64(),
        ));
    }
    if rows.is_empty() {
        rows.push_str(
            "<tr><td colspan=9>No engine has announced itself. Set engine.gateway_registry to \
             this gateway's registry address.\n",
        );
    }
    let mut pairs = String::new();
    for (p, d, why) in refused_pairs(&registry, &workers, now) {
        let (p, d, why) = (escaped(p), escaped(d), escaped(&why));
        pairs.push_str(&format!("<p class=failing>{p} and {d} are not paired: {why}</p>\n"));
    }
    let page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>\
         <title>Workers</title><style>{STYLE}</style><h1>Workers</h1>\n\
         <table><tr><th>worker<th>role<th>model<th>state<th class=n>in flight<th class=n>queued\
         <th class=n>running<th>KV blocks taken or promised<th class=n>last beat\n{rows}</table>\n\
         {pairs}<p class=note>Route epoch {}. The same as JSON: /admin/v1/workers</p></html>\n",
        registry.route_epoch(),
    );
    text(StatusCode::OK, "text/html; charset=utf-8", page)
}

/// `GET /debug/why/{request_id}`.
pub(crate) async fn why(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    match shared.stories.find(&id) {
        Some(story) => api::json(StatusCode::OK, &story),
        None => {
            let path = format!("/debug/why/{id}");
            api::respond(&ApiError::unknown_path(&path))
        }
    }
}
