//! Breadth first through every state there is.
//!
//! **Safety**: a step that breaks a rule ends the search; since the search goes by length, no
//! shorter way leads to a broken rule.
//!
//! **Liveness**: the steps that are bound to happen (no faults, nobody leaves) form a graph over
//! the states. If no state can be reached again in it, and every state without a step in it is
//! one where all is settled, then from every reachable state, once faults stop, every order of
//! events comes to such an end, within as many steps as the longest way in the graph. Both are
//! checked; a way round is reported as one.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::check::{Broken, PROGRESS};

/// What is explored.
pub trait Model {
    type State;
    type Event: Copy;
    /// What tells two states apart.
    type Key: Eq + Hash;

    fn first(&self) -> Self::State;
    fn events(&self, state: &Self::State) -> Vec<Self::Event>;
    fn after(&self, state: &Self::State, event: Self::Event) -> Result<Self::State, Broken>;
    fn key(&self, state: &Self::State) -> Self::Key;
    /// Whether it happens by itself once nothing else does.
    fn is_bound(&self, event: Self::Event) -> bool;
    /// The rules of a state in which nothing bound can happen.
    fn check_end(&self, state: &Self::State) -> Result<(), Broken>;
    /// Notes a state that was reached for the first time.
    fn saw(&mut self, _state: &Self::State) {}
    /// One step of a trace, in words.
    fn tell(&self, state: &Self::State, event: Self::Event) -> Vec<String>;
}

/// What an exploration found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// Steps to the state furthest away.
    pub depth: usize,
    /// States in which nothing bound can happen.
    pub ends: usize,
    /// The most steps in which the world comes to an end once faults have stopped.
    pub longest: usize,
    /// Every state was seen.
    pub complete: bool,
    /// The shortest way to a broken rule.
    pub found: Option<Trace>,
}

/// A way to a broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    pub steps: Vec<Vec<String>>,
    pub broken: Broken,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            let mut lines = step.iter();
            writeln!(f, "{:3}  {}", i + 1, lines.next().map_or("", String::as_str))?;
            for line in lines {
                writeln!(f, "       -> {line}")?;
            }
        }
        writeln!(f, "  broken: {}", self.broken)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, depth, ends, longest, complete, found } = self;
        let all = if *complete { "all of them" } else { "not all" };
        writeln!(f, "{states} states ({all}), {steps} steps, depth {depth}, {ends} ends")?;
        match found {
            None if !complete => writeln!(f, "no rule broken so far, which is no proof"),
            None => {
                writeln!(f, "no rule broken; settled at most {longest} steps after the last fault")
            }
            Some(trace) => write!(f, "{trace}"),
        }
    }
}

/// Keys that are hashes already.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = self.0.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15)
                ^ u64::from_le_bytes(word);
        }
    }

    fn write_u128(&mut self, x: u128) {
        self.0 ^= x as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The graph of bound steps, one list after the other.
#[derive(Default)]
struct Bound {
    starts: Vec<u32>,
    to: Vec<u32>,
}

impl Bound {
    fn of(&self, state: usize) -> &[u32] {
        let end = self.starts.get(state + 1).map_or(self.to.len(), |&e| e as usize);
        &self.to[self.starts[state] as usize..end]
    }
}

/// Explores up to `limit` states.
pub fn explore<M: Model>(model: &mut M, limit: usize) -> Report {
    let mut seen: HashMap<M::Key, u32, BuildHasherDefault<Plain>> = HashMap::default();
    // Where each state was first reached from, by its how-manyeth event, and how far it is.
    let mut origins: Vec<(u32, u16, u16)> = vec![(0, 0, 0)];
    let mut bound = Bound::default();
    let mut report = Report { complete: true, ..Report::default() };
    let first = model.first();
    model.saw(&first);
    seen.insert(model.key(&first), 0);
    let mut open = VecDeque::from([first]);
    let mut at = 0u32;
    while let Some(state) = open.pop_front() {
        let depth = origins[at as usize].2;
        report.depth = report.depth.max(usize::from(depth));
        bound.starts.push(bound.to.len() as u32);
        let mut ends = true;
        for (n, event) in (0u16..).zip(model.events(&state)) {
            report.steps += 1;
            let is_bound = model.is_bound(event);
            ends &= !is_bound;
            let next = match model.after(&state, event) {
                Ok(next) => next,
                Err(broken) => {
                    report.states = seen.len();
                    report.complete = false;
                    report.found = Some(trace(model, &origins, at, Some(n), broken));
                    return report;
                }
            };
            let fresh = u32::try_from(seen.len()).unwrap_or(u32::MAX);
            let to = *seen.entry(model.key(&next)).or_insert(fresh);
            if is_bound {
                bound.to.push(to);
            }
            if to == fresh {
                origins.push((at, n, depth + 1));
                model.saw(&next);
                open.push_back(next);
            }
        }
        if ends {
            report.ends += 1;
            if let Err(broken) = model.check_end(&state) {
                report.states = seen.len();
                report.complete = false;
                report.found = Some(trace(model, &origins, at, None, broken));
                return report;
            }
        }
        at += 1;
        if seen.len() >= limit {
            report.states = seen.len();
            report.complete = false;
            return report;
        }
    }
    report.states = seen.len();
    match longest(&bound, report.states) {
        Ok(longest) => report.longest = longest,
        Err(state) => {
            let broken =
                Broken::new(PROGRESS, "from here a way leads back to here, without a fault");
            report.found = Some(trace(model, &origins, state, None, broken));
        }
    }
    report
}

/// The longest way in the graph, or a state on a way round.
fn longest(bound: &Bound, states: usize) -> Result<usize, u32> {
    const OPEN: u32 = u32::MAX;
    const UNSEEN: u32 = u32::MAX - 1;
    let mut length = vec![UNSEEN; states];
    let mut most = 0;
    for root in 0..states {
        if length[root] != UNSEEN {
            continue;
        }
        length[root] = OPEN;
        let mut path = vec![(root, 0, 0u32)];
        while let Some((state, next, so_far)) = path.last_mut() {
            let Some(&to) = bound.of(*state).get(*next) else {
                let (done, far) = (*state, *so_far);
                length[done] = far;
                most = most.max(far);
                path.pop();
                if let Some((_, _, parent)) = path.last_mut() {
                    *parent = (*parent).max(far + 1);
                }
                continue;
            };
            *next += 1;
            match length[to as usize] {
                OPEN => return Err(to),
                UNSEEN => {
                    length[to as usize] = OPEN;
                    path.push((to as usize, 0, 0));
                }
                known => *so_far = (*so_far).max(known + 1),
            }
        }
    }
    Ok(most as usize)
}

/// Goes the way to `at` once more, and on by event `last`, telling each step.
fn trace<M: Model>(
    model: &M,
    origins: &[(u32, u16, u16)],
    at: u32,
    last: Option<u16>,
    broken: Broken,
) -> Trace {
    let mut way: Vec<u16> = last.into_iter().collect();
    let mut state = at;
    while state != 0 {
        let (from, event, _) = origins[state as usize];
        way.push(event);
        state = from;
    }
    let mut steps = Vec::new();
    let mut state = model.first();
    for n in way.into_iter().rev() {
        let Some(&event) = model.events(&state).get(usize::from(n)) else { break };
        steps.push(model.tell(&state, event));
        match model.after(&state, event) {
            Ok(next) => state = next,
            Err(_) => break,
        }
    }
    Trace { steps, broken }
}
