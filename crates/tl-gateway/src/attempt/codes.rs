//! What a peer's refusal means: one table for gRPC codes, one for HTTP answers.
//!
//! A peer's text is for the log. What a client is told is chosen here.

use tonic::Code;

use tl_api::error::{ApiError, ErrorCode, PeerError};

/// What a failed `Prefill` says about whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefillFailure {
    /// Bytes were damaged on the way. Again; the same pair is allowed once.
    Corrupt,
    /// A race between two transfers; again, the same pair is allowed.
    Stale,
    /// The decode engine will never take this: another one.
    DecodeRefuses,
    /// The decode engine has no room for the blocks: another one, else wait.
    DecodeFull,
    /// The prefill engine's queue is full, or it had no blocks in time: another one, else wait.
    PrefillFull,
    /// The request itself: the client's 400.
    Invalid,
    /// The hand-off did not arrive: the decode engine can not be reached from there, or it broke.
    /// Another pair, else one engine alone.
    LinkFault,
    /// The prefill engine can not be reached or broke: another one.
    PrefillFault,
    /// It took too long; it may still be at it.
    Deadline,
}

/// Text with which a prefill engine passes on what the decode engine answered: the contract's.
const FROM_TRANSFER: &str = "kv transfer: ";

/// Reads a failed `Prefill`. An engine that can not reach the decode engine says so in the
/// words of its transfer; UNAVAILABLE without them is an engine that is leaving. `reached`:
/// the status came from the engine, not from the connection to it. `message` only says which
/// of the two engines a code is about.
pub fn prefill_failure(code: Code, message: &str, reached: bool) -> PrefillFailure {
    if !reached {
        return match code {
            Code::DeadlineExceeded => PrefillFailure::Deadline,
            _ => PrefillFailure::PrefillFault,
        };
    }
    let of_decode = message.starts_with(FROM_TRANSFER);
    match code {
        Code::DataLoss => PrefillFailure::Corrupt,
        Code::NotFound | Code::AlreadyExists | Code::Aborted => PrefillFailure::Stale,
        Code::FailedPrecondition => PrefillFailure::DecodeRefuses,
        Code::ResourceExhausted if of_decode => PrefillFailure::DecodeFull,
        Code::ResourceExhausted => PrefillFailure::PrefillFull,
        // An argument of the transfer is ours or the engine's mistake, never the client's.
        Code::InvalidArgument if of_decode => PrefillFailure::PrefillFault,
        Code::InvalidArgument => PrefillFailure::Invalid,
        _ if of_decode => PrefillFailure::LinkFault,
        Code::DeadlineExceeded => PrefillFailure::Deadline,
        _ => PrefillFailure::PrefillFault,
    }
}

/// What a failed answer of the engine that decodes says.
#[derive(Debug, Clone, PartialEq)]
pub enum DecodeFailure {
    /// The client's own mistake: told so, never retried, held against nobody.
    Client(ApiError),
    /// No room or no more work, please: another engine, else wait.
    Full,
    /// The handle is unknown or is another prompt's: prefill again.
    Handle,
    /// Refused, reset, stalled, broken off, or 5xx: another engine.
    Fault,
}

/// Reads an HTTP answer that is not 200.
pub fn decode_refusal(error: &PeerError) -> DecodeFailure {
    let param = error.param.as_deref().filter(|p| is_plain_path(p));
    let with_param = |api: ApiError| match param {
        Some(param) => api.with_param(param),
        None => api,
    };
    match (error.status, error.code) {
        (404, Some(ErrorCode::KvHandleNotFound)) | (409, _) => DecodeFailure::Handle,
        (_, Some(ErrorCode::ContextLengthExceeded)) => {
            DecodeFailure::Client(ApiError::context_length(
                "prompt and answer exceed the context of the model or the memory of its engine",
            ))
        }
        (422, _) => DecodeFailure::Client(ApiError::unsupported_parameter(
            param.unwrap_or("body"),
            "the engine does not support a parameter of this request",
        )),
        (400 | 413, _) => DecodeFailure::Client(with_param(ApiError::malformed(
            "the engine refused the request as invalid",
        ))),
        (429 | 503, _) => DecodeFailure::Full,
        // Another 4xx (no such model, no such path): the engine is not what it said it was.
        _ => DecodeFailure::Fault,
    }
}

/// A field's path and nothing a peer could say in words.
fn is_plain_path(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'[' | b']');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(plain)
}
