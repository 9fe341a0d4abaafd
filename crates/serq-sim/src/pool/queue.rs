//! Who waits for admission.
//!
//! Order: preempted sessions, latest preemption first; then by keys, if the pool has some, else by
//! order of joining; equal keys in order of joining. Keys are those of the moment of joining, unless
//! the pool's are live: then the queue is in order of joining, and whoever admits from it selects.

use std::collections::VecDeque;

/// Who stands in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// A session that waits for admission.
    Session(u32),
    /// A session's booking, wherever the session is.
    Booking(u32),
}

impl Who {
    pub(crate) fn session(self) -> u32 {
        match self {
            Who::Session(s) | Who::Booking(s) => s,
        }
    }
}

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
    /// Who joined or left since the last look.
    #[cfg(debug_assertions)]
    moves: Vec<(Who, bool)>,
}

#[derive(Clone, Debug)]
struct Waiting {
    who: Who,
    /// `None` ahead of every key.
    keys: Option<Keys>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn head(&self) -> Option<Who> {
        self.waiting.front().map(|w| w.who)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Who> + '_ {
        self.waiting.iter().map(|w| w.who)
    }

    /// Joins at the end.
    pub(crate) fn join(&mut self, who: Who) {
        self.join_by(who, Keys::One(0.0));
    }

    /// Joins after all whose keys are equal or smaller.
    pub(crate) fn join_by(&mut self, who: Who, keys: Keys) {
        let at = self.waiting.partition_point(|w| w.keys.as_ref().is_none_or(|k| k.at_most(&keys)));
        self.waiting.insert(at, Waiting { who, keys: Some(keys) });
        #[cfg(debug_assertions)]
        self.moves.push((who, true));
    }

    /// Comes back ahead of everybody.
    pub(crate) fn rejoin(&mut self, who: Who) {
        self.waiting.push_front(Waiting { who, keys: None });
        #[cfg(debug_assertions)]
        self.moves.push((who, true));
    }

    /// Whether the first is ahead of every key.
    pub(crate) fn head_is_back(&self) -> bool {
        self.waiting.front().is_some_and(|w| w.keys.is_none())
    }

    pub(crate) fn remove(&mut self, who: Who) {
        #[cfg(debug_assertions)]
        let before = self.len();
        if self.head() == Some(who) {
            self.waiting.pop_front();
        } else {
            self.waiting.retain(|w| w.who != who);
        }
        #[cfg(debug_assertions)]
        self.moves.extend((self.len()..before).map(|_| (who, false)));
    }

    /// Who joined (true) or left, in order, since the last call.
    #[cfg(debug_assertions)]
    pub(crate) fn moves(&mut self) -> Vec<(Who, bool)> {
        std::mem::take(&mut self.moves)
    }
}

#[cfg(test)]
mod tests {
    use super::{Keys, Queue, Who};

    fn order(q: &Queue) -> Vec<u32> {
        q.iter().map(Who::session).collect()
    }

    #[test]
    fn order_is_preempted_then_key_then_joining() {
        let mut q = Queue::default();
        for (session, key) in [(0, 2.0), (1, 1.0), (2, 2.0), (3, 1.0), (4, f64::INFINITY)] {
            q.join_by(Who::Session(session), Keys::One(key));
        }
        q.rejoin(Who::Session(5));
        q.rejoin(Who::Session(6));
        q.join_by(Who::Session(7), Keys::One(f64::NEG_INFINITY));
        assert_eq!(order(&q), [6, 5, 7, 1, 3, 0, 2, 4]);
        q.remove(Who::Session(1));
        q.remove(Who::Session(6));
        assert_eq!((q.head(), q.len()), (Some(Who::Session(5)), 6));
        let mut q = Queue::default();
        (0..3).for_each(|s| q.join(Who::Session(s)));
        assert_eq!(order(&q), [0, 1, 2]);
        let mut q = Queue::default();
        for (session, keys) in [(0, [2.0, 1.0]), (1, [1.0, 9.0]), (2, [2.0, 0.0]), (3, [1.0, 9.0])]
        {
            q.join_by(Who::Session(session), Keys::new(&keys));
        }
        assert_eq!(order(&q), [1, 3, 2, 0]);
    }
}
