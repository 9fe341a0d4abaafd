//! The life of blocks, checked: every way that a small hand-off can go.
//!
//! One or two requests go from a client through the gateway, the prefill engine and the decode
//! engine, while engines die, messages are lost, doubled, damaged, delayed and overtaken, waits
//! end early, and the client leaves. Every state that this can lead to is visited once, and every
//! rule is checked in every one of them.
//!
//! What decides in this world is the code that serves: the pool, the handle table, both ends of a
//! push ([`tl_kv`]), the attempts, the registry and the routing ([`tl_gateway`]). Modelled is only
//! what is no pure core: the network, timers, calls, a model of one token, clients, and death.
//!
//! | module | holds |
//! |---|---|
//! | [`setting`] | how large a world is, what may go wrong in it, and defects to be found |
//! | [`world`], [`event`], [`message`] | states and the steps between them |
//! | [`prefill`], [`decode`], [`gateway`] | the parties: real cores, and what stands around them |
//! | [`check`] | the rules, by name |
//! | [`explore`], [`hash`] | the search, and how states are told apart |
#![forbid(unsafe_code)]

pub mod check;
pub mod content;
pub mod decode;
pub mod event;
pub mod explore;
pub mod gateway;
pub mod hash;
pub mod message;
pub mod prefill;
pub mod setting;
mod view;
pub mod world;

use std::collections::BTreeSet;

use check::Broken;
use event::Event;
use explore::{Model, Report, explore};
use gateway::Told;
use setting::Setting;
use world::World;

/// The world of a setting, to be explored. States are told apart by 128 bits.
#[derive(Debug)]
pub struct Life {
    setting: Setting,
    /// Every combination of outcomes that clients were told.
    outcomes: BTreeSet<Vec<&'static str>>,
    /// Ends the search as a broken rule would.
    sought: Option<Vec<String>>,
}

impl Life {
    /// A world in which nothing has happened.
    pub fn new(setting: Setting) -> Self {
        Self { setting, outcomes: BTreeSet::new(), sought: None }
    }

    /// Looks for the shortest way to these outcomes of the clients, as if they broke a rule.
    #[must_use]
    pub fn seeking(self, outcomes: Vec<String>) -> Self {
        Self { sought: Some(outcomes), ..self }
    }
}

fn outcome(told: Option<Told>) -> &'static str {
    match told {
        None => "open",
        Some(Told::Finished) => "finished",
        Some(Told::Failed) => "failed",
        Some(Told::CutOff) => "cut off",
    }
}

impl Model for Life {
    type State = World;
    type Event = Event;
    type Key = u128;

    fn first(&self) -> World {
        World::new(&self.setting)
    }

    fn events(&self, state: &World) -> Vec<Event> {
        state.events(&self.setting)
    }

    fn after(&self, state: &World, event: Event) -> Result<World, Broken> {
        let next = state.after(event, &self.setting, None)?;
        if let Some(sought) = &self.sought {
            let outcomes = next.outcomes().into_iter().map(outcome);
            if outcomes.eq(sought.iter().map(String::as_str)) {
                return Err(Broken::new("sought", sought.join(", ")));
            }
        }
        Ok(next)
    }

    fn key(&self, state: &World) -> u128 {
        state.key(&self.setting)
    }

    fn is_bound(&self, event: Event) -> bool {
        event.is_bound()
    }

    fn check_end(&self, state: &World) -> Result<(), Broken> {
        state.check_end(&self.setting)
    }

    fn saw(&mut self, state: &World) {
        let outcomes: Vec<&str> = state.outcomes().into_iter().map(outcome).collect();
        if !self.outcomes.contains(&outcomes) {
            self.outcomes.insert(outcomes);
        }
    }

    fn tell(&self, state: &World, event: Event) -> Vec<String> {
        let mut lines = vec![state.describe(event)];
        let mut notes = Vec::new();
        // A broken rule is told by the trace itself.
        let _ = state.after(event, &self.setting, Some(&mut notes));
        lines.append(&mut notes);
        lines
    }
}

/// What [`run`] found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// States, steps, a broken rule.
    pub report: Report,
    /// Every combination of outcomes that the clients were told, one word for each.
    pub outcomes: BTreeSet<Vec<&'static str>>,
}

/// Explores a setting up to `limit` states.
pub fn run(setting: Setting, limit: usize) -> Findings {
    search(Life::new(setting), limit)
}

/// As [`run`], for a world that is made already.
pub fn search(mut life: Life, limit: usize) -> Findings {
    let report = explore(&mut life, limit);
    Findings { report, outcomes: life.outcomes }
}
