//! From the registry's view to a pair of engines, or the reason why there is none.

use std::time::Instant;

use tl_api::config::Target;

use super::policy::{Candidate, Policy, Reason, Router, least_loaded};
use crate::registry::pairing::{self, Mismatch};
use crate::registry::{Registry, Slot, Worker, WorkerRole};

/// How long the answer may become, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub prompt_tokens: u64,
    /// What is reserved for the answer.
    pub answer_tokens: u64,
}

impl Demand {
    /// Blocks on `worker`: bounded by its context, since nothing grows beyond it, and by its
    /// pool, whose owner decides about what can never fit.
    pub fn blocks(self, worker: &Worker) -> u32 {
        let context = worker.max_context.map_or(u64::MAX, u64::from);
        let tokens = self.prompt_tokens.saturating_add(self.answer_tokens).min(context);
        worker.info.blocks_for(tokens).min(worker.info.total_blocks)
    }
}

/// What a request needs of a route.
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// As served, aliases resolved.
    pub model: &'a str,
    /// First bytes of the prompt.
    pub key: &'a [u8],
    pub demand: Demand,
    pub targets: &'a [Target],
    pub tried: &'a Tried,
}

/// What came of a request's earlier attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tried {
    /// Workers that failed it.
    pub exclude: Vec<Slot>,
    /// Workers, of either role, that were full for it a moment ago.
    pub avoid: Vec<Slot>,
    /// Pairs, prefill first, between which a hand-off of it broke.
    pub broken: Vec<(Slot, Slot)>,
    pub whole: Whole,
}

/// Whether one engine that decodes may serve a request whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Whole {
    /// Where no pair can be formed.
    #[default]
    Otherwise,
    /// No hand-off is tried any more.
    Only,
    /// A prefill engine's token is out: only a pair can go on from it.
    Never,
}

/// A chosen worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    pub slot: Slot,
    pub id: String,
    pub http_address: String,
    pub grpc_address: String,
    /// Empty for anything but a decode engine.
    pub kv_address: String,
    /// What its `Info` said.
    pub max_context: Option<u32>,
    /// Promised there; 0 for prefill engines.
    pub blocks: u32,
    /// Tokens per block.
    pub block_tokens: u32,
    pub reason: Reason,
    /// It says who it is: it speaks the extensions.
    pub extended: bool,
}

/// Why one engine serves a request whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// An engine of the role `unified`.
    Unified,
    /// No prefill engine of the model is in rotation.
    NoPrefill,
    /// There are prefill engines, none pairs with a decode engine.
    NoPair,
    /// They pair, and hand-offs between them fail.
    NoLink,
}

impl Alone {
    pub fn as_str(self) -> &'static str {
        match self {
            Alone::Unified => "unified",
            Alone::NoPrefill => "no prefill engine in rotation",
            Alone::NoPair => "no prefill engine pairs with a decode engine",
            Alone::NoLink => "hand-offs from the prefill engines fail",
        }
    }
}

/// Why a worker of the model was passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    Draining,
    /// Its breaker is open.
    Failing,
    /// It failed this request before.
    Excluded,
    /// It was full for this request before.
    Avoided,
    NoRoom {
        needs: u32,
        has: u32,
    },
    /// Of a prefill engine, against the chosen decode engine.
    Mismatch(Mismatch),
    /// Of a prefill engine: hand-offs to this decode engine fail.
    NoLink {
        to: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub id: String,
    pub why: Skip,
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Skip::Draining => f.write_str("draining"),
            Skip::Failing => f.write_str("failing, out of rotation"),
            Skip::Excluded => f.write_str("failed this request before"),
            Skip::Avoided => f.write_str("was full a moment ago"),
            Skip::NoRoom { needs, has } => write!(f, "needs {needs} blocks, has room for {has}"),
            Skip::Mismatch(mismatch) => write!(f, "does not pair: {mismatch}"),
            Skip::NoLink { to } => write!(f, "its hand-offs to {to} fail"),
        }
    }
}

/// Why nobody serves the request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// Workers that could, but for their room: waiting may help.
    NoRoom,
    /// Nobody in rotation.
    NoWorker,
    /// No worker ever served such a model.
    UnknownModel,
    /// The prompt is longer than any pool or context of the model.
    TooLong,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    Pair { prefill: Pick, decode: Pick, skipped: Vec<Skipped> },
    Alone { engine: Pick, why: Alone, skipped: Vec<Skipped> },
    Blocked { why: Blocked, skipped: Vec<Skipped> },
}

