//! What the crate promises to its users, through its public interface only.
#![allow(unreachable_pub, reason = "modules of one test program")]

mod common;
mod concurrency;
mod golden;
mod handle_table;
mod handoff;
mod held;
mod mutation;
mod oracle;
mod pool_model;
mod push;
mod send_plan;
mod transfer;
