//! The program as the engine runs it.
//!
//! Blocks become one list of instructions with jumps, so that a session's continuation is one
//! number and its stack of holds; references and expressions are resolved as far as they can be.

mod ahead;
mod compile;

pub(crate) use compile::compile;

use serq_lang::ir::{Arrival, Program, Slots};

use crate::expr::{Code, Expr, Ref};
use crate::stage::Mode;
use crate::stage::coast::Coasting;

#[derive(Debug)]
pub(crate) struct Compiled<'p> {
    /// For names, positions and data.
    pub(crate) ir: &'p Program,
    pub(crate) code: Code,
    pub(crate) ops: Vec<Op>,
    /// Per instruction: block and statement it came from.
    pub(crate) origin: Vec<(u32, u32)>,
    pub(crate) holds: Vec<HoldPlan>,
    pub(crate) contents: Vec<ContentPlan>,
    pub(crate) tells: Vec<TellPlan>,
    pub(crate) renews: Vec<RenewPlan>,
    /// Per pool: stages that mind leases of it.
    pub(crate) minders: Vec<Vec<u32>>,
    pub(crate) runs: Vec<RunPlan>,
    pub(crate) chooses: Vec<ChoosePlan>,
    pub(crate) pools: Vec<PoolPlan>,
    /// First instruction of each part.
    pub(crate) init: u32,
    pub(crate) turn: u32,
    pub(crate) session: u32,
    pub(crate) slots: Slots,
    /// The gap of renewal arrivals.
    pub(crate) gap: Option<Expr>,
    pub(crate) gauges: Vec<Expr>,
    /// Per stage: whether it carries flows.
    pub(crate) flows: Vec<bool>,
    /// Index within its family, per pool and per stage.
    pub(crate) pool_members: Vec<Option<usize>>,
    pub(crate) stage_members: Vec<Option<usize>>,
    /// Whether cached prefixes must remember their owner's attributes.
    pub(crate) snapshots: bool,
    /// Whether iterations that decide nothing may be run many at a time: not where something looks at
    /// the state between them, or waits in ways that the shortcut does not know.
    pub(crate) coasts: bool,
    /// Per instruction: whether the session's request can get tokens from there on.
    pub(crate) ahead: Vec<bool>,
    /// Whether some pool is shared by content.
    pub(crate) shares: bool,
    /// Keys of content in the workload's data, ascending, each once.
    pub(crate) data_keys: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Turn,
    Set(u32, Expr),
    Observe(u32, Expr),
    /// Waits for admission, then goes on with the body.
    Hold(u32),
    HoldEnd,
    /// Joins the queue of this hold, and goes on.
    Book(u32),
    Content(u32),
    Tell(u32),
    Abandon(Ref),
    Renew(u32),
    /// Begins a frame that is cut at a time, to go on at the instruction.
    Until(Expr, u32),
    Shield,
    /// The block of `until` or `shield` is over.
    FrameEnd,
    Grow(Ref, Expr),
    Drop(Ref),
    Release(Ref),
    Load(Ref, Expr),
    Run(u32),
    /// Goes on if the guard is 1, jumps if it is 0.
    Branch(Expr, u32),
    Jump(u32),
    Choose(u32),
    End,
    /// The end of `init` or `turn`.
    Return,
}

#[derive(Debug)]
pub(crate) struct HoldPlan {
    pub(crate) claims: Vec<ClaimPlan>,
    pub(crate) reuse: Option<Expr>,
    pub(crate) cache: Option<Expr>,
    /// Whether a pool it may be on counts in whole numbers.
    pub(crate) integral: bool,
    /// The number of its booking, if it is entered by one.
    pub(crate) booked: Option<u32>,
    /// Evaluated last in an attempt: 0 and it does not fit.
    pub(crate) when: Option<Expr>,
    /// The engine that minds the lease.
    pub(crate) lease_on: Option<Ref>,
    /// Whether a pool it may be on is shared.
    pub(crate) shares: bool,
    /// Where its body ends.
    pub(crate) end: u32,
    /// Attributes set at the admission, in order.
    pub(crate) binds: Vec<(u32, Expr)>,
    /// Which claim, and for how long.
    pub(crate) lease: Option<(u32, Expr)>,
    /// Whether its units and reserves cannot change by an engine's decoding alone.
    pub(crate) frozen: bool,
}

#[derive(Debug)]
pub(crate) struct ClaimPlan {
    pub(crate) pool: Ref,
    pub(crate) units: Expr,
    pub(crate) reserve: Option<Expr>,
}

