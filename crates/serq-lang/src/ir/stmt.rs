//! Statements: what a session does.

use serde::{Deserialize, Serialize};

use super::expr::{CExpr, CRef};
use super::program::{BlockId, Slot};

/// A statement. Bodies are blocks of the program's arena; a block is the body of one statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CStmt {
    /// Draws the attributes of the session's next request.
    Turn,
    Set(Slot, CExpr),
    /// Records a sample of observe number `.0`.
    Observe(usize, CExpr),
    Hold(CHold),
    /// Adds units to the innermost hold of the pool, waiting or preempting if they do not fit.
    Grow(CRef, CExpr),
    /// Gives up the session's cached prefix there.
    Drop(CRef),
    /// Ends the innermost hold's allocation there, or else the session's lease.
    Release(CRef),
    /// Computed units arrive from elsewhere: the position of the innermost hold advances.
    Load(CRef, CExpr),
    Run(CRun),
    /// The guard must be exactly 0 or 1.
    Branch(CExpr, BlockId, BlockId),
    Loop(BlockId),
    /// Repeats while the guard is 1; it is evaluated before each round and must be exactly 0 or 1.
    While(CExpr, BlockId),
    /// Sets `var` to the index in `0..count` with the smallest `key`.
    Choose {
        var: Slot,
        count: CExpr,
        key: CExpr,
    },
    /// Joins the queue of the first pool for an allocation to come, and goes on. Units and reserves
    /// are those of this moment.
    Book(Vec<Claim>),
    /// A scope over what was booked, waiting for it if it was not granted yet.
    Enter(CEnter),
    /// The session ends.
    End,
}

/// A scoped allocation on one or more pools, admitted at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CHold {
    /// What is claimed; the session waits in the queue of the first.
    pub pools: Vec<Claim>,
    /// How much of the cached prefix may be used.
    #[serde(default)]
    pub reuse: Option<CExpr>,
    pub body: BlockId,
    /// How much stays cached at the end.
    #[serde(default)]
    pub cache: Option<CExpr>,
    /// The allocation that outlives the scope, and for how long at most.
    #[serde(default)]
    pub lease: Option<(CRef, CExpr)>,
    /// Attributes set at the admission, in this order, before any cached prefix is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<Bind>,
    /// The content of what is held on shared pools, as a chain of segments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<CSegment>,
}

/// An attribute and what it becomes (in JSON `[slot, value]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bind(pub Slot, pub CExpr);

/// Part of a chain of content: the first tokens of what the key names (in JSON `[key, length]`).
/// Both are whole numbers, 0 or more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CSegment(pub CExpr, pub CExpr);

/// The scope of a booking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CEnter {
    /// First pool of the booking.
    pub pool: CRef,
    /// How much of the cached prefix may be used.
    #[serde(default)]
    pub reuse: Option<CExpr>,
    pub body: BlockId,
    /// How much stays cached at the end.
    #[serde(default)]
    pub cache: Option<CExpr>,
    /// The allocation that outlives the scope, and for how long at most.
    #[serde(default)]
    pub lease: Option<(CRef, CExpr)>,
}

/// Pool, units to allocate, units that must fit (in JSON `[ref, units, reserve or null]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim(pub CRef, pub CExpr, pub Option<CExpr>);

/// Work at a stage: seconds (fifo, delay), units of capacity times seconds (ps), tokens (step).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CRun {
    pub stage: CRef,
    pub mode: RunMode,
    pub work: CExpr,
    /// The pool whose allocation grows as tokens are computed.
    #[serde(default)]
    pub growing: Option<CRef>,
    /// Further stages the work flows over at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<CRef>,
}

/// `Plain` off step stages; the others on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunMode {
    Plain,
    Prefill,
    Decode,
}

impl CStmt {
    /// The blocks this statement contains.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> + use<> {
        let (a, b) = match self {
            CStmt::Hold(hold) => (Some(hold.body), None),
            CStmt::Enter(enter) => (Some(enter.body), None),
            CStmt::Loop(body) | CStmt::While(_, body) => (Some(*body), None),
            CStmt::Branch(_, then, other) => (Some(*then), Some(*other)),
            _ => (None, None),
        };
        a.into_iter().chain(b)
    }

    /// The keyword, for messages.
    pub fn word(&self) -> &'static str {
        match self {
            CStmt::Turn => "turn",
            CStmt::Set(..) => "set",
            CStmt::Observe(..) => "observe",
            CStmt::Hold(_) => "hold",
            CStmt::Grow(..) => "grow",
            CStmt::Drop(_) => "drop",
            CStmt::Release(_) => "release",
            CStmt::Load(..) => "load",
            CStmt::Run(_) => "run",
            CStmt::Branch(..) => "branch",
            CStmt::Loop(_) => "loop",
            CStmt::While(..) => "while",
            CStmt::Book(_) => "book",
            CStmt::Enter(_) => "enter",
            CStmt::Choose { .. } => "choose",
            CStmt::End => "end",
        }
    }
}
