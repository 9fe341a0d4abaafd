//! Prefixes that stay after a hold.
//!
//! An entry belongs to a session, or to nobody: what a hold could not reuse of its own prefix is
//! dead, still takes room, and nobody can use it. Entries live in an arena; `lru` pools keep an
//! ordered index by (time of release, release number), the others judge every entry by keys that
//! may read anything, so an order could not be kept.

use std::collections::BTreeSet;

use crate::slots::Slots;

#[derive(Debug)]
pub(crate) struct Cache {
    /// Units in all entries, and those nobody can use or evict.
    pub(crate) total: f64,
    /// Units kept without an entry.
    pub(crate) anonymous: f64,
    entries: Slots<Entry>,
    free: Vec<u32>,
    count: usize,
    lru: Option<BTreeSet<(u64, u64, u32)>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) size: f64,
    /// Time of the release that made it.
    pub(crate) last: f64,
    /// Number of that release.
    pub(crate) release: u64,
    /// The live session whose prefix it is.
    pub(crate) owner: Option<u32>,
    /// Whose it was, for an owner that ended; dead entries have none.
    pub(crate) serial: Option<u64>,
    /// The owner's attributes when it ended or lost the entry, if the program can read them.
    pub(crate) attrs: Box<[f64]>,
    alive: bool,
}

impl Entry {
    pub(crate) fn new(size: f64, last: f64, release: u64) -> Self {
        Self { size, last, release, owner: None, serial: None, attrs: Box::default(), alive: true }
    }

    fn key(&self, at: u32) -> (u64, u64, u32) {
        (self.last.to_bits(), self.release, at)
    }
}

impl Cache {
    pub(crate) fn new(lru: bool) -> Self {
        Self {
            total: 0.0,
            anonymous: 0.0,
            entries: Slots::default(),
            free: Vec::new(),
            count: 0,
            lru: lru.then(BTreeSet::new),
        }
    }

    pub(crate) fn size(&self, at: u32) -> f64 {
        self.entries[at as usize].size
    }

    pub(crate) fn get(&self, at: u32) -> &Entry {
        &self.entries[at as usize]
    }

    /// For owner, serial and attributes, which no index depends on.
    pub(crate) fn get_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.entries[at as usize]
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> u32 {
        self.total += entry.size;
        self.count += 1;
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        let key = self.entries[at as usize].key(at);
        if let Some(lru) = &mut self.lru {
            lru.insert(key);
        }
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> Entry {
        let entry = std::mem::replace(&mut self.entries[at as usize], Entry::new(0.0, 0.0, 0));
        self.entries[at as usize].alive = false;
        if let Some(lru) = &mut self.lru {
            lru.remove(&entry.key(at));
        }
        self.free.push(at);
        self.count -= 1;
        self.take(entry.size);
        entry
    }

    /// Takes `units` off an entry that keeps more than that.
    pub(crate) fn shrink(&mut self, at: u32, units: f64) {
        self.entries[at as usize].size -= units;
        self.take(units);
    }

    /// Adds units that can neither be used nor evicted, as in a pool without a cap: they count,
    /// but need no entry, so that memory does not grow with the sessions that ever were.
    pub(crate) fn add_anonymous(&mut self, units: f64) {
        self.anonymous += units;
        self.total += units;
    }

    /// Without entries only anonymous units are left: rounding must not pile up.
    fn take(&mut self, units: f64) {
        self.total = if self.count == 0 { self.anonymous } else { (self.total - units).max(0.0) };
    }

    /// The least recently released entry of an `lru` cache.
    pub(crate) fn oldest(&self) -> Option<u32> {
        self.lru.as_ref()?.first().map(|(_, _, at)| *at)
    }

    /// Entries that changed and their sizes, none for those that are gone.
    #[cfg(debug_assertions)]
    pub(crate) fn touched(&mut self) -> Vec<(u32, Option<f64>)> {
        let touched = self.entries.touched();
        let size = |at: u32| {
            let entry = &self.entries[at as usize];
            entry.alive.then_some(entry.size)
        };
        touched.into_iter().map(|at| (at, size(at))).collect()
    }

    /// Every entry with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> + '_ {
        self.entries.iter().enumerate().filter(|(_, e)| e.alive).map(|(i, e)| (i as u32, e))
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, Entry};

    #[test]
    fn oldest_is_by_time_then_release_number() {
        let mut c = Cache::new(true);
        let b = c.insert(Entry::new(2.0, 1.0, 7));
        let a = c.insert(Entry::new(1.0, 1.0, 3));
        let z = c.insert(Entry::new(4.0, 0.5, 9));
        assert_eq!((c.oldest(), c.total), (Some(z), 7.0));
        c.remove(z);
        assert_eq!(c.oldest(), Some(a));
        c.shrink(a, 0.5);
        assert_eq!(c.remove(a).size, 0.5);
        assert_eq!((c.oldest(), c.total), (Some(b), 2.0));
        c.remove(b);
        assert_eq!((c.oldest(), c.total, c.iter().count()), (None, 0.0, 0));
    }
}
