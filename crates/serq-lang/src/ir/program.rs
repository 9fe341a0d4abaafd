//! The program: pools, stages, traffic, what a session does, and the run.

use serde::{Deserialize, Serialize};

use super::expr::CExpr;
use super::num;
use super::span::Spans;
use super::stmt::CStmt;
use super::table::CTable;

/// Index into [`Program::attrs`].
pub type Slot = usize;
/// Index into [`Program::blocks`].
pub type BlockId = usize;

/// Most sessions a `closed` or `batch` workload may have.
pub const MAX_SESSIONS: u64 = 1_000_000;

/// A deployment and its traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Always [`super::FORMAT`].
    pub format: String,
    /// [`super::VERSION`], or [`super::VERSION_6`] for a program that needs it; see
    /// [`super::version_needed`].
    pub version: u32,
    /// Names of the attributes every session has; the built-in ones come first.
    pub attrs: Vec<String>,
    pub observes: Vec<String>,
    pub pools: Vec<CPool>,
    pub stages: Vec<CStage>,
    pub arrival: Arrival,
    /// Sessions that come, for an arrival process without an end of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Recorded turns that sessions replay.
    #[serde(default)]
    pub trace: Option<Trace>,
    /// Session `i` replays recorded session `i mod count`; otherwise one is drawn.
    #[serde(default)]
    pub trace_ordered: bool,
    /// When each recorded session comes, for [`Arrival::Trace`]; seconds, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace_times: Vec<f64>,
    /// What the tokens of each recorded session are, as in [`CSession::content`]; empty if the record
    /// does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace_content: Vec<Vec<Content>>,
    /// Run when a session arrives; only `set` and `observe`.
    pub init: BlockId,
    /// Run by every `turn`; only `set` and `observe`.
    pub turn: BlockId,
    pub session: BlockId,
    /// Every block of statements.
    pub blocks: Vec<Vec<CStmt>>,
    /// Seconds, positive. Infinite for a run that ends with its last session.
    #[serde(with = "num")]
    pub horizon: f64,
    /// Seconds; measurements start here.
    #[serde(with = "num")]
    pub warmup: f64,
    pub seed: u64,
    #[serde(flatten)]
    pub slots: Slots,
    /// Attributes that only the client knows; no part of the server may decide by them.
    #[serde(default)]
    pub hidden: Vec<Slot>,
    /// How flows over several stages share them; needed if a run names several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<CShare>,
    /// What requests must meet to count as served well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<super::Slo>,
    /// State that is averaged over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gauges: Vec<CGauge>,
    /// Functions given by measured points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<CTable>,
    /// Source positions; absent in a program written by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans: Option<Spans>,
}

/// Where the built-in attributes are. In JSON these are fields of the program itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    #[serde(rename = "slot_cached")]
    pub cached: Slot,
    #[serde(rename = "slot_serial")]
    pub serial: Slot,
    #[serde(rename = "slot_turn_no")]
    pub turn_no: Slot,
    #[serde(rename = "slot_new")]
    pub new: Slot,
    #[serde(rename = "slot_out")]
    pub out: Slot,
    #[serde(rename = "slot_think")]
    pub think: Slot,
    #[serde(rename = "slot_more")]
    pub more: Slot,
    #[serde(rename = "slot_forced")]
    pub forced: Slot,
    #[serde(rename = "slot_computed")]
    pub computed: Slot,
}

impl Slots {
    /// The names, in slot order.
    pub const NAMES: [&'static str; 9] =
        ["cached", "serial", "turn_no", "new", "out", "think", "more", "forced", "computed"];

    /// Slots 0 to 8 in the order of [`Slots::NAMES`].
    pub const STANDARD: Slots = Slots {
        cached: 0,
        serial: 1,
        turn_no: 2,
        new: 3,
        out: 4,
        think: 5,
        more: 6,
        forced: 7,
        computed: 8,
    };

    /// The slots in the order of [`Slots::NAMES`].
    pub fn all(&self) -> [Slot; 9] {
        [
            self.cached,
            self.serial,
            self.turn_no,
            self.new,
            self.out,
            self.think,
            self.more,
            self.forced,
            self.computed,
        ]
    }
}

/// Counted units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CPool {
    /// Members of a family share it.
    pub name: String,
    /// Units; may be infinite.
    #[serde(with = "num")]
    pub cap: f64,
    /// Allocations are multiples of this many units.
    #[serde(default, with = "num::opt")]
    pub block: Option<f64>,
    pub evict: CEvict,
    pub preempt: CPreempt,
    /// Key of the waiting queue, smallest first; without one, first come first served.
    #[serde(default)]
    pub queue: Option<CQueue>,
    #[serde(default)]
    pub spill: Option<CSpill>,
    /// The step stage whose scheduler admits from this queue.
    #[serde(default)]
    pub admit_via: Option<usize>,
    /// Its blocks have contents and one cache for everybody: what is computed stays until its block
    /// is reused, and any session whose content begins the same finds it. Blocks that nobody holds
    /// are reused first those without content, then those unused for longest, the end of a chain
    /// before its beginning; two blocks of one content may exist, and each counts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shared: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(b: &bool) -> bool {
    !*b
}

