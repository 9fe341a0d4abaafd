//! The sending side of one push: ask, push what is missing, and once more if the answer was stale.
//!
//! Between "do you have it" and "take a reference to it" the receiver may evict a block. It then
//! answers `NotFound`, and the whole push is repeated once with every payload, on a new stream.
//! A second `NotFound` cannot happen to such a push and is a failure.

use crate::error::Code;

/// How one block travels, in prompt order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSend {
    /// Contents and name.
    Send {
        /// Name of the block.
        hash: u64,
    },
    /// Name only: the receiver has it.
    Dedup {
        /// Name of the block.
        hash: u64,
    },
    /// Contents only: a partial block has no name.
    Tail,
}

impl BlockSend {
    /// The hash a chunk carries, 0 for the tail.
    pub fn hash(self) -> u64 {
        match self {
            Self::Send { hash } | Self::Dedup { hash } => hash,
            Self::Tail => 0,
        }
    }

    /// Whether the chunk carries contents.
    pub fn has_payload(self) -> bool {
        !matches!(self, Self::Dedup { .. })
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendFact {
    /// The receiver said which of the named blocks it has.
    Present(Vec<bool>),
    /// Asking failed.
    AskFailed(Code),
    /// The receiver took everything.
    Acked {
        /// Key it holds the blocks under.
        handle_id: String,
        /// Chunks with contents it counted.
        received: u32,
        /// Chunks without it counted.
        deduped: u32,
    },
    /// The push failed.
    PushFailed(Code),
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendAction {
    /// Ask the receiver which of the plan's named blocks ([`SendPlan::hashes`]) it has.
    Ask,
    /// Push these blocks on a new stream.
    Push(Vec<BlockSend>),
    /// Finished: drop the references.
    Done(SendStats),
    /// Failed: drop the references and report this.
    Fail {
        /// What to report upwards.
        code: Code,
        /// What went wrong.
        reason: &'static str,
    },
    /// A fact that came after the end.
    Nothing,
}

/// What the push that succeeded moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendStats {
    /// Chunks, one per block.
    pub chunks: u32,
    /// Chunks with contents.
    pub sent: u32,
    /// Chunks without.
    pub deduped: u32,
    /// Streams opened: 2 after a stale answer.
    pub pushes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    New,
    Asking,
    Pushing { stats: SendStats },
    Ended,
}

/// One transfer as its sender sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SendPlan {
    handle_id: String,
    n_blocks: usize,
    hashes: Vec<u64>,
    phase: Phase,
}

impl SendPlan {
    /// A transfer of `n_blocks` blocks of which the first `hashes.len()` are named; a 0 among
    /// them is a block without a name.
    pub fn new(handle_id: impl Into<String>, n_blocks: usize, hashes: Vec<u64>) -> Self {
        Self { handle_id: handle_id.into(), n_blocks, hashes, phase: Phase::New }
    }

    /// Names of the leading blocks.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The first thing to do. Nothing is asked about no blocks.
    pub fn start(&mut self) -> SendAction {
        if self.phase != Phase::New {
            return SendAction::Nothing;
        }
        if self.n_blocks == 0 || self.hashes.len() > self.n_blocks || self.handle_id.is_empty() {
            return self.fail(
                Code::Internal,
                "a transfer needs a handle id, a block, and no more names than blocks",
            );
        }
        if self.hashes.is_empty() {
            return self.push(&[], 1);
        }
        self.phase = Phase::Asking;
        SendAction::Ask
    }

    /// Takes a fact and says what to do.
    pub fn step(&mut self, fact: &SendFact) -> SendAction {
        match (self.phase, fact) {
            (Phase::Ended, _) => SendAction::Nothing,
            (Phase::Asking, SendFact::Present(present)) => {
                if present.len() != self.hashes.len() {
                    return self
                        .fail(Code::Internal, "HasBlocks answered for another number of blocks");
                }
                self.push(present, 1)
            }
            (Phase::Asking, SendFact::AskFailed(code)) => {
                self.fail(code.as_transfer_failure(), "HasBlocks failed")
            }
            (Phase::Pushing { stats }, SendFact::PushFailed(Code::NotFound))
                if stats.pushes == 1 && stats.deduped > 0 =>
            {
                self.push(&[], 2)
            }
            (Phase::Pushing { .. }, SendFact::PushFailed(code)) => {
                self.fail(code.as_transfer_failure(), "PushKv failed")
            }
            (Phase::Pushing { stats }, SendFact::Acked { handle_id, received, deduped }) => {
                if (handle_id, *received, *deduped) != (&self.handle_id, stats.sent, stats.deduped)
                {
                    return self.fail(Code::Internal, "the ack counts other blocks than were sent");
                }
                self.phase = Phase::Ended;
                SendAction::Done(stats)
            }
            _ => self.fail(Code::Internal, "an answer to a question that was not asked"),
        }
    }

    fn push(&mut self, present: &[bool], pushes: u32) -> SendAction {
        let blocks: Vec<BlockSend> = (0..self.n_blocks)
            .map(|i| match self.hashes.get(i).copied() {
                None | Some(0) => BlockSend::Tail,
                Some(hash) if present.get(i) == Some(&true) => BlockSend::Dedup { hash },
                Some(hash) => BlockSend::Send { hash },
            })
            .collect();
        let chunks = blocks.len() as u32;
        let sent = blocks.iter().filter(|b| b.has_payload()).count() as u32;
        let stats = SendStats { chunks, sent, deduped: chunks - sent, pushes };
        self.phase = Phase::Pushing { stats };
        SendAction::Push(blocks)
    }

    fn fail(&mut self, code: Code, reason: &'static str) -> SendAction {
        self.phase = Phase::Ended;
        SendAction::Fail { code, reason }
    }
}
