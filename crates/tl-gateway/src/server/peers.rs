//! Calls to engines: kept channels, a deadline on each, and failures already read.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tl_api::config::Secret;
use tl_api::error::{ApiError, PeerError};
use tl_api::handoff::{Context, DecodeCall};
use tl_api::headers::{CLUSTER_TOKEN, OPERATION_KEY, REQUEST_ID, TRACEPARENT};
use tl_api::openai::{Kind, Tokenize, parse_tokenize_response};
use tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tl_proto::engine::v1::{
    CancelRequest, DrainRequest, InfoRequest, InfoResponse, PrefillRequest, PrefillResponse,
};
use tl_proto::kv::v1::ReleaseRequest;
use tl_proto::kv::v1::kv_transfer_service_client::KvTransferServiceClient;
use tl_proto::{INCARNATION_KEY, MAX_MESSAGE_BYTES, incarnation_value};
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::GatewayError;
use crate::attempt::{DecodeFailure, PrefillFailure, decode_refusal, prefill_failure};

const CONNECT: Duration = Duration::from_secs(2);
/// Bound of the small calls: tokenize, cancel, release, info.
const SMALL: Duration = Duration::from_secs(2);
const TOKENIZE: Duration = Duration::from_secs(10);
/// How long after its deadline a drain may take to cut what is left.
const DRAIN_GRACE: Duration = Duration::from_secs(15);
/// Half-open connections are noticed after these together.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(5);
/// Of an error answer, that much is read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// Largest tokenize answer: ids of the longest prompt.
const MAX_TOKENIZE_BODY: usize = 32 << 20;

#[derive(Debug)]
pub(crate) struct Peers {
    channels: Mutex<HashMap<String, Channel>>,
    http: reqwest::Client,
    token: Option<MetadataValue<Ascii>>,
    incarnation: Option<MetadataValue<Ascii>>,
}

/// Why a prompt was not tokenized.
#[derive(Debug)]
pub(crate) enum TokenizeFailure {
    /// The client's own mistake.
    Client(ApiError),
    /// The engine takes no work now.
    Full,
    /// The engine broke; the text is for the log.
    Fault(String),
}