/// How a queue is ordered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CQueue {
    /// By keys, the smallest list first.
    Keys {
        keys: Vec<CExpr>,
        /// Evaluated again at every selection, not once at joining.
        live: bool,
    },
    /// By one key, evaluated at joining.
    Key(CExpr),
}

impl CQueue {
    /// The keys, in order.
    pub fn keys(&self) -> &[CExpr] {
        match self {
            CQueue::Keys { keys, .. } => keys,
            CQueue::Key(key) => std::slice::from_ref(key),
        }
    }

    /// Whether they are evaluated at every selection.
    pub fn is_live(&self) -> bool {
        matches!(self, CQueue::Keys { live: true, .. })
    }
}

/// How flows share the stages they go over at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CShare {
    /// Max-min fair, by progressive filling.
    MaxMin,
    /// Each flow gets the smallest of its stages' equal parts.
    Bottleneck,
}

/// A state expression, averaged over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CGauge {
    pub name: String,
    pub value: CExpr,
}

/// Which cached prefix goes first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CEvict {
    Lru,
    /// Smallest keys first.
    By(Vec<CExpr>),
}

/// Who loses an allocation when a growth does not fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CPreempt {
    /// Nobody: the growth waits.
    None,
    /// The holder admitted last, which waits at the front of its queue.
    Lifo,
    /// The holder with the greatest keys, of equals the one admitted last.
    By {
        keys: Vec<CExpr>,
        /// For the victim: 0 puts it at the front of its queue, ahead of any key; otherwise the
        /// queue's keys place it.
        requeue: CExpr,
    },
}

/// Where evicted units go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CSpill {
    /// Pool that receives them as a cached prefix.
    pub to: usize,
    /// Stage that moves them.
    pub via: usize,
    pub work: CExpr,
    pub when: CExpr,
}

