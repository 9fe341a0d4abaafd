//! Header names, and the rules for their values.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::ApiError;

/// Names a request in answers and logs. The client's is kept when it is well formed.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Internal: the KV blocks a decode engine resumes from.
pub const KV_HANDLE: HeaderName = HeaderName::from_static("x-tl-kv-handle");
/// Internal: id of the token the prefill engine sampled, decimal.
pub const FIRST_TOKEN: HeaderName = HeaderName::from_static("x-tl-first-token");
/// Internal: uniforms the prefill engine drew from the request's generator, decimal.
pub const RNG_DRAWS: HeaderName = HeaderName::from_static("x-tl-rng-draws");
/// Internal: -100 to 100, higher first.
pub const PRIORITY: HeaderName = HeaderName::from_static("x-tl-priority");
/// To clients: the seed that decided the answer, decimal; drawn where the request named none. With
/// it the request can be repeated token by token. A whole answer carries it as `seed` too.
pub const SEED: HeaderName = HeaderName::from_static("x-tl-seed");
/// W3C trace context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// gRPC metadata key of `[cluster].token`, which peers show off loopback.
pub const CLUSTER_TOKEN: &str = "tl-cluster-token";
/// gRPC metadata key of `Prefill`: which API the request came by; see `Kind::operation`.
pub const OPERATION_KEY: &str = "tl-operation";

/// Longest request id and handle id, in characters.
pub const MAX_ID_CHARS: usize = 128;
/// Priorities run from minus this to this.
pub const MAX_PRIORITY: i32 = 100;

/// Whether a header belongs to the inside: the gateway strips it from clients.
pub fn is_internal(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-tl-")
}

/// Printable ASCII without space, 1 to 128 characters.
pub fn is_well_formed_id(text: &str) -> bool {
    (1..=MAX_ID_CHARS).contains(&text.len()) && text.bytes().all(|b| (0x21..=0x7e).contains(&b))
}

/// The client's request id if it is well formed, else a fresh one.
pub fn request_id(headers: &HeaderMap) -> String {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|text| is_well_formed_id(text))
        .map_or_else(fresh_request_id, str::to_owned)
}

/// A request id is a name and no secret, so a machine without randomness still gets one.
fn fresh_request_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = random_hex::<12>()
        .unwrap_or_else(|_| format!("local-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    format!("req-{name}")
}

/// `N` random bytes of the operating system as `2 N` lower-case hexadecimal digits.
pub fn random_hex<const N: usize>() -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes)?;
    let digit = |v: u8| char::from_digit(u32::from(v), 16).unwrap_or('0');
    Ok(bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect())
}

/// The priority header; absent is 0.
pub fn priority(headers: &HeaderMap) -> Result<i32, ApiError> {
    match number::<i32>(headers, &PRIORITY)? {
        None => Ok(0),
        Some(p) if (-MAX_PRIORITY..=MAX_PRIORITY).contains(&p) => Ok(p),
        Some(p) => Err(ApiError::malformed(format!(
            "the header {PRIORITY} is {p}; allowed: -{MAX_PRIORITY} to {MAX_PRIORITY}"
        ))),
    }
}

/// A decimal header, or `None` when absent.
pub(crate) fn number<T: std::str::FromStr>(
    headers: &HeaderMap,
    name: &HeaderName,
) -> Result<Option<T>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value
        .to_str()
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit() || b == b'-'))
        .and_then(|text| text.parse().ok())
        .map(Some)
        .ok_or_else(|| ApiError::malformed(format!("the header {name} must be a decimal number")))
}

/// A header value of text known to be well formed; anything else is dropped by the caller.
pub(crate) fn value_of(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

#[cfg(test)]
mod tests;
