//! One request as the scheduler sees it: a sequence of tokens, how far it is computed, and the
//! blocks that hold the computed part.

use std::time::Instant;

use super::blocks::Table;
use super::rank::Rank;

/// Names a request within one scheduler; given in order of arrival and never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub(super) u64);

/// Why a request came to its proper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A stop id was sampled.
    Stop,
    /// `max_new_tokens`, or the end of the context.
    Length,
}

/// What `add` takes.
#[derive(Debug)]
pub struct NewSeq {
    pub prompt: Vec<u32>,
    pub max_new_tokens: usize,
    pub priority: i32,
    pub deadline: Option<Instant>,
    /// End after the first token and give the prompt's blocks out.
    pub hand_over: bool,
    pub origin: Origin,
}

/// Where the KV of a new request's prompt is.
#[derive(Debug)]
pub enum Origin {
    /// Nowhere yet.
    Here,
    /// In these blocks, computed elsewhere, with the token sampled there if it is known.
    Elsewhere { table: Table, first: Option<u32> },
}

#[derive(Debug)]
pub(super) struct Seq {
    pub(super) id: SeqId,
    pub(super) rank: Rank,
    /// Prompt, then what was sampled.
    pub(super) tokens: Vec<u32>,
    pub(super) prompt_len: usize,
    pub(super) max_new: usize,
    /// Positions `0..computed` have their KV in `table`.
    pub(super) computed: usize,
    /// Hashes of the leading full blocks of `tokens`, as far as they were needed.
    pub(super) chain: Vec<u64>,
    pub(super) table: Option<Table>,
    pub(super) hand_over: bool,
    pub(super) resumed: bool,
    /// Prompt tokens the prefix cache had at the first admission; `None` before it.
    pub(super) admitted: Option<usize>,
    pub(super) deadline: Option<Instant>,
    /// Since when it waits, while it waits.
    pub(super) waiting_since: Instant,
    /// The last step that has a row of this request.
    pub(super) scheduled: u64,
}

impl Seq {
    pub(super) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// One token short of being computed: the newest one, whose logits give the next.
    pub(super) fn decoding(&self) -> bool {
        self.remaining() == 1
    }

    pub(super) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Gives the blocks back; everything is computed again later. The tokens stay, and whatever
    /// sampler state the caller keeps: no draw is repeated.
    pub(super) fn give_up(&mut self, now: Instant) {
        self.table = None;
        self.computed = 0;
        self.waiting_since = now;
    }
}
