//! What one request leaves in the metrics, as guards.
//!
//! A request ends in many ways: its last byte leaves, its handler answers an error, the client goes
//! away and hyper drops the handler or the response body. The guards record on drop, so that each
//! way counts once, and they are moved into whatever outlives the handler.

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tl_api::metrics::{EngineMetrics, Operation};
use tl_api::openai::{Kind, Usage};

/// Error type of a request whose client went away.
const CLIENT_CLOSED: &str = "client_closed_request";
/// Status in the HTTP histogram for an exchange whose client went away before there was an answer.
const CLIENT_CLOSED_STATUS: u16 = 499;

/// One generation request, from its arrival to its last byte.
#[derive(Debug)]
pub(crate) struct RequestMeter {
    metrics: Arc<EngineMetrics>,
    operation: Operation,
    model: String,
    start: Instant,
    first: Option<Instant>,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Open,
    Done(Usage),
    Failed(&'static str),
}

impl RequestMeter {
    /// `model` must be one that is served: the label would otherwise be a client's to choose.
    pub(crate) fn new(metrics: &Arc<EngineMetrics>, kind: Kind, model: &str) -> RequestMeter {
        RequestMeter {
            metrics: Arc::clone(metrics),
            operation: kind.into(),
            model: model.to_owned(),
            start: Instant::now(),
            first: None,
            outcome: Outcome::Open,
        }
    }

    /// A token has come; only the first one counts.
    pub(crate) fn token(&mut self) {
        if self.first.is_none() {
            let now = Instant::now();
            self.first = Some(now);
            self.metrics.serving().first_token(self.operation, &self.model, now - self.start);
        }
    }

    pub(crate) fn done(&mut self, usage: Usage) {
        self.outcome = Outcome::Done(usage);
    }

    pub(crate) fn failed(&mut self, code: &'static str) {
        self.outcome = Outcome::Failed(code);
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        let took = self.start.elapsed();
        let serving = self.metrics.serving();
        let error = match &self.outcome {
            Outcome::Open => Some(CLIENT_CLOSED),
            Outcome::Failed(code) => Some(*code),
            Outcome::Done(usage) => {
                serving.usage(
                    self.operation,
                    &self.model,
                    usage.prompt_tokens,
                    usage.completion_tokens,
                );
                if let Some(first) = self.first {
                    let ttft = first - self.start;
                    serving.output_tokens(
                        self.operation,
                        &self.model,
                        ttft,
                        took,
                        usage.completion_tokens,
                    );
                }
                None
            }
        };
        serving.request(self.operation, &self.model, error, took);
    }
}

/// One HTTP exchange.
#[derive(Debug)]
pub(crate) struct HttpMeter {
    pub metrics: Arc<EngineMetrics>,
    pub method: http::Method,
    pub route: &'static str,
    /// Names the request.
    pub span: tracing::Span,
    pub start: Instant,
    pub status: u16,
}

impl HttpMeter {
    pub(crate) fn new(
        metrics: &Arc<EngineMetrics>,
        method: http::Method,
        route: &'static str,
        span: tracing::Span,
    ) -> HttpMeter {
        let metrics = Arc::clone(metrics);
        HttpMeter {
            metrics,
            method,
            route,
            span,
            start: Instant::now(),
            status: CLIENT_CLOSED_STATUS,
        }
    }
}

impl Drop for HttpMeter {
    fn drop(&mut self) {
        let took = self.start.elapsed();
        self.metrics.serving().http(self.method.as_str(), self.route, self.status, took);
        self.span.in_scope(|| {
            tracing::debug!(
                method = %self.method,
                route = self.route,
                status = self.status,
                took_ms = took.as_millis() as u64,
                "http exchange"
            );
        });
    }
}

/// A response body that ends its exchange when it is dropped, which is after its last byte.
#[derive(Debug)]
pub(crate) struct Measured {
    body: Body,
    _meter: HttpMeter,
}

impl Measured {
    pub(crate) fn new(body: Body, meter: HttpMeter) -> Measured {
        Measured { body, _meter: meter }
    }
}

impl HttpBody for Measured {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
