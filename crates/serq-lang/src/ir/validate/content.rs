//! What tokens are, by name: chains of segments, and sessions given with one.

use super::{At, Check, Moment};
use crate::ir::{CExpr, CSegment, CSession, Content};

/// Every whole number up to here is an exact `f64`.
const WHOLE: f64 = 9_007_199_254_740_992.0;

impl Check<'_> {
    /// A session given as data, and the one before it.
    pub(super) fn session(&mut self, session: &CSession, before: Option<&CSession>, at: &At) {
        if !(session.at.is_finite() && session.at >= 0.0) {
            let reason = format!("a session comes at time {}", session.at);
            self.error(at, "arrival", reason, "times are 0 or more");
        } else if before.is_some_and(|b| b.at > session.at) {
            let reason = "a session comes before the one above it";
            self.error(at, "arrival", reason, "list sessions in the order of their times");
        }
        self.chain(&session.content, at);
    }

    /// What recorded sessions are made of.
    pub(super) fn trace_content(&mut self, sessions: usize, at: &At) {
        let chains = &self.program.trace_content;
        if !chains.is_empty() && chains.len() != sessions {
            let reason =
                format!("the trace has {sessions} sessions, but {} contents", chains.len());
            self.error(at, "content", reason, "a chain for each session, or none for all");
        }
        for chain in chains {
            self.chain(chain, at);
        }
    }

    fn chain(&mut self, chain: &[Content], at: &At) {
        let last = chain.len().saturating_sub(1);
        for (k, part) in chain.iter().enumerate() {
            self.segment(None, Some(part.1), k == last, at);
        }
    }

    /// A `content` statement.
    pub(super) fn content(&mut self, parts: &[CSegment], at: &At) {
        if !self.program.pools.iter().any(|p| p.shared) {
            let reason = "a session says what its content is, but no pool is shared";
            self.error(at, "content", reason, "write `shared;` in the pool, or leave this out");
        }
        if parts.is_empty() {
            self.error(at, "content", "a content of no segment", "name at least one");
        }
        for (k, CSegment(key, length)) in parts.iter().enumerate() {
            self.expr(key, Moment::Session, true, &at.field("parts"));
            self.expr(length, Moment::Session, true, &at.field("parts"));
            let last = k + 1 == parts.len();
            self.segment(CExpr::as_num(key), CExpr::as_num(length), last, at);
        }
    }

    /// What is known of a segment.
    fn segment(&mut self, key: Option<f64>, length: Option<f64>, last: bool, at: &At) {
        let whole = |v: f64| v >= 0.0 && v <= WHOLE && v.fract() == 0.0;
        if let Some(key) = key.filter(|k| !whole(*k)) {
            let reason = format!("a segment of content has the key {key}");
            self.error(at, "content", reason, "a key is a whole number, 0 or more");
        }
        match length {
            Some(length) if length == f64::INFINITY && !last => {
                let reason = "a segment of content without end is followed by another";
                self.error(at, "content", reason, "only the last one may be infinite");
            }
            Some(length) if length != f64::INFINITY && !whole(length) => {
                let reason = format!("a segment of content has {length} tokens");
                self.error(at, "content", reason, "a whole number, 0 or more, or inf");
            }
            _ => {}
        }
    }
}
