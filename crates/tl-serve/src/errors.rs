//! The engine's refusals and failures as clients see them, in one place.

use tl_api::error::{ApiError, ErrorCode};
use tl_engine::engine::{EngineError, Refused};

/// Seconds after which a full queue is worth another try.
const RETRY_AFTER: u64 = 1;

/// A request that was not taken.
pub(crate) fn of_refusal(refused: &Refused) -> ApiError {
    match refused {
        Refused::Full { capacity } => ApiError::rate_limited(
            format!("{capacity} requests are waiting already; try again shortly"),
            RETRY_AFTER,
        ),
        Refused::Empty => ApiError::malformed("the prompt has no tokens"),
        Refused::TooLong { prompt, context } => ApiError::context_length(format!(
            "the prompt has {prompt} tokens and the context is {context}, the answer included; shorten it"
        )),
        Refused::NeverFits { blocks, pool } => ApiError::context_length(format!(
            "prompt and answer need {blocks} kv blocks and this engine has {pool}; shorten the prompt or \
             lower max_tokens"
        )),
        Refused::NoNewTokens => {
            ApiError::bad_request("`max_tokens` must be at least 1", "max_tokens")
        }
        Refused::UnknownToken { token, vocab } => ApiError::malformed(format!(
            "token id {token} is not in the model's vocabulary of {vocab}"
        )),
        Refused::Sampling(error) => ApiError::malformed(error.to_string()),
        Refused::WrongBlocks { got, want, .. } => ApiError::prompt_mismatch(format!(
            "the handle holds {got} kv blocks and the prompt needs {want}"
        )),
        Refused::ForeignBlock { index } => ApiError::prompt_mismatch(format!(
            "block {index} of the handle was made of other tokens than this prompt"
        )),
        Refused::Draining => {
            ApiError::no_capacity("this engine is draining and takes no new requests")
        }
        Refused::Stopped => ApiError::no_capacity("this engine is shutting down"),
        Refused::ResumeForFirstToken => {
            tracing::error!(%refused, "a request was built wrongly");
            ApiError::internal("the request could not be started")
        }
    }
}

/// A request that was taken and ended without an answer. The engine's text stays in the log.
pub(crate) fn of_engine(error: &EngineError) -> ApiError {
    match error {
        EngineError::QueueTimeout { waited_ms } => ApiError::no_capacity(format!(
            "no room for this request within {waited_ms} ms; try again later"
        )),
        EngineError::DeadlineExceeded => ApiError::no_capacity("the request's deadline has passed"),
        EngineError::Cancelled => ApiError::no_capacity("the request was cancelled"),
        EngineError::Drained => {
            ApiError::no_capacity("this engine is draining and the request did not end in time")
        }
        EngineError::Stopped => ApiError::no_capacity("this engine is shutting down"),
        EngineError::Config(_)
        | EngineError::Spawn(_)
        | EngineError::Step(_)
        | EngineError::Panicked(_)
        | EngineError::BadLogits(_) => {
            tracing::error!(%error, "a generation failed");
            ApiError::internal("the model failed on this request")
        }
    }
}

/// The `error_type` label of an error.
pub(crate) fn code(error: &ApiError) -> &'static str {
    error.code.map_or_else(|| error.kind.as_str(), ErrorCode::as_str)
}
