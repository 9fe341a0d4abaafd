//! Metric names, labels and buckets, in one place for the engine and the gateway.
//!
//! Dashboards and alert rules are written against these names, so they are part of what the outside
//! sees: a golden test holds them. Every value is recorded per request or read at scrape time,
//! nothing per token.
//!
//! A label whose value a client can choose is capped: the first 64 values are kept, all further
//! ones become `_other`, so that no client can grow the series without bound.

mod engine;
mod gateway;
#[cfg(test)]
mod tests;

pub use engine::{EngineMetrics, EngineSample};
pub use gateway::{GatewayMetrics, InFlight, WorkerCounts};

use crate::openai::Kind;
use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::HashSet;
use std::time::Duration;

/// `Content-Type` of what [`EngineMetrics::render`] and [`GatewayMetrics::render`] return.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Distinct values a capped label keeps.
pub const LABEL_CAP: usize = 64;

const OTHER: &str = "_other";
/// A longer value is no name anybody looks for.
const MAX_LABEL_LEN: usize = 128;

const TTFT: &[f64] =
    &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const TPOT: &[f64] = &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
const REQUEST: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const HTTP: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// What a request asks for: the label `gen_ai_operation_name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Chat,
    TextCompletion,
    Embeddings,
}

impl From<Kind> for Operation {
    fn from(kind: Kind) -> Operation {
        match kind {
            Kind::Chat => Operation::Chat,
            Kind::Completion => Operation::TextCompletion,
        }
    }
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Chat => "chat",
            Operation::TextCompletion => "text_completion",
            Operation::Embeddings => "embeddings",
        }
    }
}

/// Where a series was measured: the label `tl_engine_role`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoleLabel {
    Unified,
    Prefill,
    Decode,
    Gateway,
}

impl RoleLabel {
    pub fn as_str(self) -> &'static str {
        match self {
            RoleLabel::Unified => "unified",
            RoleLabel::Prefill => "prefill",
            RoleLabel::Decode => "decode",
            RoleLabel::Gateway => "gateway",
        }
    }
}

/// Time per output token after the first: `(e2e - ttft) / (tokens - 1)`. None below two tokens.
pub fn time_per_output_token(ttft: Duration, e2e: Duration, tokens: u64) -> Option<Duration> {
    let gaps = tokens.checked_sub(1).filter(|n| *n > 0)?;
    Some(Duration::from_secs_f64(e2e.saturating_sub(ttft).as_secs_f64() / gaps as f64))
}

/// The first [`LABEL_CAP`] distinct values of a label; later ones are `_other`.
#[derive(Debug, Default)]
struct CappedLabel {
    seen: RwLock<HashSet<String>>,
}

impl CappedLabel {
    fn value(&self, raw: &str) -> String {
        if raw.len() > MAX_LABEL_LEN {
            return OTHER.to_owned();
        }
        {
            let seen = self.seen.read();
            if seen.contains(raw) {
                return raw.to_owned();
            }
            if seen.len() >= LABEL_CAP {
                return OTHER.to_owned();
            }
        }
        let mut seen = self.seen.write();
        if seen.len() >= LABEL_CAP && !seen.contains(raw) {
            return OTHER.to_owned();
        }
        seen.insert(raw.to_owned());
        raw.to_owned()
    }
}

#[derive(Debug, Clone, Copy)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

type Histograms<L> = Family<L, Histogram, Buckets>;

