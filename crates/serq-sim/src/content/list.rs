//! Doubly linked lists of blocks without an allocation of their own: the free list, and the copies of
//! each content. Every operation takes constant time.

use crate::slots::Slots;

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// First and last of a list, [`NONE`] both if it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Ends {
    pub(super) const EMPTY: Ends = Ends { first: NONE, last: NONE };
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

/// Neighbours of each block. A block is in at most one list that uses these links.
#[derive(Clone, Debug)]
pub(super) struct Links(Slots<Link>);

impl Links {
    pub(super) fn new(blocks: u32) -> Self {
        Links(vec![Link { prev: NONE, next: NONE }; blocks as usize].into())
    }

    pub(super) fn push_back(&mut self, ends: &mut Ends, block: u32) {
        self.0[block as usize] = Link { prev: ends.last, next: NONE };
        match ends.last {
            NONE => ends.first = block,
            last => self.0[last as usize].next = block,
        }
        ends.last = block;
    }

    pub(super) fn push_front(&mut self, ends: &mut Ends, block: u32) {
        self.0[block as usize] = Link { prev: NONE, next: ends.first };
        match ends.first {
            NONE => ends.last = block,
            first => self.0[first as usize].prev = block,
        }
        ends.first = block;
    }

    pub(super) fn remove(&mut self, ends: &mut Ends, block: u32) {
        let Link { prev, next } = self.0[block as usize];
        match prev {
            NONE => ends.first = next,
            prev => self.0[prev as usize].next = next,
        }
        match next {
            NONE => ends.last = prev,
            next => self.0[next as usize].prev = prev,
        }
        self.0[block as usize] = Link { prev: NONE, next: NONE };
    }

    /// A block's neighbours.
    #[cfg(debug_assertions)]
    pub(super) fn around(&self, block: u32) -> (u32, u32) {
        let Link { prev, next } = self.0[block as usize];
        (prev, next)
    }

    /// Blocks whose neighbours changed.
    #[cfg(debug_assertions)]
    pub(super) fn touched(&mut self) -> Vec<u32> {
        self.0.touched()
    }

    /// The blocks from first to last.
    pub(super) fn iter(&self, ends: Ends) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(some(ends.first), |&b| some(self.0[b as usize].next))
    }

    /// The blocks from last to first.
    pub(super) fn iter_back(&self, ends: Ends) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(some(ends.last), |&b| some(self.0[b as usize].prev))
    }
}

fn some(block: u32) -> Option<u32> {
    (block != NONE).then_some(block)
}
