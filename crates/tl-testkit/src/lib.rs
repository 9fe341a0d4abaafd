//! What the tests of several crates share: a model that is nothing but its cache, a
//! relay that breaks connections, waiting without sleeping, pool baselines, and a model
//! in a folder as others publish theirs.
//!
//! For tests only; nothing that runs in production depends on it.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod fake;
pub mod folder;
pub mod proxy;
pub mod wait;

pub use baseline::Baseline;
pub use proxy::{FaultProxy, Faults};
pub use wait::{DEADLINE, eventually, eventually_async, eventually_blocking};
