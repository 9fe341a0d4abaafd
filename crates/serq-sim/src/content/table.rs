//! Contents as numbers: a table in which equal prefixes are the same entry.
//!
//! An entry is the content of a whole prefix: its parent's, then one more piece of a segment. A block
//! that lies inside one segment is one entry, one that crosses a border is as many as it has
//! pieces. Comparing two prefixes of any length is comparing two numbers, exactly: nothing is hashed
//! away. An entry lives while a block carries it or a longer prefix goes on from it, so the
//! table is never larger than what the pool's blocks need.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::chain::{Chain, Cursor, Piece};
use super::list::{Ends, NONE};
use crate::slots::Slots;

/// The content of no tokens, every prefix's first ancestor.
pub(super) const ROOT: u32 = 0;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) piece: Piece,
    /// Blocks that carry this content, plus entries whose parent it is.
    pub(super) refs: u32,
    /// Tokens from the beginning.
    pub(super) depth: u64,
    /// The blocks that carry it, oldest registration first.
    pub(super) copies: Ends,
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    nodes: Slots<Node>,
    /// Places in `nodes` that are not in use.
    spare: Vec<u32>,
    index: HashMap<(u32, Piece), u32, BuildHasherDefault<Mix>>,
}

impl Table {
    pub(super) fn new() -> Self {
        let piece = Piece { key: 0, offset: 0, len: 0 };
        let root = Node { parent: ROOT, piece, refs: 1, depth: 0, copies: Ends::EMPTY };
        Table { nodes: vec![root].into(), spare: Vec::new(), index: HashMap::default() }
    }

    pub(super) fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: u32) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// The prefix that goes on from `from` with the chain's next `tokens` tokens, if any block needs
    /// it. The cursor moves past what was found.
    pub(super) fn find(
        &self,
        from: u32,
        chain: &Chain,
        cursor: &mut Cursor,
        tokens: u32,
    ) -> Option<u32> {
        let (mut at, mut left) = (from, tokens);
        while left > 0 {
            let piece = chain.piece(cursor, left)?;
            at = *self.index.get(&(at, piece))?;
            left -= piece.len;
        }
        Some(at)
    }

    /// The same prefix, made if it is not there, with one more reference. `None` if the chain ends
    /// before.
    pub(super) fn intern(
        &mut self,
        from: u32,
        chain: &Chain,
        cursor: &mut Cursor,
        tokens: u32,
    ) -> Option<u32> {
        let (mut at, mut left) = (from, tokens);
        self.retain(at);
        while left > 0 {
            let Some(piece) = chain.piece(cursor, left) else {
                self.release(at);
                return None;
            };
            let child = self.child(at, piece);
            self.retain(child);
            self.release(at);
            at = child;
            left -= piece.len;
        }
        Some(at)
    }

    fn child(&mut self, parent: u32, piece: Piece) -> u32 {
        let place = match self.index.entry((parent, piece)) {
            Entry::Occupied(known) => return *known.get(),
            Entry::Vacant(place) => place,
        };
        let depth = self.nodes[parent as usize].depth + u64::from(piece.len);
        let node = Node { parent, piece, refs: 0, depth, copies: Ends::EMPTY };
        let id = match self.spare.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        place.insert(id);
        self.retain(parent);
        id
    }

    fn retain(&mut self, id: u32) {
        self.node_mut(id).refs += 1;
    }

    /// Takes one reference away; an entry without any goes, and its reference to its parent with it.
    pub(super) fn release(&mut self, id: u32) {
        let mut at = id;
        loop {
            let node = self.node_mut(at);
            node.refs -= 1;
            if node.refs > 0 {
                return;
            }
            let (parent, piece) = (node.parent, node.piece);
            self.index.remove(&(parent, piece));
            self.spare.push(at);
            at = parent;
        }
    }

    /// Entries that changed.
    #[cfg(debug_assertions)]
    pub(super) fn touched(&mut self) -> Vec<u32> {
        self.nodes.touched()
    }

    /// Entries there are, in use or not.
    pub(super) fn places(&self) -> usize {
        self.nodes.len()
    }

    /// The entries in use, the root among them.
    pub(super) fn live(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0..).zip(&self.nodes).filter(|(_, node)| node.refs > 0)
    }

    /// Whether the index knows the entry, and how many it knows.
    pub(super) fn indexed(&self, id: u32) -> bool {
        let node = self.node(id);
        self.index.get(&(node.parent, node.piece)) == Some(&id)
    }

    pub(super) fn indexed_count(&self) -> usize {
        self.index.len()
    }

    /// Whether the prefix `id` goes on from the prefix `from`.
    pub(super) fn extends(&self, id: u32, from: u32) -> bool {
        let mut at = id;
        while at != from {
            if at == ROOT || at == NONE {
                return false;
            }
            at = self.node(at).parent;
        }
        true
    }
}

/// A hasher for small fixed keys: multiply and fold, no seed, so that runs are alike everywhere. The
/// order of the map is never looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Mix(u64);

impl Mix {
    fn add(&mut self, word: u64) {
        // An odd constant with its bits spread evenly: the golden ratio's fraction.
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64).rotate_left(29);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0xff51_afd7_ed55_8ccd)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.add(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.add(u64::from(word) | 1 << 40);
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }
}
