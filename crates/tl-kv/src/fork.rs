//! Copies of a whole hand-off, for a checker that tries every way to go on.
//!
//! The state machines own things that must not be owned twice: references, tickets, locks. A
//! checker that has reached a state needs that state several times over, once for each event that
//! may come next. So it copies all of it together: the pool first ([`KvPool::fork`](crate::KvPool::fork)), then every
//! value that holds blocks of it, onto the copy. A copy of one without the other breaks the
//! pool's books, which is why nothing but a checker calls these.
//!
//! To know whether it has been in a state before, the checker writes down what decides how the
//! state goes on, and only that (`state`): times as distances from now, attempts by their order,
//! blocks by
//! their owners, no counters of the past, no contents of positions that hold no tokens.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::handoff::{Claimed, Incoming, Lent, LentBlock, Ticket};
use crate::held::Held;
use crate::pool::{SharedKv, lock};

/// Blocks by the order in which their owners name them. Which number a block has decides nothing,
/// so two states that differ in that alone are one.
#[derive(Debug)]
pub struct Names(Vec<u32>);

impl Names {
    pub(crate) fn new(by_id: Vec<u32>) -> Self {
        Self(by_id)
    }

    /// The place of a block; the number of blocks for one that is not of the pool.
    pub fn of(&self, id: u32) -> u32 {
        self.0.get(id as usize).copied().unwrap_or(self.0.len() as u32)
    }

    /// Feeds blocks to a hasher by their places.
    pub fn state(&self, ids: &[u32], out: &mut impl Hasher) {
        ids.len().hash(out);
        for &id in ids {
            self.of(id).hash(out);
        }
    }
}

/// A copy of a pool behind a lock of its own.
pub fn pool(pool: &SharedKv) -> SharedKv {
    Arc::new(Mutex::new(lock(pool).fork()))
}

impl Held {
    /// The same references, in a copy of their pool.
    pub fn fork(&self, onto: &SharedKv) -> Held {
        Held::adopt(onto, self.ids().to_vec())
    }
}

impl Claimed {
    /// The same handle's blocks, in a copy of their pool.
    pub fn fork(&self, onto: &SharedKv) -> Claimed {
        let Claimed { held, block_hashes, n_tokens, incarnation } = self;
        Claimed {
            held: held.fork(onto),
            block_hashes: block_hashes.clone(),
            n_tokens: *n_tokens,
            incarnation: *incarnation,
        }
    }

    /// What decides how it goes on.
    pub fn state(&self, names: &Names, out: &mut impl Hasher) {
        let Claimed { held, block_hashes, n_tokens, incarnation } = self;
        names.state(held.ids(), out);
        (block_hashes, n_tokens, incarnation).hash(out);
    }
}

impl Incoming {
    /// The same push, into a copy of its pool and beside a copy of its table.
    pub fn fork(&self, onto: &SharedKv) -> Incoming {
        Incoming {
            incarnation: self.incarnation,
            assembly: self.assembly.clone(),
            held: self.held.fork(onto),
            hashes: self.hashes.clone(),
            ticket: self.ticket.as_ref().map(Ticket::fork),
        }
    }

    /// What decides how it goes on. `rank` names an attempt by its order in the table.
    pub fn state(&self, names: &Names, rank: impl FnOnce(&Ticket) -> usize, out: &mut impl Hasher) {
        names.state(self.held.ids(), out);
        (self.incarnation, &self.assembly, &self.hashes).hash(out);
        self.ticket.as_ref().map(rank).hash(out);
    }
}

impl Ticket {
    fn fork(&self) -> Ticket {
        Ticket { seq: self.seq, handle: self.handle.clone() }
    }
}

impl Lent {
    /// The same blocks of a copy of their pool.
    pub fn fork(&self, onto: &SharedKv) -> Lent {
        Lent { slabs: lock(onto).slabs(), blocks: self.blocks.clone() }
    }

    /// What decides how it goes on.
    pub fn state(&self, names: &Names, out: &mut impl Hasher) {
        self.blocks.len().hash(out);
        for block in &self.blocks {
            LentBlock { id: names.of(block.id), ..*block }.hash(out);
        }
    }
}
