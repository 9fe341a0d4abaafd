//! What an event does.

use std::rc::Rc;

use tl_kv::handoff::SendFact;
use tl_kv::{Code, lock};

use super::{Effects, Part, World};
use crate::check::Broken;
use crate::decode::Decode;
use crate::event::Event;
use crate::gateway::{Gateway, Told};
use crate::message::{Message, Verdict, name};
use crate::prefill::{Job, Prefill, Stage};
use crate::setting::Setting;
use crate::view::View;

impl World {
    pub(super) fn happen(
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
                gateway.beat(usize::from(engine), life, blocks - used, setting);
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
            Event::Timer => d.change(Decode::fork).timer(&mut fx),
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
                    Ok((received, deduped)) => {
                        SendFact::Acked { handle_id: name(handle).to_owned(), received, deduped }
                    }
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
    pub(super) fn forget_unheard(&mut self) {
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
                view.comes(*handle) || d.table.values().any(|(h, _)| h == name(*handle))
            }
            Message::Cancel { handle } => {
                coming.contains(handle) || p.jobs.iter().any(|j| j.handle == *handle)
            }
            _ => true,
        });
    }
}
