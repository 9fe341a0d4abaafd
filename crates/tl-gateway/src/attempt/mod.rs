//! One choice of one request, from routing to its last token: facts in, actions out.
//!
//! The machine decides everything that is easy to get wrong in code that awaits: which
//! failure excludes which engine, when a retry is still invisible to the client, who gives
//! back the blocks that may wait under a handle, and that the client gets one first token and
//! one outcome. It knows no sockets and no time; its driver carries out the actions in order
//! and reports what came of them.
//!
//! **Commitment.** A streamed answer is committed when its first byte leaves. Until then a
//! failed attempt is simply made again elsewhere, at most `max_attempts` times. Afterwards a
//! decode engine that is lost before it produced anything is replaced once, provided that a
//! new prefill gives the token and the draws that were already sent; every other loss ends the
//! stream with an error event. An answer that is not streamed is never committed before it is
//! whole.
//!
//! **A hand-off that breaks** is held against the way between the two engines, not against the
//! decode engine: another pair is tried, and when the attempts are used up, one engine alone.
//!
//! **Full is no failure.** An engine that has no room is passed over and asked again after a
//! while, until the wait for room ends (the driver knows when) or [`MAX_REFUSALS`] came.
//!
//! **Handles.** Every `Prefill` may leave blocks on the decode engine, whatever it answers.
//! Each handle is therefore accepted by a resume or released, on every path.

mod codes;
mod errors;

pub use codes::{DecodeFailure, PrefillFailure, decode_refusal, prefill_failure};

use tl_api::error::ApiError;

pub use errors::{busy, lost};
use errors::{exhausted, invalid};

use crate::registry::Slot;
use crate::route::{Blocked, Tried, Whole};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A pair was chosen and counted; `handle` is fresh and unguessable.
    RoutedPair {
        prefill: Slot,
        decode: Slot,
        handle: String,
    },
    /// One engine was chosen and counted.
    RoutedAlone {
        engine: Slot,
    },
    NotRouted(Blocked),
    Prefilled(First),
    PrefillFailed(PrefillFailure),
    /// The decode engine answered 200: the handle's blocks are its own.
    DecodeAccepted,
    /// It produced output (text, logprobs or the finish).
    DecodeOutput,
    /// It finished as it should.
    DecodeEnded,
    DecodeFailed(DecodeFailure),
    /// Nobody waits for the answer any more.
    ClientGone,
}

/// What the machine needs to know of a first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct First {
    pub token: u32,
    pub draws: u32,
    /// There is text to send.
    pub has_text: bool,
    /// It ends the answer.
    pub ends: bool,
}

/// What to do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Choose engines; answered by a `Routed..` or `NotRouted`.
    Route(Tried),
    /// Answered by `Prefilled` or `PrefillFailed`.
    Prefill {
        prefill: Slot,
        decode: Slot,
        handle: String,
    },
    /// Tell the engine to stop; the prefill still answers.
    CancelPrefill {
        prefill: Slot,
        handle: String,
    },
    /// Resume from the handle; answered by `Decode..`.
    Decode {
        decode: Slot,
        handle: String,
    },
    /// Have one engine serve it whole; answered by `Decode..`.
    ServeAlone {
        engine: Slot,
    },
    /// Hand the first token's part of the answer to the client.
    SendFirst,
    /// Hand the decode engine's latest output to the client.
    SendDecoded,
    /// Forget what was handed over: it is made again. Only where nothing has left yet.
    Restart,
    /// Drop the decode engine's stream.
    StopDecode,
    /// Give back what waits under the handle.
    Release {
        decode: Slot,
        handle: String,
    },
    /// The engine failed.
    Blame(Slot),
    /// The engine works.
    Praise(Slot),
    /// A hand-off did not arrive.
    BlameLink {
        prefill: Slot,
        decode: Slot,
    },
    /// A hand-off arrived: the prefill engine works, and so does the way.
    PraiseLink {
        prefill: Slot,
        decode: Slot,
    },
    End(End),
}

