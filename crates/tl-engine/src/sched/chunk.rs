//! How much of a prompt goes into one step.
//!
//! A long prompt in one piece would stall every stream that decodes beside it, so prompts are
//! computed in chunks. The chunk decides only how long a step takes: the arithmetic has one order,
//! so every chunking of a prompt leaves the same bits in the pool and the same logits.

/// The most prompt tokens one request gets per step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunked {
    pub chunk: usize,
}

impl Chunked {
    /// The grant for a request with `remaining` tokens to compute and `budget` rows left in the
    /// step.
    pub fn chunk_len(self, remaining: usize, budget: usize) -> usize {
        remaining.min(self.chunk.max(1)).min(budget)
    }

    /// The `(start, len)` pieces of a prompt of `n` tokens when nothing else limits them.
    pub fn split(self, n: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let len = self.chunk_len(n - start, usize::MAX);
            let piece = (len > 0).then_some((start, len));
            start += len;
            piece
        })
    }
}
