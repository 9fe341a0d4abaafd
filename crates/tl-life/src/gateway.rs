//! The gateway: its real attempts, its real registry, its real routing.
//!
//! Modelled is what carries out an attempt's actions (`tl_gateway::server::drive`), one per
//! request, and the client at its other end.

use std::hash::{Hash, Hasher};

use tl_api::config::RoutePolicy;
use tl_gateway::attempt::{
    Action, Attempt, DecodeFailure, End, Fact, First, PrefillFailure, prefill_failure,
};
use tl_gateway::registry::ledger::Ticket;
use tl_gateway::registry::{Registry, Slot};
use tl_gateway::route::{Blocked, Demand, Plan, Policy, Router, Tried, Want, plan};
use tl_proto::control::v1::WorkerStatus;

use crate::check::{Broken, ONE_OUTCOME, RIGHT_TOKENS};
use crate::content::{B, answer, first_token, prompt};
use crate::message::{Item, Message, Verdict, name, number};
use crate::setting::{Defect, Setting};
use crate::view::View;
use crate::world::Effects;

const MODEL: &str = "m";

/// A gateway in one of its lives.
#[derive(Clone, Debug)]
pub struct Gateway {
    pub registry: Registry,
    /// By request; `None` once its client has been told.
    pub leads: Vec<Option<Lead>>,
    /// Lives of P and D as their latest beats named them; 0 before one.
    pub known: [u64; 2],
}

/// One request being led.
#[derive(Clone, Debug)]
pub struct Lead {
    attempt: Attempt,
    pub wait: Wait,
    current: Option<Current>,
    /// Looked again so often after somebody was full.
    pub patience: u8,
    /// The decode engine's latest output, not handed over.
    output: Option<u16>,
}

/// The engines of the present attempt, and what they were promised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Current {
    decode: (Slot, Ticket),
    prefill: Option<(Slot, Ticket)>,
}

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    Nothing,
    Route(Tried),
    Prefill {
        handle: u8,
    },
    /// `run` is set by the first answer.
    Call {
        call: u8,
        run: Option<u8>,
    },
}

/// Who asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Has not left.
    pub here: bool,
    /// Tokens that reached it.
    pub got: Vec<u16>,
    /// Tokens that wait in the gateway for a whole answer.
    gathered: Vec<u16>,
    pub told: Option<Told>,
}

/// The outcome a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Finished,
    Failed,
    /// Its connection broke with the gateway.
    CutOff,
}

/// A beat of one of the engines.
fn beat(role: &str, incarnation: u64, blocks: u32) -> WorkerStatus {
    let port = if role == "decode" { 200 } else { 100 };
    WorkerStatus {
        worker_id: role.to_owned(),
        http_address: format!("127.0.0.1:{port}"),
        grpc_address: format!("127.0.0.1:{}", port + 1),
        kv_address: if role == "decode" {
            format!("127.0.0.1:{}", port + 2)
        } else {
            String::new()
        },
        role: role.to_owned(),
        model: MODEL.to_owned(),
        kv_format: 1,
        kv_free_blocks: blocks as i32,
        kv_total_blocks: blocks as i32,
        incarnation,
        model_fingerprint: 7,
        block_size: B as u32,
        layers: 1,
        kv_heads: 1,
        head_dim: 1,
        kv_formats_read: vec![1],
        ..WorkerStatus::default()
    }
}

impl Gateway {
    /// A gateway that knows nobody and leads nothing.
    pub(crate) fn new() -> Self {
        Self { registry: Registry::new(3), leads: Vec::new(), known: [0, 0] }
    }

    pub(crate) fn state(&self, view: &View, out: &mut impl Hasher) {
        self.registry.state(out);
        self.known.hash(out);
        self.leads.len().hash(out);
        for lead in &self.leads {
            lead.is_some().hash(out);
            if let Some(Lead { attempt, wait, current, patience, output }) = lead {
                (attempt, current, patience, output).hash(out);
                match wait {
                    Wait::Call { call, run } => (call, run.map(|run| view.run(run))).hash(out),
                    other => other.hash(out),
                }
            }
        }
    }

