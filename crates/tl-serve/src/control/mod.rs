//! `tl.engine.v1.EngineControl`: how the gateway drives this engine.
//!
//! `Prefill` runs one prompt, samples the first token, moves the prompt's blocks to
//! the decode engine and gives back its own. Its blocks are a value from the moment
//! the backend hands them over, so that a dropped call, a passed deadline and a failed
//! push free them alike. What the decode engine may hold although the push was not
//! seen to succeed is released there, also when the call is dropped.

mod backend;
mod pending;
mod prefill;
mod sampling;
mod serve;
mod target;

#[cfg(test)]
mod tests;

pub use backend::{FirstFinish, PrefillBackend, PrefillJob, PrefillOutcome, TopToken};
pub use sampling::sampling_from_proto;
pub use serve::{ControlOptions, ControlService, serve_control, serve_control_with};
pub use target::TargetPolicy;
