//! The decode side's handles: blocks that arrived for a request that has not.
//!
//! A handle is `receiving` while its push runs, `ready` once the push is complete, and then ends:
//! claimed by the resumed request, released by the gateway, expired, fenced, or aborted with its
//! push. The value it owns (blocks that free themselves) is handed to whoever ends it, never
//! dropped in here, so that no lock of the pool is taken under the lock of the table.
//!
//! **What a dead attempt can still do: nothing.** Each push has a [`Ticket`] with a number that
//! is used once. Release, expiry and fencing forget that number first, so a chunk or a completion
//! that comes later is refused, whatever it is called. A handle that was released before or while
//! its push runs leaves a tombstone for a while, so that the push cannot begin again either.
//!
//! Time is an argument, in milliseconds of any steady clock. [`HandleTable::next_deadline`] tells
//! the driver's timer when to call [`HandleTable::expire`]. Everything is bounded: handles, per
//! peer and in all, the blocks they announce, tombstones.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::error::Code;
use crate::invariants::{Invariant, Violation};

/// Times and bounds of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleCfg {
    /// How long a complete handle waits for its claim.
    pub lease_ms: u64,
    /// How long a push may go without a chunk.
    pub receive_ms: u64,
    /// How long a released attempt cannot begin (again).
    pub tombstone_ms: u64,
    /// Handles receiving or ready.
    pub max_handles: usize,
    /// The same for one pusher's incarnation. Incarnation 0 (unknown) is not counted.
    pub max_handles_per_peer: usize,
    /// Sum of the blocks that receiving and ready handles announced.
    pub max_blocks: u64,
    /// Bytes of a handle id.
    pub max_handle_len: usize,
    /// Ended handles and fenced incarnations remembered.
    pub max_tombstones: usize,
}

impl Default for HandleCfg {
    fn default() -> Self {
        Self {
            lease_ms: 30_000,
            receive_ms: 30_000,
            tombstone_ms: 60_000,
            max_handles: 4096,
            max_handles_per_peer: 4096,
            max_blocks: u64::MAX,
            max_handle_len: 256,
            max_tombstones: 4096,
        }
    }
}

/// How a handle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// A request took the blocks.
    Claimed,
    /// The gateway gave it up.
    Released,
    /// Nobody claimed it, or its push stalled.
    Expired,
    /// Its pusher is gone.
    Fenced,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Claimed => "claimed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Fenced => "fenced",
        })
    }
}

/// Why a push may not begin, go on or complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// An id nobody can claim.
    #[error("handle_id of {len} bytes, expected 1 to {max}")]
    BadId { len: usize, max: usize },
    /// The id is in use; what its holder has stays.
    #[error("a live handle has this id")]
    AlreadyLive,
    /// Too many handles wait already.
    #[error("{live} handles wait already, limit {max}")]
    TooMany { live: usize, max: usize },
    /// The waiting handles already announced too many blocks.
    #[error("{blocks} blocks on top of {live} that handles hold, limit {max}")]
    NoRoom { blocks: u64, live: u64, max: u64 },
    /// The pusher's incarnation was declared dead.
    #[error("the sender's incarnation has been fenced")]
    Fenced,
    /// The attempt is over.
    #[error("the handle was {0}")]
    Ended(End),
}

impl HandleError {
    /// The code the pusher gets.
    pub fn code(&self) -> Code {
        match self {
            Self::BadId { .. } => Code::InvalidArgument,
            Self::AlreadyLive => Code::AlreadyExists,
            Self::TooMany { .. } | Self::NoRoom { .. } => Code::ResourceExhausted,
            Self::Fenced | Self::Ended(_) => Code::Aborted,
        }
    }
}

/// Why a claim got nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// No such handle, or one that ended too long ago to be remembered.
    #[error("no such handle")]
    Unknown,
    /// Its push has not completed.
    #[error("the handle's push is still running")]
    Receiving,
    /// It ended before.
    #[error("the handle was {0}")]
    Ended(End),
}

/// A completion that came too late, with the value to drop.
#[derive(Debug)]
pub struct Refused<T> {
    /// What was to be landed.
    pub value: T,
    /// Why it was not.
    pub error: HandleError,
}

/// The right of one push attempt to land. Not cloneable; used up by `complete` or `abort`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "complete or abort the attempt"]
pub struct Ticket {
    seq: u64,
    handle: String,
}