    /// A request arrives.
    pub(crate) fn begin(&mut self, setting: &Setting) {
        let attempt = Attempt::new(MODEL, setting.streamed, setting.max_attempts);
        let wait = match attempt.start().pop() {
            Some(Action::Route(tried)) => Wait::Route(tried),
            _ => Wait::Nothing,
        };
        self.leads.push(Some(Lead { attempt, wait, current: None, patience: 0, output: None }));
    }

    /// An engine's heartbeat.
    pub(crate) fn beat(&mut self, engine: usize, incarnation: u64, blocks: u32, setting: &Setting) {
        let role = ["prefill", "decode"][engine];
        let beaten = self.registry.beat(setting.epoch, &beat(role, incarnation, blocks));
        debug_assert!(beaten.is_ok(), "the model's own beat is sound");
        self.known[engine] = incarnation;
    }

    fn lead(&self, request: u8) -> Option<&Lead> {
        self.leads.get(usize::from(request))?.as_ref()
    }

    /// What a request waits for; nothing once it has ended.
    pub(crate) fn wait(&self, request: u8) -> Option<&Wait> {
        self.lead(request).map(|lead| &lead.wait)
    }

    /// The request that waits for this prefill.
    pub(crate) fn waits_for_prefill(&self, handle: u8) -> Option<u8> {
        self.find(|wait| matches!(wait, Wait::Prefill { handle: h } if *h == handle))
    }

    /// The request that listens to this run of this call.
    pub(crate) fn listens(&self, call: u8, run: u8) -> Option<u8> {
        self.find(|wait| matches!(wait, Wait::Call { call: c, run: r } if *c == call && r.is_none_or(|r| r == run)))
    }

    fn find(&self, is: impl Fn(&Wait) -> bool) -> Option<u8> {
        let found = self.leads.iter().position(|l| l.as_ref().is_some_and(|l| is(&l.wait)));
        found.map(|i| i as u8)
    }

    fn plan(&self, request: u8, tried: &Tried, setting: &Setting) -> Plan {
        let demand = Demand { prompt_tokens: prompt(request).len() as u64, answer_tokens: 1 };
        let want = Want { model: MODEL, key: &[], demand, targets: &[], tried };
        let policy = Policy { kind: RoutePolicy::LeastOutstanding, load_factor: 1.25 };
        plan(&self.registry, &mut Router::default(), policy, &want, setting.epoch)
    }

    /// What routing would say now: `None` when it would wait for room.
    pub(crate) fn can_route(&self, request: u8, setting: &Setting) -> bool {
        match self.wait(request) {
            Some(Wait::Route(tried)) => !matches!(
                self.plan(request, tried, setting),
                Plan::Blocked { why: Blocked::NoRoom, .. }
            ),
            _ => false,
        }
    }

    /// Routes a request, or says that its wait for room has ended.
    pub(crate) fn route(&mut self, request: u8, fx: &mut Effects<'_>) -> Result<(), Broken> {
        let Some(Wait::Route(tried)) = self.wait(request).cloned() else { return Ok(()) };
        let now = fx.setting.epoch;
        let fact = match self.plan(request, &tried, fx.setting) {
            Plan::Pair { prefill, decode, .. } => {
                let d = self.registry.begin(now, decode.slot, decode.blocks);
                let p = self.registry.begin(now, prefill.slot, prefill.blocks);
                let (Some(d), Some(p)) = (d, p) else { return Ok(()) };
                self.registry.link_entered(now, prefill.slot, decode.slot);
                let handle = fx.fresh_handle(request);
                self.set_current(
                    request,
                    Current { decode: (decode.slot, d), prefill: Some((prefill.slot, p)) },
                );
                let handle = name(handle).to_owned();
                Fact::RoutedPair { prefill: prefill.slot, decode: decode.slot, handle }
            }
            Plan::Alone { engine, .. } => {
                let Some(d) = self.registry.begin(now, engine.slot, engine.blocks) else {
                    return Ok(());
                };
                self.set_current(request, Current { decode: (engine.slot, d), prefill: None });
                Fact::RoutedAlone { engine: engine.slot }
            }
            Plan::Blocked { why, .. } => Fact::NotRouted(why),
        };
        self.fact(request, fact, fx)
    }

    /// Who was full a moment ago may have room now.
    pub(crate) fn look_again(&mut self, request: u8) {
        if let Some(Some(lead)) = self.leads.get_mut(usize::from(request)) {
            lead.patience += 1;
            if let Wait::Route(tried) = &mut lead.wait {
                tried.avoid.clear();
            }
        }
    }

