//! The hand-off as its contract tests it: bytes, refusals, freeing, the same tokens,
//! and the heartbeat.

mod bytes;
mod handoff;
mod heartbeat;
mod receiving;

#[allow(unreachable_pub, reason = "shared by several test targets")]
#[path = "../support/mod.rs"]
mod support;