/// A place where time passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CStage {
    pub name: String,
    pub kind: CStageKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CStageKind {
    /// One queue, this many servers.
    Fifo(u32),
    /// Shared equally; the expression is the total capacity with `n` jobs present.
    Ps(CExpr),
    Delay,
    /// An engine that iterates over batches of tokens.
    Step(CStep),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CStep {
    /// Tokens per iteration.
    pub budget: CExpr,
    /// Seconds per iteration.
    pub cost: CExpr,
    /// Most prefill tokens of one request per iteration; 0 for no limit.
    pub chunk: CExpr,
    pub serve: CServe,
    /// Pool that holds the residents' state.
    #[serde(default)]
    pub memory: Option<usize>,
    /// Budgets, chunks, work and units of the memory must be whole numbers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub integral: bool,
    /// The results of an iteration (samples, ends of runs and of leases) are delivered when the next
    /// one is over, an empty one if nothing is left to put together. Until then a resident's tokens
    /// count as computed, and one whose tokens are all scheduled stays a resident that is served
    /// nothing. A session preempted with tokens under way still gets them; if the last one is among
    /// them, its hold is over. Not so in a hold with a lease: those tokens are computed again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ahead: bool,
    /// With `ahead`: a resident with tokens under way is no victim, and serving of residents ends for
    /// the iteration when one would be. Blocks given back while their owner has tokens under way are
    /// free once the latest iteration put together with tokens is delivered.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fenced: bool,
    /// From this time on, seconds, no iteration is put together. What waits there waits for ever,
    /// and is no deadlock.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "num::opt")]
    pub stops: Option<f64>,
}

impl CStep {
    /// A step stage with every option at its default, whose iterations take `cost` seconds.
    pub fn new(cost: CExpr) -> Self {
        CStep {
            budget: CExpr::Num(f64::INFINITY),
            cost,
            chunk: CExpr::Num(0.0),
            serve: CServe::By(Vec::new()),
            memory: None,
            integral: false,
            ahead: false,
            fenced: false,
            stops: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CServe {
    /// Smallest keys first, then order of admission.
    By(Vec<CExpr>),
    /// An iteration serves one prefill alone of those there when it begins, or decodes; who is admitted
    /// meanwhile is served beside them.
    ExclusivePrefill,
    /// An iteration serves one prefill and nothing else, the first resident's or, without any, that of the next
    /// to be admitted; or, if there is nobody to prefill, decodes.
    PrefillAlone,
}

/// How sessions come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Arrival {
    /// Sessions per second; the first comes at time 0.
    Poisson(#[serde(with = "num")] f64),
    /// Always this many; one that ends is replaced.
    Closed(u64),
    /// This many at time 0.
    Batch(u64),
    /// These, in this order.
    Sessions(Vec<CSession>),
    None,
    /// The gap before each session, seconds.
    Renewal(CExpr),
    /// Poisson arrivals whose rate changes; none before the first entry.
    Rates(Vec<Rate>),
    /// One session at each of these times; seconds, ascending.
    Times(Vec<f64>),
    /// The recorded sessions, in order, at [`Program::trace_times`].
    Trace,
}

/// Sessions per second, and from when on (in JSON `[rate, from]`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate(pub f64, pub f64);

/// A session given as data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CSession {
    /// Set after `init`.
    #[serde(default)]
    pub attrs: Vec<Preset>,
    /// What each `turn` sets, before the `turn` block.
    #[serde(default)]
    pub turns: Vec<Vec<Preset>>,
    /// When it comes, seconds; not before the one above it.
    #[serde(default, skip_serializing_if = "is_zero", with = "num")]
    pub at: f64,
    /// What its tokens are, as a chain of segments; if empty, a segment of its own without end. Only
    /// the last length may be infinite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Content>,
}

/// The first tokens of what a key names (in JSON `[key, length]`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Content(pub u64, #[serde(with = "num")] pub f64);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(v: &f64) -> bool {
    *v == 0.0
}

/// An attribute and its value, `[slot, value]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preset(pub Slot, #[serde(with = "num")] pub f64);

/// Recorded sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Trace {
    /// A file, by the name the program gives; whoever runs the program reads it and puts
    /// [`Trace::Inline`] here.
    File(String),
    /// Sessions, each a list of turns.
    Inline(Vec<Vec<TraceTurn>>),
}

/// One recorded turn: `[new, out, think, forced]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceTurn(
    /// Tokens added to the prompt.
    #[serde(with = "num")]
    pub f64,
    /// Tokens answered.
    #[serde(with = "num")]
    pub f64,
    /// Seconds before the next turn.
    #[serde(with = "num")]
    pub f64,
    /// 1 if the prompt matches nothing cached.
    #[serde(with = "num")]
    pub f64,
);

impl Program {
    /// A program without pools, stages or traffic: blocks 0, 1 and 2 are `init`, `turn` and
    /// `session`, all empty.
    pub fn empty() -> Self {
        Program {
            format: super::FORMAT.to_owned(),
            version: super::VERSION,
            attrs: Slots::NAMES.iter().map(|&s| s.to_owned()).collect(),
            observes: Vec::new(),
            pools: Vec::new(),
            stages: Vec::new(),
            arrival: Arrival::None,
            limit: None,
            trace: None,
            trace_ordered: false,
            trace_times: Vec::new(),
            trace_content: Vec::new(),
            init: 0,
            turn: 1,
            session: 2,
            blocks: vec![Vec::new(); 3],
            horizon: 1.0,
            warmup: 0.0,
            seed: 1,
            slots: Slots::STANDARD,
            hidden: Vec::new(),
            share: None,
            slo: None,
            gauges: Vec::new(),
            tables: Vec::new(),
            spans: None,
        }
    }

    /// Whether only so many sessions come, so that a run can end with the last of them.
    pub fn is_finite(&self) -> bool {
        match self.arrival {
            Arrival::Batch(_) | Arrival::Sessions(_) | Arrival::Times(_) | Arrival::Trace => true,
            Arrival::Poisson(_) | Arrival::Renewal(_) | Arrival::Rates(_) => self.limit.is_some(),
            Arrival::Closed(_) | Arrival::None => false,
        }
    }
}

impl CPool {
    /// A pool with every option at its default.
    pub fn new(name: impl Into<String>, cap: f64) -> Self {
        CPool {
            name: name.into(),
            cap,
            block: None,
            evict: CEvict::Lru,
            preempt: CPreempt::None,
            queue: None,
            spill: None,
            admit_via: None,
            shared: false,
        }
    }

    /// The smallest amount of whole blocks that covers `units`.
    pub fn round_up(&self, units: f64) -> f64 {
        match self.block {
            Some(b) => libm::ceil(units / b) * b,
            None => units,
        }
    }

    /// The largest amount of whole blocks inside `units`.
    pub fn round_down(&self, units: f64) -> f64 {
        match self.block {
            Some(b) => libm::floor(units / b) * b,
            None => units,
        }
    }
}
