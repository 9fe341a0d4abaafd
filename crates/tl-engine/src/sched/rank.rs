//! Who goes first.
//!
//! A rank is fixed when a request arrives and never changes, also not by a preemption: that is what
//! makes the highest-ranked request run to its end, and so every other one in turn. Ageing needs no
//! work per step for the same reason: a request's priority grows by one every `aging_steps` steps
//! it has been here, and since that is so for all of them alike, `priority * aging_steps - arrival
//! step` orders any two of them the same way at every later step.

use std::cmp::Reverse;

/// How waiting and running requests are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// By arrival.
    #[default]
    Fcfs,
    /// By priority, which grows with age; ties by arrival.
    Priority,
}

/// A request's place in the order: the smallest goes first. No two requests share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    key: Reverse<i128>,
    arrival: u64,
}

impl Rank {
    /// `arrival` numbers the requests, `step` is the scheduler's step count at arrival.
    pub fn new(policy: Policy, priority: i32, aging_steps: u64, arrival: u64, step: u64) -> Rank {
        let key = match policy {
            Policy::Fcfs => 0,
            Policy::Priority => i128::from(priority) * i128::from(aging_steps) - i128::from(step),
        };
        Rank { key: Reverse(key), arrival }
    }
}
