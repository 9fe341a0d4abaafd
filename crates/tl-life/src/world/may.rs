//! What may happen in a state.

use tl_kv::{crc32c, lock};

use super::World;
use crate::event::Event;
use crate::gateway::Wait;
use crate::message::{Message, number};
use crate::prefill::{Job, Stage, has_room};
use crate::setting::{Defect, Setting};

impl World {
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
                if setting.defect != Defect::NoWake {
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
        let comes = |handle: &str| self.view.comes(number(handle));
        if setting.time && self.d.table.waits(self.d.now, comes) {
            events.push(Event::Tick);
        }
        if setting.late && self.d.table.next_deadline().is_some_and(|at| at <= self.d.now) {
            events.push(Event::Timer);
        }
        if setting.fence && self.p.incarnation > 1 && !self.d.has_fenced(self.p.incarnation - 1) {
            events.push(Event::Fence);
        }
    }
}
