//! Equal prompts that arrive together.
//!
//! The choices of one request, or many requests with one system prompt, arrive together. What they
//! share is computed once: a request whose next blocks a running request of higher rank is about to
//! compute is admitted when they are there, as a prefix hit. It keeps its place in the meantime:
//! its slot and its blocks are set aside from those behind it. It waits for a request that is in
//! every step as long as anything is admitted at all, so it waits for a few steps and never for
//! ever.

use super::{Rank, Scheduler};

/// What requests that wait for an equal prompt will take: those behind them leave it alone.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    pub(super) slots: usize,
    pub(super) blocks: usize,
}

impl SetAside {
    pub(super) fn add(&mut self, blocks: usize) {
        self.slots += 1;
        self.blocks += blocks;
    }
}

impl Scheduler {
    /// Whether a running request of higher rank is about to compute leading blocks that a waiting
    /// one could then share. The last token is computed in any case.
    pub(super) fn waits_for_equal(&self, rank: Rank) -> bool {
        let Some(seq) = self.waiting.get(&rank) else { return false };
        if seq.table.is_some() || !self.blocks.prefix_cache() {
            return false;
        }
        let b = self.blocks.block_tokens();
        let shareable = &seq.tokens[..(seq.tokens.len() - 1) / b * b];
        self.running.range(..rank).any(|(_, other)| {
            let equal = || other.tokens.iter().zip(shareable).take_while(|(x, y)| x == y).count();
            !other.decoding()
                && other.computed < shareable.len()
                && other.computed < equal() / b * b
        })
    }
}
