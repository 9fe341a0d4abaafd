//! What `EngineControl` needs of an engine.

use tl_api::openai::Kind;
use tl_engine::kv_transfer::SharedKv;
use tl_engine::sample::SamplingParams;
use tl_proto::engine::v1::InfoResponse;
use tokio::time::Instant;
use tonic::Status;

/// One prompt to run up to its first token.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefillJob {
    /// Names the job for [`PrefillBackend::cancel`].
    pub request_id: String,
    /// The model id as the gateway asked for it.
    pub model: String,
    /// Which API the request came by: a label of metrics.
    pub kind: Kind,
    /// Not empty.
    pub prompt_ids: Vec<u32>,
    /// Validated.
    pub sampling: SamplingParams,
    /// Seed of the request's generator.
    pub seed: u64,
    /// At least 1; the first token counts.
    pub max_new_tokens: usize,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Alternatives to report with the first token, 0 to 20.
    pub logprobs: usize,
    /// Higher goes first.
    pub priority: i32,
    /// After this nobody waits for the outcome.
    pub deadline: Option<Instant>,
}

/// Why the first token is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstFinish {
    /// An end-of-text token or a stop text.
    Stop,
    /// `max_new_tokens` is 1, or the context is full.
    Length,
}

impl FirstFinish {
    /// The word for it in `PrefillResponse.finish_reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            FirstFinish::Stop => "stop",
            FirstFinish::Length => "length",
        }
    }
}

/// One of the most likely first tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TopToken {
    /// Its id.
    pub id: u32,
    /// Its log-probability before temperature and filters.
    pub logprob: f64,
    /// Its text as bytes; empty for a special token.
    pub bytes: Vec<u8>,
}

/// A prompt that has been run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrefillOutcome {
    /// The first token.
    pub first_token: u32,
    /// Its log-probability before temperature and filters.
    pub first_logprob: f64,
    /// The prompt's blocks in order, one reference each, which pass to the caller.
    pub block_ids: Vec<u32>,
    /// Chained hashes of the full ones.
    pub block_hashes: Vec<u64>,
    /// Prompt tokens that came from the prefix cache.
    pub cached_prompt_tokens: usize,
    /// Uniforms taken from the request's generator.
    pub rng_draws: u32,
    /// Text of the first token, empty while it could still change: an incomplete
    /// character, the possible beginning of a stop text.
    pub first_text: String,
    /// Set when there is nothing to decode: the blocks are then not sent.
    pub finish: Option<FirstFinish>,
    /// The most likely first tokens, as many as asked for, most likely first.
    pub first_top_logprobs: Vec<TopToken>,
    /// The first token as bytes; empty for a special token.
    pub first_token_bytes: Vec<u8>,
}

/// An engine that can run prompts for others.
#[tonic::async_trait]
pub trait PrefillBackend: Send + Sync + 'static {
    /// Runs one prompt. Dropping the future gives the work up.
    async fn prefill(&self, job: PrefillJob) -> Result<PrefillOutcome, Status>;

    /// The pool of [`PrefillOutcome::block_ids`].
    fn pool(&self) -> SharedKv;

    /// What this engine serves.
    fn info(&self) -> InfoResponse;

    /// Stops a request; false when it has finished or never was.
    async fn cancel(&self, request_id: &str) -> bool;

    /// Admits nothing more, lets work finish until the deadline (milliseconds from
    /// now), aborts the rest and says how much that was.
    async fn drain(&self, deadline_ms: i64) -> i32;
}
