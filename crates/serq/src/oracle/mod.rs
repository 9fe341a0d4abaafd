//! Step-for-step comparison with vLLM's own scheduler.
//!
//! A trace ([`Trace`]) is a scenario and what vLLM's real schedulers did with it, tick by tick; its format is
//! told in `tests/data/oracle/PROVENANCE.md`. [`read`] turns the file into types and refuses one that
//! contradicts itself. [`compare`] sets another [`Run`] of the same scenario against the recorded one: what
//! happened to each request and when, and how many blocks were free after every step.
//!
//! [`play`] makes such a run of a program: [`settings`] are the overrides that give it the scenario's engines,
//! the scenario's requests become its sessions.

mod compare;
mod play;
mod raw;
mod read;
mod render;
mod run;
mod scenario;
mod watch;
mod workload;

#[cfg(test)]
mod tests;

pub use compare::{Agreement, Count, Difference, compare};
pub use play::{PlayError, ReleaseOrder, play};
pub use read::{End, Trace, TraceError, parse, read};
pub use render::report;
pub use run::{Event, Reason, Run, Scheduled, Side, Step, What};
pub use scenario::{Engine, Mode, OnFailure, Policy, Request, Scenario};
pub use workload::{Unfit, engines, settings};