/// Decides. The only state it changes is the router's turns.
pub fn plan<'a>(
    registry: &'a Registry,
    router: &mut Router,
    policy: Policy,
    want: &'a Want<'a>,
    now: Instant,
) -> Plan {
    let mut search =
        Search { registry, router, policy, want, now, skipped: Vec::new(), no_room: false };
    let of_model: Vec<&Worker> =
        registry.live(now).filter(|w| w.info.model == want.model).collect();
    if of_model.is_empty() && !registry.has_known(want.model) {
        return Plan::Blocked { why: Blocked::UnknownModel, skipped: Vec::new() };
    }
    if !of_model.is_empty() && of_model.iter().all(|w| too_long(w, want.demand.prompt_tokens)) {
        return Plan::Blocked { why: Blocked::TooLong, skipped: Vec::new() };
    }
    let default = [Target::Disaggregated, Target::Unified];
    let targets = if want.targets.is_empty() { &default[..] } else { want.targets };
    for target in targets {
        let found = match target {
            Target::Disaggregated => search.disaggregated(&of_model),
            Target::Unified => search.unified(&of_model),
        };
        if let Some(plan) = found {
            return plan;
        }
    }
    let why = if search.no_room { Blocked::NoRoom } else { Blocked::NoWorker };
    Plan::Blocked { why, skipped: search.skipped }
}

/// Longer than the worker's context or pool, the first answer token included.
fn too_long(worker: &Worker, prompt_tokens: u64) -> bool {
    let over_context = worker.max_context.is_some_and(|max| prompt_tokens >= u64::from(max));
    let over_pool = worker.info.role != WorkerRole::Prefill
        && worker.info.total_blocks > 0
        && worker.info.blocks_for(prompt_tokens + 1) > worker.info.total_blocks;
    over_context || over_pool
}

struct Search<'a, 'r> {
    registry: &'a Registry,
    router: &'r mut Router,
    policy: Policy,
    want: &'a Want<'a>,
    now: Instant,
    skipped: Vec<Skipped>,
    no_room: bool,
}

