//! The rules, by name. [`tl_kv::invariants`] names those of one engine; these are the whole's.

use tl_kv::invariants::Violation;

/// A rule that did not hold, with what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Name of the rule.
    pub rule: &'static str,
    /// What was found.
    pub detail: String,
}

/// What P was told has landed is, on D, byte for byte what the prompt's blocks hold.
pub const ACKED_IS_PROVED: &str = "acked_is_proved";
/// The bytes a decode engine reads for a request are that request's.
pub const RIGHT_BLOCKS: &str = "right_blocks";
/// What reached the client is a beginning of the one right answer; an answer that ended well is
/// all of it.
pub const RIGHT_TOKENS: &str = "right_tokens";
/// A client is told one outcome, and nothing after it.
pub const ONE_OUTCOME: &str = "one_outcome";
/// After a handle has ended, nothing that comes under its name is taken while the end is
/// remembered.
pub const LATE_ADOPTS_NOTHING: &str = "late_adopts_nothing";
/// Nothing of a fenced life of an engine is taken.
pub const FENCED_IS_OUT: &str = "fenced_is_out";
/// Where nothing more can happen, everything is as at the start: no block used, no handle, no
/// promise, and every client has been told.
pub const SETTLED: &str = "settled";
/// Every run without further faults comes to such an end in a bounded number of steps.
pub const PROGRESS: &str = "progress";

impl Broken {
    pub(crate) fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Self { rule, detail: detail.into() }
    }
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Self {
        Self { rule: violation.invariant.name(), detail: violation.detail }
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}
