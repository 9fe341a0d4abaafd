//! The whole: two engines, a gateway, clients, and the messages between them.
//!
//! A state is a value. [`World::events`] says what may happen next, [`World::after`] makes the
//! state in which it has. What an event does is what the cores do; what is modelled here is the
//! network (a set of messages, from which any may come next, but those of one stream in their
//! order), the ways in which a call ends, and death.

mod happen;
mod may;

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use tl_kv::invariants::Invariant;
use tl_kv::lock;

use crate::check::{Broken, SETTLED};
use crate::decode::Decode;
use crate::event::Event;
use crate::gateway::{Client, Gateway, Told};
use crate::hash::{Exact, Key128};
use crate::message::Message;
use crate::prefill::{Prefill, compute};
use crate::setting::{Defect, Faults, Setting};
use crate::view::View;

/// A part of the state, shared by the states in which it is the same.
#[derive(Debug)]
struct Part<T> {
    value: Rc<T>,
    key: u128,
    changed: bool,
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self { value: Rc::clone(&self.value), key: self.key, changed: false }
    }
}

impl<T> std::ops::Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Part<T> {
    fn new(value: T) -> Self {
        Self { value: Rc::new(value), key: 0, changed: true }
    }

    /// To change it, in this state alone.
    fn change(&mut self, fork: impl FnOnce(&T) -> T) -> &mut T {
        self.changed = true;
        if Rc::get_mut(&mut self.value).is_none() {
            self.value = Rc::new(fork(&self.value));
        }
        Rc::get_mut(&mut self.value).expect("the only one, as of now")
    }

    fn settle(&mut self, again: bool, state: impl FnOnce(&T, &mut Key128)) {
        if self.changed || again {
            let mut key = Key128::default();
            state(&self.value, &mut key);
            self.key = key.key();
        }
    }
}

/// Names not used yet. No part of what makes two states equal: any fresh name is as good.
#[derive(Clone, Debug, Default)]
struct Fresh {
    job: u8,
    push: u8,
    run: u8,
    /// The request of each handle and call named so far, from the first on.
    owners: Vec<u8>,
}

/// What an event may do to everything but the party that it happens to.
#[derive(Debug)]
pub struct Effects<'a> {
    pub(crate) setting: &'a Setting,
    net: &'a mut Vec<Message>,
    clients: &'a mut Vec<Client>,
    fresh: &'a mut Fresh,
    notes: Option<&'a mut Vec<String>>,
}

impl Effects<'_> {
    pub(crate) fn send(&mut self, message: Message) {
        let at = self.net.partition_point(|m| *m < message);
        self.net.insert(at, message);
    }

    pub(crate) fn note(&mut self, note: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(note());
        }
    }

    pub(crate) fn fresh_push(&mut self) -> u8 {
        self.fresh.push += 1;
        self.fresh.push
    }

    pub(crate) fn fresh_run(&mut self) -> u8 {
        self.fresh.run += 1;
        self.fresh.run
    }

    /// A handle, or the name of a call without one.
    pub(crate) fn fresh_handle(&mut self, request: u8) -> u8 {
        self.fresh.owners.push(request);
        self.fresh.owners.len() as u8
    }

    pub(crate) fn request_of(&self, handle: u8) -> u8 {
        self.fresh.owners.get(usize::from(handle).wrapping_sub(1)).copied().unwrap_or(0)
    }

    pub(crate) fn hand_over(&mut self, request: u8, token: u16) -> Result<(), Broken> {
        self.clients[usize::from(request)].hand_over(request, token, self.setting.streamed)
    }

    pub(crate) fn take_back(&mut self, request: u8) -> Result<(), Broken> {
        if self.setting.defect == Defect::NoRestart {
            return Ok(());
        }
        self.clients[usize::from(request)].take_back(request)
    }

    pub(crate) fn tell(&mut self, request: u8, told: Told) -> Result<(), Broken> {
        self.note(|| format!("client {request} is told: {told:?}"));
        self.clients[usize::from(request)].tell(request, told)
    }
}

/// One state of everything.
#[derive(Clone, Debug)]
pub struct World {
    p: Part<Prefill>,
    d: Part<Decode>,
    g: Part<Gateway>,
    /// Sorted.
    net: Vec<Message>,
    clients: Vec<Client>,
    fresh: Fresh,
    /// Faults that have struck.
    spent: Faults,
    /// What of its names matters.
    view: Rc<View>,
}

