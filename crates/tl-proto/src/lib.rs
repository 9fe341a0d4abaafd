//! Messages and stubs of the tl protocols, generated from `contracts/proto`.
//!
//! The generated code is committed, so that a build needs neither `protoc` nor a
//! build script; `tests/generated.rs` regenerates it and fails when the two
//! differ. After a change to a `.proto` file: `UPDATE=1 cargo test -p tl-proto --test generated`.
//!
//! `bytes` fields are [`bytes::Bytes`]: a KV payload is a slice of the buffer it
//! arrived in. prost drops fields it does not know, which suits us: no tl process
//! forwards a message it received.
#![forbid(unsafe_code)]

/// Largest message, in bytes, that any tl client or server sends or accepts.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// Metadata key with the sender's incarnation: [`incarnation_value`] writes it,
/// [`parse_incarnation`] reads it.
pub const INCARNATION_KEY: &str = "tl-incarnation";

/// The metadata text of an incarnation: sixteen lower-case hexadecimal digits.
pub fn incarnation_value(incarnation: u64) -> String {
    format!("{incarnation:016x}")
}

/// The incarnation in a metadata text, or 0 ("unknown") for anything that
/// [`incarnation_value`] would not have written.
pub fn parse_incarnation(text: &str) -> u64 {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() == 16 && digits { u64::from_str_radix(text, 16).unwrap_or(0) } else { 0 }
}

macro_rules! generated {
    ($package:ident, $file:literal, $doc:literal) => {
        #[doc = $doc]
        pub mod $package {
            #[allow(
                clippy::all,
                clippy::pedantic,
                clippy::unwrap_used,
                clippy::allow_attributes_without_reason,
                missing_debug_implementations,
                unreachable_pub,
                elided_lifetimes_in_paths,
                unused_lifetimes,
                reason = "generated code; its style is the generator's"
            )]
            pub mod v1 {
                include!($file);
            }
        }
    };
}

generated!(engine, "gen/tl.engine.v1.rs", "`tl.engine.v1`: the gateway drives an engine.");
generated!(kv, "gen/tl.kv.v1.rs", "`tl.kv.v1`: KV blocks reach a decode engine.");
generated!(control, "gen/tl.control.v1.rs", "`tl.control.v1`: engines report to the gateway.");
