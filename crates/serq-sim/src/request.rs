//! One request as it was served, and what it should have been.

use serde::Serialize;

/// An answered request. Times are seconds from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Request {
    /// Serial number of the session, from 0.
    pub session: u64,
    /// Turns the session had begun; 0 if its program takes none.
    pub turn: u64,
    /// The turn, or the birth of a session without turns.
    pub start: f64,
    /// First token: the end of the last prefill before the first decode run.
    pub first: f64,
    /// Last token.
    pub last: f64,
    /// Tokens answered, the first included.
    pub tokens: u64,
    /// Longest time between two neighbouring tokens, 0 for one token.
    pub longest_gap: f64,
}

impl Request {
    /// Seconds to the first token.
    pub fn ttft(&self) -> f64 {
        self.first - self.start
    }

    /// Mean seconds per token after the first; not a number for a single token.
    pub fn tpot(&self) -> f64 {
        if self.tokens > 1 { (self.last - self.first) / (self.tokens - 1) as f64 } else { f64::NAN }
    }

    /// Seconds to the last token.
    pub fn e2e(&self) -> f64 {
        self.last - self.start
    }
}

/// Service level objective: bounds in seconds. A request is within it if it meets all that are
/// given; the bounds on `tpot` and `itl` are met by a single token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpot: Option<f64>,
    /// On every gap between two neighbouring tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e: Option<f64>,
}

impl Slo {
    /// Those that are given, by name.
    pub fn bounds(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [("ttft", self.ttft), ("tpot", self.tpot), ("itl", self.itl), ("e2e", self.e2e)]
            .into_iter()
            .filter_map(|(name, bound)| Some((name, bound?)))
    }

    /// Whether a request is within all bounds.
    pub fn holds(&self, r: &Request) -> bool {
        self.bounds().all(|(name, bound)| match name {
            "ttft" => r.ttft() <= bound,
            "tpot" => r.tokens < 2 || r.tpot() <= bound,
            "itl" => r.longest_gap <= bound,
            _ => r.e2e() <= bound,
        })
    }
}
