//! What the outside sees: OpenAI shapes and errors, stop matching, server-sent events, configuration, metrics

#![forbid(unsafe_code)]

pub mod metrics;
pub mod text;
