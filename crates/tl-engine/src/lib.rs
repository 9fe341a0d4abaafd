//! One engine: sampler, scheduler, step loop, KV transfer, heartbeat.
#![forbid(unsafe_code)]

pub mod backend;
pub mod engine;
pub mod heartbeat;
pub mod kv_transfer;
pub mod sample;
pub mod sched;

pub use tl_kv as kv;
