//! Engines as processes see them: real listeners on 127.0.0.1, a small random model, real requests.

mod api;
mod common;
mod fleet;
mod generate;
mod limits;
mod mutate;
mod resume;
