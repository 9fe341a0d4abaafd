//! Why a request was not taken, and why one that was taken ended without an answer.
//!
//! The two are apart because they are answered differently: a refusal has cost nothing and is a
//! status line; a failure may come in the middle of a stream.

use crate::sample::SampleError;

/// `submit` did not take the request. Nothing was queued; blocks it brought were given back.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
    /// As many requests wait as the queue takes. Try again later.
    #[error("the queue is full ({capacity} requests wait)")]
    Full { capacity: usize },
    #[error("the prompt has no tokens")]
    Empty,
    /// There is no position left for even one new token.
    #[error("a prompt of {prompt} tokens leaves no room for an answer in a context of {context}")]
    TooLong { prompt: usize, context: usize },
    /// The pool would be too small for the prompt and one new token if it were empty.
    #[error("the request needs {blocks} KV blocks and the pool has {pool}")]
    NeverFits { blocks: usize, pool: usize },
    #[error("max_new_tokens must be at least 1")]
    NoNewTokens,
    #[error("token {token} is outside the vocabulary of {vocab}")]
    UnknownToken { token: u32, vocab: usize },
    #[error("{0}")]
    Sampling(SampleError),
    /// The blocks brought along do not cover the prompt.
    #[error("{got} KV blocks for a prompt of {prompt} tokens, which needs {want}")]
    WrongBlocks { got: usize, want: usize, prompt: usize },
    /// Blocks that were computed for other tokens, or are not as full as the prompt makes them.
    #[error("KV block {index} does not hold this prompt")]
    ForeignBlock { index: usize },
    /// A resumed request must go on where another engine stopped, which is after the first token.
    #[error("a resumed request cannot end at its first token")]
    ResumeForFirstToken,
    #[error("the engine is draining and takes no new requests")]
    Draining,
    #[error("the engine has stopped")]
    Stopped,
}

impl Refused {
    /// A short stable name, for metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Refused::Full { .. } => "full",
            Refused::Empty => "empty",
            Refused::TooLong { .. } => "too_long",
            Refused::NeverFits { .. } => "never_fits",
            Refused::NoNewTokens => "no_new_tokens",
            Refused::UnknownToken { .. } => "unknown_token",
            Refused::Sampling(_) => "sampling",
            Refused::WrongBlocks { .. } => "wrong_blocks",
            Refused::ForeignBlock { .. } => "foreign_block",
            Refused::ResumeForFirstToken => "resume_for_first_token",
            Refused::Draining => "draining",
            Refused::Stopped => "stopped",
        }
    }
}

/// The engine could not start, or a request it had taken ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A configuration no engine can run with.
    #[error("engine configuration: {0}")]
    Config(String),
    #[error("engine thread could not be started: {0}")]
    Spawn(String),
    /// `cancel`, or the generation was dropped.
    #[error("the request was cancelled")]
    Cancelled,
    /// No KV blocks or no place in the batch before `queue_deadline`.
    #[error("no capacity within {waited_ms} ms")]
    QueueTimeout { waited_ms: u64 },
    #[error("the request's deadline has passed")]
    DeadlineExceeded,
    /// The drain's deadline came before the request ended.
    #[error("the engine is draining and the request did not end in time")]
    Drained,
    /// The step this request was part of failed.
    #[error("the forward pass failed: {0}")]
    Step(String),
    /// The backend panicked in the step this request was part of.
    #[error("the forward pass panicked: {0}")]
    Panicked(String),
    /// The model gave this request logits that no token can be chosen from.
    #[error("no token can be chosen: {0}")]
    BadLogits(String),
    #[error("the engine has stopped")]
    Stopped,
}

impl EngineError {
    /// A short stable name, for metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            EngineError::Config(_) => "config",
            EngineError::Spawn(_) => "spawn",
            EngineError::Cancelled => "cancelled",
            EngineError::QueueTimeout { .. } => "queue_timeout",
            EngineError::DeadlineExceeded => "deadline_exceeded",
            EngineError::Drained => "drained",
            EngineError::Step(_) => "step",
            EngineError::Panicked(_) => "panicked",
            EngineError::BadLogits(_) => "bad_logits",
            EngineError::Stopped => "stopped",
        }
    }
}