impl Ticket {
    /// The handle the attempt pushes to.
    pub fn handle(&self) -> &str {
        &self.handle
    }
}

/// Events since the table was made.
/// `created == live + claimed + released + expired + fenced + aborted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounters {
    /// Pushes begun.
    pub created: u64,
    /// Pushes completed.
    pub completed: u64,
    /// Handles claimed.
    pub claimed: u64,
    /// Handles released, receiving or ready.
    pub released: u64,
    /// Handles expired, receiving or ready.
    pub expired: u64,
    /// Handles ended with their pusher.
    pub fenced: u64,
    /// Pushes that failed.
    pub aborted: u64,
    /// Beginnings and completions refused.
    pub refused: u64,
}

struct Entry<T> {
    handle: String,
    incarnation: u64,
    blocks: u64,
    deadline: u64,
    /// `None` while receiving.
    value: Option<T>,
}

#[derive(Clone, Copy)]
struct Tomb {
    end: End,
    until: u64,
    /// The attempt, or one still to come, may not know that it is over.
    in_flight: bool,
}

/// Handles by id. `T` is what a handle owns, usually [`crate::Held`].
pub struct HandleTable<T> {
    cfg: HandleCfg,
    /// By attempt number, so that iteration has one order.
    entries: BTreeMap<u64, Entry<T>>,
    by_handle: HashMap<String, u64>,
    deadlines: BTreeSet<(u64, u64)>,
    per_peer: HashMap<u64, usize>,
    blocks: u64,
    next_seq: u64,
    tombs: HashMap<String, Tomb>,
    tomb_order: VecDeque<(u64, String)>,
    fenced: VecDeque<u64>,
    counters: TableCounters,
}

