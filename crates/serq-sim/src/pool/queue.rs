//! Who waits for admission.
//!
//! Order: preempted sessions, latest preemption first; then by keys, if the pool has some, else by
//! order of joining; equal keys in order of joining. Keys are those of the moment of joining, unless
//! the pool's are live: then the queue is in order of joining, and whoever admits from it selects.

use std::collections::VecDeque;

/// Keys of a session; without any, or with one, nothing is allocated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Keys {
    One(f64),
    Many(Box<[f64]>),
}

impl Keys {
    pub(crate) fn new(keys: &[f64]) -> Self {
        match keys {
            [] => Keys::One(0.0),
            [key] => Keys::One(*key),
            _ => Keys::Many(keys.into()),
        }
    }

    fn all(&self) -> &[f64] {
        match self {
            Keys::One(key) => std::slice::from_ref(key),
            Keys::Many(keys) => keys,
        }
    }

    /// Whether these come first, or neither do.
    fn at_most(&self, other: &Keys) -> bool {
        // Keys are numbers: one list compares with another.
        self.all().partial_cmp(other.all()).is_some_and(std::cmp::Ordering::is_le)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Debug)]
struct Waiting {
    session: u32,
    /// `None` ahead of every key.
    keys: Option<Keys>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn head(&self) -> Option<u32> {
        self.waiting.front().map(|w| w.session)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiting.iter().map(|w| w.session)
    }

    /// Joins at the end.
    pub(crate) fn join(&mut self, session: u32) {
        self.join_by(session, Keys::One(0.0));
    }

    /// Joins after all whose keys are equal or smaller.
    pub(crate) fn join_by(&mut self, session: u32, keys: Keys) {
        let at = self.waiting.partition_point(|w| w.keys.as_ref().is_none_or(|k| k.at_most(&keys)));
        self.waiting.insert(at, Waiting { session, keys: Some(keys) });
    }

    /// Comes back ahead of everybody.
    pub(crate) fn rejoin(&mut self, session: u32) {
        self.waiting.push_front(Waiting { session, keys: None });
    }

    /// Whether the first is ahead of every key.
    pub(crate) fn head_is_back(&self) -> bool {
        self.waiting.front().is_some_and(|w| w.keys.is_none())
    }

    pub(crate) fn remove(&mut self, session: u32) {
        if self.head() == Some(session) {
            self.waiting.pop_front();
        } else {
            self.waiting.retain(|w| w.session != session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Keys, Queue};

    #[test]
    fn order_is_preempted_then_key_then_joining() {
        let mut q = Queue::default();
        for (session, key) in [(0, 2.0), (1, 1.0), (2, 2.0), (3, 1.0), (4, f64::INFINITY)] {
            q.join_by(session, Keys::One(key));
        }
        q.rejoin(5);
        q.rejoin(6);
        q.join_by(7, Keys::One(f64::NEG_INFINITY));
        assert_eq!(q.iter().collect::<Vec<_>>(), [6, 5, 7, 1, 3, 0, 2, 4]);
        q.remove(1);
        q.remove(6);
        assert_eq!((q.head(), q.len()), (Some(5), 6));
        let mut q = Queue::default();
        (0..3).for_each(|s| q.join(s));
        assert_eq!(q.iter().collect::<Vec<_>>(), [0, 1, 2]);
        let mut q = Queue::default();
        for (session, keys) in [(0, [2.0, 1.0]), (1, [1.0, 9.0]), (2, [2.0, 0.0]), (3, [1.0, 9.0])]
        {
            q.join_by(session, Keys::new(&keys));
        }
        assert_eq!(q.iter().collect::<Vec<_>>(), [1, 3, 2, 0]);
    }
}
