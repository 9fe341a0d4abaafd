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
}

impl Life {
    /// A world in which nothing has happened.
    pub fn new(setting: Setting) -> Self {
        Self { setting, outcomes: BTreeSet::new() }
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
        state.after(event, &self.setting, None)
    }

    fn key(&self, state: &World) -> u128 {
        state.key()
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
    let mut life = Life::new(setting);
    let report = explore(&mut life, limit);
    Findings { report, outcomes: life.outcomes }
}
