//! The lists of blocks nobody uses, threaded through one flat array.
//!
//! A block without a reference is in exactly one of two lists, free or least-recently-used, so
//! one pair of links per block serves both, and every operation is a few stores.

/// No block.
pub(super) const NIL: u32 = u32::MAX;

/// Links of every block.
#[derive(Clone)]
pub(super) struct Links {
    prev: Vec<u32>,
    next: Vec<u32>,
}

/// A doubly linked list; blocks join at the back.
#[derive(Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
    pub(super) len: u32,
}

impl Links {
    pub(super) fn new(n: u32) -> Self {
        Self { prev: vec![NIL; n as usize], next: vec![NIL; n as usize] }
    }

    pub(super) fn next(&self, id: u32) -> u32 {
        self.next[id as usize]
    }
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NIL, tail: NIL, len: 0 };

    /// The block that joined first, [`NIL`] when empty.
    pub(super) fn front(&self) -> u32 {
        self.head
    }

    /// Whether a block is between two that say so, or at an end that does.
    pub(super) fn has(&self, links: &Links, id: u32) -> bool {
        let (prev, next) = (links.prev[id as usize], links.next[id as usize]);
        let before = if prev == NIL { self.head } else { links.next[prev as usize] };
        let behind = if next == NIL { self.tail } else { links.prev[next as usize] };
        (before, behind) == (id, id)
    }

    /// Whether a block is its first or its last.
    pub(super) fn ends_with(&self, id: u32) -> bool {
        self.head == id || self.tail == id
    }

    pub(super) fn push_front(&mut self, links: &mut Links, id: u32) {
        links.prev[id as usize] = NIL;
        links.next[id as usize] = self.head;
        if self.head == NIL {
            self.tail = id;
        } else {
            links.prev[self.head as usize] = id;
        }
        self.head = id;
        self.len += 1;
    }

    pub(super) fn push_back(&mut self, links: &mut Links, id: u32) {
        links.next[id as usize] = NIL;
        links.prev[id as usize] = self.tail;
        if self.tail == NIL {
            self.head = id;
        } else {
            links.next[self.tail as usize] = id;
        }
        self.tail = id;
        self.len += 1;
    }

    /// Takes `id`, which must be in this list, out of it.
    pub(super) fn remove(&mut self, links: &mut Links, id: u32) {
        let (prev, next) = (links.prev[id as usize], links.next[id as usize]);
        if prev == NIL {
            self.head = next;
        } else {
            links.next[prev as usize] = next;
        }
        if next == NIL {
            self.tail = prev;
        } else {
            links.prev[next as usize] = prev;
        }
        self.len -= 1;
    }

    pub(super) fn pop_front(&mut self, links: &mut Links) -> Option<u32> {
        let id = self.head;
        if id == NIL {
            return None;
        }
        self.remove(links, id);
        Some(id)
    }
}
