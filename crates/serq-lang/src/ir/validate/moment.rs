//! When an expression is evaluated, and what exists then.

use crate::ir::Ctx;

/// The moments of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A statement of a session: guards, work, sizes, a hold's cache clause and lease time.
    Session,
    /// A hold's units, reserve and reuse, at each attempt to admit it.
    Admit,
    /// A pool's queue keys, at joining.
    Queue,
    /// A pool's queue keys, at every selection.
    Select,
    /// A pool's eviction keys and spill clause, for one cached prefix.
    Evict,
    /// The capacity of a processor-sharing stage.
    Ps,
    /// Budget and chunk of a step stage, before an iteration.
    Budget,
    /// Cost of an iteration.
    Step,
    /// Serving keys of a step stage, for one resident.
    Serve,
    /// Keys and requeue clause of a pool's preemption, for one holder.
    Victim,
    /// The gap of renewal arrivals.
    Gap,
    /// A gauge, whenever the state has changed.
    Gauge,
}

impl Moment {
    pub const ALL: [Moment; 12] = [
        Moment::Session,
        Moment::Admit,
        Moment::Queue,
        Moment::Select,
        Moment::Evict,
        Moment::Ps,
        Moment::Budget,
        Moment::Step,
        Moment::Serve,
        Moment::Victim,
        Moment::Gap,
        Moment::Gauge,
    ];

    /// For messages: "a queue key", "the cost of a step stage".
    pub fn describe(self) -> &'static str {
        match self {
            Moment::Session => "a statement",
            Moment::Admit => "the header of a hold",
            Moment::Queue => "a queue key",
            Moment::Select => "a live queue key",
            Moment::Evict => "an eviction key or spill clause",
            Moment::Ps => "the capacity of a ps stage",
            Moment::Budget => "the budget or chunk of a step stage",
            Moment::Step => "the cost of a step stage",
            Moment::Serve => "a serving key of a step stage",
            Moment::Victim => "a preemption clause",
            Moment::Gap => "the gap between arrivals",
            Moment::Gauge => "a gauge",
        }
    }

    /// Whether a context variable exists at this moment.
    pub fn has(self, var: Ctx) -> bool {
        match var {
            Ctx::Now => self != Moment::Gauge,
            Ctx::Size | Ctx::Age | Ctx::Last | Ctx::Queued => self == Moment::Evict,
            Ctx::N => self == Moment::Ps,
            Ctx::Nres | Ctx::Ndec | Ctx::Kvb | Ctx::Kvp => {
                matches!(self, Moment::Budget | Moment::Step | Moment::Serve)
            }
            Ctx::Ntok | Ctx::Npre | Ctx::Attn | Ctx::Ctxb | Ctx::Ctxp | Ctx::Nchunk => {
                self == Moment::Step
            }
            Ctx::Decoding => matches!(self, Moment::Serve | Moment::Victim),
            Ctx::Admission => matches!(
                self,
                Moment::Session | Moment::Queue | Moment::Select | Moment::Serve | Moment::Victim
            ),
            Ctx::Remaining => self == Moment::Serve,
            Ctx::Waited => self == Moment::Select,
        }
    }

    /// Whether there is a session whose attributes can be read.
    pub fn has_session(self) -> bool {
        !matches!(self, Moment::Ps | Moment::Budget | Moment::Step | Moment::Gap | Moment::Gauge)
    }

    /// The moments at which a variable exists, for messages.
    pub fn of(var: Ctx) -> impl Iterator<Item = Moment> {
        Moment::ALL.into_iter().filter(move |m| m.has(var))
    }
}
