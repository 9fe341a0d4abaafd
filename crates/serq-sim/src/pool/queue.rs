//! Who waits for admission.
//!
//! Order: preempted sessions, latest preemption first; then by key, if the pool has one, else by
//! order of joining; equal keys in order of joining. Keys are those of the moment of joining.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    session: u32,
    /// `None` ahead of every key.
    key: Option<f64>,
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
        self.join_by(session, 0.0);
    }

    /// Joins after every equal or smaller key.
    pub(crate) fn join_by(&mut self, session: u32, key: f64) {
        let at = self.waiting.partition_point(|w| w.key.is_none_or(|k| k <= key));
        self.waiting.insert(at, Waiting { session, key: Some(key) });
    }

    /// Comes back ahead of everybody.
    pub(crate) fn rejoin(&mut self, session: u32) {
        self.waiting.push_front(Waiting { session, key: None });
    }

    pub(crate) fn pop(&mut self) {
        self.waiting.pop_front();
    }

    pub(crate) fn remove(&mut self, session: u32) {
        self.waiting.retain(|w| w.session != session);
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;

    #[test]
    fn order_is_preempted_then_key_then_joining() {
        let mut q = Queue::default();
        for (session, key) in [(0, 2.0), (1, 1.0), (2, 2.0), (3, 1.0), (4, f64::INFINITY)] {
            q.join_by(session, key);
        }
        q.rejoin(5);
        q.rejoin(6);
        q.join_by(7, f64::NEG_INFINITY);
        assert_eq!(q.iter().collect::<Vec<_>>(), [6, 5, 7, 1, 3, 0, 2, 4]);
        q.remove(1);
        q.pop();
        assert_eq!((q.head(), q.len()), (Some(5), 6));
        let mut q = Queue::default();
        (0..3).for_each(|s| q.join(s));
        assert_eq!(q.iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
