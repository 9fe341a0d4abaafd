//! What the outside sees: OpenAI shapes and errors, stop matching, server-sent events, configuration, metrics
#![forbid(unsafe_code)]

pub mod config;
pub mod error;
pub mod handoff;
pub mod headers;
pub mod metrics;
pub mod openai;
pub mod sse;
pub mod text;
pub mod trace;
