//! Drills: whole clusters of real processes, and what happens to them on a bad day.
//!
//! Each drill ends with the same question: does every pool, queue and counter read its baseline?

#![allow(missing_debug_implementations, unreachable_pub, reason = "test support")]

mod client;
mod disconnect;
mod hosts;
mod killed;
mod overload;
mod parts;
mod shutdown;
mod split;
mod traced;
mod up;