/// How it ended. Comes exactly once, last.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// The first token was the whole answer.
    FinishedByPrefill,
    FinishedByDecode,
    /// Nobody had to be told.
    Gone,
    Failed(ApiError),
}

#[derive(Debug, Clone, PartialEq, Hash)]
enum State {
    Routing,
    Prefilling(Pair),
    /// The client left during prefill, which still has to answer.
    Leaving(Pair),
    Decoding {
        pair: Pair,
        accepted: bool,
        began: bool,
    },
    Alone {
        engine: Slot,
        began: bool,
    },
    Ended,
}

#[derive(Debug, Clone, PartialEq, Hash)]
struct Pair {
    prefill: Slot,
    decode: Slot,
    handle: String,
}

/// A value: copied and hashed, it can be led from one state along every way (see `tl-life`).
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Attempt {
    model: String,
    streamed: bool,
    max_attempts: u32,
    state: State,
    attempts: u32,
    tried: Tried,
    /// The pair between which the latest attempt's bytes were damaged.
    damaged: Option<(Slot, Slot)>,
    first: Option<First>,
    /// The first token's part was handed over.
    first_sent: bool,
    committed: bool,
    replaced: bool,
    /// Attempts that ended because somebody was full.
    refusals: u32,
}

impl Attempt {
    /// `model` is named to the client when nobody serves it. `streamed`: what is handed over
    /// leaves at once.
    pub fn new(model: &str, streamed: bool, max_attempts: u32) -> Attempt {
        Attempt {
            model: model.to_owned(),
            streamed,
            max_attempts: max_attempts.max(1),
            state: State::Routing,
            attempts: 0,
            tried: Tried::default(),
            damaged: None,
            first: None,
            first_sent: false,
            committed: false,
            replaced: false,
            refusals: 0,
        }
    }

    /// The first actions.
    pub fn start(&self) -> Vec<Action> {
        vec![self.route()]
    }

