//! An engine that does what a script says: tokenize, Prefill, Release, and a stream of tokens.

mod rpc;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use parking_lot::Mutex;
use tl_api::error::ApiError;
use tl_api::handoff::Resume;
use tl_api::openai::{
    Delta, FinishReason, Generate, Head, Internal, Kind, TokenLogprob, Tokenize, TokenizeInput,
    TopLogprob, Usage, tokenize_response,
};
use tl_api::sse;
use tl_proto::control::v1::WorkerStatus;
use tl_proto::control::v1::worker_registry_client::WorkerRegistryClient;
use tl_proto::engine::v1::engine_control_server::EngineControlServer;
use tl_proto::kv::v1::kv_transfer_service_server::KvTransferServiceServer;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request};

use super::World;

/// What the next `Prefill` does. An empty script means `Ok`.
#[derive(Debug, Clone)]
pub(crate) enum Prefill {
    /// First token 72, text "H".
    Ok,
    Token(u32, &'static str),
    /// A token whose text is withheld.
    Withheld(&'static str),
    /// The first token is the whole answer: its bytes, its text, the finish.
    Ends(&'static str, &'static str, &'static str),
    Fails(Code, &'static str),
    /// Never answers, until it is cancelled.
    Hangs,
}

/// What the next generation does. An empty script means `Tokens(&["e", "y"])`.
#[derive(Debug, Clone)]
pub(crate) enum Decode {
    Tokens(&'static [&'static str]),
    Status(u16, &'static str),
    /// The tokens, and then the connection breaks.
    Cut(&'static [&'static str]),
    ErrorEvent(&'static [&'static str]),
    /// The tokens, and then nothing.
    Hangs(&'static [&'static str]),
    /// The head waits for [`Engine::gate`], then as an empty script.
    Gated,
    /// Between its two tokens it waits for [`Engine::gate`].
    GatedMiddle,
}

pub(crate) struct Inner {
    name: String,
    role: String,
    world: Arc<World>,
    prefills: Mutex<VecDeque<Prefill>>,
    decodes: Mutex<VecDeque<Decode>>,
    tokenizes: Mutex<VecDeque<u16>>,
    /// How often `Info` still fails.
    infos_to_fail: AtomicU64,
    cancelled: Notify,
    gate: Notify,
    max_context: i32,
}

pub(crate) struct Engine {
    pub(crate) name: String,
    pub(crate) status: Arc<Mutex<WorkerStatus>>,
    pub(crate) beating: Arc<AtomicBool>,
    pub(crate) beats: Arc<AtomicU64>,
    /// What the latest beat was answered.
    pub(crate) drain: Arc<AtomicBool>,
    pub(crate) token: Arc<Mutex<Option<String>>>,
    inner: Arc<Inner>,
    /// A runtime of its own, so that it can die like a process, connections and all.
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.beating.store(false, Ordering::Relaxed);
        self.die();
    }
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

impl Engine {
    pub(crate) async fn start(name: &str, role: &str, world: Arc<World>) -> Engine {
        let inner = Arc::new(Inner {
            name: name.into(),
            role: role.into(),
            world,
            prefills: Mutex::default(),
            decodes: Mutex::default(),
            tokenizes: Mutex::default(),
            infos_to_fail: AtomicU64::new(0),
            cancelled: Notify::new(),
            gate: Notify::new(),
            max_context: 512,
        });
        let (http_listener, http) = listener().await;
        let (grpc_listener, grpc) = listener().await;
        let app = axum::Router::new()
            .route("/v1/tokenize", post(tokenize))
            .route("/v1/chat/completions", post(chat))
            .route("/v1/completions", post(completions))
            .with_state(inner.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // A listener belongs to the runtime it was made in.
        let (http_listener, grpc_listener) =
            (http_listener.into_std().unwrap(), grpc_listener.into_std().unwrap());
        runtime.spawn(async move {
            let http_listener = TcpListener::from_std(http_listener).unwrap();
            loop {
                let Ok((socket, _)) = http_listener.accept().await else { continue };
                let service = hyper_util::service::TowerToHyperService::new(app.clone());
                tokio::spawn(async move {
                    let io = hyper_util::rt::TokioIo::new(socket);
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(io, service)
                        .await;
                });
            }
        });
        let (control, kv) = (inner.clone(), inner.clone());
        runtime.spawn(async move {
            let grpc_listener = TcpListener::from_std(grpc_listener).unwrap();
            tonic::transport::Server::builder()
                .add_service(EngineControlServer::from_arc(control))
                .add_service(KvTransferServiceServer::from_arc(kv))
                .serve_with_incoming(TcpListenerStream::new(grpc_listener))
                .await
        });
        let status = WorkerStatus {
            worker_id: name.into(),
            http_address: http.to_string(),
            grpc_address: grpc.to_string(),
            kv_address: if role == "decode" { grpc.to_string() } else { String::new() },
            role: role.into(),
            model: "m".into(),
            kv_format: 1,
            kv_free_blocks: 64,
            kv_total_blocks: 64,
            incarnation: 1,
            model_fingerprint: 7,
            block_size: 16,
            layers: 2,
            kv_heads: 1,
            head_dim: 8,
            kv_formats_read: vec![1],
            ..WorkerStatus::default()
        };
        Engine {
            name: name.into(),
            status: Arc::new(Mutex::new(status)),
            beating: Arc::new(AtomicBool::new(true)),
            beats: Arc::default(),
            drain: Arc::default(),
            token: Arc::default(),
            inner,
            runtime: Mutex::new(Some(runtime)),
        }
    }

    /// Beats every 100 ms, whatever the gateway does.
    pub(crate) fn beat_to(&self, registry: SocketAddr) {
        let (status, beating) = (self.status.clone(), self.beating.clone());
        let (beats, token, drain) = (self.beats.clone(), self.token.clone(), self.drain.clone());
        tokio::spawn(async move {
            let target = format!("http://{registry}");
            let channel = tonic::transport::Endpoint::from_shared(target).unwrap().connect_lazy();
            while beating.load(Ordering::Relaxed) {
                let mut request = Request::new(status.lock().clone());
                if let Some(token) = token.lock().as_deref() {
                    request.metadata_mut().insert("tl-cluster-token", token.parse().unwrap());
                }
                let beat = WorkerRegistryClient::new(channel.clone()).heartbeat(request).await;
                if let Ok(ack) = beat {
                    drain.store(ack.into_inner().drain, Ordering::Relaxed);
                    beats.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }

    pub(crate) fn prefill(&self, script: &[Prefill]) {
        self.inner.prefills.lock().extend(script.iter().cloned());
    }

    pub(crate) fn decode(&self, script: &[Decode]) {
        self.inner.decodes.lock().extend(script.iter().cloned());
    }

    /// Statuses of the next tokenize calls.
    pub(crate) fn tokenize(&self, script: &[u16]) {
        self.inner.tokenizes.lock().extend(script);
    }

    /// `Info` fails so often.
    pub(crate) fn fail_infos(&self, times: u64) {
        self.inner.infos_to_fail.store(times, Ordering::Relaxed);
    }

    /// Lets one gated stream go on.
    pub(crate) fn gate(&self) {
        self.inner.gate.notify_one();
    }

    /// As a killed process: its connections break and new ones are refused.
    pub(crate) fn die(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

impl Inner {
    fn say(&self, text: String) {
        self.world.say(format!("{} {text}", self.name));
    }
}

fn respond(error: &ApiError) -> Response {
    let (parts, body) = error.to_response().into_parts();
    Response::from_parts(parts, Body::from(body))
}

async fn tokenize(State(inner): State<Arc<Inner>>, body: Bytes) -> Response {
    inner.say("tokenize".into());
    if let Some(status) = inner.tokenizes.lock().pop_front() {
        let mut error = ApiError::malformed("SECRET words of an engine");
        error.status = StatusCode::from_u16(status).unwrap();
        return respond(&error);
    }
    let request = Tokenize::parse(&body).unwrap();
    let ids: Vec<u32> = match &request.input {
        TokenizeInput::Text { text, .. } => text.bytes().map(u32::from).collect(),
        TokenizeInput::Messages(messages) => {
            messages.iter().flat_map(|m| m.content.bytes()).map(u32::from).collect()
        }
    };
    Response::new(Body::from(tokenize_response(&ids).to_string()))
}

async fn chat(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    generate(inner, Kind::Chat, headers, body).await
}

async fn completions(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    generate(inner, Kind::Completion, headers, body).await
}

/// Counts an open stream and says how it ended.
struct Open(Arc<Inner>, bool);

impl Drop for Open {
    fn drop(&mut self) {
        *self.0.world.streams.lock() -= 1;
        self.0.say(if self.1 { "decoded".into() } else { "dropped".into() });
    }
}

async fn generate(inner: Arc<Inner>, kind: Kind, headers: HeaderMap, body: Bytes) -> Response {
    let request = match Generate::parse(kind, &body, Internal::Honoured) {
        Ok(request) => request,
        Err(error) => return respond(&error),
    };
    let internal = headers.keys().filter(|k| k.as_str().starts_with("x-tl-")).count();
    let resume = match Resume::read(&headers, &request) {
        Ok(resume) => resume,
        Err(error) => return respond(&error),
    };
    let step = inner.decodes.lock().pop_front();
    let first = resume.as_ref().and_then(|r| r.first);
    inner.say(format!(
        "decode handle={} first={:?} ids={} seed={:?} n={} stream={} usage={} internal={internal} id={}",
        resume.is_some(),
        first.map(|f| (f.id, f.draws)),
        request.tl_prompt_ids.as_ref().map_or(0, Vec::len),
        request.seed,
        request.n,
        request.stream,
        request.include_usage,
        headers["x-request-id"].to_str().unwrap(),
    ));
    *inner.world.streams.lock() += 1;
    let mut open = Open(inner.clone(), false);
    if let Some(Decode::Status(status, code)) = step {
        let mut error = ApiError::malformed("SECRET words of an engine");
        error.status = StatusCode::from_u16(status).unwrap();
        let mut body = error.body();
        body["error"]["code"] = code.into();
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = error.status;
        return response;
    }
    if let Some(Decode::Gated) = step {
        inner.gate.notified().await;
    }
    if let Some(resume) = &resume {
        if !inner.world.handles.lock().remove(&resume.handle_id) {
            return respond(&ApiError::kv_handle_not_found());
        }
    }
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let task = inner.clone();
    tokio::spawn(async move {
        let finished = write(&task, kind, &request, resume.is_some(), step, &sender).await;
        open.1 = finished;
        drop(open);
    });
    let stream = ReceiverStream::new(receiver);
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert("content-type", sse::CONTENT_TYPE.parse().unwrap());
    response
}

/// Writes the stream; true when it was written to its end.
async fn write(
    inner: &Arc<Inner>,
    kind: Kind,
    request: &Generate,
    resumed: bool,
    step: Option<Decode>,
    sender: &mpsc::Sender<Result<Bytes, Infallible>>,
) -> bool {
    let head = Head::new(kind, "m", 1).unwrap();
    let step = step.unwrap_or(Decode::Tokens(&["e", "y"]));
    let tokens: &[&str] = match &step {
        Decode::Tokens(t) | Decode::Cut(t) | Decode::ErrorEvent(t) | Decode::Hangs(t) => t,
        _ => &["e", "y"],
    };
    let send = async |bytes: Vec<u8>| sender.send(Ok(bytes.into())).await.is_ok();
    if !send(sse::event(&head.chunk(&Delta { opens: true, ..Delta::default() }))).await {
        return false;
    }
    let mut offset = usize::from(resumed);
    for (i, token) in tokens.iter().enumerate() {
        if i == 1 && matches!(step, Decode::GatedMiddle) {
            tokio::select! {
                () = inner.gate.notified() => {}
                () = sender.closed() => return false,
            }
        }
        if token.is_empty() {
            // Swallowed by a stop string.
            continue;
        }
        let logprobs = request.logprobs.map(|top| vec![logprob(token, offset, top)]);
        offset += token.chars().count();
        let delta = Delta { text: (*token).into(), logprobs, ..Delta::default() };
        if !send(sse::event(&head.chunk(&delta))).await {
            return false;
        }
    }
    match step {
        Decode::Cut(_) => return false,
        Decode::ErrorEvent(_) => {
            send(sse::event(&ApiError::internal("SECRET words of an engine").body())).await;
            return false;
        }
        Decode::Hangs(_) => {
            sender.closed().await;
            return false;
        }
        _ => {}
    }
    let end = Delta { finish: Some(FinishReason::Stop), ..Delta::default() };
    let count = tokens.len() as u64 + u64::from(resumed);
    let usage = Usage { prompt_tokens: 5, completion_tokens: count, cached_tokens: 5 };
    let mut last = sse::event(&head.chunk(&end));
    last.extend(sse::event(&head.usage_chunk(usage)));
    last.extend(sse::DONE);
    send(last).await
}

fn logprob(token: &str, text_offset: usize, top: u32) -> TokenLogprob {
    let bytes = Some(token.as_bytes().to_vec());
    let one = TopLogprob { token: token.into(), logprob: -0.5, bytes: bytes.clone() };
    TokenLogprob {
        token: token.into(),
        logprob: -0.5,
        bytes,
        top: vec![one; top as usize],
        text_offset,
    }
}
