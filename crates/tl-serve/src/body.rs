//! Reading a request body: bounded in size and in time.

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::time::Duration;
use tl_api::error::ApiError;

/// How much of a body that is too large is read and thrown away, so that a client that writes
/// before it reads still gets the answer instead of a reset.
const DISCARD: usize = 16 << 20;

/// Reads the whole body. One that is too large is refused before it is kept.
pub(crate) async fn read(body: Body, limit: usize, within: Duration) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(within, collect(body, limit)).await {
        Ok(result) => result,
        Err(_) => Err(ApiError::malformed(format!(
            "the request body did not arrive within {} s",
            within.as_secs()
        ))),
    }
}

async fn collect(mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut kept = BytesMut::with_capacity(announced.min(limit));
    let mut seen = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            tracing::debug!(%error, "a request body broke off");
            ApiError::malformed("the request body broke off")
        })?;
        let Some(data) = frame.data_ref() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > limit.saturating_add(DISCARD) {
            break;
        }
        if seen <= limit {
            kept.extend_from_slice(data);
        } else {
            kept = BytesMut::new();
        }
    }
    if seen > limit { Err(ApiError::body_too_large(limit)) } else { Ok(kept.freeze()) }
}
