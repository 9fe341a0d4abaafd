//! What schedulers did with a scenario: the recorded run of a trace, or a program's.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// An engine. In a tick they step in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Side {
    /// The one engine of a colocated deployment.
    C,
    /// Prefill.
    P,
    /// Decode.
    D,
}

/// Something that happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    pub tick: u64,
    pub side: Side,
    pub what: What,
}

/// In the order in which they can happen to one request in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The client left, and the engine still knew the request.
    Aborted,
    Preempted,
    /// Its blocks are taken, `local` tokens are there, `remote` ones will be loaded.
    Parked {
        local: u64,
        remote: u64,
    },
    /// Began to run for the first time, with `cached` tokens computed.
    Admitted {
        cached: u64,
    },
    /// The same after a preemption.
    Readmitted {
        cached: u64,
    },
    /// The worker says that the load is done.
    Reported,
    /// The worker says that the load failed.
    ReadFailed,
    FirstToken,
    Finished(Reason),
    /// The prefill engine's blocks are given back.
    Freed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// It produced what was asked.
    Length,
    /// A stop token or string.
    Stop,
    /// Its remote KV could not be loaded.
    Error,
    Abort,
}

/// An engine after its step of a tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The batch, in its order.
    pub batch: Vec<Scheduled>,
    /// In the order of the list, ids.
    pub running: Vec<String>,
    pub waiting: Vec<String>,
    /// Requests that hold blocks and do not run, and how many blocks.
    pub holding: Vec<(String, u64)>,
    /// Finished requests whose blocks are not given back.
    pub held: Vec<(String, u64)>,
    /// Until when each of them is leased, seconds from tick 0. Told, not compared.
    pub leases: BTreeMap<String, f64>,
    /// Free blocks after scheduling; `None` if nothing was scheduled, not even an empty batch.
    pub free_scheduled: Option<u64>,
    /// Free blocks after the output was processed; `None` if none was.
    pub free: Option<u64>,
}

/// A request's share of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    pub id: String,
    pub tokens: u64,
    /// Tokens computed before it.
    pub before: u64,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    pub steps: BTreeMap<(u64, Side), Step>,
    /// For every request, what happened to it, in order.
    pub events: BTreeMap<String, Vec<Event>>,
}

impl Side {
    pub const ALL: [Side; 3] = [Side::C, Side::P, Side::D];
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::C => "C",
            Side::P => "P",
            Side::D => "D",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Length => "length",
            Reason::Stop => "stop",
            Reason::Error => "error",
            Reason::Abort => "abort",
        })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Aborted => f.write_str("aborted"),
            What::Preempted => f.write_str("preempted"),
            What::Parked { local, remote } => {
                write!(f, "parked ({local} tokens here, {remote} to load)")
            }
            What::Admitted { cached } => write!(f, "admitted ({cached} tokens cached)"),
            What::Readmitted { cached } => write!(f, "admitted again ({cached} tokens cached)"),
            What::Reported => f.write_str("read reported"),
            What::ReadFailed => f.write_str("read reported as failed"),
            What::FirstToken => f.write_str("first token"),
            What::Finished(reason) => write!(f, "finished ({reason})"),
            What::Freed => f.write_str("blocks given back"),
        }
    }
}

impl Run {
    /// Records an event; [`Run::settle`] puts a request's events in order.
    pub fn note(&mut self, id: &str, tick: u64, side: Side, what: What) {
        let event = Event { tick, side, what };
        match self.events.get_mut(id) {
            Some(events) => events.push(event),
            None => drop(self.events.insert(id.to_owned(), vec![event])),
        }
    }

    /// Sorts every request's events by tick, engine and kind.
    pub fn settle(&mut self) {
        for events in self.events.values_mut() {
            events.sort_unstable();
        }
    }
}
