//! A client: where it is in the program and what it holds.
//!
//! Statements are in [`exec`], coming and going in [`life`], deadlines in [`cut`], what its tokens are
//! in [`content`].

pub(crate) mod content;
pub(crate) mod cut;
pub(crate) mod exec;
pub(crate) mod life;
pub(crate) mod request;

use crate::content::Chain;
use crate::pool::booking::Booking;
use cut::Frame;

/// Where a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The slot is free.
    Gone,
    /// Will execute at this instant.
    Ready,
    Executing,
    /// Waits for admission in a pool's queue.
    Queued {
        pool: u32,
    },
    /// Waits for its booking, which stands in a pool's queue.
    Booked {
        pool: u32,
    },
    /// A `grow` statement waits in a pool's growers list.
    Growing {
        pool: u32,
    },
    /// Its job is at a stage.
    Working {
        job: u32,
    },
    /// Waits for iterations of a step stage.
    Stepping {
        stage: u32,
    },
}

impl Status {
    /// Whether it waits in some pool's queue.
    pub(crate) fn is_queued(self) -> bool {
        matches!(self, Status::Queued { .. } | Status::Booked { .. })
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) serial: u64,
    pub(crate) status: Status,
    /// Next instruction; the `hold` itself while its admission is pending.
    pub(crate) pc: u32,
    /// Enclosing holds, outermost first.
    pub(crate) holds: Vec<Hold>,
    /// Their allocations, those of one hold together, in its order.
    pub(crate) claims: Vec<Claim>,
    pub(crate) leases: Vec<Lease>,
    /// Leases that an engine minds, as long as they are the session's: number and stage.
    pub(crate) minded: Vec<(u64, u32)>,
    /// Deadlines and shields around it, outermost first.
    pub(crate) frames: Vec<Frame>,
    /// What its tokens are; empty in a program without shared pools.
    pub(crate) chain: Chain,
    /// Names this chain among all there were.
    pub(crate) chain_stamp: u64,
    pub(crate) bookings: Vec<Booking>,
    /// Holds whose bookings left their queues when a deadline came behind a shield.
    pub(crate) forgone: Vec<u32>,
    /// The admission it waits for: pools, with the units and reserve of the last attempt.
    pub(crate) pending: Vec<Pending>,
    /// When it joined the queue it is in.
    pub(crate) queued_at: f64,
    /// Number of its latest admission.
    pub(crate) admission: u64,
    /// Growth that waits: claim and units to add.
    pub(crate) growth: (u32, f64),
    /// Own cached prefixes: pool and entry.
    pub(crate) cached: Vec<(u32, u32)>,
    /// Positions reached when last preempted, by pool.
    pub(crate) preempted: Vec<(u32, f64)>,
    pub(crate) stuck: bool,
    pub(crate) turns: u64,
    pub(crate) script: Script,
    /// Wake-ups at the instant `woken_at`.
    pub(crate) wakes: u32,
    pub(crate) woken_at: f64,
    pub(crate) born: f64,
}

/// What the session's turns replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    None,
    /// Explicit session of the workload.
    Data(u32),
    /// Recorded session of the trace.
    Trace(u32),
}

/// One enclosing hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) plan: u32,
    /// Its `hold` instruction.
    pub(crate) pc: u32,
    /// First of its claims.
    pub(crate) first: u32,
    /// Whether a growing run or a load advanced a position in it.
    pub(crate) touched: bool,
    /// Frames around it.
    pub(crate) frames: u32,
}

/// A hold's allocation on one pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) pool: u32,
    pub(crate) alloc: f64,
    /// Units computed so far, the reused prefix included.
    pub(crate) position: f64,
    /// Admission number of the holder record.
    pub(crate) record: u64,
    pub(crate) since: f64,
    /// False once released inside the scope.
    pub(crate) active: bool,
    /// Shared pool: who holds its blocks, else [`crate::pool::shared::NONE`].
    pub(crate) holder: u32,
    /// Shared pool: units whose content is known.
    pub(crate) decided: f64,
    /// The latest iteration that computed something in it.
    pub(crate) fed: Fed,
}

/// An iteration of an engine that computed something in its memory; number 0 for none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fed {
    pub(crate) stage: u32,
    pub(crate) number: u64,
}

/// An allocation that outlived its hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) pool: u32,
    pub(crate) alloc: f64,
    /// Units computed, as a release would count them.
    pub(crate) computed: f64,
    /// The hold whose cache clause applies.
    pub(crate) plan: u32,
    pub(crate) since: f64,
    /// Its bound, seconds on the clock.
    pub(crate) until: f64,
    /// As in [`Claim`].
    pub(crate) holder: u32,
    pub(crate) fed: Fed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) pool: u32,
    pub(crate) units: f64,
    /// Units that must fit: the larger of units and reserve.
    pub(crate) need: f64,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self {
            serial: 0,
            status: Status::Gone,
            pc: 0,
            holds: Vec::new(),
            claims: Vec::new(),
            leases: Vec::new(),
            minded: Vec::new(),
            frames: Vec::new(),
            chain: Chain::default(),
            chain_stamp: 0,
            bookings: Vec::new(),
            forgone: Vec::new(),
            pending: Vec::new(),
            queued_at: 0.0,
            admission: 0,
            growth: (0, 0.0),
            cached: Vec::new(),
            preempted: Vec::new(),
            stuck: false,
            turns: 0,
            script: Script::None,
            wakes: 0,
            woken_at: -1.0,
            born: 0.0,
        }
    }

    /// The session's own cached prefix in a pool.
    pub(crate) fn own_entry(&self, pool: u32) -> Option<u32> {
        self.cached.iter().find(|(p, _)| *p == pool).map(|(_, e)| *e)
    }

    /// The booking whose first pool this is: its index.
    pub(crate) fn booking(&self, first: u32) -> Option<usize> {
        self.bookings.iter().position(|b| b.first() == first)
    }

    /// The booking of a hold: its index.
    pub(crate) fn booking_of(&self, plan: u32) -> Option<usize> {
        self.bookings.iter().position(|b| b.plan == plan)
    }

    pub(crate) fn forget_entry(&mut self, pool: u32) {
        self.cached.retain(|(p, _)| *p != pool);
    }

    /// Innermost active claim on a pool: its index.
    pub(crate) fn claim_on(&self, pool: u32) -> Option<usize> {
        self.claims.iter().rposition(|c| c.pool == pool && c.active)
    }

    /// The hold that owns a claim: its index.
    pub(crate) fn hold_of(&self, claim: usize) -> usize {
        self.holds.partition_point(|h| h.first as usize <= claim) - 1
    }

    /// Whether it executes, and no pool or engine knows of it.
    pub(crate) fn has_nothing(&self) -> bool {
        self.status == Status::Executing
            && self.holds.is_empty()
            && self.leases.is_empty()
            && self.minded.is_empty()
            && self.bookings.is_empty()
            && self.cached.is_empty()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.status != Status::Gone
    }
}
