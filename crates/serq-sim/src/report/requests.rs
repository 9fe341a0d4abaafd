//! The report on requests.

use serde::Serialize;

use super::Quantile;
use crate::Slo;
use crate::engine::Engine;
use crate::stats::histogram::HISTOGRAM_ERROR;
use crate::stats::{Histogram, Samples};

/// Quantiles every measure has.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

/// Requests served by step stages. Those that started after the warm-up, except for the rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestsReport {
    /// Answered.
    pub count: u64,
    /// Neither answered nor given up at the end.
    pub unfinished: u64,
    /// Given up because a hold could never fit.
    pub rejected: u64,
    /// Answered after the warm-up, per second.
    pub per_second: f64,
    /// Tokens of those, per second.
    pub tokens_per_second: f64,
    /// Seconds from start to first token.
    pub ttft: Measure,
    /// Seconds per token after the first, one number per request with at least two tokens.
    pub tpot: Measure,
    /// Seconds between neighbouring tokens, one number per pair.
    pub itl: Measure,
    /// Seconds from start to last token.
    pub e2e: Measure,
    /// Tokens answered.
    pub output_tokens: Measure,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo: Option<SloReport>,
}

/// What is known of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    pub count: u64,
    pub mean: f64,
    /// Half-width of the mean's 95 % interval by 20 batches; not a number under 40 values.
    pub half_width: f64,
    pub min: f64,
    pub max: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    /// Those asked for besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<Quantile>,
    /// Largest relative error of the quantiles.
    pub quantile_error: f64,
}

/// How many requests were served well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SloReport {
    /// Seconds.
    pub bounds: Slo,
    /// Share of requests within all bounds, rejected ones counting as outside.
    pub attainment: f64,
    /// Half-width of its 95 % interval by 20 batches.
    pub attainment_half_width: f64,
    /// Requests within all bounds per second, by the time of the last token.
    pub goodput: f64,
    /// Half-width of its 95 % interval by 20 stretches of time.
    pub goodput_half_width: f64,
}

impl RequestsReport {
    /// The measures with their names.
    pub fn measures(&self) -> [(&'static str, &Measure); 5] {
        [
            ("ttft", &self.ttft),
            ("tpot", &self.tpot),
            ("itl", &self.itl),
            ("e2e", &self.e2e),
            ("output_tokens", &self.output_tokens),
        ]
    }
}

/// None for a program without step stages in use.
pub(super) fn make(e: &mut Engine<'_>, extra: &[f64]) -> Option<RequestsReport> {
    let unfinished = e.end_answered();
    let r = &e.requests;
    if !r.on {
        return None;
    }
    let now = e.w.now;
    let slo = e.settings.slo;
    let slo = slo.bounds().next().map(|_| SloReport {
        bounds: slo,
        attainment: r.kept as f64 / r.within.count() as f64,
        attainment_half_width: r.within.half_width(),
        goodput: r.good.per_second(now),
        goodput_half_width: r.good.half_width(now),
    });
    Some(RequestsReport {
        count: r.e2e.count(),
        unfinished,
        rejected: r.rejected,
        per_second: r.answered.per_second(now),
        tokens_per_second: r.answered_tokens as f64 / (now - e.settings.warmup),
        ttft: of_samples(&r.ttft, extra),
        tpot: of_samples(&r.tpot, extra),
        itl: of_histogram(&r.itl, extra),
        e2e: of_samples(&r.e2e, extra),
        output_tokens: of_samples(&r.tokens, extra),
        slo,
    })
}

fn of_samples(s: &Samples, extra: &[f64]) -> Measure {
    let error = if s.is_exact() { 0.0 } else { HISTOGRAM_ERROR };
    let values = |qs: &[f64]| s.quantiles(qs);
    measure((s.count(), s.mean(), s.half_width(), s.min, s.max), values, extra, error)
}

fn of_histogram(h: &Histogram, extra: &[f64]) -> Measure {
    let values = |qs: &[f64]| h.quantiles(qs);
    let error = if h.is_exact() { 0.0 } else { HISTOGRAM_ERROR };
    measure((h.count(), h.mean(), h.half_width(), h.min, h.max), values, extra, error)
}

fn measure(
    (count, mean, half_width, min, max): (u64, f64, f64, f64, f64),
    values: impl Fn(&[f64]) -> Vec<f64>,
    extra: &[f64],
    quantile_error: f64,
) -> Measure {
    let all: Vec<f64> = QUANTILES.iter().chain(extra).copied().collect();
    let values = values(&all);
    let quantile = |(&q, &value): (&f64, &f64)| Quantile { q, value };
    Measure {
        count,
        mean,
        half_width,
        min,
        max,
        p50: values[0],
        p90: values[1],
        p95: values[2],
        p99: values[3],
        quantiles: extra.iter().zip(&values[QUANTILES.len()..]).map(quantile).collect(),
        quantile_error,
    }
}
