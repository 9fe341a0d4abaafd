//! The places an expression can stand in, and what it may read there.

use crate::ir::Moment;

/// One of the language's places for an expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// As part of a message: "the units of a hold".
    pub(super) what: &'static str,
    /// Which variables exist; none for a constant.
    pub(super) moment: Option<Moment>,
    /// Whether it is evaluated a known number of times.
    pub(super) draws: bool,
    /// Whether it is the server's decision, which hidden attributes must not reach.
    pub(super) decides: bool,
}

const fn place(what: &'static str, moment: Moment, draws: bool, decides: bool) -> Place {
    Place { what, moment: Some(moment), draws, decides }
}

pub(super) const CONST: Place =
    Place { what: "a constant", moment: None, draws: false, decides: false };
pub(super) const STATEMENT: Place = place("a statement", Moment::Session, true, false);
pub(super) const INDEX: Place = place("an index", Moment::Session, false, false);
pub(super) const CLAIM_INDEX: Place = place("the index of a hold", Moment::Session, false, true);
pub(super) const UNITS: Place = place("the units of a hold", Moment::Admit, false, true);
pub(super) const RESERVE: Place = place("the reserve of a hold", Moment::Admit, false, true);
pub(super) const REUSE: Place = place("the reuse of a hold", Moment::Admit, false, true);
pub(super) const CACHE: Place = place("what a hold leaves cached", Moment::Session, true, false);
pub(super) const LEASE: Place = place("the time of a lease", Moment::Session, true, false);
pub(super) const QUEUE_KEY: Place = place("a queue key", Moment::Queue, false, true);
pub(super) const BINDING: Place = place("a binding", Moment::Admit, false, true);
pub(super) const WHEN: Place = place("the condition of a hold", Moment::Admit, false, true);
pub(super) const CONTENT: Place = place("a content", Moment::Session, true, false);
pub(super) const VICTIM: Place = place("a preemption clause", Moment::Victim, false, true);
pub(super) const LIVE_KEY: Place = place("a live queue key", Moment::Select, false, true);
pub(super) const GAP: Place = place("the gap between arrivals", Moment::Gap, true, false);
pub(super) const GAUGE: Place = place("a gauge", Moment::Gauge, false, false);
pub(super) const EVICT_KEY: Place = place("an eviction key", Moment::Evict, true, true);
pub(super) const SPILL: Place = place("a spill clause", Moment::Evict, true, true);
pub(super) const CAPACITY: Place = place("the capacity of a ps stage", Moment::Ps, false, true);
pub(super) const BUDGET: Place = place("a budget", Moment::Budget, false, true);
pub(super) const CHUNK: Place = place("a chunk", Moment::Budget, false, true);
pub(super) const COST: Place = place("a cost", Moment::Step, true, true);
pub(super) const SERVE_KEY: Place = place("a serving key", Moment::Serve, false, true);