    /// Whether a request waits for somebody who was full for it.
    pub(crate) fn avoids(&self, request: u8) -> Option<u8> {
        let lead = self.lead(request)?;
        matches!(&lead.wait, Wait::Route(tried) if !tried.avoid.is_empty()).then_some(lead.patience)
    }

    fn set_current(&mut self, request: u8, current: Current) {
        self.end_current(request, false);
        if let Some(Some(lead)) = self.leads.get_mut(usize::from(request)) {
            lead.current = Some(current);
        }
    }

    /// Ends what the engines of the present attempt were promised.
    fn end_current(&mut self, request: u8, prefill_only: bool) {
        let Some(Some(lead)) = self.leads.get_mut(usize::from(request)) else { return };
        let Some(current) = &mut lead.current else { return };
        if let Some((slot, ticket)) = current.prefill.take() {
            self.registry.end(slot, ticket);
        }
        if !prefill_only {
            let (slot, ticket) = current.decode;
            self.registry.end(slot, ticket);
            lead.current = None;
        }
    }

    /// The answer of a prefill, or that none came.
    pub(crate) fn prefilled(
        &mut self,
        request: u8,
        verdict: Option<&Verdict>,
        fx: &mut Effects<'_>,
    ) -> Result<(), Broken> {
        self.end_current(request, true);
        self.set_wait(request, Wait::Nothing);
        let fact = match verdict {
            Some(Verdict::Delivered) => Fact::Prefilled(First {
                token: u32::from(first_token(request)),
                draws: 0,
                has_text: true,
                ends: false,
            }),
            Some(Verdict::Refused { code, of_decode }) => {
                let text = if *of_decode { "kv transfer: " } else { "" };
                Fact::PrefillFailed(prefill_failure(tonic::Code::from_i32(*code), text, true))
            }
            None => Fact::PrefillFailed(PrefillFailure::Deadline),
        };
        self.fact(request, fact, fx)
    }

    fn set_wait(&mut self, request: u8, wait: Wait) {
        if let Some(Some(lead)) = self.leads.get_mut(usize::from(request)) {
            lead.wait = wait;
        }
    }

