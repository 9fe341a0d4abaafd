//! Which ways from a prefill to a decode engine fail, though both engines work.
//!
//! A push that does not arrive says nothing about its decode engine, which may well serve whole
//! what nobody can hand to it, and nothing about the other ways of its prefill engine. So a way
//! has a [`Breaker`] of its own. Kept are only ways that failed since they last worked.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Slot;
use super::breaker::Breaker;

/// Breakers by `(prefill, decode)`. A way that is not in here works.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Links(BTreeMap<(Slot, Slot), Breaker>);

impl Links {
    /// Whether a hand-off may be tried there now.
    pub fn admits(&self, now: Instant, prefill: Slot, decode: Slot) -> bool {
        self.0.get(&(prefill, decode)).is_none_or(|breaker| breaker.admits(now))
    }

    /// A hand-off has been sent there.
    pub fn entered(&mut self, now: Instant, prefill: Slot, decode: Slot) {
        if let Some(breaker) = self.0.get_mut(&(prefill, decode)) {
            breaker.entered(now);
        }
    }

    /// A hand-off arrived.
    pub fn succeeded(&mut self, prefill: Slot, decode: Slot) {
        self.0.remove(&(prefill, decode));
    }

    /// A hand-off broke. Says whether the way left rotation by this.
    pub fn failed(&mut self, now: Instant, prefill: Slot, decode: Slot) -> bool {
        self.0.entry((prefill, decode)).or_default().failed(now)
    }

    /// Forgets the ways of whoever `lives` does not know.
    pub fn keep_only(&mut self, lives: impl Fn(Slot) -> bool) {
        self.0.retain(|(prefill, decode), _| lives(*prefill) && lives(*decode));
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
