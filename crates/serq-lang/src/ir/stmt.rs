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
    /// Puts the hold whose [`CHold::booked`] is this number into its queue, and goes on. References
    /// are evaluated now, units at every attempt, for the session as it then is. What is granted
    /// counts as used, belongs to no hold until the session comes to that hold, and is no victim.
    Book(usize),
    /// What the session's tokens are from now on, as a chain of segments; with `add`, behind those
    /// that are there. Only the last segment may be infinite.
    Content {
        #[serde(default, skip_serializing_if = "is_false")]
        add: bool,
        parts: Vec<CSegment>,
    },
    /// Tells the stage `on` that the lease can end; without one the statement is a
    /// [`CStmt::Release`].
    Tell(CTell),
    /// Cuts the session's lease from it: only the bound ends it, which must be finite.
    Abandon(CRef),
    /// From now on, iterations of a stage renew the session's lease.
    Renew(CRenew),
    /// Runs the first block. If it is not over at the clock time of the expression, evaluated once
    /// (infinite: never; past: at once), the session leaves where it waits or is served, unwinds the
    /// block's holds and goes on with the second block. Such deadlines come after every other event
    /// of their instant. Tokens under way are not delivered, and bookings of the block are given up.
    Until(CExpr, BlockId, BlockId),
    /// A block that no deadline cuts: a cut waits for its end. Renewals end all the same when the
    /// deadline comes, and bookings made outside of it that still wait leave their queues.
    Shield(BlockId),
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
    /// Evaluated last in an attempt: at 0 the hold does not fit, and its queue waits as for any head
    /// that does not. Unlike a reserve it may ask for more than the cap, and others do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<CExpr>,
    /// The step stage that notices the lease's end. The bound ends it with the first iteration put
    /// together at or after it; whether by bound or told, what was leased is free when that
    /// iteration's results are delivered. While the lease is open the stage iterates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_on: Option<CRef>,
    /// Opens the booking of this number: waits until it is granted and is then this hold, with the
    /// grant's bindings, `cached` and admission number; preempted, it is admitted again as any hold.
    /// No other hold has the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booked: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(b: &bool) -> bool {
    !*b
}

/// An attribute and what it becomes (in JSON `[slot, value]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bind(pub Slot, pub CExpr);

/// Part of a chain of content: the first tokens of what the key names (in JSON `[key, length]`).
/// Both are whole numbers, 0 or more; a length may be infinite. Keys of programs, of sessions given
/// as data, and of what a session holds without saying are three name spaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CSegment(pub CExpr, pub CExpr);

/// A message that a lease can end. A lease that was told is past telling and past expiry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CTell {
    /// The leased pool.
    pub pool: CRef,
    /// The step stage that hears of it: the lease ends with the next iteration it puts together
    /// after the message was there. Without one, the lease ends with the iteration under way if
    /// the teller is a run of the stage in [`CHold::lease_on`], else at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<CRef>,
    /// Seconds that the message is on its way; without it 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<CExpr>,
}

/// A lease that its reader renews.
///
/// While it is open, the stage `from` iterates. Whenever it puts an iteration together and at least `every` seconds have passed
/// since it last sent, it sends one message for all leases so entered. The first iteration of a
/// lease's own stage ([`CHold::lease_on`]) after it was there sets the bound to the larger of itself
/// and its clock plus `time`, before it looks for bounds that have passed. It ends when the lease is
/// told, released, abandoned or over, and when a deadline reaches its session, shielded or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CRenew {
    pub pool: CRef,
    /// Seconds from a renewal to the new bound; evaluated at the statement.
    pub time: CExpr,
    /// Seconds; evaluated at the statement. The latest that was given holds for the stage.
    pub every: CExpr,
    /// A step stage.
    pub from: CRef,
    /// Seconds that a message is on its way; without it 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<CExpr>,
}

/// Pool, units to allocate, units that must fit (in JSON `[ref, units, reserve or null]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim(pub CRef, pub CExpr, pub Option<CExpr>);

/// Work at a stage: seconds (fifo, delay), units of capacity times seconds (ps), tokens (step), or
/// iterations.
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
    /// Decode tokens that follow the prefill tokens of [`CRun::work`], without the session in
    /// between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<CExpr>,
    /// Attribute that grows by one with every sample that is delivered. The last prefill token and
    /// each decode token are samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Slot>,
    /// Attribute that becomes the clock when a sample is delivered, if it is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Slot>,
    /// Of `Steps`: the lease that is told when the run is over, before the session hears of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telling: Option<CTell>,
}

impl CRun {
    /// A run with every option at its default.
    pub fn new(stage: CRef, mode: RunMode, work: CExpr) -> Self {
        CRun {
            stage,
            mode,
            work,
            growing: None,
            also: Vec::new(),
            then: None,
            answers: None,
            first: None,
            telling: None,
        }
    }
}

impl CHold {
    /// A hold with every option at its default.
    pub fn new(pools: Vec<Claim>, body: BlockId) -> Self {
        CHold {
            pools,
            reuse: None,
            body,
            cache: None,
            lease: None,
            binds: Vec::new(),
            when: None,
            lease_on: None,
            booked: None,
        }
    }
}

/// `Plain` off step stages; the others on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunMode {
    Plain,
    Prefill,
    Decode,
    /// Waits for so many iterations of the stage, the one being put together included; they happen
    /// even if nothing else is to be done. It takes no tokens and is no resident.
    Steps,
}

impl CStmt {
    /// The blocks this statement contains.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> + use<> {
        let (a, b) = match self {
            CStmt::Hold(hold) => (Some(hold.body), None),
            CStmt::Loop(body) | CStmt::While(_, body) | CStmt::Shield(body) => (Some(*body), None),
            CStmt::Branch(_, then, other) | CStmt::Until(_, then, other) => {
                (Some(*then), Some(*other))
            }
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
            CStmt::Content { .. } => "content",
            CStmt::Tell(_) => "release",
            CStmt::Abandon(_) => "abandon",
            CStmt::Renew(_) => "renew",
            CStmt::Until(..) => "until",
            CStmt::Shield(_) => "shield",
            CStmt::Choose { .. } => "choose",
            CStmt::End => "end",
        }
    }
}
