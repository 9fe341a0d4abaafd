//! What hidden values the attributes may come from, at one point of a program.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::{Binary, CExpr, CRun, Slot};
use crate::source::Span;

/// Longest way from a hidden attribute to what reads it that a message tells.
const MAX_CHAIN: usize = 8;

/// A hidden value: the attribute's present one, or one that it had before it was set again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Secret {
    pub(super) slot: Slot,
    pub(super) past: bool,
}

/// How a hidden value came to an attribute.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    /// The attributes on the way and where each was set, the reader last.
    pub(super) chain: Vec<(Slot, Span)>,
    /// Whether it did on every way.
    always: bool,
}

pub(super) type From = BTreeMap<Secret, Trace>;

/// What is known at a point of the program.
#[derive(Clone, Default)]
pub(super) struct State {
    /// The hidden values that may not be known yet.
    pub(super) secrets: BTreeSet<Secret>,
    /// What attributes come from, among those.
    pub(super) from: BTreeMap<Slot, From>,
}

/// Adds what another way brings; whether that is anything new.
pub(super) fn join(into: &mut From, other: &From) -> bool {
    let mut grown = false;
    for (secret, trace) in into.iter_mut() {
        let always = trace.always && other.get(secret).is_some_and(|t| t.always);
        grown |= always != trace.always;
        trace.always = always;
    }
    for (secret, trace) in other {
        into.entry(*secret).or_insert_with(|| {
            grown = true;
            Trace { always: false, ..trace.clone() }
        });
    }
    grown
}

impl State {
    pub(super) fn join(&mut self, other: &State) -> bool {
        let before = self.secrets.len();
        self.secrets.extend(&other.secrets);
        let mut grown = self.secrets.len() > before;
        let none = From::new();
        for (slot, from) in &mut self.from {
            grown |= join(from, other.from.get(slot).unwrap_or(&none));
        }
        for (slot, from) in &other.from {
            self.from.entry(*slot).or_insert_with(|| {
                grown |= !from.is_empty();
                let maybe = |(s, t): (&Secret, &Trace)| (*s, Trace { always: false, ..t.clone() });
                from.iter().map(maybe).collect()
            });
        }
        grown
    }

    /// What an attribute comes from.
    pub(super) fn of_slot(&self, slot: Slot) -> From {
        let mut from = self.from.get(&slot).cloned().unwrap_or_default();
        let own = Secret { slot, past: false };
        if self.secrets.contains(&own) {
            from.insert(own, Trace { chain: Vec::new(), always: true });
        }
        from
    }

    /// What an expression comes from.
    pub(super) fn of(&self, e: &CExpr) -> From {
        let mut all = From::new();
        e.walk(&mut |e| {
            if let CExpr::Attr(slot) = e {
                for (secret, trace) in self.of_slot(*slot) {
                    all.entry(secret).or_insert(Trace { always: false, ..trace });
                }
            }
        });
        if !all.is_empty() {
            for secret in self.certain(e) {
                all.entry(secret).and_modify(|t| t.always = true);
            }
        }
        all
    }

    /// What an expression comes from whichever arms of it are taken.
    fn certain(&self, e: &CExpr) -> BTreeSet<Secret> {
        let mut found = BTreeSet::new();
        let mut todo = vec![e];
        while let Some(e) = todo.pop() {
            match e {
                CExpr::Attr(slot) => {
                    let always = self.of_slot(*slot).into_iter().filter(|(_, t)| t.always);
                    found.extend(always.map(|(secret, _)| secret));
                }
                CExpr::Cond(c, ..) => todo.push(c),
                CExpr::Binary(Binary::And | Binary::Or, a, _) => todo.push(a),
                e => e.for_children(&mut |c| todo.push(c)),
            }
        }
        found
    }

    /// A hidden value is known from now on, and with it what comes from it alone.
    fn learn(&mut self, secret: Secret) {
        if self.secrets.remove(&secret) {
            self.from.values_mut().for_each(|from| drop(from.remove(&secret)));
            self.from.retain(|_, from| !from.is_empty());
        }
    }

    /// A hidden attribute gets a new value; what comes from the old one still does.
    fn renew(&mut self, slot: Slot) {
        let (own, past) = (Secret { slot, past: false }, Secret { slot, past: true });
        if self.secrets.insert(own) {
            return;
        }
        let moved = self.from.values().any(|from| from.contains_key(&own));
        if !moved {
            return;
        }
        // Several past values are one here, and a run of one of them says nothing of the others.
        let several = !self.secrets.insert(past);
        for from in self.from.values_mut() {
            if let Some(trace) = from.remove(&own) {
                from.entry(past).or_insert(trace);
            }
            if several {
                from.entry(past).and_modify(|t| t.always = false);
            }
        }
    }
}

/// An attribute gets a value.
pub(super) fn assign(
    state: &mut State,
    hidden: &BTreeMap<Slot, Span>,
    slot: Slot,
    mut from: From,
    span: Span,
) {
    for trace in from.values_mut() {
        let repeated = trace.chain.last().is_some_and(|(last, _)| *last == slot);
        if !repeated && trace.chain.len() < MAX_CHAIN {
            trace.chain.push((slot, span));
        }
    }
    if hidden.contains_key(&slot) {
        // In what it is set from, its value so far is a past one.
        state.from.insert(slot, from);
        state.renew(slot);
    } else if from.is_empty() {
        state.from.remove(&slot);
    } else {
        state.from.insert(slot, from);
    }
}

/// A run has ended: what it was sized by is known.
pub(super) fn ran(state: &mut State, run: &CRun, hidden: &BTreeMap<Slot, Span>, span: Span) {
    for e in [&run.work].into_iter().chain(&run.then) {
        for secret in state.certain(e) {
            state.learn(secret);
        }
    }
    for slot in run.answers.into_iter().chain(run.first) {
        assign(state, hidden, slot, From::new(), span);
    }
}