    /// Attempts made so far.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// What to do about `fact`. A fact that does not fit the state (a late answer) does nothing.
    pub fn on(&mut self, fact: Fact) -> Vec<Action> {
        match (std::mem::replace(&mut self.state, State::Ended), fact) {
            (State::Ended, _) => Vec::new(),
            (state, Fact::ClientGone) => self.client_gone(state),
            (State::Routing, Fact::RoutedPair { prefill, decode, handle }) => {
                self.attempts += 1;
                self.state = State::Prefilling(Pair { prefill, decode, handle: handle.clone() });
                vec![Action::Prefill { prefill, decode, handle }]
            }
            (State::Routing, Fact::RoutedAlone { engine }) => {
                self.attempts += 1;
                self.state = State::Alone { engine, began: false };
                vec![Action::ServeAlone { engine }]
            }
            (State::Routing, Fact::NotRouted(why)) => vec![failed(self.not_routed(why))],
            (State::Prefilling(pair), Fact::Prefilled(first)) => self.prefilled(pair, first),
            (State::Prefilling(pair), Fact::PrefillFailed(why)) => self.prefill_failed(&pair, why),
            (State::Leaving(pair), Fact::Prefilled(_) | Fact::PrefillFailed(_)) => {
                vec![release(&pair), Action::End(End::Gone)]
            }
            (State::Decoding { pair, began, .. }, Fact::DecodeAccepted) => {
                self.state = State::Decoding { pair, accepted: true, began };
                Vec::new()
            }
            (State::Decoding { pair, began, .. }, Fact::DecodeOutput) => {
                let actions = self.output(pair.decode, began);
                self.state = State::Decoding { pair, accepted: true, began: true };
                actions
            }
            (State::Alone { engine, began }, Fact::DecodeOutput) => {
                let actions = self.output(engine, began);
                self.state = State::Alone { engine, began: true };
                actions
            }
            (State::Decoding { .. } | State::Alone { .. }, Fact::DecodeEnded) => {
                vec![Action::End(End::FinishedByDecode)]
            }
            (State::Decoding { pair, accepted, began }, Fact::DecodeFailed(why)) => {
                let mut actions = vec![Action::StopDecode];
                if !accepted {
                    actions.push(release(&pair));
                }
                self.decode_failed(pair.decode, began, why, actions)
            }
            (State::Alone { engine, began }, Fact::DecodeFailed(why)) => {
                self.decode_failed(engine, began, why, vec![Action::StopDecode])
            }
            (state, _) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    fn route(&self) -> Action {
        let mut tried = self.tried.clone();
        if self.committed {
            tried.whole = Whole::Never;
        }
        Action::Route(tried)
    }

    fn client_gone(&mut self, state: State) -> Vec<Action> {
        match state {
            State::Routing | State::Ended => vec![Action::End(End::Gone)],
            State::Prefilling(pair) => {
                // Blocks may land until the prefill has answered: release them after that.
                let handle = pair.handle.clone();
                let cancel = Action::CancelPrefill { prefill: pair.prefill, handle };
                self.state = State::Leaving(pair);
                vec![cancel]
            }
            State::Leaving(pair) => {
                self.state = State::Leaving(pair);
                Vec::new()
            }
            State::Decoding { accepted: true, .. } | State::Alone { .. } => {
                vec![Action::StopDecode, Action::End(End::Gone)]
            }
            State::Decoding { pair, accepted: false, .. } => {
                vec![Action::StopDecode, release(&pair), Action::End(End::Gone)]
            }
        }
    }

    fn prefilled(&mut self, pair: Pair, first: First) -> Vec<Action> {
        let mut actions = vec![praise_link(&pair)];
        if let Some(sent) = self.first.filter(|_| self.committed) {
            if (sent.token, sent.draws) != (first.token, first.draws) {
                actions.push(release(&pair));
                actions.push(failed(lost()));
                return actions;
            }
        }
        self.first = Some(first);
        if first.ends {
            if !self.first_sent {
                self.send_first(&mut actions);
            }
            actions.push(release(&pair));
            actions.push(Action::End(End::FinishedByPrefill));
            return actions;
        }
        if first.has_text && !self.first_sent {
            self.send_first(&mut actions);
        }
        actions.push(Action::Decode { decode: pair.decode, handle: pair.handle.clone() });
        self.state = State::Decoding { pair, accepted: false, began: false };
        actions
    }

    fn send_first(&mut self, actions: &mut Vec<Action>) {
        actions.push(Action::SendFirst);
        self.first_sent = true;
        self.committed = self.streamed;
    }

    fn output(&mut self, engine: Slot, began: bool) -> Vec<Action> {
        let mut actions = Vec::with_capacity(3);
        if !began {
            actions.push(Action::Praise(engine));
        }
        if self.first.is_some() && !self.first_sent {
            self.send_first(&mut actions);
        }
        actions.push(Action::SendDecoded);
        self.committed = self.streamed;
        actions
    }

    fn prefill_failed(&mut self, pair: &Pair, why: PrefillFailure) -> Vec<Action> {
        let mut actions = Vec::new();
        if why == PrefillFailure::Deadline {
            let handle = pair.handle.clone();
            actions.push(Action::CancelPrefill { prefill: pair.prefill, handle });
        }
        actions.push(release(pair));
        let damaged = self.damaged.take();
        let link = (pair.prefill, pair.decode);
        match why {
            PrefillFailure::Corrupt => {
                actions.push(blame_link(pair));
                if damaged == Some(link) {
                    self.tried.broken.push(link);
                }
                self.damaged = Some(link);
            }
            PrefillFailure::Stale => {}
            PrefillFailure::DecodeRefuses => self.tried.exclude.push(pair.decode),
            PrefillFailure::DecodeFull => return self.full(pair.decode, false, actions),
            PrefillFailure::PrefillFull => return self.full(pair.prefill, false, actions),
            PrefillFailure::LinkFault => {
                actions.push(blame_link(pair));
                self.tried.broken.push(link);
            }
            PrefillFailure::PrefillFault | PrefillFailure::Deadline => {
                actions.push(Action::Blame(pair.prefill));
                self.tried.exclude.push(pair.prefill);
            }
            PrefillFailure::Invalid => {
                actions.push(failed(if self.committed { lost() } else { invalid() }));
                return actions;
            }
        }
        self.again(actions, false)
    }

    /// `worker` had no room. Nobody is to blame, and it is no attempt.
    fn full(&mut self, worker: Slot, began: bool, mut actions: Vec<Action>) -> Vec<Action> {
        self.refusals += 1;
        if self.committed && (began || !self.first_sent) {
            actions.push(failed(lost()));
            return actions;
        }
        if self.refusals >= MAX_REFUSALS {
            actions.push(failed(if self.committed { lost() } else { busy() }));
            return actions;
        }
        if !self.tried.avoid.contains(&worker) {
            self.tried.avoid.push(worker);
        }
        self.try_again(actions, began)
    }

    fn decode_failed(
        &mut self,
        engine: Slot,
        began: bool,
        why: DecodeFailure,
        mut actions: Vec<Action>,
    ) -> Vec<Action> {
        match why {
            DecodeFailure::Client(error) => {
                actions.push(failed(error));
                return actions;
            }
            DecodeFailure::Full => return self.full(engine, began, actions),
            DecodeFailure::Handle => {}
            DecodeFailure::Fault => {
                actions.push(Action::Blame(engine));
                self.tried.exclude.push(engine);
            }
        }
        self.again(actions, began)
    }

    /// Tries once more if it may, or ends. `began`: the decode engine had produced output.
    fn again(&mut self, mut actions: Vec<Action>, began: bool) -> Vec<Action> {
        if self.committed {
            // What was sent can be gone on from only if it was the first token alone.
            if began || self.replaced || !self.first_sent {
                actions.push(failed(lost()));
                return actions;
            }
            self.replaced = true;
        } else if self.attempts - self.refusals >= self.max_attempts {
            if self.tried.broken.is_empty() || self.tried.whole == Whole::Only {
                actions.push(failed(exhausted(self.refusals)));
                return actions;
            }
            // No hand-off arrives; an engine that decodes can do without one.
            self.tried.whole = Whole::Only;
        }
        self.try_again(actions, began)
    }

    fn try_again(&mut self, mut actions: Vec<Action>, began: bool) -> Vec<Action> {
        if !self.committed {
            if self.first_sent || began {
                actions.push(Action::Restart);
            }
            self.first = None;
            self.first_sent = false;
        }
        self.state = State::Routing;
        actions.push(self.route());
        actions
    }

    fn not_routed(&self, why: Blocked) -> ApiError {
        if self.committed {
            return lost();
        }
        match why {
            Blocked::NoRoom => busy(),
            Blocked::NoWorker if self.attempts > 0 => exhausted(self.refusals),
            Blocked::NoWorker => ApiError::no_capacity("no engine that serves this model is ready"),
            Blocked::UnknownModel => ApiError::model_not_found(&self.model),
            Blocked::TooLong => ApiError::context_length(
                "the prompt is longer than the context of the model or the memory of its engines",
            ),
        }
    }
}

/// So often one choice is refused for want of room at most, whatever the wait for room says.
const MAX_REFUSALS: u32 = 32;

fn failed(error: ApiError) -> Action {
    Action::End(End::Failed(error))
}

fn release(pair: &Pair) -> Action {
    Action::Release { decode: pair.decode, handle: pair.handle.clone() }
}

fn blame_link(pair: &Pair) -> Action {
    Action::BlameLink { prefill: pair.prefill, decode: pair.decode }
}

fn praise_link(pair: &Pair) -> Action {
    Action::PraiseLink { prefill: pair.prefill, decode: pair.decode }
}

#[cfg(test)]
mod tests;