impl Peers {
    pub(crate) fn new(token: Option<&Secret>, incarnation: u64) -> Result<Peers, GatewayError> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(Duration::from_secs(20))
            .http1_only()
            .build()
            .map_err(GatewayError::HttpClient)?;
        let token = token
            .map(|t| MetadataValue::try_from(t.expose()).map_err(|_| GatewayError::Token))
            .transpose()?;
        Ok(Peers {
            channels: Mutex::new(HashMap::new()),
            http,
            token,
            incarnation: MetadataValue::try_from(incarnation_value(incarnation)).ok(),
        })
    }

    /// Forgets connections to addresses nobody announces any more.
    pub(crate) fn keep_only(&self, addresses: &[String]) {
        self.channels.lock().retain(|address, _| addresses.contains(address));
    }

    fn channel(&self, address: &str) -> Result<Channel, Status> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|e| Status::unavailable(format!("no usable address: {e}")))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_ANSWER)
            .keep_alive_while_idle(true);
        let channel = endpoint.connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        if let Some(token) = &self.token {
            metadata.insert(CLUSTER_TOKEN, token.clone());
        }
        if let Some(incarnation) = &self.incarnation {
            metadata.insert(INCARNATION_KEY, incarnation.clone());
        }
        request
    }

    fn control(&self, address: &str) -> Result<EngineControlClient<Channel>, Status> {
        Ok(EngineControlClient::new(self.channel(address)?)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// `EngineControl.Prefill`. A failure comes with what it says and its text for the log.
    pub(crate) async fn prefill(
        &self,
        address: &str,
        message: PrefillRequest,
        kind: Kind,
        context: &Context,
        timeout: Duration,
    ) -> Result<PrefillResponse, (PrefillFailure, String)> {
        let mut request = self.request(message);
        let Context { request_id, priority: _, trace } = context;
        let mut put = |key: &str, value: &str| {
            let key = MetadataKey::<Ascii>::from_bytes(key.as_bytes());
            if let (Ok(key), Ok(value)) = (key, MetadataValue::try_from(value)) {
                request.metadata_mut().insert(key, value);
            }
        };
        put(REQUEST_ID.as_str(), request_id);
        put(OPERATION_KEY, kind.operation());
        if let Some(trace) = trace {
            put(TRACEPARENT.as_str(), &trace.to_string());
        }
        let call = async { self.control(address)?.prefill(request).await };
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => {
                let failure =
                    prefill_failure(status.code(), status.message(), !is_from_transport(&status));
                Err((failure, describe(&status)))
            }
            Err(_) => Err((PrefillFailure::Deadline, format!("no answer in {timeout:?}"))),
        }
    }

    /// `EngineControl.Cancel`, best effort.
    pub(crate) async fn cancel(&self, address: &str, request_id: &str) {
        let request = self.request(CancelRequest { request_id: request_id.to_owned() });
        let call = async { self.control(address)?.cancel(request).await };
        if let Ok(Err(status)) = tokio::time::timeout(SMALL, call).await {
            tracing::debug!(address, error = %describe(&status), "cancel failed");
        }
    }

    /// `EngineControl.Drain`: it answers when nothing is in flight there.
    pub(crate) async fn drain(&self, address: &str, deadline: Duration) {
        let deadline_ms = i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX);
        let request = self.request(DrainRequest { deadline_ms });
        let call = async { self.control(address)?.drain(request).await };
        match tokio::time::timeout(deadline + DRAIN_GRACE, call).await {
            Ok(Ok(answer)) => {
                tracing::info!(
                    address,
                    aborted = answer.into_inner().aborted,
                    "engine has drained"
                );
            }
            Ok(Err(status)) => {
                tracing::warn!(address, error = %describe(&status), "engine was not told to drain");
            }
            Err(_) => tracing::warn!(address, "engine has not drained in time"),
        }
    }

    /// `KvTransferService.Release`, tried twice: what stays is freed by its lease.
    pub(crate) async fn release(&self, address: &str, handle_id: &str) {
        for _ in 0..2 {
            let request = self.request(ReleaseRequest { handle_id: handle_id.to_owned() });
            let call = async {
                let channel = self.channel(address)?;
                KvTransferServiceClient::new(channel).release(request).await
            };
            match tokio::time::timeout(SMALL, call).await {
                Ok(Ok(_)) => return,
                Ok(Err(status)) => {
                    tracing::debug!(address, error = %describe(&status), "release failed");
                }
                Err(_) => tracing::debug!(address, "release got no answer"),
            }
        }
    }

    /// `EngineControl.Info`.
    pub(crate) async fn info(&self, address: &str) -> Option<InfoResponse> {
        let call = async { self.control(address)?.info(self.request(InfoRequest {})).await };
        let answer = tokio::time::timeout(SMALL, call).await.ok()?.ok()?;
        Some(answer.into_inner())
    }

    /// `POST /v1/tokenize`.
    pub(crate) async fn tokenize(
        &self,
        address: &str,
        request: &Tokenize,
    ) -> Result<Vec<u32>, TokenizeFailure> {
        let fault = |what: &str, e: reqwest::Error| {
            TokenizeFailure::Fault(format!("{what}: {}", e.without_url()))
        };
        let call = self
            .http
            .post(format!("http://{address}/v1/tokenize"))
            .header("content-type", "application/json")
            .body(request.to_body().to_string())
            .timeout(TOKENIZE)
            .send();
        let response = call.await.map_err(|e| fault("tokenize was not answered", e))?;
        let status = response.status().as_u16();
        let body = read_body(response, MAX_TOKENIZE_BODY)
            .await
            .map_err(|e| TokenizeFailure::Fault(format!("tokenize broke off: {e}")))?;
        if status == 200 {
            return parse_tokenize_response(&body)
                .ok_or_else(|| TokenizeFailure::Fault("tokenize answered no ids".into()));
        }
        let error = PeerError::read(status, &body);
        Err(match decode_refusal(&error) {
            DecodeFailure::Client(api) => {
                tracing::debug!(address, %error, "the engine refused a prompt");
                TokenizeFailure::Client(api)
            }
            DecodeFailure::Full => TokenizeFailure::Full,
            DecodeFailure::Handle | DecodeFailure::Fault => {
                TokenizeFailure::Fault(error.to_string())
            }
        })
    }

    /// Opens a generation. The answer's head is 200 and an event stream.
    pub(crate) async fn open(
        &self,
        address: &str,
        call: DecodeCall,
        timeout: Duration,
    ) -> Result<reqwest::Response, (DecodeFailure, String)> {
        let fault = |why: String| (DecodeFailure::Fault, why);
        let DecodeCall { path, headers, body } = call;
        let send =
            self.http.post(format!("http://{address}{path}")).headers(headers).body(body).send();
        let response = match tokio::time::timeout(timeout, send).await {
            Ok(Ok(response)) => response,
            Ok(Err(e)) => return Err(fault(format!("not answered: {}", e.without_url()))),
            Err(_) => return Err(fault(format!("no answer in {timeout:?}"))),
        };
        let status = response.status().as_u16();
        if status != 200 {
            let body = read_body(response, MAX_ERROR_BODY).await.unwrap_or_default();
            let error = PeerError::read(status, &body);
            return Err((decode_refusal(&error), error.to_string()));
        }
        let is_stream = response
            .headers()
            .get("content-type")
            .and_then(|v| v.to_str().ok())
            .is_some_and(|t| t.starts_with(tl_api::sse::CONTENT_TYPE));
        if is_stream { Ok(response) } else { Err(fault("the answer is no event stream".into())) }
    }
}

/// Reads at most `limit` bytes within the bound of small calls.
async fn read_body(mut response: reqwest::Response, limit: usize) -> Result<Vec<u8>, String> {
    let read = async {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| e.without_url().to_string())? {
            if body.len() + chunk.len() > limit {
                return Err(format!("more than {limit} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    tokio::time::timeout(TOKENIZE, read).await.unwrap_or_else(|_| Err("too slow".into()))
}

/// A status made by the connection and not by the engine: only such ones have a cause.
fn is_from_transport(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

fn describe(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text.chars().take(300).collect()
}
