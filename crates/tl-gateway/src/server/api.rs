//! The public API: generation, the model list, and what clients see when neither is asked for.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;
use tl_api::error::ApiError;
use tl_api::handoff::Context;
use tl_api::headers::{REQUEST_ID, SEED, is_internal, request_id};
use tl_api::openai::{
    Generate, Head, Input, Internal, Kind, MAX_BODY_BYTES, Tokenize, draw_seed, model_list,
    model_object,
};
use tl_api::sse;
use tl_api::trace::Trace;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Instrument;

use super::body::{Begun, Streamed, Whole, WholeBody, begin, events, whole};
use super::drive::Driver;
use super::handover::{Job, RouteInfo};
use super::meter::Meter;
use super::names::Served;
use super::peers::TokenizeFailure;
use super::shared::{Shared, now};
use crate::attempt::busy;
use crate::registry::{Slot, WorkerRole};
use crate::route::Demand;
use crate::route::ring::KEY_BYTES;

/// A client that is slower than this with its body is not served.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Reports of all choices that may lie unread; a slow client slows its engine.
const REPORTS: usize = 32;
/// Engines asked to tokenize one prompt.
const TOKENIZE_TRIES: usize = 3;

pub(crate) fn respond(error: &ApiError) -> Response {
    let (parts, body) = error.to_response().into_parts();
    Response::from_parts(parts, Body::from(body))
}

pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Around every route: the client's internal headers go, the request has an id, and so has
/// its answer.
pub(crate) async fn edge(mut request: Request, next: Next) -> Response {
    let headers = request.headers_mut();
    let internal: Vec<HeaderName> = headers.keys().filter(|n| is_internal(n)).cloned().collect();
    for name in internal {
        headers.remove(name);
    }
    let id = HeaderValue::from_str(&request_id(headers)).ok();
    if let Some(id) = &id {
        headers.insert(REQUEST_ID, id.clone());
    }
    let mut response = next.run(request).await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

pub(crate) async fn unknown_path(uri: Uri) -> Response {
    respond(&ApiError::unknown_path(uri.path()))
}

pub(crate) async fn wrong_method(method: Method, uri: Uri) -> Response {
    respond(&ApiError::method_not_allowed(method.as_str(), uri.path()))
}

pub(crate) async fn models(State(shared): State<Arc<Shared>>) -> Response {
    let names = served_models(&shared);
    let list = model_list(names.iter().map(String::as_str), shared.started);
    json(StatusCode::OK, &list)
}

pub(crate) async fn model(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    let served = shared.names().resolve(&id);
    if served.configured || served_models(&shared).contains(&served.model) {
        json(StatusCode::OK, &model_object(&id, shared.started))
    } else {
        respond(&ApiError::model_not_found(&id))
    }
}

fn served_models(shared: &Shared) -> std::collections::BTreeSet<String> {
    let registry = shared.fleet.registry.lock();
    let live = registry.live(now()).map(|w| w.info.model.clone());
    shared.names().models().map(str::to_owned).chain(live).collect()
}

pub(crate) async fn chat(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    generate(shared, Kind::Chat, request).await
}

pub(crate) async fn completions(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    generate(shared, Kind::Completion, request).await
}

async fn generate(shared: Arc<Shared>, kind: Kind, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let debug = shared.config.debug && asks_for_route(head.uri.query(), &head.headers);
    let context = Context {
        request_id: request_id(&head.headers),
        priority: 0,
        trace: Trace::continued(Trace::of(&head.headers)),
    };
    let span = tracing::info_span!(
        "request",
        request_id = %context.request_id,
        trace_id = context.trace.map(|t| t.trace_id()),
        span_id = context.trace.map(|t| t.span_id()),
    );
    let mut meter = Meter::new(&shared, kind, span.clone());
    let started = start(&shared, kind, context, body, &mut meter).instrument(span).await;
    let result = match started {
        Ok(started) => answer(started, debug, meter).await,
        Err(error) => Err((error, meter)),
    };
    match result {
        Ok(response) => response,
        Err((error, mut meter)) => {
            meter.refused(&error);
            respond(&error)
        }
    }
}

fn asks_for_route(query: Option<&str>, headers: &HeaderMap) -> bool {
    query.is_some_and(|q| q.split('&').any(|pair| pair == "debug=route"))
        || headers.get("x-debug").is_some_and(|v| v == "route")
}

struct Started {
    /// As the client named the model.
    head: Head,
    /// The client's.
    stream: bool,
    include_usage: bool,
    n: u32,
    logprobs: bool,
    /// Of choice 0, reported to the client.
    seed: u64,
    reports: super::body::Reports,
}

/// Reads, checks, tokenizes, and sets a driver to work for each choice.
async fn start(
    shared: &Arc<Shared>,
    kind: Kind,
    context: Context,
    body: Body,
    meter: &mut Meter,
) -> Result<Started, ApiError> {
    if shared.is_draining() {
        return Err(ApiError::no_capacity("this gateway is shutting down"));
    }
    let body = read(body).await?;
    let client = Generate::parse(kind, &body, Internal::Ignored)?;
    let served = shared.names().resolve(&client.model);
    check_known(shared, &served, &client.model)?;
    meter.model(&served.model);
    let head = Head::new(kind, &client.model, unix_seconds()).map_err(|e| no_randomness(&e))?;
    let seed = match client.seed {
        Some(seed) => seed,
        None => draw_seed().map_err(|e| no_randomness(&e))?,
    };
    let (stream, include_usage, n) = (client.stream, client.include_usage, client.n);
    let request = Generate {
        model: served.model,
        n: 1,
        seed: None,
        stream: true,
        include_usage: true,
        ..client
    };
    let story = shared.stories.begin(&context.request_id);
    let prompt_ids = tokenize(shared, &request).await?;
    let job = Arc::new(Job {
        key: affinity_key(&request.input),
        demand: Demand {
            prompt_tokens: prompt_ids.len() as u64,
            answer_tokens: request.max_tokens.unwrap_or(shared.config.reserve_tokens.into()),
        },
        targets: served.targets,
        seed,
        prompt_ids,
        context,
        admit_by: Instant::now() + Duration::from_millis(shared.config.admission_wait_ms),
        streamed: stream,
        story,
        request,
    });
    let (reporter, reports) = mpsc::channel(REPORTS);
    for index in 0..n {
        let driver = Driver::new(shared.clone(), job.clone(), index, reporter.clone());
        shared.tasks.spawn(driver.run().instrument(tracing::info_span!("choice", index)));
    }
    let logprobs = job.request.logprobs.is_some();
    Ok(Started { head, stream, include_usage, n, logprobs, seed, reports })
}

async fn answer(
    started: Started,
    debug: bool,
    mut meter: Meter,
) -> Result<Response, (ApiError, Meter)> {
    let Started { head, stream, include_usage, n, logprobs, seed, mut reports } = started;
    if !stream {
        let Whole { choices, usage, loads, route } =
            match whole(&mut reports, n, logprobs, &mut meter).await {
                Ok(whole) => whole,
                Err(error) => return Err((error, meter)),
            };
        meter.usage(usage);
        let bytes = head.answer(&choices, usage, seed).to_string().into_bytes();
        let mut response = Response::new(Body::new(WholeBody::new(bytes, meter, loads)));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response.headers_mut().insert(SEED, HeaderValue::from(seed));
        if debug {
            route_headers(response.headers_mut(), &route);
        }
        return Ok(response);
    }
    let (route, first) = match begin(&mut reports).await {
        Begun::With { route, first } => (route, first),
        Begun::Failed(error) => return Err((error, meter)),
    };
    let from = Streamed { head, reports, n, include_usage, debug, meter };
    let mut response = Response::new(Body::from_stream(events(from, first)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(sse::CONTENT_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(SEED, HeaderValue::from(seed));
    if debug {
        route_headers(headers, &route);
    }
    Ok(response)
}

/// `X-TL-Route-*` of the first choice that is known; absent prefill means none took part.
fn route_headers(headers: &mut HeaderMap, route: &[(u32, RouteInfo)]) {
    let Some((_, info)) = route.iter().min_by_key(|(index, _)| *index) else { return };
    let RouteInfo { prefill, decode, reason, blocks_sent, blocks_deduped, payload_bytes, attempt } =
        info;
    let mut put = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    if let Some(prefill) = prefill {
        put("x-tl-route-prefill", prefill);
        put("x-tl-route-blocks-sent", &blocks_sent.to_string());
        put("x-tl-route-blocks-deduped", &blocks_deduped.to_string());
        put("x-tl-route-bytes", &payload_bytes.to_string());
    }
    put("x-tl-route-decode", decode);
    put("x-tl-route-reason", reason);
    put("x-tl-route-attempt", &attempt.to_string());
}

async fn read(body: Body) -> Result<Vec<u8>, ApiError> {
    let read = axum::body::to_bytes(body, MAX_BODY_BYTES);
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => Ok(bytes.to_vec()),
        Ok(Err(error)) => {
            let mut source: Option<&dyn std::error::Error> = Some(&error);
            while let Some(cause) = source {
                if cause.is::<http_body_util::LengthLimitError>() {
                    return Err(ApiError::body_too_large(MAX_BODY_BYTES));
                }
                source = cause.source();
            }
            Err(ApiError::malformed("the request body could not be read"))
        }
        Err(_) => Err(ApiError::malformed("the request body did not arrive in time")),
    }
}

fn check_known(shared: &Shared, served: &Served, name: &str) -> Result<(), ApiError> {
    let known = served.configured || shared.fleet.registry.lock().has_known(&served.model);
    if known { Ok(()) } else { Err(ApiError::model_not_found(name)) }
}

/// The prompt's ids, from the least loaded prefill engine or, without one, from another.
async fn tokenize(shared: &Shared, request: &Generate) -> Result<Vec<u32>, ApiError> {
    if let Input::Ids(ids) = &request.input {
        return Ok(ids.clone());
    }
    let Some(question) = Tokenize::of(request) else {
        return Err(ApiError::internal("the prompt has no text"));
    };
    let mut full = false;
    for (slot, address) in tokenizers(shared, &request.model) {
        match shared.peers.tokenize(&address, &question).await {
            Ok(ids) if ids.is_empty() => {
                return Err(ApiError::malformed("the prompt has no tokens"));
            }
            Ok(ids) => return Ok(ids),
            Err(TokenizeFailure::Client(error)) => return Err(error),
            Err(TokenizeFailure::Full) => full = true,
            Err(TokenizeFailure::Fault(why)) => shared.blame(slot, &why),
        }
    }
    let none = "no engine that serves this model is ready";
    Err(if full { busy() } else { ApiError::no_capacity(none) })
}

fn tokenizers(shared: &Shared, model: &str) -> Vec<(Slot, String)> {
    let registry = shared.fleet.registry.lock();
    let now = now();
    let mut found: Vec<(bool, u64, Slot, String)> = registry
        .live(now)
        .filter(|w| w.info.model == model && w.is_routable(now))
        .map(|w| {
            let other = w.info.role != WorkerRole::Prefill;
            (other, w.load(), w.slot, w.info.http_address.clone())
        })
        .collect();
    found.sort();
    found.into_iter().take(TOKENIZE_TRIES).map(|(_, _, slot, address)| (slot, address)).collect()
}

/// The first bytes of the prompt, as far as they decide which cache has its beginning.
fn affinity_key(input: &Input) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 * KEY_BYTES);
    match input {
        Input::Messages(messages) => {
            for message in messages {
                for part in [message.role.as_str(), "\n", message.content.as_str(), "\n"] {
                    let room = KEY_BYTES.saturating_sub(key.len());
                    key.extend(part.bytes().take(room));
                }
                if key.len() >= KEY_BYTES {
                    break;
                }
            }
        }
        Input::Text(text) => key.extend(text.bytes().take(KEY_BYTES)),
        Input::Ids(ids) => {
            key.extend(ids.iter().flat_map(|id| id.to_le_bytes()).take(KEY_BYTES));
        }
    }
    key
}

fn no_randomness(error: &getrandom::Error) -> ApiError {
    tracing::error!(%error, "the system gives no randomness");
    ApiError::internal("the gateway could not draw a random number")
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