    /// Something of a decode engine's stream, or `None` when it broke or stalled.
    pub(crate) fn decoded(
        &mut self,
        request: u8,
        run: u8,
        item: Option<&Item>,
        fx: &mut Effects<'_>,
    ) -> Result<(), Broken> {
        let Some(Some(lead)) = self.leads.get_mut(usize::from(request)) else { return Ok(()) };
        if let (Wait::Call { run: bound, .. }, Some(_)) = (&mut lead.wait, item) {
            *bound = Some(run);
        }
        let fact = match item {
            Some(Item::Accepted) => Fact::DecodeAccepted,
            Some(Item::Token(token)) => {
                lead.output = Some(*token);
                Fact::DecodeOutput
            }
            Some(Item::End) => Fact::DecodeEnded,
            Some(Item::NoHandle) => Fact::DecodeFailed(DecodeFailure::Handle),
            Some(Item::Full) => Fact::DecodeFailed(DecodeFailure::Full),
            None => Fact::DecodeFailed(DecodeFailure::Fault),
        };
        self.fact(request, fact, fx)
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn client_gone(&mut self, request: u8, fx: &mut Effects<'_>) -> Result<(), Broken> {
        if fx.setting.defect == Defect::ReleaseBeforeAnswer {
            if let Some(Wait::Prefill { handle }) = self.wait(request).cloned() {
                fx.send(Message::Cancel { handle });
                fx.send(Message::Release { handle });
                self.end_current(request, false);
                self.leads[usize::from(request)] = None;
                return Ok(());
            }
        }
        self.fact(request, Fact::ClientGone, fx)
    }

    fn fact(&mut self, request: u8, fact: Fact, fx: &mut Effects<'_>) -> Result<(), Broken> {
        let Some(Some(lead)) = self.leads.get_mut(usize::from(request)) else { return Ok(()) };
        let actions = lead.attempt.on(fact);
        for action in actions {
            self.carry_out(request, action, fx)?;
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        request: u8,
        action: Action,
        fx: &mut Effects<'_>,
    ) -> Result<(), Broken> {
        let now = fx.setting.epoch;
        match action {
            Action::Route(tried) => {
                self.end_current(request, false);
                self.set_wait(request, Wait::Route(tried));
            }
            Action::Prefill { handle, .. } => {
                let handle = number(&handle);
                self.set_wait(request, Wait::Prefill { handle });
                fx.send(Message::Prefill { handle, request });
            }
            Action::CancelPrefill { handle, .. } => {
                fx.send(Message::Cancel { handle: number(&handle) });
            }
            Action::Decode { handle, .. } => {
                let handle = number(&handle);
                self.set_wait(request, Wait::Call { call: handle, run: None });
                fx.send(Message::Resume { handle, request });
            }
            Action::ServeAlone { .. } => {
                let call = fx.fresh_handle(request);
                self.set_wait(request, Wait::Call { call, run: None });
                fx.send(Message::Whole { call, request });
            }
            Action::SendFirst => fx.hand_over(request, first_token(request))?,
            Action::SendDecoded => {
                let output =
                    self.leads[usize::from(request)].as_mut().and_then(|l| l.output.take());
                if let Some(token) = output {
                    fx.hand_over(request, token)?;
                }
            }
            Action::Restart => fx.take_back(request)?,
            Action::StopDecode => self.set_wait(request, Wait::Nothing),
            Action::Release { handle, .. } => {
                if fx.setting.defect != Defect::NoRelease {
                    fx.send(Message::Release { handle: number(&handle) });
                }
            }
            Action::Blame(slot) => drop(self.registry.failed(now, slot)),
            Action::Praise(slot) => self.registry.succeeded(slot),
            Action::BlameLink { prefill, decode } => {
                self.registry.link_failed(now, prefill, decode);
            }
            Action::PraiseLink { prefill, decode } => self.registry.link_succeeded(prefill, decode),
            Action::End(end) => {
                if fx.setting.defect != Defect::NoLedger {
                    self.end_current(request, false);
                }
                self.leads[usize::from(request)] = None;
                match end {
                    End::Gone => {}
                    End::Failed(_) => fx.tell(request, Told::Failed)?,
                    End::FinishedByPrefill | End::FinishedByDecode => {
                        fx.tell(request, Told::Finished)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Requests and blocks that engines were promised.
    pub(crate) fn promised(&self, setting: &Setting) -> u32 {
        self.registry.live(setting.epoch).map(tl_gateway::registry::Worker::in_flight).sum()
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { here: true, ..Self::default() }
    }

    /// A token leaves the gateway, or waits there for the rest.
    pub(crate) fn hand_over(
        &mut self,
        request: u8,
        token: u16,
        streamed: bool,
    ) -> Result<(), Broken> {
        if self.told.is_some() {
            return Err(Broken::new(
                ONE_OUTCOME,
                format!("request {request} gets a token after its end"),
            ));
        }
        let list = if streamed { &mut self.got } else { &mut self.gathered };
        list.push(token);
        if self.here { self.check(request) } else { Ok(()) }
    }

    /// What was gathered is made again.
    pub(crate) fn take_back(&mut self, request: u8) -> Result<(), Broken> {
        self.gathered.clear();
        if self.got.is_empty() {
            return Ok(());
        }
        Err(Broken::new(
            RIGHT_TOKENS,
            format!("tokens of request {request} are taken back that have left"),
        ))
    }

    pub(crate) fn tell(&mut self, request: u8, told: Told) -> Result<(), Broken> {
        if self.told.replace(told).is_some() {
            return Err(Broken::new(
                ONE_OUTCOME,
                format!("request {request} is told two outcomes"),
            ));
        }
        if told == Told::Finished {
            self.got.append(&mut self.gathered);
        }
        self.gathered.clear();
        self.check(request)
    }

    fn check(&self, request: u8) -> Result<(), Broken> {
        let right = answer(request);
        let list = if self.got.is_empty() { &self.gathered } else { &self.got };
        let whole = self.told != Some(Told::Finished) || self.got == right;
        if right.starts_with(list) && whole {
            return Ok(());
        }
        Err(Broken::new(
            RIGHT_TOKENS,
            format!("request {request} has {list:?} ({:?}), right is {right:?}", self.told),
        ))
    }
}
