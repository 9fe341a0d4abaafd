//! Who needs a look when an instant settles, so that the others cost nothing.
//!
//! A pool is on the list from the moment somebody waits in it for what no stage serves; a stage from the
//! moment it could start an iteration or its population changed. Whoever looks takes those off that
//! turned out to need none. Debug builds check that nobody is missing.

use super::Engine;
use crate::pool::Pool;
use crate::stage::Kind;

/// Small numbers, visited in order.
#[derive(Debug, Default)]
pub(crate) struct Set(Vec<u64>);

impl Set {
    pub(crate) fn insert(&mut self, k: u32) {
        let word = (k / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (k % 64);
    }

    pub(crate) fn remove(&mut self, k: u32) {
        if let Some(word) = self.0.get_mut((k / 64) as usize) {
            *word &= !(1 << (k % 64));
        }
    }

    /// The smallest from `from` on.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let first = (from / 64) as usize;
        let mut mask = u64::MAX << (from % 64);
        for (i, word) in self.0.iter().enumerate().skip(first) {
            let left = word & mask;
            if left != 0 {
                return Some(i as u32 * 64 + left.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let after = |k: &u32| k.checked_add(1).and_then(|from| self.next(from));
        std::iter::successors(self.next(0), after)
    }
}

impl Engine<'_> {
    /// Somebody joined a pool's queue.
    pub(crate) fn alert_queue(&mut self, p: u32) {
        match self.c.pools[p as usize].admit_via {
            Some(stage) => self.alert_stages.insert(stage),
            None => self.alert_pools.insert(p),
        }
    }

    /// Whether growths of a pool wait, or a queue of its own.
    pub(super) fn pool_waits(&self, p: u32) -> bool {
        let pool: &Pool = &self.w.pools[p as usize];
        let own = self.c.pools[p as usize].admit_via.is_none();
        !pool.growers.is_empty() || (own && pool.queue.len() > 0)
    }

    /// Whether an idle engine could start, or a ps stage needs a new rate.
    pub(super) fn stage_waits(&self, stage: u32) -> bool {
        self.is_dirty(stage) || self.can_iterate(stage)
    }

    pub(super) fn is_dirty(&self, stage: u32) -> bool {
        matches!(&self.w.stages[stage as usize].kind, Kind::Ps(ps) if ps.dirty)
    }

    /// Nobody who needs a look is missing.
    #[cfg(debug_assertions)]
    pub(super) fn check_alert(&self) {
        for p in 0..self.w.pools.len() as u32 {
            debug_assert!(!self.pool_waits(p) || self.alert_pools.next(p) == Some(p), "pool {p}");
        }
        for s in 0..self.w.stages.len() as u32 {
            debug_assert!(
                !self.stage_waits(s) || self.alert_stages.next(s) == Some(s),
                "stage {s}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Set;
    use proptest::prelude::*;

    proptest! {
        /// Against the standard library's ordered set.
        #[test]
        fn a_set_is_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..200), 0..100), from in 0u32..220) {
            let (mut set, mut model) = (Set::default(), std::collections::BTreeSet::new());
            for (inserts, k) in steps {
                if inserts {
                    set.insert(k);
                    model.insert(k);
                } else {
                    set.remove(k);
                    model.remove(&k);
                }
            }
            prop_assert_eq!(set.next(from), model.range(from..).next().copied());
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert!(set.iter().eq(model.iter().copied()));
        }
    }
}
