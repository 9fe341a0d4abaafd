//! One engine: sampler, scheduler, step loop, KV transfer, heartbeat

pub mod sample;
