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
//! its push runs leaves a tombstone for a while, so that the push cannot begin again either. For a
//! pusher that says its incarnation every end does: such a one never uses an id twice, and a push
//! that something on the way repeats must not wait here for a claim that nobody will make.
//!
//! Time is an argument, in milliseconds of any steady clock. [`HandleTable::next_deadline`] tells
//! the driver's timer when to call [`HandleTable::expire`]. Everything is bounded: handles, per
//! peer and in all, the blocks they announce, tombstones.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use super::handle::{ClaimError, End, HandleCfg, HandleError, Refused, TableCounters, Ticket};
use super::tombs::Tombs;
use crate::invariants::{Invariant, Violation};

struct Entry<T> {
    handle: String,
    incarnation: u64,
    blocks: u64,
    deadline: u64,
    /// `None` while receiving.
    value: Option<T>,
}

/// Handles by id. `T` is what a handle owns, usually [`crate::Held`].
pub struct HandleTable<T> {
    cfg: HandleCfg,
    /// By attempt number, so that iteration has one order.
    entries: BTreeMap<u64, Entry<T>>,
    by_handle: HashMap<String, u64>,
    deadlines: BTreeSet<(u64, u64)>,
    per_peer: HashMap<u64, usize>,
    ready: usize,
    blocks: u64,
    next_seq: u64,
    tombs: Tombs,
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
            ready: 0,
            blocks: 0,
            next_seq: 0,
            tombs: Tombs::new(cfg.tombstone_ms, cfg.max_tombstones),
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
        self.ready
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
        self.tombs.prune(now);
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
        let ticket = Ticket { seq, handle: handle.clone() };
        self.entries.insert(seq, Entry { handle, incarnation, blocks, deadline, value: None });
        self.counters.created += 1;
        Ok(ticket)
    }

    fn admit(&self, handle: &str, incarnation: u64, blocks: u64) -> Result<(), HandleError> {
        let cfg = &self.cfg;
        if handle.is_empty() || handle.len() > cfg.max_handle_len {
            return Err(HandleError::BadId { len: handle.len(), max: cfg.max_handle_len });
        }
        if self.fenced.contains(&incarnation) {
            return Err(HandleError::Fenced);
        }
        if self.by_handle.contains_key(handle) {
            return Err(HandleError::AlreadyLive);
        }
        // A pusher that says who it is names each attempt anew: what comes under an id that has
        // ended is an echo of the attempt that had it.
        if let Some(tomb) = self.tombs.get(handle).filter(|t| t.in_flight || incarnation != 0) {
            return Err(HandleError::Ended(tomb.end));
        }
        let peer = self.per_peer.get(&incarnation).copied().unwrap_or(0);
        for (live, max) in [(self.entries.len(), cfg.max_handles), (peer, cfg.max_handles_per_peer)]
        {
            if live >= max {
                return Err(HandleError::TooMany { live, max });
            }
        }
        if blocks > cfg.max_blocks.saturating_sub(self.blocks) {
            return Err(HandleError::NoRoom { blocks, live: self.blocks, max: cfg.max_blocks });
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
                self.tombs.get(&ticket.handle).map_or(End::Released, |tomb| tomb.end),
            )),
            Some(entry) if entry.deadline <= now => {
                self.end(ticket.seq, Some(End::Expired), now);
                Err(HandleError::Ended(End::Expired))
            }
            Some(_) => Ok(()),
        }
    }

    /// The push is complete: the handle owns `value` and waits for its claim.
    #[expect(clippy::needless_pass_by_value, reason = "an attempt lands once")]
    pub fn complete(&mut self, ticket: Ticket, value: T, now: u64) -> Result<(), Refused<T>> {
        self.tombs.prune(now);
        if let Err(error) = self.live_attempt(&ticket, now) {
            self.counters.refused += 1;
            return Err(Refused { value, error });
        }
        if let Some(entry) = self.entries.get_mut(&ticket.seq) {
            entry.value = Some(value);
            self.ready += 1;
            self.counters.completed += 1;
        }
        self.set_deadline(ticket.seq, now.saturating_add(self.cfg.lease_ms));
        Ok(())
    }

    /// The push failed. The id is free again: the sender may repeat it.
    #[expect(clippy::needless_pass_by_value, reason = "an attempt ends once")]
    pub fn abort(&mut self, ticket: Ticket, now: u64) {
        self.end(ticket.seq, None, now);
    }

    /// Takes what a ready handle owns.
    pub fn claim(&mut self, handle: &str, now: u64) -> Result<T, ClaimError> {
        self.tombs.prune(now);
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
        self.tombs.prune(now);
        if let Some(&seq) = self.by_handle.get(handle) {
            return self.end(seq, Some(End::Released), now)?.value;
        }
        // Said again, it counts from now: whoever says so knows of something still on its way.
        let tomb = self.tombs.get(handle).map(|tomb| (tomb.end, tomb.in_flight));
        let (end, in_flight) = tomb.unwrap_or((End::Released, true));
        if handle.len() <= self.cfg.max_handle_len {
            self.tombs.bury(handle.to_owned(), end, in_flight, now);
        }
        None
    }

    /// Ends every handle whose time is over and returns what they owned, to be dropped; `None`
    /// for a push that stalled, whose blocks its driver drops when it is refused.
    pub fn expire(&mut self, now: u64) -> Vec<(String, Option<T>)> {
        self.tombs.prune(now);
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
        self.tombs.prune(now);
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

    /// A copy whose values `copy` makes, see [`crate::fork`].
    pub fn fork<U>(&self, mut copy: impl FnMut(&T) -> U) -> HandleTable<U> {
        let mut entry = |entry: &Entry<T>| Entry {
            handle: entry.handle.clone(),
            incarnation: entry.incarnation,
            blocks: entry.blocks,
            deadline: entry.deadline,
            value: entry.value.as_ref().map(&mut copy),
        };
        HandleTable {
            cfg: self.cfg,
            entries: self.entries.iter().map(|(&seq, e)| (seq, entry(e))).collect(),
            by_handle: self.by_handle.clone(),
            deadlines: self.deadlines.clone(),
            per_peer: self.per_peer.clone(),
            ready: self.ready,
            blocks: self.blocks,
            next_seq: self.next_seq,
            tombs: self.tombs.clone(),
            fenced: self.fenced.clone(),
            counters: self.counters,
        }
    }

    /// What decides how the table goes on: live handles in their order with the time they have
    /// left, tombstones, fenced incarnations. `value` says the same of what a handle owns.
    /// Tombstones of handles under which nothing can come any more, which the checker `knows`,
    /// decide nothing.
    pub fn state<H: Hasher>(
        &self,
        now: u64,
        out: &mut H,
        knows: impl Fn(&str) -> bool,
        mut value: impl FnMut(&T, &mut H),
    ) {
        self.entries.len().hash(out);
        for Entry { handle, incarnation, blocks, deadline, value: owned } in self.entries.values() {
            (handle, incarnation, blocks, deadline.saturating_sub(now)).hash(out);
            owned.is_some().hash(out);
            if let Some(owned) = owned {
                value(owned, out);
            }
        }
        self.tombs.state(now, out, knows);
        self.fenced.hash(out);
    }

    /// The place of an attempt among the live ones, in the order they began; their number for an
    /// attempt that is over.
    pub fn rank(&self, ticket: &Ticket) -> usize {
        match self.entries.contains_key(&ticket.seq) {
            true => self.entries.range(..ticket.seq).count(),
            false => self.entries.len(),
        }
    }

    /// What the ready handles own.
    pub fn values(&self) -> impl Iterator<Item = (&str, &T)> {
        self.entries.values().filter_map(|e| Some((e.handle.as_str(), e.value.as_ref()?)))
    }

    /// Whether time after `now` changes anything: a handle's time may come, or the end of one that
    /// `knows` names may be forgotten.
    pub fn waits(&self, now: u64, knows: impl Fn(&str) -> bool) -> bool {
        self.deadlines.last().is_some_and(|&(at, _)| at > now) || self.tombs.any(now, knows)
    }

    /// As [`HandleTable::check`], and [`Invariant::LeaseEnds`] at `now`.
    pub fn check_at(&self, now: u64) -> Result<(), Violation> {
        self.check()?;
        let latest = now.saturating_add(self.cfg.lease_ms.max(self.cfg.receive_ms));
        let endless = self.entries.values().find(|e| e.deadline > latest || e.deadline == u64::MAX);
        Invariant::LeaseEnds.require(endless.is_none(), || {
            let (handle, at) = endless.map_or(("", 0), |e| (e.handle.as_str(), e.deadline));
            format!("handle {handle:?} ends at {at}, it is {now}")
        })
    }

    /// Takes an entry out; `None` as the end is an abort.
    fn end(&mut self, seq: u64, end: Option<End>, now: u64) -> Option<Entry<T>> {
        let entry = self.entries.remove(&seq)?;
        self.by_handle.remove(&entry.handle);
        self.deadlines.remove(&(entry.deadline, seq));
        self.blocks -= entry.blocks;
        self.ready -= usize::from(entry.value.is_some());
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
            self.tombs.bury(entry.handle.clone(), end, entry.value.is_none(), now);
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

    /// Recomputes what the table keeps and compares; O(handles), for tests and debugging.
    pub fn check(&self) -> Result<(), Violation> {
        let c = &self.counters;
        let ended = c.claimed + c.released + c.expired + c.fenced + c.aborted;
        Invariant::HandleBalance
            .require(c.created == ended + self.entries.len() as u64, || format!("{self:?}"))?;
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
        let ready = self.entries.values().filter(|e| e.value.is_some()).count();
        let peers = self.entries.values().filter(|e| e.incarnation != 0).count();
        Invariant::HandleIndex.require(
            blocks == self.blocks
                && ready == self.ready
                && peers == self.per_peer.values().sum::<usize>(),
            || format!("{blocks} blocks counted, {} kept", self.blocks),
        )?;
        Invariant::HandleBounds.require(
            n <= self.cfg.max_handles
                && self.blocks <= self.cfg.max_blocks
                && self.tombs.len() <= self.cfg.max_tombstones
                && self.fenced.len() <= self.cfg.max_tombstones,
            || format!("{self:?}"),
        )
    }
}