impl<'a> Search<'a, '_> {
    fn skip(&mut self, worker: &Worker, why: Skip) {
        if matches!(why, Skip::NoRoom { .. } | Skip::Avoided) {
            self.no_room = true;
        }
        let skipped = Skipped { id: worker.info.id.clone(), why };
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// The workers of a role that may be given work at all.
    fn in_rotation<'w>(&mut self, of_model: &[&'w Worker], role: WorkerRole) -> Vec<&'w Worker> {
        let mut found = Vec::new();
        for worker in of_model.iter().copied().filter(|w| w.info.role == role) {
            if worker.is_draining() {
                self.skip(worker, Skip::Draining);
            } else if !worker.is_routable(self.now) {
                self.skip(worker, Skip::Failing);
            } else {
                found.push(worker);
            }
        }
        found
    }

    fn reach(&self) -> Reach<'a> {
        let broken = &self.want.tried.broken;
        Reach { registry: self.registry, broken, now: self.now }
    }

    /// Why this request can not go to a worker in rotation.
    fn refusal(&self, worker: &Worker, blocks: u32) -> Option<Skip> {
        if self.want.tried.exclude.contains(&worker.slot) {
            Some(Skip::Excluded)
        } else if self.want.tried.avoid.contains(&worker.slot) {
            Some(Skip::Avoided)
        } else if blocks > worker.room() {
            Some(Skip::NoRoom { needs: blocks, has: worker.room() })
        } else {
            None
        }
    }

    /// One of `workers` that holds KV for the whole answer.
    fn holder<'w>(
        &mut self,
        role: WorkerRole,
        workers: &[&'w Worker],
        partnered: impl Fn(&Worker) -> bool,
    ) -> Option<(&'w Worker, Pick)> {
        let mut eligible = Vec::with_capacity(workers.len());
        for worker in workers {
            let refusal = self.refusal(worker, self.want.demand.blocks(worker));
            let has_partner = partnered(worker);
            eligible.push(has_partner && refusal.is_none());
            if let (true, Some(why)) = (has_partner, refusal) {
                self.skip(worker, why);
            }
        }
        let probe = workers
            .iter()
            .zip(&eligible)
            .position(|(w, ok)| *ok && w.breaker.wants_probe(self.now));
        let candidates: Vec<Candidate<'_>> = workers
            .iter()
            .zip(&eligible)
            .map(|(w, eligible)| candidate(w, self.now, *eligible))
            .collect();
        let (chosen, reason) = match probe {
            Some(i) => (i, Reason::Probe),
            None => {
                let group = format!("{} {}", role.as_str(), self.want.model);
                self.router.pick(self.policy, &group, self.want.key, &candidates)?
            }
        };
        let worker = *workers.get(chosen)?;
        Some((worker, pick(worker, self.want.demand.blocks(worker), self.reason(reason))))
    }

    fn reason(&self, reason: Reason) -> Reason {
        let first = self.want.tried.exclude.is_empty() && self.want.tried.broken.is_empty();
        if first || reason == Reason::Probe { reason } else { Reason::Failover }
    }

    fn disaggregated(&mut self, of_model: &[&Worker]) -> Option<Plan> {
        let decodes = self.in_rotation(of_model, WorkerRole::Decode);
        let prefills = self.in_rotation(of_model, WorkerRole::Prefill);
        let usable: Vec<&Worker> = prefills
            .iter()
            .copied()
            .filter(|p| !self.want.tried.exclude.contains(&p.slot))
            .collect();
        for worker in prefills.iter().filter(|p| self.want.tried.exclude.contains(&p.slot)) {
            self.skip(worker, Skip::Excluded);
        }
        let (reach, pair_allowed) = (self.reach(), self.want.tried.whole != Whole::Only);
        let has_partner =
            |d: &Worker, prefills: &[&Worker]| prefills.iter().any(|p| reach.reaches(p, d).is_ok());
        if pair_allowed && decodes.iter().any(|d| has_partner(d, &usable)) {
            // A prefill engine that is full is waited for rather than done without.
            let (full, open): (Vec<&Worker>, Vec<&Worker>) =
                usable.iter().partition(|p| self.want.tried.avoid.contains(&p.slot));
            for worker in full {
                self.skip(worker, Skip::Avoided);
            }
            let (decode, decode_pick) =
                self.holder(WorkerRole::Decode, &decodes, |d| has_partner(d, &open))?;
            let prefill_pick = self.prefill_for(decode, &open)?;
            return Some(Plan::Pair {
                prefill: prefill_pick,
                decode: decode_pick,
                skipped: std::mem::take(&mut self.skipped),
            });
        }
        if self.want.tried.whole == Whole::Never {
            return None;
        }
        let mut why = if usable.is_empty() { Alone::NoPrefill } else { Alone::NoPair };
        for (p, d) in usable.iter().flat_map(|p| decodes.iter().map(move |d| (p, d))) {
            match reach.reaches(p, d) {
                Err(skip @ Skip::NoLink { .. }) => {
                    why = Alone::NoLink;
                    self.skip(p, skip);
                }
                Err(skip) => self.skip(p, skip),
                // Whoever is reached and not taken: hand-offs of this request are over.
                Ok(()) => why = Alone::NoLink,
            }
        }
        let (_, engine) = self.holder(WorkerRole::Decode, &decodes, |_| true)?;
        Some(Plan::Alone { engine, why, skipped: std::mem::take(&mut self.skipped) })
    }

    fn prefill_for(&mut self, decode: &Worker, prefills: &[&Worker]) -> Option<Pick> {
        let mut fitting = Vec::with_capacity(prefills.len());
        for worker in prefills {
            match self.reach().reaches(worker, decode) {
                Ok(()) => fitting.push(*worker),
                Err(why) => self.skip(worker, why),
            }
        }
        let candidates: Vec<Candidate<'_>> =
            fitting.iter().map(|w| candidate(w, self.now, true)).collect();
        let probe = fitting.iter().position(|w| w.breaker.wants_probe(self.now));
        let (chosen, reason) = match probe {
            Some(i) => (i, Reason::Probe),
            None => (least_loaded(&candidates)?, Reason::Load),
        };
        fitting.get(chosen).map(|w| pick(w, 0, self.reason(reason)))
    }

    fn unified(&mut self, of_model: &[&Worker]) -> Option<Plan> {
        if self.want.tried.whole == Whole::Never {
            return None;
        }
        let workers = self.in_rotation(of_model, WorkerRole::Unified);
        let (_, engine) = self.holder(WorkerRole::Unified, &workers, |_| true)?;
        let skipped = std::mem::take(&mut self.skipped);
        Some(Plan::Alone { engine, why: Alone::Unified, skipped })
    }
}

/// Who can hand over to whom, for one request at one time.
#[derive(Clone, Copy)]
struct Reach<'a> {
    registry: &'a Registry,
    broken: &'a [(Slot, Slot)],
    now: Instant,
}

impl Reach<'_> {
    fn reaches(self, prefill: &Worker, decode: &Worker) -> Result<(), Skip> {
        pairing::check(&prefill.info, &decode.info).map_err(Skip::Mismatch)?;
        let (p, d) = (prefill.slot, decode.slot);
        if self.broken.contains(&(p, d)) || !self.registry.link_admits(self.now, p, d) {
            return Err(Skip::NoLink { to: decode.info.id.clone() });
        }
        Ok(())
    }
}

fn candidate(worker: &Worker, now: Instant, eligible: bool) -> Candidate<'_> {
    Candidate {
        id: &worker.info.id,
        load: worker.load(),
        weight: worker.info.total_blocks,
        share: worker.share(now),
        eligible,
    }
}

fn pick(worker: &Worker, blocks: u32, reason: Reason) -> Pick {
    Pick {
        slot: worker.slot,
        id: worker.info.id.clone(),
        http_address: worker.info.http_address.clone(),
        grpc_address: worker.info.grpc_address.clone(),
        kv_address: worker.info.kv_address.clone().unwrap_or_default(),
        max_context: worker.max_context,
        blocks,
        block_tokens: worker.info.block_tokens(),
        reason,
        extended: worker.info.incarnation != 0,
    }
}
