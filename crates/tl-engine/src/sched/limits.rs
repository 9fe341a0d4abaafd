//! What could never run is refused on arrival.
//!
//! Apart from the scheduler, so that whoever submits is answered at once, before anything is
//! queued.

use super::Blocks;
use crate::engine::Refused;

/// What a request must fit into.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Positions the model can address.
    pub max_positions: usize,
    pub kv_blocks: usize,
    pub block_tokens: usize,
}

impl Limits {
    /// `max_positions` is the model's; the pool gives the rest.
    pub fn new(blocks: &Blocks, max_positions: usize) -> Limits {
        Limits {
            max_positions,
            kv_blocks: blocks.total_blocks(),
            block_tokens: blocks.block_tokens(),
        }
    }

    /// The longest sequence, prompt and answer together.
    pub fn context(&self) -> usize {
        self.max_positions.min(self.kv_blocks * self.block_tokens)
    }

    /// The most tokens an answer to a prompt that passed `check` can have. What is handed over
    /// grows in another pool, so only the model limits it.
    pub(super) fn room(&self, prompt: usize, hand_over: bool) -> usize {
        let context = if hand_over { self.max_positions } else { self.context() };
        context - prompt
    }

    /// Refuses what could never run: no tokens, no position left for an answer, or more blocks than
    /// there are. An answer that is too long is no reason, it ends where the context does. A prompt
    /// that is handed over after its first token needs room for itself alone.
    pub fn check(
        &self,
        prompt: usize,
        max_new_tokens: usize,
        hand_over: bool,
    ) -> Result<(), Refused> {
        if prompt == 0 {
            return Err(Refused::Empty);
        }
        if max_new_tokens == 0 {
            return Err(Refused::NoNewTokens);
        }
        if prompt >= self.max_positions {
            return Err(Refused::TooLong { prompt, context: self.max_positions });
        }
        let least = if hand_over { prompt } else { prompt + 1 };
        let blocks = least.div_ceil(self.block_tokens);
        if blocks > self.kv_blocks {
            return Err(Refused::NeverFits { blocks, pool: self.kv_blocks });
        }
        Ok(())
    }
}
