//! One request as it was served.

use serq_lang::ir::Slo;

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

    /// Whether it is within all bounds.
    pub fn meets(&self, slo: &Slo) -> bool {
        slo.bounds().all(|(name, bound)| match name {
            "ttft" => self.ttft() <= bound,
            "tpot" => self.tokens < 2 || self.tpot() <= bound,
            "itl" => self.longest_gap <= bound,
            _ => self.e2e() <= bound,
        })
    }
}
