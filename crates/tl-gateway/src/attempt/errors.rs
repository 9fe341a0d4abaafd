//! What a client is told about an attempt that came to nothing.

use tl_api::error::ApiError;

/// Seconds after which room may have appeared: a heartbeat.
const RETRY_AFTER_S: u64 = 2;

/// 429: everybody who could serve is full.
pub fn busy() -> ApiError {
    ApiError::rate_limited("every engine that serves this model is full", RETRY_AFTER_S)
}

/// An answer that had begun can not be finished.
pub fn lost() -> ApiError {
    ApiError::internal("the engine that was producing this answer was lost; send the request again")
}

/// No attempt is left. `refusals`: how many of them ended because somebody was full.
pub(super) fn exhausted(refusals: u32) -> ApiError {
    if refusals > 0 {
        busy()
    } else {
        ApiError::no_capacity("the engines that were tried failed; send the request again")
    }
}

pub(super) fn invalid() -> ApiError {
    ApiError::malformed(
        "the engine refused the request as invalid: check the prompt and the sampling parameters",
    )
}