impl World {
    /// Requests have arrived at a gateway that knows both engines; nothing else has happened.
    pub fn new(setting: &Setting) -> Self {
        let p = Prefill::new(setting, 1);
        let d = Decode::new(setting, 1);
        if setting.warm {
            for pool in [&p.pool, &d.pool] {
                drop(compute(pool, 0));
            }
        }
        let mut g = Gateway::new();
        g.beat(0, 1, setting.p_blocks, setting);
        g.beat(1, 1, setting.d_blocks, setting);
        let clients = (0..setting.requests).map(|_| Client::new()).collect();
        for _ in 0..setting.requests {
            g.begin(setting);
        }
        let mut world = Self {
            p: Part::new(p),
            d: Part::new(d),
            g: Part::new(g),
            net: Vec::new(),
            clients,
            fresh: Fresh::default(),
            spent: Faults::NONE,
            view: Rc::default(),
        };
        world.settle();
        world
    }

    fn settle(&mut self) {
        let view = View::of(&self.p, &self.d, &self.net);
        let again = view != *self.view;
        if again {
            self.view = Rc::new(view);
        }
        let view = &self.view;
        self.p.settle(again, |p, key| p.state(view, key));
        self.d.settle(again, |d, key| d.state(view, key));
        self.g.settle(again, |g, key| g.state(view, key));
    }

    /// The state as a key, see [`crate::hash`].
    pub fn key(&self, setting: &Setting) -> u128 {
        let mut key = Key128::default();
        for part in [self.p.key, self.d.key, self.g.key] {
            key.write_u64(part as u64);
            key.write_u64((part >> 64) as u64);
        }
        self.rest(setting, &mut key);
        key.key()
    }

    /// Everything that decides how the state goes on, as it is.
    pub fn exact(&self, setting: &Setting) -> Vec<u8> {
        let mut all = Exact::default();
        self.p.state(&self.view, &mut all);
        self.d.state(&self.view, &mut all);
        self.g.state(&self.view, &mut all);
        self.rest(setting, &mut all);
        all.0
    }

    fn rest(&self, setting: &Setting, out: &mut impl Hasher) {
        self.net.len().hash(out);
        for message in &self.net {
            self.view.message(message, out);
        }
        self.clients.hash(out);
        // Once none may strike any more, which ones did is of the past.
        if self.spent.total < setting.faults.total {
            self.spent.hash(out);
        }
    }

    /// The state after an event, with its checks; `notes` are told what a reader wants to know.
    pub fn after(
        &self,
        event: Event,
        setting: &Setting,
        notes: Option<&mut Vec<String>>,
    ) -> Result<World, Broken> {
        let mut next = self.clone();
        next.happen(event, setting, notes)?;
        next.forget_unheard();
        next.settle();
        next.check(setting)?;
        Ok(next)
    }

    /// The rules of every state.
    fn check(&self, setting: &Setting) -> Result<(), Broken> {
        if self.p.changed {
            let pool = lock(&self.p.pool);
            pool.check()?;
            pool.check_owners(self.p.owners())?;
        }
        if self.d.changed {
            let pool = lock(&self.d.pool);
            pool.check()?;
            pool.check_owners(self.d.owners())?;
            self.d.table.check_at(self.d.now)?;
            let over = self.d.table.next_deadline().is_some_and(|at| at <= self.d.now);
            if over && !setting.late {
                let detail = "a handle's time is over and it is still live";
                return Err(Broken::new(Invariant::LeaseEnds.name(), detail));
            }
        }
        Ok(())
    }

    /// The rules of a state in which nothing more can happen by itself.
    pub fn check_end(&self, setting: &Setting) -> Result<(), Broken> {
        let (p, d) = (lock(&self.p.pool).stats(), lock(&self.d.pool).stats());
        let told = |c: &Client| c.told.is_some() || !c.here;
        let findings = [
            (p.used > 0, "P's blocks are used for ever"),
            (d.used > 0, "D's blocks are used for ever"),
            (!self.p.jobs.is_empty(), "a call on P never ends"),
            (!self.d.sessions.is_empty(), "a push on D never ends"),
            (!self.d.runs.is_empty(), "a run on D never ends"),
            (self.d.table.live() > 0, "a handle on D never ends"),
            (self.g.leads.iter().any(Option::is_some), "the gateway leads a request for ever"),
            (self.g.promised(setting) > 0, "the gateway's promises are never given back"),
            (!self.clients.iter().all(told), "a client is never told"),
        ];
        match findings.into_iter().find(|(found, _)| *found) {
            Some((_, detail)) => Err(Broken::new(SETTLED, detail)),
            None => Ok(()),
        }
    }

    /// How the clients' requests ended so far.
    pub fn outcomes(&self) -> Vec<Option<Told>> {
        self.clients.iter().map(|client| client.told).collect()
    }

    /// What an event does, in words, as of this state.
    pub fn describe(&self, event: Event) -> String {
        event.describe(|i| self.net[usize::from(i)].to_string())
    }
}
