//! Handles that ended, remembered for a while and up to a number.
//!
//! Two uses: a late claim is told how its handle ended, and an attempt that does not yet know it
//! is over cannot begin again.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use super::handle::End;

#[derive(Clone, Copy)]
pub(super) struct Tomb {
    pub(super) end: End,
    until: u64,
    /// The attempt, or one still to come, may not know that it is over.
    pub(super) in_flight: bool,
}

#[derive(Clone)]
pub(super) struct Tombs {
    by_handle: HashMap<String, Tomb>,
    /// Oldest first; a handle that ended again has a place for each end.
    order: VecDeque<(u64, String)>,
    keep_ms: u64,
    max: usize,
}

impl Tombs {
    pub(super) fn new(keep_ms: u64, max: usize) -> Self {
        Self { by_handle: HashMap::new(), order: VecDeque::new(), keep_ms, max }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// What is remembered of the handles that `knows` names, oldest first, with the time it has
    /// left.
    pub(super) fn state(&self, now: u64, out: &mut impl Hasher, knows: impl Fn(&str) -> bool) {
        for (until, handle) in self.order.iter().filter(|(_, handle)| knows(handle)) {
            let tomb = self.by_handle.get(handle).filter(|tomb| tomb.until == *until);
            if let Some(tomb) = tomb {
                (until.saturating_sub(now), handle, tomb.end, tomb.in_flight).hash(out);
            }
        }
        0xFFu8.hash(out);
    }

    /// Whether one of the handles that `knows` names is remembered beyond `now`.
    pub(super) fn any(&self, now: u64, knows: impl Fn(&str) -> bool) -> bool {
        self.order.iter().any(|(until, handle)| *until > now && knows(handle))
    }

    pub(super) fn get(&self, handle: &str) -> Option<&Tomb> {
        self.by_handle.get(handle)
    }

    pub(super) fn bury(&mut self, handle: String, end: End, in_flight: bool, now: u64) {
        let until = now.saturating_add(self.keep_ms);
        self.by_handle.insert(handle.clone(), Tomb { end, until, in_flight });
        self.order.push_back((until, handle));
        self.prune(now);
    }

    /// Forgets what is too old or too much.
    pub(super) fn prune(&mut self, now: u64) {
        while let Some((until, _)) = self.order.front() {
            if *until > now && self.order.len() <= self.max {
                break;
            }
            let Some((until, handle)) = self.order.pop_front() else {
                break;
            };
            if self.by_handle.get(&handle).is_some_and(|tomb| tomb.until == until) {
                self.by_handle.remove(&handle);
            }
        }
    }
}