#[derive(Debug)]
pub(crate) struct RunPlan {
    pub(crate) stage: Ref,
    pub(crate) mode: Mode,
    pub(crate) work: Expr,
    pub(crate) growing: Option<Ref>,
    /// Further stages the work goes over.
    pub(crate) also: Vec<Ref>,
    /// Decode tokens behind the prefill.
    pub(crate) then: Option<Expr>,
    /// Attributes that samples change: one counts them, one is the time of the first.
    pub(crate) answers: Option<u32>,
    pub(crate) first: Option<u32>,
    /// Index into [`Compiled::tells`].
    pub(crate) telling: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct ContentPlan {
    pub(crate) add: bool,
    /// Key and length.
    pub(crate) parts: Vec<(Expr, Expr)>,
}

#[derive(Debug)]
pub(crate) struct TellPlan {
    pub(crate) pool: Ref,
    pub(crate) on: Option<Ref>,
    pub(crate) after: Option<Expr>,
}

#[derive(Debug)]
pub(crate) struct RenewPlan {
    pub(crate) pool: Ref,
    pub(crate) time: Expr,
    pub(crate) every: Expr,
    pub(crate) from: Ref,
    pub(crate) after: Option<Expr>,
}

#[derive(Debug)]
pub(crate) struct ChoosePlan {
    pub(crate) var: u32,
    pub(crate) count: Expr,
    pub(crate) key: Expr,
}

#[derive(Debug)]
pub(crate) struct PoolPlan {
    /// Eviction keys; none for least recently used.
    pub(crate) evict: Vec<Expr>,
    pub(crate) lru: bool,
    /// Whether somebody gives way to a growth.
    pub(crate) lifo: bool,
    /// By which keys, the greatest first; none for the last admitted.
    pub(crate) victims: Vec<Expr>,
    /// Whether the victim's keys place it in its queue: 0 for its front.
    pub(crate) requeue: Option<Expr>,
    /// Keys of the queue; none for first come, first served.
    pub(crate) queue: Vec<Expr>,
    /// Whether they are evaluated at every selection, not once at joining.
    pub(crate) live: bool,
    pub(crate) spill: Option<SpillPlan>,
    pub(crate) admit_via: Option<u32>,
    /// Step stages whose memory this is.
    pub(crate) memory_of: Vec<u32>,
    /// Whether one of them counts in whole numbers.
    pub(crate) integral: bool,
    /// Whether some pool spills here.
    pub(crate) tier: bool,
}

impl PoolPlan {
    /// Whether the order of its holders decides who is preempted.
    pub(crate) fn keeps_order(&self) -> bool {
        self.lifo && self.memory_of.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct SpillPlan {
    pub(crate) to: u32,
    pub(crate) via: u32,
    pub(crate) work: Expr,
    pub(crate) when: Expr,
}

/// How a step stage iterates.
#[derive(Debug)]
pub(crate) struct StepPlan {
    pub(crate) budget: Expr,
    pub(crate) cost: Expr,
    pub(crate) chunk: Expr,
    /// Serving keys; empty for order of admission.
    pub(crate) serve: Vec<Expr>,
    /// Whether the keys read nothing that changes while an iteration is put together.
    pub(crate) steady_keys: bool,
    pub(crate) exclusive: bool,
    /// Whether a prefill has an iteration to itself.
    pub(crate) alone: bool,
    /// Whether it counts in whole numbers.
    pub(crate) integral: bool,
    /// Whether results are delivered an iteration later.
    pub(crate) ahead: bool,
    /// Whether nobody with tokens under way is a victim.
    pub(crate) fenced: bool,
    /// From when on it puts nothing together.
    pub(crate) stops: f64,
    /// Whether it keeps an account of tokens under way, and delivers by it.
    pub(crate) tracks: bool,
    pub(crate) coasting: Coasting,
    pub(crate) memory: Option<u32>,
    /// Pools it admits from, in order of declaration.
    pub(crate) queues: Vec<u32>,
}

impl Compiled<'_> {
    /// `kv` or `kv[2]`.
    pub(crate) fn pool_name(&self, i: usize) -> String {
        label(&self.ir.pools[i].name, self.pool_members[i])
    }

    pub(crate) fn stage_name(&self, i: usize) -> String {
        label(&self.ir.stages[i].name, self.stage_members[i])
    }

    /// What the tokens of a session given as data are.
    pub(crate) fn data_content(&self, i: usize) -> &[serq_lang::ir::Content] {
        match &self.ir.arrival {
            Arrival::Sessions(all) => &all[i].content,
            Arrival::Trace => self.ir.trace_content.get(i).map_or(&[], |chain| chain),
            _ => &[],
        }
    }

    /// Sessions a closed workload keeps, 0 for others.
    pub(crate) fn closed(&self) -> u64 {
        match self.ir.arrival {
            Arrival::Closed(n) => n,
            _ => 0,
        }
    }
}

/// Neighbours of one name are a family: each one's index in it, none for a name on its own.
fn members<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Option<usize>> {
    let names: Vec<&String> = names.collect();
    names
        .chunk_by(|a, b| a == b)
        .flat_map(|family| (0..family.len()).map(|k| (family.len() > 1).then_some(k)))
        .collect()
}

pub(crate) fn label(name: &str, member: Option<usize>) -> String {
    match member {
        Some(k) => format!("{name}[{k}]"),
        None => name.to_owned(),
    }
}
