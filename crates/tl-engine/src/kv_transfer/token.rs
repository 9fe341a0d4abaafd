//! The cluster token: one secret that every process of a cluster shares.
//!
//! On loopback nobody needs it. Anywhere else, whoever reaches the KV port could
//! fill the pool, probe prompts by hash or plant blocks under a hash of their
//! choice, so the port demands the token in the metadata of every call.

use std::hint::black_box;

use tonic::Status;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;

/// Metadata key that carries the token.
pub const TOKEN_KEY: &str = "tl-cluster-token";

/// A shared secret. Its `Debug` output does not show it.
#[derive(Clone)]
pub struct ClusterToken(MetadataValue<Ascii>);

/// Why a text is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Too short to be worth guessing against.
    #[error("the cluster token has {0} characters, use at least {MIN_TOKEN_LEN}")]
    Short(usize),
    /// Metadata values are visible ASCII.
    #[error("the cluster token has characters other than visible ascii")]
    NotAscii,
}

/// Fewest characters of a token.
pub const MIN_TOKEN_LEN: usize = 16;

impl ClusterToken {
    /// A token from configuration.
    pub fn new(text: &str) -> Result<ClusterToken, TokenError> {
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(TokenError::NotAscii);
        }
        if text.len() < MIN_TOKEN_LEN {
            return Err(TokenError::Short(text.len()));
        }
        let mut value = MetadataValue::try_from(text).map_err(|_| TokenError::NotAscii)?;
        value.set_sensitive(true);
        Ok(ClusterToken(value))
    }

    /// Adds the token to an outgoing call.
    pub fn attach(&self, metadata: &mut MetadataMap) {
        metadata.insert(TOKEN_KEY, self.0.clone());
    }

    /// UNAUTHENTICATED unless the call carries this token. The time taken does not
    /// tell how much of a wrong one was right.
    pub fn check(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let given = metadata.get(TOKEN_KEY).map_or(&[][..], |v| v.as_bytes());
        if same(given, self.0.as_bytes()) {
            return Ok(());
        }
        let what = if given.is_empty() { "missing" } else { "wrong" };
        Err(Status::unauthenticated(format!(
            "cluster token {what}; every process needs the same [cluster].token"
        )))
    }
}

impl std::fmt::Debug for ClusterToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterToken(..)")
    }
}

/// Compares without stopping at the first difference. Only the length is let out.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0u8, |acc, (x, y)| black_box(acc | (x ^ y)));
    a.len() == b.len() && differing == 0
}

/// Demands the token of every call of a service; without a token, lets all pass.
#[derive(Clone, Debug, Default)]
pub struct Guard(pub Option<ClusterToken>);

impl Interceptor for Guard {
    fn call(&mut self, request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some(token) = &self.0 {
            token.check(request.metadata())?;
        }
        Ok(request)
    }
}
