//! Pending events, in order of time, then of scheduling.
//!
//! A quaternary heap in one vector. Times are never negative, so the bits of an `f64` order like
//! the number, and (time, sequence number) is one 128-bit key: no float comparison, no ties left.
//! Events that lost their meaning (a job preempted, a capacity changed) stay and are recognised
//! by an epoch when they come up, which is cheaper than finding them.
//!
//! What comes up mostly schedules something itself. So the place of the smallest stays open when it is taken, and what
//! is pushed next goes in there and sinks: half the way of filling it from the bottom first.

/// A heap of `T` ordered by a non-negative number, then by insertion sequence number.
#[derive(Debug)]
pub(crate) struct Heap<T> {
    items: Vec<(u128, T)>,
    /// Whether the first was taken: it is still there, and not in the heap.
    open: bool,
}

const ARITY: usize = 4;

impl<T: Copy> Heap<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), open: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.len() == usize::from(self.open)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.items.len() - usize::from(self.open)
    }

    /// The smallest.
    #[inline]
    fn first(&self) -> Option<&(u128, T)> {
        if !self.open {
            return self.items.first();
        }
        let children = self.items.get(1..)?;
        children.iter().take(ARITY).min_by_key(|(key, _)| *key)
    }

    /// Smallest key's number.
    #[inline]
    pub(crate) fn next(&self) -> Option<f64> {
        self.first().map(|(key, _)| number(*key))
    }

    /// The same, and the place of what was taken is filled.
    #[inline(always)]
    pub(crate) fn due(&mut self) -> Option<f64> {
        self.close();
        self.items.first().map(|(key, _)| number(*key))
    }

    /// All of them with their numbers, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (f64, T)> + '_ {
        let taken = usize::from(self.open);
        self.items.iter().skip(taken).map(|(key, item)| (number(*key), *item))
    }

    pub(crate) fn peek(&self) -> Option<(f64, T)> {
        self.first().map(|(key, item)| (number(*key), *item))
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, at: f64, seq: u64, item: T) {
        debug_assert!(at >= 0.0, "times and tags are not negative: {at}");
        // `-0.0` passes the check and would sort last.
        let key = (u128::from((at + 0.0).to_bits()) << 64) | u128::from(seq);
        if std::mem::replace(&mut self.open, false) {
            return self.sink(0, (key, item));
        }
        let mut hole = self.items.len();
        self.items.push((key, item));
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.items[parent].0 <= key {
                break;
            }
            self.items[hole] = self.items[parent];
            hole = parent;
        }
        self.items[hole] = (key, item);
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<(f64, T)> {
        self.close();
        let top = *self.items.first()?;
        self.open = true;
        Some((number(top.0), top.1))
    }

    /// Fills the open place from the bottom.
    #[inline(always)]
    fn close(&mut self) {
        if std::mem::replace(&mut self.open, false)
            && let Some(last) = self.items.pop()
            && !self.items.is_empty()
        {
            self.sink(0, last);
        }
    }

    #[inline]
    fn sink(&mut self, mut hole: usize, item: (u128, T)) {
        let len = self.items.len();
        loop {
            let first = hole * ARITY + 1;
            if first >= len {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + ARITY).min(len) {
                if self.items[child].0 < self.items[least].0 {
                    least = child;
                }
            }
            if self.items[least].0 >= item.0 {
                break;
            }
            self.items[hole] = self.items[least];
            hole = least;
        }
        self.items[hole] = item;
    }

    /// Removes the items that do not satisfy `keep`.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.close();
        let mut old = std::mem::take(&mut self.items);
        old.retain(|(_, item)| keep(item));
        old.sort_unstable_by_key(|(key, _)| *key);
        self.items = old;
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.open = false;
    }
}

fn number(key: u128) -> f64 {
    f64::from_bits((key >> 64) as u64)
}

/// What happens at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The next session comes.
    Arrive,
    /// A job of a fifo or delay stage ends; stale if the job's epoch differs.
    Finish { job: u32, epoch: u32 },
    /// The next job of a ps stage ends; stale if the stage's epoch differs.
    Shared { stage: u32, epoch: u32 },
    /// A flow ends; stale if the epoch of the flows differs.
    Flow { job: u32, epoch: u32 },
    /// A step stage's iteration ends.
    IterEnd { stage: u32 },
    /// A lease's bound; stale if the session or the lease is gone.
    LeaseEnd { session: u32, lease: u64 },
    /// A session's deadline; stale if the frame was left. After every other event of its instant.
    Deadline { session: u32, frame: u64 },
    /// A session given as data comes.
    Come { number: u32 },
    /// Measurements start.
    EndWarmup,
}

#[cfg(test)]
mod tests {
    use super::Heap;
    use proptest::prelude::*;

    proptest! {
        /// Against a sorted list: the smallest comes out first, equal times in order of insertion.
        #[test]
        fn pops_in_order(steps in prop::collection::vec((0u8..4, 0u8..20), 0..300)) {
            let (mut heap, mut model, mut seq) = (Heap::new(), Vec::new(), 0u64);
            for (what, at) in steps {
                if what == 0 {
                    let expected = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(heap.pop(), expected);
                } else if what == 1 {
                    heap.retain(|x: &u64| x % 3 != 0);
                    model.retain(|(_, x)| x % 3 != 0);
                } else {
                    heap.push(f64::from(at), seq, seq);
                    model.push((f64::from(at), seq));
                    seq += 1;
                }
                let mut all: Vec<_> = heap.iter().collect();
                all.sort_by(|a, b| a.partial_cmp(b).unwrap());
                model.sort_by(|a: &(f64, u64), b| a.partial_cmp(b).unwrap());
                prop_assert_eq!(&all, &model);
                let first = model.first().copied();
                prop_assert_eq!((heap.peek(), heap.next()), (first, first.map(|f| f.0)));
                prop_assert_eq!((heap.len(), heap.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
