//! What a request must meet.

use serde::{Deserialize, Serialize};

/// Service level objective: bounds in seconds. A request is within it if it meets all that are
/// given; the bounds on `tpot` and `itl` are met by a single token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot: Option<f64>,
    /// On every gap between two neighbouring tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub itl: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e: Option<f64>,
}

impl Slo {
    /// What can be bounded.
    pub const NAMES: [&'static str; 4] = ["ttft", "tpot", "itl", "e2e"];

    /// Those that are given, by name.
    pub fn bounds(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [self.ttft, self.tpot, self.itl, self.e2e]
            .into_iter()
            .zip(Slo::NAMES)
            .filter_map(|(bound, name)| Some((name, bound?)))
    }

    /// The place of a bound.
    pub fn bound_mut(&mut self, name: &str) -> Option<&mut Option<f64>> {
        match name {
            "ttft" => Some(&mut self.ttft),
            "tpot" => Some(&mut self.tpot),
            "itl" => Some(&mut self.itl),
            "e2e" => Some(&mut self.e2e),
            _ => None,
        }
    }
}
