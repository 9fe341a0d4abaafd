//! Who serves a request: a decision from the registry's view, as data.
//!
//! The decode engine comes first, since its memory is what a request occupies longest: it
//! must have room for the whole answer before any engine computes anything. Then the least
//! loaded prefill engine that pairs with it. What was considered and passed over, and why, is
//! part of the decision, so that "why did this request go there" has an answer.

mod plan;
mod policy;
pub mod ring;

pub use plan::{Alone, Blocked, Demand, Pick, Plan, Skip, Skipped, Tried, Want, Whole, plan};
pub use policy::{Candidate, Policy, Reason, Router};

#[cfg(test)]
mod tests;
