//! What operators change: the table of routes, and who gets no more work.
//!
//! These paths exist only on a listener that this machine alone can reach. A page in a browser on
//! this machine could still send a form there, so a change must say that it is JSON, which a form
//! cannot. What is changed lives until the gateway ends: the file it started from is not written.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tl_api::config::{Route, RouteProblem, route_problems};
use tl_api::error::ApiError;

use super::api::{self, respond};
use super::names::Names;
use super::shared::Shared;

/// Longest drain, in seconds.
const MAX_DEADLINE_S: u64 = 3600;
const MAX_BODY: usize = 1 << 20;

/// `GET /admin/v1/routes`.
pub(crate) async fn routes(State(shared): State<Arc<Shared>>) -> Response {
    table(&shared.names())
}

fn etag(names: &Names) -> String {
    format!("\"routes-{}\"", names.epoch())
}

fn table(names: &Names) -> Response {
    let body = json!({"data": names.table(), "route_epoch": names.epoch()});
    let mut response = api::json(StatusCode::OK, &body);
    if let Ok(tag) = HeaderValue::from_str(&etag(names)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

#[derive(Deserialize)]
struct Table {
    data: Vec<Route>,
    /// As `GET` gives it. `If-Match` is what counts.
    #[serde(rename = "route_epoch", default)]
    _route_epoch: Value,
}

/// `PUT /admin/v1/routes`: the whole table, if it is still the one that was read.
pub(crate) async fn put_routes(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let result = async {
        let (head, body) = request.into_parts();
        let wanted = head.headers.get(header::IF_MATCH).ok_or_else(ApiError::if_match_required)?;
        let Table { data, _route_epoch: _ } = read(&head.headers, body).await?;
        if let Some(RouteProblem { model, reason, fix }) = route_problems(&data).into_iter().next()
        {
            let fix = if fix.is_empty() { String::new() } else { format!("; {fix}") };
            return Err(ApiError::bad_request(
                format!("route of {model:?}: {reason}{fix}"),
                "data",
            ));
        }
        shared.replace_names(|names| {
            let current = etag(names);
            let same = wanted.to_str().is_ok_and(|tag| tag == current || tag == "*");
            if same { Ok(Names::new(&data)) } else { Err(ApiError::etag_mismatch()) }
        })
    };
    match result.await {
        Ok(names) => {
            tracing::info!(routes = names.table().len(), epoch = names.epoch(), "routes replaced");
            table(&names)
        }
        Err(error) => respond(&error),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    deadline_s: Option<u64>,
}

/// `POST /admin/v1/models/{model}:drain` and `:undrain`. A model's name may contain slashes.
pub(crate) async fn model(
    State(shared): State<Arc<Shared>>,
    Path(rest): Path<String>,
    request: Request,
) -> Response {
    let path = format!("/admin/v1/models/{rest}");
    match rest.rsplit_once(':') {
        Some((model, "drain")) => drain_model(&shared, model, request).await,
        Some((model, "undrain")) => {
            let was = shared.fleet.registry.lock().undrain_model(model);
            shared.fleet.changed.notify_waiters();
            if was {
                tracing::info!(model, "model takes work again");
                api::json(StatusCode::OK, &json!({"model": model}))
            } else {
                respond(&ApiError::model_not_found(model))
            }
        }
        _ => respond(&ApiError::unknown_path(&path)),
    }
}

async fn drain_model(shared: &Arc<Shared>, model: &str, request: Request) -> Response {
    let deadline = match deadline_of(shared, request).await {
        Ok(deadline) => deadline,
        Err(error) => return respond(&error),
    };
    let configured = shared.names().resolve(model).configured;
    let drained = {
        let mut registry = shared.fleet.registry.lock();
        let known = configured || registry.has_known(model);
        known.then(|| registry.drain_model(model))
    };
    let Some(workers) = drained else { return respond(&ApiError::model_not_found(model)) };
    tracing::info!(model, workers = workers.len(), ?deadline, "model is drained");
    let count = workers.len();
    tell(shared, workers, deadline);
    api::json(StatusCode::ACCEPTED, &json!({"model": model, "workers": count}))
}

/// `POST /admin/v1/workers/{id}:drain`: one engine, until it is started again.
pub(crate) async fn worker(
    State(shared): State<Arc<Shared>>,
    Path(rest): Path<String>,
    request: Request,
) -> Response {
    let unknown = ApiError::unknown_path(&format!("/admin/v1/workers/{rest}"));
    let Some(id) = rest.strip_suffix(":drain") else { return respond(&unknown) };
    let deadline = match deadline_of(&shared, request).await {
        Ok(deadline) => deadline,
        Err(error) => return respond(&error),
    };
    let Some(address) = shared.fleet.registry.lock().drain_worker(id) else {
        return respond(&unknown);
    };
    tracing::info!(worker = id, ?deadline, "worker is drained");
    tell(&shared, vec![address], deadline);
    api::json(StatusCode::ACCEPTED, &json!({"worker_id": id}))
}

/// Tells engines at once. One that this does not reach learns it from the answer to its next beat.
fn tell(shared: &Arc<Shared>, addresses: Vec<String>, deadline: Duration) {
    for address in addresses {
        let shared = shared.clone();
        tokio::spawn(async move { shared.peers.drain(&address, deadline).await });
    }
}

async fn deadline_of(shared: &Shared, request: Request) -> Result<Duration, ApiError> {
    let (head, body) = request.into_parts();
    let Drain { deadline_s } = read(&head.headers, body).await?;
    let seconds = deadline_s.unwrap_or(shared.config.drain_deadline_s);
    if seconds > MAX_DEADLINE_S {
        let message = format!("deadline_s is {seconds}; allowed: 0 to {MAX_DEADLINE_S}");
        return Err(ApiError::bad_request(message, "deadline_s"));
    }
    Ok(Duration::from_secs(seconds))
}

async fn read<T: serde::de::DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
) -> Result<T, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return Err(ApiError::malformed("send the change as content-type: application/json"));
    }
    let body = axum::body::to_bytes(body, MAX_BODY)
        .await
        .map_err(|_| ApiError::body_too_large(MAX_BODY))?;
    serde_json::from_slice(&body).map_err(|error| {
        ApiError::malformed(format!("the body is not what this path takes: {error}"))
    })
}
