//! The API listener: routes, and what every exchange has in common.

use crate::answer;
use crate::body;
use crate::generate::generate;
use crate::lang::Language;
use crate::meter::{HttpMeter, Measured};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tl_api::error::ApiError;
use tl_api::headers;
use tl_api::metrics::EngineMetrics;
use tl_api::openai::{Kind, MAX_INTERNAL_BODY_BYTES, Tokenize, model_object, tokenize_response};
use tl_api::trace::Trace;
use tl_engine::engine::Engine;
use tl_engine::kv_transfer::KvReceiver;
use tracing::Instrument;

const EMBEDDINGS: &str = "/v1/embeddings";
const TOKENIZE: &str = "/v1/tokenize";
const MODELS: &str = "/v1/models";
const MODEL: &str = "/v1/models/{*id}";
const HEALTHZ: &str = "/healthz";

/// The route label of a path: the pattern, so that paths cannot multiply the series.
fn route_of(path: &str) -> &'static str {
    let exact = [Kind::Chat.path(), Kind::Completion.path(), EMBEDDINGS, TOKENIZE, MODELS, HEALTHZ];
    match exact.into_iter().find(|route| *route == path) {
        Some(route) => route,
        None if path.starts_with("/v1/models/") => MODEL,
        None => "_unmatched",
    }
}

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub engine: Engine,
    pub language: Arc<Language>,
    /// The one model served here, as clients name it.
    pub model: String,
    /// When it was loaded, seconds since the Unix epoch.
    pub created: u64,
    pub metrics: Arc<EngineMetrics>,
    /// Where handed-over blocks wait; a decode engine has one.
    pub receiver: Option<Arc<KvReceiver>>,
    /// Tokens per KV block.
    pub block_tokens: usize,
    pub limits: Limits,
    /// Set when the process is going: answers tell clients to close the connection.
    pub closing: AtomicBool,
}

/// Bounds of an exchange.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest request body. Larger than what a gateway takes from clients, since the gateway adds
    /// token ids.
    pub body_bytes: usize,
    /// Longest time a request body may take to arrive.
    pub body_time: Duration,
    /// A stream that has been silent for so long gets a comment.
    pub ping: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: MAX_INTERNAL_BODY_BYTES,
            body_time: Duration::from_secs(60),
            ping: Duration::from_secs(15),
        }
    }
}

/// The name of an exchange, kept from the client or made here.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub String);

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route(Kind::Chat.path(), post(chat))
        .route(Kind::Completion.path(), post(completion))
        .route(EMBEDDINGS, post(embeddings))
        .route(TOKENIZE, post(tokenize))
        .route(MODELS, get(models))
        .route(MODEL, get(model))
        .route(HEALTHZ, get(|| async { "ok\n" }))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(unknown_path)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), exchange))
        .with_state(app)
}

/// Names the exchange, measures it until its last byte has left, and says goodbye when the process
/// is going.
async fn exchange(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = headers::request_id(request.headers());
    let route = route_of(request.uri().path());
    let span = request_span(&id, Trace::continued(Trace::of(request.headers())));
    let mut meter = HttpMeter::new(&app.metrics, request.method().clone(), route, span.clone());
    let name = HeaderValue::from_str(&id);
    request.extensions_mut().insert(RequestId(id));
    let mut response = next.run(request).instrument(span).await;
    if let Ok(name) = name {
        response.headers_mut().insert(headers::REQUEST_ID, name);
    }
    if app.closing.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    meter.status = response.status().as_u16();
    response.map(|body| Body::new(Measured::new(body, meter)))
}

/// Names a request in every log line that is about it, as the gateway and the other engines do.
pub(crate) fn request_span(request_id: &str, trace: Option<Trace>) -> tracing::Span {
    tracing::info_span!(
        "request",
        request_id,
        trace_id = trace.map(|t| t.trace_id()),
        span_id = trace.map(|t| t.span_id()),
    )
}

/// An error as an answer of this listener.
pub(crate) fn error_response(error: &ApiError) -> Response {
    error.to_response().map(Body::from)
}

pub(crate) fn json_response(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

pub(crate) async fn method_not_allowed(request: Request) -> Response {
    error_response(&ApiError::method_not_allowed(request.method().as_str(), request.uri().path()))
}

pub(crate) async fn unknown_path(request: Request) -> Response {
    error_response(&ApiError::unknown_path(request.uri().path()))
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    generate(app, Kind::Chat, request).await
}

async fn completion(State(app): State<Arc<App>>, request: Request) -> Response {
    generate(app, Kind::Completion, request).await
}

async fn embeddings() -> Response {
    let message = "this server computes no embeddings";
    error_response(&ApiError::unsupported_parameter("input", message))
}

async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Response {
    let result = async {
        let body =
            body::read(request.into_body(), app.limits.body_bytes, app.limits.body_time).await?;
        let Tokenize { model, input } = parse(&body, Tokenize::parse).await?;
        app.check_model(&model)?;
        app.language.prompt(input).await
    };
    match result.await {
        Ok(ids) => json_response(&tokenize_response(&ids)),
        Err(error) => error_response(&error),
    }
}

async fn models(State(app): State<Arc<App>>) -> Response {
    json_response(&json!({"object": "list", "data": [app.model_json()]}))
}

async fn model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    match app.check_model(&id) {
        Ok(()) => json_response(&app.model_json()),
        Err(error) => error_response(&error),
    }
}

impl App {
    /// The model as clients see it, with what an engine can hold beside the API's own fields.
    fn model_json(&self) -> Value {
        let mut object = model_object(&self.model, self.created);
        object["max_context"] = self.engine.context().into();
        object["block_size"] = self.block_tokens.into();
        object
    }

    pub(crate) fn check_model(&self, name: &str) -> Result<(), ApiError> {
        if name == self.model { Ok(()) } else { Err(ApiError::model_not_found(name)) }
    }
}

/// Above so many bytes, parsing would hold up the other connections of its thread.
const PARSE_INLINE: usize = 256 * 1024;

/// Runs a parser, on a thread for blocking work when the body is large.
pub(crate) async fn parse<T: Send + 'static>(
    body: &Bytes,
    parser: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if body.len() <= PARSE_INLINE {
        return parser(body);
    }
    let body = body.clone();
    tokio::task::spawn_blocking(move || parser(&body)).await.unwrap_or_else(|error| {
        tracing::error!(%error, "parsing did not end");
        Err(ApiError::internal("the request could not be read"))
    })
}

/// A stream of events as a response.
pub(crate) fn events_response(events: answer::Events) -> Response {
    let mut response = Response::new(events.into_body());
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(tl_api::sse::CONTENT_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