fn histograms<L: Clone + std::hash::Hash + Eq>(bounds: &'static [f64]) -> Histograms<L> {
    Family::new_with_constructor(Buckets(bounds))
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LatencyLabels {
    gen_ai_operation_name: &'static str,
    gen_ai_request_model: String,
    tl_engine_role: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    gen_ai_operation_name: &'static str,
    gen_ai_request_model: String,
    error_type: String,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HttpLabels {
    http_request_method: &'static str,
    http_route: String,
    http_response_status_code: u16,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TokenLabels {
    gen_ai_operation_name: &'static str,
    gen_ai_request_model: String,
    gen_ai_token_type: &'static str,
}

/// The request-level histograms, which the engine and the gateway have in common.
#[derive(Debug)]
pub struct ServingMetrics {
    role: RoleLabel,
    model: CappedLabel,
    error: CappedLabel,
    route: CappedLabel,
    ttft: Histograms<LatencyLabels>,
    tpot: Histograms<LatencyLabels>,
    request: Histograms<RequestLabels>,
    http: Histograms<HttpLabels>,
    tokens: Histograms<TokenLabels>,
}

impl ServingMetrics {
    fn new(role: RoleLabel, registry: &mut Registry) -> ServingMetrics {
        let m = ServingMetrics {
            role,
            model: CappedLabel::default(),
            error: CappedLabel::default(),
            route: CappedLabel::default(),
            ttft: histograms(TTFT),
            tpot: histograms(TPOT),
            request: histograms(REQUEST),
            http: histograms(HTTP),
            tokens: histograms(TOKENS),
        };
        registry.register(
            "gen_ai_server_time_to_first_token_seconds",
            "From the arrival of a request to its first output token",
            m.ttft.clone(),
        );
        registry.register(
            "gen_ai_server_time_per_output_token_seconds",
            "Mean time between the output tokens of a request after the first",
            m.tpot.clone(),
        );
        registry.register(
            "gen_ai_server_request_duration_seconds",
            "From the arrival of a request to its last byte; error_type is empty when it succeeded",
            m.request.clone(),
        );
        registry.register(
            "http_server_request_duration_seconds",
            "From the arrival of an HTTP request to its last byte",
            m.http.clone(),
        );
        registry.register(
            "gen_ai_client_token_usage",
            "Tokens of a request by kind",
            m.tokens.clone(),
        );
        m
    }

    /// The first output token of a request is there, `after` its arrival.
    pub fn first_token(&self, op: Operation, model: &str, after: Duration) {
        self.ttft.get_or_create(&self.latency(op, model)).observe(after.as_secs_f64());
    }

    /// A request gave `tokens` output tokens in `e2e`, the first after `ttft`.
    pub fn output_tokens(
        &self,
        op: Operation,
        model: &str,
        ttft: Duration,
        e2e: Duration,
        tokens: u64,
    ) {
        if let Some(gap) = time_per_output_token(ttft, e2e, tokens) {
            self.tpot.get_or_create(&self.latency(op, model)).observe(gap.as_secs_f64());
        }
    }

    /// A request has ended; `error` is the error code of a failed one.
    pub fn request(&self, op: Operation, model: &str, error: Option<&str>, took: Duration) {
        let labels = RequestLabels {
            gen_ai_operation_name: op.as_str(),
            gen_ai_request_model: self.model.value(model),
            error_type: error.map(|e| self.error.value(e)).unwrap_or_default(),
        };
        self.request.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// An HTTP exchange has ended. `route` is the pattern, not the path.
    pub fn http(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels = HttpLabels {
            http_request_method: method_label(method),
            http_route: self.route.value(route),
            http_response_status_code: status,
        };
        self.http.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// What a finished request counted.
    pub fn usage(&self, op: Operation, model: &str, input: u64, output: u64) {
        for (kind, n) in [("input", input), ("output", output)] {
            let labels = TokenLabels {
                gen_ai_operation_name: op.as_str(),
                gen_ai_request_model: self.model.value(model),
                gen_ai_token_type: kind,
            };
            self.tokens.get_or_create(&labels).observe(n as f64);
        }
    }

    fn latency(&self, op: Operation, model: &str) -> LatencyLabels {
        LatencyLabels {
            gen_ai_operation_name: op.as_str(),
            gen_ai_request_model: self.model.value(model),
            tl_engine_role: self.role.as_str(),
        }
    }
}

fn method_label(method: &str) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|m| *m == method).unwrap_or("_OTHER")
}

fn render(registry: &Registry) -> String {
    let mut out = String::new();
    prometheus_text::encode(&mut out, registry).expect("writing to a String does not fail");
    out
}
