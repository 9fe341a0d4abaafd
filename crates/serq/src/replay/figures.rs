//! Latencies of two runs of the same requests, side by side.

use serde::Serialize;
use serq_sim::Request;

use super::log::Entry;

/// What is said of one latency, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stats {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

/// One measure of both runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    pub measure: &'static str,
    pub measured: Stats,
    pub simulated: Stats,
}

/// Both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub requests: usize,
    /// Of them, those that the replay did not answer; figures are over the others.
    pub unanswered: usize,
    pub lines: Vec<Line>,
}

impl Stats {
    /// The figures with their names.
    pub fn all(&self) -> [(&'static str, f64); 4] {
        [("mean", self.mean), ("P50", self.p50), ("P90", self.p90), ("P99", self.p99)]
    }

    /// Of values in seconds. Quantiles are between neighbouring values in proportion, as numpy's are.
    fn of(values: impl Iterator<Item = f64>) -> Stats {
        let mut values: Vec<f64> = values.filter(|v| v.is_finite()).map(|v| v * 1e3).collect();
        values.sort_by(f64::total_cmp);
        let sum = values.iter().fold(0.0, |sum, v| sum + v);
        let at = |q: f64| {
            let place = q * values.len().saturating_sub(1) as f64;
            let low = values.get(place as usize).copied().unwrap_or(f64::NAN);
            let high = values.get(place as usize + 1).copied().unwrap_or(low);
            low + (high - low) * place.fract()
        };
        Stats { mean: sum / values.len() as f64, p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }
}

/// Compares a log with a replay of its requests, which are in the same order.
pub fn compare(log: &[Entry], replayed: &[Option<Request>]) -> Comparison {
    let pairs: Vec<(&Entry, &Request)> =
        log.iter().zip(replayed).filter_map(|(e, r)| Some((e, r.as_ref()?))).collect();
    let line = |measure, real: fn(&Entry) -> f64, ours: fn(&Request, &Entry) -> f64| Line {
        measure,
        measured: Stats::of(pairs.iter().map(|(e, _)| real(e))),
        simulated: Stats::of(pairs.iter().map(|(e, r)| ours(r, e))),
    };
    let tpot = |r: &Request, e: &Entry| match e.output {
        0 | 1 => f64::NAN,
        n => (r.last - r.first) / (n - 1) as f64,
    };
    Comparison {
        requests: log.len(),
        unanswered: log.len() - pairs.len(),
        lines: vec![
            line("TTFT", Entry::ttft, |r, _| r.ttft()),
            line("TPOT", Entry::tpot, tpot),
            line("latency", Entry::e2e, |r, _| r.e2e()),
        ],
    }
}
