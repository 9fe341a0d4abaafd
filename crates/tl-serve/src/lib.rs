//! One engine as a server: OpenAI HTTP, EngineControl, roles, metrics
#![forbid(unsafe_code)]

pub mod control;
