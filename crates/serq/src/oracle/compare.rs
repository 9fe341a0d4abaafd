//! One run of a scenario set against another.

use std::collections::BTreeMap;

use super::play::ReleaseOrder;
use super::read::Trace;
use super::run::{Event, Run, Side, Step};

/// How far a run agrees with a recorded one.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// The trace's name.
    pub name: String,
    /// Requests to which the same happened at the same ticks.
    pub requests: Count,
    /// Recorded steps after which the same number of blocks was free.
    pub steps: Count,
    pub first: Option<Box<Difference>>,
    /// Simultaneous releases that came in another order than the program's own.
    pub orders: Vec<ReleaseOrder>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub agree: usize,
    pub of: usize,
}

/// The earliest tick and engine at which the runs part.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub tick: u64,
    pub side: Side,
    /// What happened there in one run only, by request: recorded, and in the other run.
    pub events: BTreeMap<String, (Vec<Event>, Vec<Event>)>,
    /// Every engine's step of that tick: recorded, and in the other run.
    pub states: BTreeMap<Side, (Option<Step>, Option<Step>)>,
}

impl Count {
    pub fn all(self) -> bool {
        self.agree == self.of
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.agree += other.agree;
        self.of += other.of;
    }
}

impl Agreement {
    /// Nothing differs.
    pub fn all(&self) -> bool {
        self.requests.all() && self.steps.all() && self.first.is_none()
    }
}

/// Compares what happened to each request, and the free blocks of every step that the trace records.
/// A request only the other run knows is a disagreement; a step only it has is none: an engine
/// may be asked more often than it was recorded.
pub fn compare(expected: &Trace, actual: &Run) -> Agreement {
    let recorded = &expected.run;
    let none = Vec::new();
    let mut requests = Count::default();
    let mut parting: Option<(u64, Side)> = None;
    let mut part = |at: (u64, Side)| parting = Some(parting.map_or(at, |p| p.min(at)));
    let foreign = actual.events.keys().filter(|id| !recorded.events.contains_key(*id));
    for id in recorded.events.keys().chain(foreign) {
        let theirs = recorded.events.get(id).unwrap_or(&none);
        let ours = actual.events.get(id).unwrap_or(&none);
        requests.of += 1;
        if theirs == ours && recorded.events.contains_key(id) {
            requests.agree += 1;
        } else if let Some(event) = one_sided(theirs, ours).map(at).min() {
            part(event);
        } else {
            part((0, Side::C));
        }
    }
    let mut steps = Count::default();
    for (&at, step) in recorded.steps.iter().filter(|(_, step)| counted(step)) {
        steps.of += 1;
        if actual.steps.get(&at).is_some_and(|other| same_free(step, other)) {
            steps.agree += 1;
        } else {
            part(at);
        }
    }
    let first = parting.map(|at| Box::new(difference(recorded, actual, at)));
    Agreement { name: expected.name.clone(), requests, steps, first, orders: Vec::new() }
}

fn counted(step: &Step) -> bool {
    step.free.is_some() || step.free_scheduled.is_some()
}

/// Whether a step has the free blocks that are recorded. An engine a step ahead of its results has
/// steps after which it processed none, and such a count is not recorded.
fn same_free(recorded: &Step, other: &Step) -> bool {
    let same = |recorded: Option<u64>, other| recorded.is_none() || recorded == other;
    same(recorded.free, other.free) && same(recorded.free_scheduled, other.free_scheduled)
}

fn at(event: &Event) -> (u64, Side) {
    (event.tick, event.side)
}

/// Events of one list that the other lacks, counting repetitions.
fn one_sided<'a>(a: &'a [Event], b: &'a [Event]) -> impl Iterator<Item = &'a Event> {
    missing(a, b).chain(missing(b, a))
}

/// Events of `a` that `b` lacks; both are sorted.
fn missing<'a>(a: &'a [Event], b: &'a [Event]) -> impl Iterator<Item = &'a Event> {
    let mut rest = b.iter().peekable();
    a.iter().filter(move |&event| {
        while rest.next_if(|&other| other < event).is_some() {}
        rest.next_if(|&other| other == event).is_none()
    })
}

fn difference(recorded: &Run, actual: &Run, (tick, side): (u64, Side)) -> Difference {
    let here = |run: &Run, other: &Run, id: &str| -> Vec<Event> {
        let (Some(a), none) = (run.events.get(id), Vec::new()) else { return Vec::new() };
        let b = other.events.get(id).unwrap_or(&none);
        missing(a, b).filter(|e| at(e) == (tick, side)).copied().collect()
    };
    let mut events = BTreeMap::new();
    for id in recorded.events.keys().chain(actual.events.keys()) {
        let pair = (here(recorded, actual, id), here(actual, recorded, id));
        if !pair.0.is_empty() || !pair.1.is_empty() {
            events.insert(id.clone(), pair);
        }
    }
    let mut states = BTreeMap::new();
    for side in Side::ALL {
        let of = |run: &Run| run.steps.get(&(tick, side)).cloned();
        let pair = (of(recorded), of(actual));
        if pair.0.is_some() || pair.1.is_some() {
            states.insert(side, pair);
        }
    }
    Difference { tick, side, events, states }
}