impl<T> std::fmt::Debug for HandleTable<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandleTable")
            .field("live", &self.entries.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<T> HandleTable<T> {
    /// A table without handles.
    pub fn new(cfg: HandleCfg) -> Self {
        Self {
            cfg,
            entries: BTreeMap::new(),
            by_handle: HashMap::new(),
            deadlines: BTreeSet::new(),
            per_peer: HashMap::new(),
            blocks: 0,
            next_seq: 0,
            tombs: HashMap::new(),
            tomb_order: VecDeque::new(),
            fenced: VecDeque::new(),
            counters: TableCounters::default(),
        }
    }

    /// Times and bounds.
    pub fn cfg(&self) -> &HandleCfg {
        &self.cfg
    }

    /// Handles receiving or ready.
    pub fn live(&self) -> usize {
        self.entries.len()
    }

    /// Handles ready to be claimed.
    pub fn ready(&self) -> usize {
        self.entries.values().filter(|e| e.value.is_some()).count()
    }

    /// Blocks announced by live handles.
    pub fn live_blocks(&self) -> u64 {
        self.blocks
    }

    /// Events so far.
    pub fn counters(&self) -> TableCounters {
        self.counters
    }

    /// A push of `blocks` blocks begins under `handle`, from the process `incarnation` (0 when it
    /// does not say).
    pub fn begin(
        &mut self,
        handle: &str,
        incarnation: u64,
        blocks: u64,
        now: u64,
    ) -> Result<Ticket, HandleError> {
        self.prune(now);
        if let Err(error) = self.admit(handle, incarnation, blocks) {
            self.counters.refused += 1;
            return Err(error);
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let deadline = now.saturating_add(self.cfg.receive_ms);
        self.deadlines.insert((deadline, seq));
        self.by_handle.insert(handle.to_owned(), seq);
        self.blocks += blocks;
        if incarnation != 0 {
            *self.per_peer.entry(incarnation).or_insert(0) += 1;
        }
        let handle = handle.to_owned();
        let ticket = Ticket {
            seq,
            handle: handle.clone(),
        };
        self.entries.insert(
            seq,
            Entry {
                handle,
                incarnation,
                blocks,
                deadline,
                value: None,
            },
        );
        self.counters.created += 1;
        Ok(ticket)
    }

    fn admit(&self, handle: &str, incarnation: u64, blocks: u64) -> Result<(), HandleError> {
        let cfg = &self.cfg;
        if handle.is_empty() || handle.len() > cfg.max_handle_len {
            return Err(HandleError::BadId {
                len: handle.len(),
                max: cfg.max_handle_len,
            });
        }
        if self.fenced.contains(&incarnation) {
            return Err(HandleError::Fenced);
        }
        if self.by_handle.contains_key(handle) {
            return Err(HandleError::AlreadyLive);
        }
        if let Some(tomb) = self.tombs.get(handle).filter(|t| t.in_flight) {
            return Err(HandleError::Ended(tomb.end));
        }
        let peer = self.per_peer.get(&incarnation).copied().unwrap_or(0);
        for (live, max) in [
            (self.entries.len(), cfg.max_handles),
            (peer, cfg.max_handles_per_peer),
        ] {
            if live >= max {
                return Err(HandleError::TooMany { live, max });
            }
        }
        if blocks > cfg.max_blocks.saturating_sub(self.blocks) {
            return Err(HandleError::NoRoom {
                blocks,
                live: self.blocks,
                max: cfg.max_blocks,
            });
        }
        Ok(())
    }

    /// A chunk of the attempt arrived: `Ok` when the attempt still lives, and then it has its
    /// time again. Ask before the chunk is looked at.
    pub fn touch(&mut self, ticket: &Ticket, now: u64) -> Result<(), HandleError> {
        self.live_attempt(ticket, now)?;
        let deadline = now.saturating_add(self.cfg.receive_ms);
        self.set_deadline(ticket.seq, deadline);
        Ok(())
    }

    fn live_attempt(&mut self, ticket: &Ticket, now: u64) -> Result<(), HandleError> {
        match self.entries.get(&ticket.seq) {
            None => Err(HandleError::Ended(
                self.tombs
                    .get(&ticket.handle)
                    .map_or(End::Released, |tomb| tomb.end),
            )),
            Some(entry) if entry.deadline <= now => {
                self.end(ticket.seq, Some(End::Expired), now);
                Err(HandleError::Ended(End::Expired))
            }
            Some(_) => Ok(()),
        }
    }

    /// The push is complete: the handle owns `value` and waits for its claim.
    pub fn complete(&mut self, ticket: Ticket, value: T, now: u64) -> Result<(), Refused<T>> {
        self.prune(now);
        if let Err(error) = self.live_attempt(&ticket, now) {
            self.counters.refused += 1;
            return Err(Refused { value, error });
        }
        if let Some(entry) = self.entries.get_mut(&ticket.seq) {
            entry.value = Some(value);
            self.counters.completed += 1;
        }
        self.set_deadline(ticket.seq, now.saturating_add(self.cfg.lease_ms));
        Ok(())
    }

    /// The push failed. The id is free again: the sender may repeat it.
    pub fn abort(&mut self, ticket: Ticket, now: u64) {
        self.end(ticket.seq, None, now);
    }

    /// Takes what a ready handle owns.
    pub fn claim(&mut self, handle: &str, now: u64) -> Result<T, ClaimError> {
        self.prune(now);
        let Some(&seq) = self.by_handle.get(handle) else {
            return Err(match self.tombs.get(handle) {
                Some(tomb) => ClaimError::Ended(tomb.end),
                None => ClaimError::Unknown,
            });
        };
        match self.entries.get(&seq) {
            Some(entry) if entry.deadline <= now => return Err(ClaimError::Ended(End::Expired)),
            Some(entry) if entry.value.is_none() => return Err(ClaimError::Receiving),
            _ => {}
        }
        self.end(seq, Some(End::Claimed), now)
            .and_then(|entry| entry.value)
            .ok_or(ClaimError::Unknown)
    }

    /// Gives a handle up, in whatever state; unknown ids are fine. Returns what it owned, to be
    /// dropped. A push still running, or yet to begin, cannot land any more.
    pub fn release(&mut self, handle: &str, now: u64) -> Option<T> {
        self.prune(now);
        if let Some(&seq) = self.by_handle.get(handle) {
            return self.end(seq, Some(End::Released), now)?.value;
        }
        if !self.tombs.contains_key(handle) && handle.len() <= self.cfg.max_handle_len {
            self.bury(handle.to_owned(), End::Released, true, now);
        }
        None
    }

    /// Ends every handle whose time is over and returns what they owned, to be dropped; `None`
    /// for a push that stalled, whose blocks its driver drops when it is refused.
    pub fn expire(&mut self, now: u64) -> Vec<(String, Option<T>)> {
        self.prune(now);
        let mut ended = Vec::new();
        while let Some(&(deadline, seq)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            if let Some(entry) = self.end(seq, Some(End::Expired), now) {
                ended.push((entry.handle, entry.value));
            }
        }
        ended
    }

    /// When [`HandleTable::expire`] has something to do, `None` without handles.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Declares a pusher's incarnation dead: its handles end and it cannot begin or complete
    /// anything more. 0, which names nobody, is ignored.
    pub fn fence(&mut self, incarnation: u64, now: u64) -> Vec<(String, Option<T>)> {
        self.prune(now);
        if incarnation == 0 {
            return Vec::new();
        }
        if !self.fenced.contains(&incarnation) {
            if self.fenced.len() >= self.cfg.max_tombstones {
                self.fenced.pop_front();
            }
            self.fenced.push_back(incarnation);
        }
        let seqs: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.incarnation == incarnation)
            .map(|(&seq, _)| seq)
            .collect();
        seqs.into_iter()
            .filter_map(|seq| self.end(seq, Some(End::Fenced), now))
            .map(|entry| (entry.handle, entry.value))
            .collect()
    }

    /// Takes an entry out; `None` as the end is an abort.
    fn end(&mut self, seq: u64, end: Option<End>, now: u64) -> Option<Entry<T>> {
        let entry = self.entries.remove(&seq)?;
        self.by_handle.remove(&entry.handle);
        self.deadlines.remove(&(entry.deadline, seq));
        self.blocks -= entry.blocks;
        if let Some(n) = self.per_peer.get_mut(&entry.incarnation) {
            *n -= 1;
            if *n == 0 {
                self.per_peer.remove(&entry.incarnation);
            }
        }
        match end {
            None => self.counters.aborted += 1,
            Some(End::Claimed) => self.counters.claimed += 1,
            Some(End::Released) => self.counters.released += 1,
            Some(End::Expired) => self.counters.expired += 1,
            Some(End::Fenced) => self.counters.fenced += 1,
        }
        if let Some(end) = end {
            self.bury(entry.handle.clone(), end, entry.value.is_none(), now);
        }
        Some(entry)
    }

    fn set_deadline(&mut self, seq: u64, deadline: u64) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            self.deadlines.remove(&(entry.deadline, seq));
            entry.deadline = deadline;
            self.deadlines.insert((deadline, seq));
        }
    }

    fn bury(&mut self, handle: String, end: End, in_flight: bool, now: u64) {
        let until = now.saturating_add(self.cfg.tombstone_ms);
        self.tombs.insert(
            handle.clone(),
            Tomb {
                end,
                until,
                in_flight,
            },
        );
        self.tomb_order.push_back((until, handle));
        self.prune(now);
    }

    fn prune(&mut self, now: u64) {
        while let Some((until, _)) = self.tomb_order.front() {
            if *until > now && self.tomb_order.len() <= self.cfg.max_tombstones {
                break;
            }
            let Some((until, handle)) = self.tomb_order.pop_front() else {
                break;
            };
            // A later tombstone of the same id has its own place in the order.
            if self
                .tombs
                .get(&handle)
                .is_some_and(|tomb| tomb.until == until)
            {
                self.tombs.remove(&handle);
            }
        }
    }

    /// Recomputes what the table keeps and compares; O(handles), for tests and debugging.
    pub fn check(&self) -> Result<(), Violation> {
        let c = &self.counters;
        let ended = c.claimed + c.released + c.expired + c.fenced + c.aborted;
        Invariant::HandleBalance.require(c.created == ended + self.entries.len() as u64, || {
            format!("{self:?}")
        })?;
        let n = self.entries.len();
        Invariant::HandleIndex.require(
            self.by_handle.len() == n
                && self.deadlines.len() == n
                && self.entries.iter().all(|(seq, e)| {
                    self.by_handle.get(&e.handle) == Some(seq)
                        && self.deadlines.contains(&(e.deadline, *seq))
                }),
            || format!("{self:?}"),
        )?;
        let blocks: u64 = self.entries.values().map(|e| e.blocks).sum();
        let peers = self.entries.values().filter(|e| e.incarnation != 0).count();
        Invariant::HandleIndex.require(
            blocks == self.blocks && peers == self.per_peer.values().sum::<usize>(),
            || format!("{blocks} blocks counted, {} kept", self.blocks),
        )?;
        Invariant::HandleBounds.require(
            n <= self.cfg.max_handles
                && self.blocks <= self.cfg.max_blocks
                && self.tomb_order.len() <= self.cfg.max_tombstones
                && self.tombs.len() <= self.tomb_order.len()
                && self.fenced.len() <= self.cfg.max_tombstones,
            || format!("{self:?}"),
        )
    }
}
