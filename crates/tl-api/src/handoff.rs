//! What crosses from prefill to decode, as one type.
//!
//! A feature that the decode side needs to know of is a field of [`HandoffRecord`] or of the
//! [`Generate`] in it. Both are taken apart without `..` where they are sent and where they
//! are read, so that a new field does not compile until somebody has said where it goes.
//! What is not carried here is refused at the edge (422), never dropped.
//!
//! Two parts have two readers: [`Resume`] goes to the decode engine, [`FirstOutput`] stays
//! with the gateway, which sends it to the client.

use http::{HeaderMap, HeaderValue, header};

use crate::error::ApiError;
use crate::headers::{
    self, FIRST_TOKEN, KV_HANDLE, PRIORITY, REQUEST_ID, RNG_DRAWS, TRACEPARENT, is_well_formed_id,
};
use crate::openai::{FinishReason, Generate, TokenLogprob};
use crate::trace::Trace;

/// Most uniforms a first token can have cost. One sampler draws one; the bound keeps a forged
/// header from costing the decode engine time.
pub const MAX_RNG_DRAWS: u32 = 1024;

/// Everything known after a `Prefill`.
#[derive(Debug, Clone, PartialEq)]
pub struct HandoffRecord {
    pub resume: Resume,
    pub first_output: FirstOutput,
}

/// The decode engine's part.
#[derive(Debug, Clone, PartialEq)]
pub struct Resume {
    /// Names the KV blocks on the decode engine. One per attempt, unguessable.
    pub handle_id: String,
    /// `None` from a prefill peer that does not say: the decode engine computes the last
    /// prompt position again and samples draw 1 itself, and the text is in its stream.
    pub first: Option<FirstToken>,
    /// Prompt (also as `tl_prompt_ids`), sampling, seed, stops, limits, logprobs.
    /// One choice (`n` 1), streamed, with usage.
    pub request: Generate,
    pub context: Context,
}

/// What travels beside a request, whether or not it resumes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    pub request_id: String,
    /// -100 to 100.
    pub priority: i32,
    pub trace: Option<Trace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstToken {
    pub id: u32,
    /// Uniforms its sampling took; the decode side skips as many.
    pub draws: u32,
}

/// The gateway's part: what the client gets of the first token.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstOutput {
    /// Empty while it ends inside a character or may begin a stop string.
    pub text: String,
    /// Set when the first token ends the answer; then nothing is decoded.
    pub finish: Option<FinishReason>,
    /// Present when the request asked for logprobs.
    pub logprob: Option<TokenLogprob>,
    pub prompt_tokens: u32,
    /// Prompt tokens the prefill engine's cache held.
    pub cached_prompt_tokens: u32,
}

/// An HTTP request to a decode engine: `POST request.kind.path()`.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodeCall {
    pub path: &'static str,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Resume {
    /// The call that makes the decode engine go on from the handle.
    pub fn to_call(&self) -> DecodeCall {
        let Resume { handle_id, first, request, context } = self;
        let mut call = plain_call(request, context);
        if let Some(value) = headers::value_of(handle_id) {
            call.headers.insert(KV_HANDLE, value);
        }
        if let Some(FirstToken { id, draws }) = first {
            call.headers.insert(FIRST_TOKEN, HeaderValue::from(*id));
            call.headers.insert(RNG_DRAWS, HeaderValue::from(*draws));
        }
        call
    }

    /// What the decode engine reads back. `None`: the request has no handle and is served whole.
    ///
    /// # Errors
    /// 400 when a header is malformed or one of the first-token pair lacks the other.
    pub fn read(headers: &HeaderMap, request: &Generate) -> Result<Option<Resume>, ApiError> {
        let id = headers::number::<u32>(headers, &FIRST_TOKEN)?;
        let draws = headers::number::<u32>(headers, &RNG_DRAWS)?;
        let first = match (id, draws) {
            (None, None) => None,
            (Some(id), Some(draws)) if draws <= MAX_RNG_DRAWS => Some(FirstToken { id, draws }),
            (Some(_), Some(draws)) => {
                return Err(ApiError::malformed(format!(
                    "the header {RNG_DRAWS} is {draws}; at most {MAX_RNG_DRAWS} is read"
                )));
            }
            _ => {
                return Err(ApiError::malformed(format!(
                    "the headers {FIRST_TOKEN} and {RNG_DRAWS} come together or not at all"
                )));
            }
        };
        let Some(handle) = headers.get(KV_HANDLE) else {
            return match first {
                None => Ok(None),
                Some(_) => Err(ApiError::malformed(format!("{FIRST_TOKEN} needs {KV_HANDLE}"))),
            };
        };
        let handle_id = handle
            .to_str()
            .ok()
            .filter(|text| is_well_formed_id(text))
            .ok_or_else(|| {
                ApiError::malformed(format!(
                    "the header {KV_HANDLE} must be 1 to {} printable characters",
                    headers::MAX_ID_CHARS
                ))
            })?
            .to_owned();
        let context = Context::read(headers)?;
        Ok(Some(Resume { handle_id, first, request: request.clone(), context }))
    }
}

impl Context {
    /// What an engine reads of any request's headers.
    pub fn read(headers: &HeaderMap) -> Result<Context, ApiError> {
        Ok(Context {
            request_id: headers::request_id(headers),
            priority: headers::priority(headers)?,
            trace: Trace::of(headers),
        })
    }
}

/// The call that has an engine serve a request whole.
pub fn plain_call(request: &Generate, context: &Context) -> DecodeCall {
    let Context { request_id, priority, trace } = context;
    let mut map = HeaderMap::new();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(value) = headers::value_of(request_id) {
        map.insert(REQUEST_ID, value);
    }
    map.insert(PRIORITY, HeaderValue::from(*priority));
    if let Some(value) = trace.and_then(|t| headers::value_of(&t.to_string())) {
        map.insert(TRACEPARENT, value);
    }
    let body = request.to_body().to_string().into_bytes();
    DecodeCall { path: request.kind.path(), headers: map, body }
}

#[cfg(test)]
mod tests;
