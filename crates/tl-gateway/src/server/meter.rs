//! What is counted of one request, recorded once, when its last byte has left or it was dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tl_api::error::{ApiError, ErrorCode};
use tl_api::metrics::{InFlight, Operation};
use tl_api::openai::{Kind, Usage};

use super::shared::{Shared, now};

pub(crate) struct Meter {
    shared: Arc<Shared>,
    kind: Kind,
    model: String,
    begun: Instant,
    first: Option<Duration>,
    usage: Option<Usage>,
    status: u16,
    error: Option<&'static str>,
    complete: bool,
    /// Names the request in logs.
    span: tracing::Span,
    _in_flight: InFlight,
}

impl Meter {
    pub(crate) fn new(shared: &Arc<Shared>, kind: Kind, span: tracing::Span) -> Meter {
        Meter {
            kind,
            // Until the body has been read.
            model: String::new(),
            begun: now(),
            first: None,
            usage: None,
            status: 200,
            error: None,
            complete: false,
            span,
            _in_flight: shared.metrics.enter(),
            shared: shared.clone(),
        }
    }

    pub(crate) fn model(&mut self, model: &str) {
        model.clone_into(&mut self.model);
    }

    /// Output is there.
    pub(crate) fn first_output(&mut self) {
        if self.first.is_none() {
            let after = now().saturating_duration_since(self.begun);
            self.first = Some(after);
            self.shared.metrics.serving().first_token(self.operation(), &self.model, after);
        }
    }

    pub(crate) fn usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    pub(crate) fn failed(&mut self, error: &ApiError) {
        self.error = Some(error.code.map_or_else(|| error.kind.as_str(), ErrorCode::as_str));
    }

    /// The whole answer is an error.
    pub(crate) fn refused(&mut self, error: &ApiError) {
        self.failed(error);
        self.status = error.status.as_u16();
    }

    /// The last byte was handed over.
    pub(crate) fn complete(&mut self) {
        self.complete = true;
    }

    fn operation(&self) -> Operation {
        self.kind.into()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.error.is_none() && !self.complete {
            self.error = Some("client_gone");
        }
        let took = now().saturating_duration_since(self.begun);
        self.span.in_scope(|| {
            tracing::debug!(
                model = %self.model,
                status = self.status,
                error = self.error,
                tokens = self.usage.map(|u| u.completion_tokens),
                took_ms = took.as_millis() as u64,
                "answered"
            );
        });
        let metrics = &self.shared.metrics;
        let serving = metrics.serving();
        let operation = self.operation();
        metrics.request(self.kind.path(), self.status, "");
        serving.http("POST", self.kind.path(), self.status, took);
        serving.request(operation, &self.model, self.error, took);
        if let Some(usage) = self.usage {
            serving.usage(operation, &self.model, usage.prompt_tokens, usage.completion_tokens);
            if let Some(first) = self.first {
                let tokens = usage.completion_tokens;
                serving.output_tokens(operation, &self.model, first, took, tokens);
            }
        }
    }
}
