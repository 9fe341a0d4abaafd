//! The whole: two engines, a gateway, clients, and the messages between them.
//!
//! A state is a value. [`World::events`] says what may happen next, [`World::after`] makes the
//! state in which it has. What an event does is what the cores do; what is modelled here is the
//! network (a set of messages, from which any may come next, but those of one stream in their
//! order), the ways in which a call ends, and death.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use tl_kv::handoff::SendFact;
use tl_kv::invariants::Invariant;
use tl_kv::{Code, crc32c, lock};

use crate::check::{Broken, SETTLED};
use crate::decode::Decode;
use crate::event::Event;
use crate::gateway::{Client, Gateway, Told, Wait};
use crate::hash::Key128;
use crate::message::{Message, Verdict};
use crate::prefill::{Job, Prefill, Stage, compute, has_room};
use crate::setting::{Faults, Setting};
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
        if self.setting.defect == crate::setting::Defect::NoRestart {
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

fn free(used: u32, blocks: u32) -> u32 {
    blocks - used
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
        let mut all = crate::hash::Exact::default();
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

    /// Nobody is going to answer this prefill.
    fn no_prefill_answer(&self, handle: u8) -> bool {
        !self.p.jobs.iter().any(|job| job.handle == handle)
            && !self.net.iter().any(|m| match m {
                Message::Prefill { handle: h, .. } | Message::Prefilled { handle: h, .. } => {
                    *h == handle
                }
                _ => false,
            })
    }

    /// Nothing more comes of this call.
    fn no_call_answer(&self, call: u8) -> bool {
        !self.d.runs.iter().any(|run| run.call == call)
            && !self.net.iter().any(|m| match m {
                Message::Resume { handle: c, .. }
                | Message::Whole { call: c, .. }
                | Message::Stream { call: c, .. } => *c == call,
                _ => false,
            })
    }

    /// Nobody is going to answer this transfer.
    fn no_push_answer(&self, job: &Job) -> bool {
        match &job.stage {
            Stage::Queued => false,
            Stage::Asking { .. } => !self.net.iter().any(|m| {
                matches!(m, Message::Has { job: j, .. } | Message::HasAnswer { job: j, .. } if *j == job.id)
            }),
            Stage::Pushing { stream, .. } => {
                stream.lent.block(stream.next).is_none()
                    && !self.d.sessions.iter().any(|s| s.push == stream.push)
                    && !self.net.iter().any(|m| match m {
                        Message::Chunk { push, .. }
                        | Message::Close { push }
                        | Message::PushAnswer { push, .. } => *push == stream.push,
                        _ => false,
                    })
            }
        }
    }

    /// What may happen now. Everything the parties do by themselves comes before what befalls
    /// them.
    pub fn events(&self, setting: &Setting) -> Vec<Event> {
        let mut events = Vec::new();
        let first_of = |i: usize| i == 0 || self.net[i - 1] != self.net[i];
        let behind = |i: usize| {
            let stream = self.net[i].stream();
            stream.is_some()
                && self.net[..i].iter().any(|m| m.stream() == stream && *m != self.net[i])
        };
        let messages: Vec<u8> =
            (0..self.net.len()).filter(|&i| first_of(i)).map(|i| i as u8).collect();
        for &i in messages.iter().filter(|&&i| !behind(usize::from(i))) {
            events.push(Event::Deliver(i));
        }
        self.gateway_events(setting, &mut events);
        self.engine_events(setting, &mut events);
        for (request, client) in (0..).zip(&self.clients) {
            if setting.leave && client.here && client.told.is_none() {
                events.push(Event::Leave(request));
            }
        }
        let (max, spent) = (&setting.faults, &self.spent);
        if spent.total >= max.total {
            return events;
        }
        let mut fault = |may: bool, event: Event| {
            if may {
                events.push(event);
            }
        };
        fault(spent.crash_p < max.crash_p, Event::CrashP);
        fault(spent.crash_d < max.crash_d, Event::CrashD);
        let leads = self.g.leads.iter().any(Option::is_some);
        fault(spent.crash_g < max.crash_g && leads, Event::CrashG);
        let cached = lock(&self.d.pool).stats().cached > 0;
        fault(spent.evict < max.evict && cached, Event::Evict);
        for &i in &messages {
            let message = &self.net[usize::from(i)];
            fault(spent.lose < max.lose, Event::Lose(i));
            fault(spent.duplicate < max.duplicate && message.may_double(), Event::Duplicate(i));
            let sound = matches!(message, Message::Chunk { chunk, .. }
                if !chunk.payload.is_empty() && crc32c(&chunk.payload) == chunk.crc32c);
            fault(spent.damage < max.damage && sound, Event::Damage(i));
            let chunk = matches!(message, Message::Chunk { .. } | Message::Close { .. });
            fault(
                spent.overtake < max.overtake && chunk && behind(usize::from(i)),
                Event::Overtake(i),
            );
        }
        events
    }

    fn gateway_events(&self, setting: &Setting, events: &mut Vec<Event>) {
        for request in 0..setting.requests {
            match self.g.wait(request) {
                Some(Wait::Route(_)) => {
                    if self.g.can_route(request, setting) {
                        events.push(Event::Route(request));
                    } else {
                        events.push(Event::RouteEnds(request));
                    }
                    if self.g.avoids(request).is_some_and(|n| n < setting.patience) {
                        events.push(Event::LookAgain(request));
                    }
                }
                Some(Wait::Prefill { handle }) => {
                    let broken = self.no_prefill_answer(*handle);
                    if broken || setting.delay {
                        events.push(Event::NoPrefill { request, broken });
                    }
                }
                Some(Wait::Call { call, .. }) => {
                    let broken = self.no_call_answer(*call);
                    if broken || setting.delay {
                        events.push(Event::NoDecode { request, broken });
                    }
                }
                Some(Wait::Nothing) | None => {}
            }
        }
        if self.g.leads.iter().any(Option::is_some) {
            for (engine, life) in [self.p.incarnation, self.d.incarnation].into_iter().enumerate() {
                if self.g.known[engine] != life {
                    events.push(Event::Beat(engine as u8));
                }
            }
        }
    }

    fn engine_events(&self, setting: &Setting, events: &mut Vec<Event>) {
        for job in &self.p.jobs {
            match &job.stage {
                Stage::Queued if has_room(&self.p.pool, job.request) => {
                    events.push(Event::Compute(job.id));
                }
                Stage::Queued => events.push(Event::QueueEnds(job.id)),
                Stage::Asking { .. } => {}
                Stage::Pushing { stream, .. } => {
                    if stream.lent.block(stream.next).is_some() {
                        events.push(Event::SendChunk(stream.push));
                    }
                }
            }
            let broken = self.no_push_answer(job);
            if broken || (setting.delay && !matches!(job.stage, Stage::Queued)) {
                events.push(Event::NoTransfer { job: job.id, broken });
            }
            if self.g.waits_for_prefill(job.handle).is_none() {
                events.push(Event::CallerGone(job.id));
            }
        }
        events.extend(self.p.zombies.iter().map(|z| Event::SendChunk(z.push)));
        for session in &self.d.sessions {
            if !session.incoming.lives(&self.d.table) {
                if setting.defect != crate::setting::Defect::NoWake {
                    events.push(Event::Woken(session.push));
                }
            } else if !self.p.sends(session.push) {
                events.push(Event::StreamGone(session.push));
            }
        }
        for run in &self.d.runs {
            events.push(Event::Step(run.id));
            if self.g.listens(run.call, run.id).is_none() {
                events.push(Event::RunGone(run.id));
            }
        }
        let comes = |handle: &str| self.view.comes(crate::message::number(handle));
        if setting.time && self.d.table.waits(comes) {
            events.push(Event::Tick);
        }
        if setting.fence && self.p.incarnation > 1 && !self.d.has_fenced(self.p.incarnation - 1) {
            events.push(Event::Fence);
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
        next.check()?;
        Ok(next)
    }

    fn happen(
        &mut self,
        event: Event,
        setting: &Setting,
        notes: Option<&mut Vec<String>>,
    ) -> Result<(), Broken> {
        let delivered = match event {
            Event::Deliver(i) | Event::Overtake(i) | Event::Lose(i) => {
                Some(self.net.remove(usize::from(i)))
            }
            _ => None,
        };
        self.spend(event);
        let World { p, d, g, net, clients, fresh, .. } = self;
        let mut fx = Effects { setting, net, clients, fresh, notes };
        match event {
            Event::Deliver(_) | Event::Overtake(_) => {
                if let Some(message) = delivered {
                    return Self::deliver(p, d, g, message, &mut fx);
                }
            }
            Event::Lose(_) => {
                // An answer's body has no holes: what is lost of it breaks its connection.
                if let Some(Message::Stream { run, .. }) = delivered {
                    fx.net.retain(|m| m.stream() != Some((1, run)));
                    d.change(Decode::fork).drop_run(run);
                }
            }
            Event::Duplicate(i) => {
                let copy = fx.net[usize::from(i)].clone();
                fx.send(copy);
            }
            Event::Damage(i) => {
                if let Message::Chunk { push, index, chunk } = fx.net.remove(usize::from(i)) {
                    let mut chunk = Rc::unwrap_or_clone(chunk);
                    // The first K value of the block.
                    chunk.payload[40] ^= 1;
                    fx.send(Message::Chunk { push, index, chunk: Rc::new(chunk) });
                }
            }
            Event::Evict => drop(lock(&d.change(Decode::fork).pool).reset_cache()),
            Event::CrashP => *p = Part::new(Prefill::new(setting, p.incarnation + 1)),
            Event::CrashD => {
                *d = Part::new(Decode::new(setting, d.incarnation + 1));
                fx.net.retain(|m| !matches!(m, Message::Chunk { .. } | Message::Close { .. }));
            }
            Event::CrashG => {
                let gateway = g.change(Gateway::clone);
                let led: Vec<bool> = gateway.leads.iter().map(Option::is_some).collect();
                *gateway = Gateway::new();
                gateway.leads = led.iter().map(|_| None).collect();
                for (request, led) in (0..).zip(led) {
                    let waits = led && fx.clients[usize::from(request)].told.is_none();
                    if waits && fx.clients[usize::from(request)].here {
                        fx.tell(request, Told::CutOff)?;
                    }
                }
            }
            Event::Leave(request) => {
                fx.clients[usize::from(request)].here = false;
                return g.change(Gateway::clone).client_gone(request, &mut fx);
            }
            Event::Route(request) | Event::RouteEnds(request) => {
                return g.change(Gateway::clone).route(request, &mut fx);
            }
            Event::LookAgain(request) => g.change(Gateway::clone).look_again(request),
            Event::NoPrefill { request, broken } => {
                let code = tonic::Code::Internal as i32;
                let failed = Verdict::Refused { code, of_decode: false };
                let verdict = broken.then_some(&failed);
                return g.change(Gateway::clone).prefilled(request, verdict, &mut fx);
            }
            Event::NoDecode { request, .. } => {
                return g.change(Gateway::clone).decoded(request, 0, None, &mut fx);
            }
            Event::Beat(engine) => {
                let (life, used, blocks) = if engine == 0 {
                    (p.incarnation, lock(&p.pool).stats().used, setting.p_blocks)
                } else {
                    (d.incarnation, lock(&d.pool).stats().used, setting.d_blocks)
                };
                let gateway = g.change(Gateway::clone);
                gateway.beat(usize::from(engine), life, free(used, blocks), setting);
            }
            Event::Compute(job) => p.change(Prefill::fork).compute(job, &mut fx),
            Event::QueueEnds(job) => {
                let code = tonic::Code::ResourceExhausted as i32;
                let verdict = Verdict::Refused { code, of_decode: false };
                p.change(Prefill::fork).end(job, verdict, false, &mut fx);
            }
            Event::SendChunk(push) => return p.change(Prefill::fork).send_chunk(push, &mut fx),
            Event::NoTransfer { job, .. } => {
                let asking =
                    p.jobs.iter().any(|j| j.id == job && matches!(j.stage, Stage::Asking { .. }));
                let code = Code::Unavailable;
                let fact =
                    if asking { SendFact::AskFailed(code) } else { SendFact::PushFailed(code) };
                p.change(Prefill::fork).fact(job, &fact, &mut fx);
            }
            Event::CallerGone(job) => p.change(Prefill::fork).abandon(job, true, &mut fx),
            Event::Step(run) => return d.change(Decode::fork).step(run, &mut fx),
            Event::StreamGone(push) => {
                d.change(Decode::fork).drop_session(push, false);
                fx.net.retain(|m| m.stream() != Some((0, push)));
            }
            Event::Woken(push) => {
                d.change(Decode::fork).drop_session(push, false);
                let answer = Err(tonic::Code::Aborted as i32);
                fx.send(Message::PushAnswer { push, answer });
            }
            Event::RunGone(run) => d.change(Decode::fork).drop_run(run),
            Event::Tick => d.change(Decode::fork).tick(&mut fx),
            Event::Fence => d.change(Decode::fork).fence(p.incarnation - 1),
        }
        Ok(())
    }

    fn deliver(
        p: &mut Part<Prefill>,
        d: &mut Part<Decode>,
        g: &mut Part<Gateway>,
        message: Message,
        fx: &mut Effects<'_>,
    ) -> Result<(), Broken> {
        match message {
            Message::Prefill { handle, request } => {
                fx.fresh.job += 1;
                let job = Job { id: fx.fresh.job, handle, request, stage: Stage::Queued };
                p.change(Prefill::fork).jobs.push(job);
            }
            Message::Cancel { handle } => p.change(Prefill::fork).cancel(handle, fx),
            Message::Prefilled { handle, verdict } => {
                if let Some(request) = g.waits_for_prefill(handle) {
                    return g.change(Gateway::clone).prefilled(request, Some(&verdict), fx);
                }
            }
            Message::Has { job, hashes } => {
                let present = d.has(&hashes);
                fx.send(Message::HasAnswer { job, present });
            }
            Message::HasAnswer { job, present } => {
                p.change(Prefill::fork).fact(job, &SendFact::Present(present), fx);
            }
            Message::Chunk { push, index, chunk } => {
                return d.change(Decode::fork).chunk(push, index, &chunk, fx);
            }
            Message::Close { push } => return d.change(Decode::fork).close(push, fx),
            Message::PushAnswer { push, answer } => {
                let Some(job) = p.job_of(push) else { return Ok(()) };
                let handle = p.jobs.iter().find(|j| j.id == job).map_or(0, |j| j.handle);
                let fact = match answer {
                    Ok((received, deduped)) => SendFact::Acked {
                        handle_id: crate::message::name(handle).to_owned(),
                        received,
                        deduped,
                    },
                    Err(code) => SendFact::PushFailed(Code::from_grpc(code)),
                };
                p.change(Prefill::fork).fact(job, &fact, fx);
            }
            Message::Release { handle } => d.change(Decode::fork).release(handle),
            Message::Resume { handle, request } => {
                d.change(Decode::fork).resume(handle, request, fx);
            }
            Message::Whole { call, request } => d.change(Decode::fork).whole(call, request, fx),
            Message::Stream { call, run, item, .. } => {
                if let Some(request) = g.listens(call, run) {
                    return g.change(Gateway::clone).decoded(request, run, Some(&item), fx);
                }
            }
        }
        Ok(())
    }

    fn spend(&mut self, event: Event) {
        let kind = match event {
            Event::CrashP => &mut self.spent.crash_p,
            Event::CrashD => &mut self.spent.crash_d,
            Event::CrashG => &mut self.spent.crash_g,
            Event::Lose(_) => &mut self.spent.lose,
            Event::Duplicate(_) => &mut self.spent.duplicate,
            Event::Damage(_) => &mut self.spent.damage,
            Event::Overtake(_) => &mut self.spent.overtake,
            Event::Evict => &mut self.spent.evict,
            _ => return,
        };
        *kind += 1;
        self.spent.total += 1;
    }

    /// Drops messages that nobody will ever hear: their addressee has stopped to listen, and no
    /// name is used twice.
    fn forget_unheard(&mut self) {
        let view = View::of(&self.p, &self.d, &self.net);
        let World { p, d, g, net, .. } = self;
        let coming: Vec<u8> = net
            .iter()
            .filter_map(
                |m| if let Message::Prefill { handle, .. } = m { Some(*handle) } else { None },
            )
            .collect();
        net.retain(|message| match message {
            Message::Prefilled { handle, .. } => g.waits_for_prefill(*handle).is_some(),
            Message::Has { job, .. } | Message::HasAnswer { job, .. } => {
                p.jobs.iter().any(|j| j.id == *job && matches!(j.stage, Stage::Asking { .. }))
            }
            Message::PushAnswer { push, .. } => p.job_of(*push).is_some(),
            Message::Stream { call, run, .. } => g.listens(*call, *run).is_some(),
            // Only a push that may still come, or a handle that waits, minds a release.
            Message::Release { handle } => {
                view.comes(*handle)
                    || d.table.values().any(|(h, _)| h == crate::message::name(*handle))
            }
            Message::Cancel { handle } => {
                coming.contains(handle) || p.jobs.iter().any(|j| j.handle == *handle)
            }
            _ => true,
        });
    }

    /// The rules of every state.
    fn check(&self) -> Result<(), Broken> {
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
            if self.d.table.next_deadline().is_some_and(|at| at <= self.d.now) {
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
