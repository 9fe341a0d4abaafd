//! Choosing one of several workers that could all serve.

use std::collections::BTreeMap;

use tl_api::config::RoutePolicy;

use super::ring::{Ring, bound};

/// Why a worker was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The key's owner on the ring, or the next one below the bound.
    Affinity,
    /// The least loaded.
    Load,
    /// Its turn by weight.
    Weight,
    /// It had failed and its next request decides whether it is well again.
    Probe,
    /// An earlier attempt of this request failed elsewhere.
    Failover,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Affinity => "affinity",
            Reason::Load => "load",
            Reason::Weight => "weight",
            Reason::Probe => "probe",
            Reason::Failover => "failover",
        }
    }
}

/// A worker of the right model and role, routable or it would not be here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate<'a> {
    pub id: &'a str,
    /// In flight and queued.
    pub load: u64,
    /// Its pool's blocks.
    pub weight: u32,
    /// How far its ramp has come, 0 to 1.
    pub share: f64,
    /// May be taken for this request (room, not excluded, has a partner).
    pub eligible: bool,
}

impl Candidate<'_> {
    /// Load as if the worker had its full share: a worker at a tenth of its ramp with one
    /// request counts like one with ten.
    fn scaled(&self, most: f64) -> f64 {
        (self.load as f64 + 1.0) * (most / self.share.max(0.01))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    pub kind: RoutePolicy,
    /// At least 1; affinity only.
    pub load_factor: f64,
}

/// Rings and turns, kept between requests. One per gateway.
#[derive(Debug, Default)]
pub struct Router {
    rings: BTreeMap<String, Ring>,
    turns: BTreeMap<String, BTreeMap<String, i64>>,
}

/// Groups (model and role) that are kept; a gateway with more rebuilds rings now and then.
const MAX_GROUPS: usize = 256;

impl Router {
    /// Takes one of `candidates` (ascending by id) for a request with affinity `key`. `group`
    /// names the set (model and role). `None` when none is eligible.
    pub fn pick(
        &mut self,
        policy: Policy,
        group: &str,
        key: &[u8],
        candidates: &[Candidate<'_>],
    ) -> Option<(usize, Reason)> {
        if !candidates.iter().any(|c| c.eligible) {
            return None;
        }
        match policy.kind {
            RoutePolicy::LeastOutstanding => least_loaded(candidates).map(|i| (i, Reason::Load)),
            RoutePolicy::Weighted => self.by_turn(group, candidates).map(|i| (i, Reason::Weight)),
            RoutePolicy::Affinity => self.by_key(policy.load_factor, group, key, candidates),
        }
    }

    fn by_key(
        &mut self,
        factor: f64,
        group: &str,
        key: &[u8],
        candidates: &[Candidate<'_>],
    ) -> Option<(usize, Reason)> {
        let ids = || candidates.iter().map(|c| c.id);
        if self.rings.len() >= MAX_GROUPS && !self.rings.contains_key(group) {
            self.rings.clear();
        }
        let ring = self.rings.entry(group.to_owned()).or_default();
        if !ring.is_over(ids()) {
            *ring = Ring::new(ids());
        }
        let total: u64 = candidates.iter().map(|c| c.load).sum();
        let cap = bound(factor, total, candidates.len());
        let most = candidates.iter().map(|c| c.share).fold(0.0, f64::max).max(0.01);
        let fits = |c: &Candidate<'_>| {
            let ramped = (cap as f64 * (c.share / most)).ceil() as u64;
            c.eligible && c.load < ramped.max(1)
        };
        let on_ring = ring.from_owner(key).find(|i| candidates.get(*i).is_some_and(&fits));
        match on_ring {
            Some(i) => Some((i, Reason::Affinity)),
            None => least_loaded(candidates).map(|i| (i, Reason::Load)),
        }
    }

    /// Smooth weighted round robin: of weights 1 and 3, three of four turns go to the second,
    /// spread out.
    fn by_turn(&mut self, group: &str, candidates: &[Candidate<'_>]) -> Option<usize> {
        if self.turns.len() >= MAX_GROUPS && !self.turns.contains_key(group) {
            self.turns.clear();
        }
        let turns = self.turns.entry(group.to_owned()).or_default();
        turns.retain(|id, _| candidates.iter().any(|c| c.id == id));
        let most = candidates.iter().map(|c| c.share).fold(0.0, f64::max).max(0.01);
        let mut total = 0i64;
        let mut best: Option<(i64, usize)> = None;
        for (i, candidate) in candidates.iter().enumerate().filter(|(_, c)| c.eligible) {
            let ramped = (f64::from(candidate.weight.max(1)) * (candidate.share / most)).round();
            let weight = (ramped as i64).max(1);
            total += weight;
            let turn = turns.entry(candidate.id.to_owned()).or_insert(0);
            *turn += weight;
            if best.is_none_or(|(most, _)| *turn > most) {
                best = Some((*turn, i));
            }
        }
        let (_, chosen) = best?;
        if let Some(turn) = turns.get_mut(candidates[chosen].id) {
            *turn -= total;
        }
        Some(chosen)
    }
}

/// The eligible candidate with the least (ramped) load; ties go to the smallest id.
pub(super) fn least_loaded(candidates: &[Candidate<'_>]) -> Option<usize> {
    let most = candidates.iter().map(|c| c.share).fold(0.0, f64::max).max(0.01);
    let mut best: Option<(f64, usize)> = None;
    for (i, candidate) in candidates.iter().enumerate().filter(|(_, c)| c.eligible) {
        let scaled = candidate.scaled(most);
        if best.is_none_or(|(least, _)| scaled < least) {
            best = Some((scaled, i));
        }
    }
    best.map(|(_, i)| i)
}
