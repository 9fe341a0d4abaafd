//! What goes into an engine and what comes out of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tl_kv::Held;

use crate::engine::EngineError;
use crate::sample::SamplingParams;
use crate::sched::Policy;

/// How one engine is built. `Default` gives the values of an empty configuration file.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Blocks in the KV pool.
    pub kv_blocks: u32,
    /// Token positions in one block.
    pub block_tokens: u32,
    /// The most rows (tokens) one step computes.
    pub max_batch_tokens: usize,
    /// The most requests that run at once.
    pub max_seqs: usize,
    /// The most prompt tokens one request gets per step; see
    /// [`crate::backend::pick_prefill_chunk`].
    pub prefill_chunk: usize,
    /// The most requests that wait; one more is refused at once.
    pub queue_capacity: usize,
    /// The longest a request waits for blocks or a place in the batch before it fails.
    pub queue_deadline: Duration,
    /// Whether full blocks are registered and prompts look for them.
    pub prefix_cache: bool,
    pub policy: Policy,
    /// Under `Policy::Priority`: steps of waiting that are worth one priority level.
    pub aging_steps: u64,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            kv_blocks: 2048,
            block_tokens: 16,
            max_batch_tokens: 2048,
            max_seqs: 64,
            prefill_chunk: 512,
            queue_capacity: 256,
            queue_deadline: Duration::from_secs(30),
            prefix_cache: true,
            policy: Policy::Fcfs,
            aging_steps: 64,
        }
    }
}

/// One answer to one prompt. Several choices of one prompt are several requests.
#[derive(Debug)]
pub struct Request {
    /// For `Engine::cancel` and the logs. Requests may share it: they are then cancelled together.
    pub id: String,
    pub prompt: Arc<[u32]>,
    pub sampling: SamplingParams,
    pub seed: u64,
    /// At least 1; clipped to what the context leaves. A first token given by `Start::Resume`
    /// counts.
    pub max_new_tokens: usize,
    /// Tokens that end the answer and are not part of it.
    pub stop_ids: Vec<u32>,
    /// The number of most likely tokens to report beside each token; `None` for none of it.
    pub logprobs: Option<usize>,
    /// Higher goes first, under `Policy::Priority`.
    pub priority: i32,
    /// When the request fails if it has not ended by then.
    pub deadline: Option<Instant>,
    pub start: Start,
    pub until: Until,
}

/// Where a request begins.
#[derive(Debug)]
pub enum Start {
    /// With nothing computed, except what the prefix cache has.
    Fresh,
    /// With the KV of the whole prompt, computed on another engine.
    ///
    /// With `first`, the answer goes on behind that token: the generator starts after `draws`
    /// draws, the token counts as output for the penalties and for `max_new_tokens`, and it is not
    /// emitted again. If it is a stop id or uses up `max_new_tokens`, the request ends at once.
    ///
    /// Without `first`, the last prompt position is computed again (in a private copy of its block
    /// if that block is shared or registered) and the first token sampled from it, with the first
    /// draw;
    /// `draws` is then ignored.
    ///
    /// After a preemption the request is computed here from its tokens like any other.
    Resume { held: Held, first: Option<FirstToken>, draws: u32 },
}

/// The token another engine has sampled for this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstToken {
    pub id: u32,
}

/// Where a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// With the whole answer.
    Finished,
    /// With the prompt's KV and the first token, for another engine to go on from. If the first
    /// token is itself the end (a stop id, or `max_new_tokens` is 1) there is nothing to go on
    /// with: the request ends with `Event::Finished` and gives its blocks back.
    FirstToken,
}

/// What happens to a request, in order: at most one `Admitted`, then tokens, then one of
/// `Prefilled`, `Finished` and `Failed`, which is the last.
#[derive(Debug)]
pub enum Event {
    /// The request runs for the first time; `cached_tokens` of its prompt came from the prefix
    /// cache. 0 for a resumed request, whose KV came from another engine and not from this one's
    /// cache.
    Admitted {
        cached_tokens: usize,
    },
    Token(TokenOut),
    /// The prompt's blocks, after the first token, when `until` is `FirstToken`. `hashes` names the
    /// full ones, in order; they are registered and stay cached when `held` is dropped.
    Prefilled {
        held: Held,
        hashes: Vec<u64>,
        cached_tokens: usize,
    },
    /// `completion_tokens` counts the tokens of the answer, one given by `Start::Resume` included
    /// and a stop id, which is not part of it, excluded.
    Finished {
        reason: Finish,
        completion_tokens: usize,
    },
    Failed(EngineError),
}

impl Event {
    /// Whether nothing follows this event.
    pub fn is_last(&self) -> bool {
        match self {
            Event::Admitted { .. } | Event::Token(_) => false,
            Event::Prefilled { .. } | Event::Finished { .. } | Event::Failed(_) => true,
        }
    }
}

/// One token of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenOut {
    pub id: u32,
    /// Natural logarithm of the token's probability after the penalties and before temperature and
    /// filters.
    pub logprob: f64,
    /// The most likely tokens and their logprobs, best first; empty unless asked for.
    pub top: Vec<(u32, f64)>,
    /// Draws the request's generator has given, this token's included.
    pub draws: u32,
}

pub use crate::sched::Finish;
