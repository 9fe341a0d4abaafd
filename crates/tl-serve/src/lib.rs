//! One engine as a server: OpenAI HTTP, EngineControl, roles, metrics.
//!
//! A request goes through four rooms, each of which can be read alone:
//!
//! | room | does |
//! |---|---|
//! | `app`, `body`, `generate` | validate a request, submit one generation per choice |
//! | `sequence`, `choice` | tokens to text, logprobs, finish; the stop strings end a generation here |
//! | `answer` | whole answer or server-sent events |
//! | `http`, `meter` | the connection and what it leaves in the metrics |
//!
//! Nothing here frees by remembering to: the generations of a request are owned by its handler,
//! then by its response body, and hyper drops either when the client goes. Blocks handed over by a
//! prefill engine are released by a guard made before the request is even read.

#![forbid(unsafe_code)]

mod answer;
mod app;
mod backend;
mod body;
mod choice;
pub mod control;
mod errors;
mod generate;
mod health;
mod http;
mod lang;
mod meter;
mod selfcheck;
mod sequence;
mod server;
mod settings;

pub use app::Limits;
pub use lang::SharedModel;
pub use selfcheck::{SelfCheckError, self_check};
pub use server::{
    Addresses, RunningEngine, StartError, run_engine, start_engine, start_engine_with,
};
pub use settings::EngineSettings;
