//! Ways on which sessions can come to wait for each other for ever.
//!
//! A graph of who may wait for whom. Its nodes are the units of a pool and the head of its queue:
//!
//! - units of `p` to the queue of `q`: a session that holds `p` waits at `q` and gives nothing back
//!   meanwhile;
//! - the queue of `q` to units of `r`: its head wants units of `r`, and all behind it wait with it.
//!
//! A cycle means that everybody in it can be waiting at once. Preemption does not break it: only a
//! growth preempts, and nobody grows while he waits in a queue. What may end by itself is left out:
//! a wait under a finite deadline, a lease with a finite bound, a pool without bound. So is
//! what a booking was granted before its session opens it: sessions that book and queue elsewhere at one
//! instant stand in both queues in the same order, so that nobody waits for one who came later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Info;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::ir::{BlockId, CExpr, CHold, CRef, CStmt, Program};
use crate::source::Span;

/// Most warnings; each is about pools of its own.
const MOST: usize = 16;

/// Statements that are followed, each once more per pool that its session may have there: thousands of
/// times what any deployment needs, and a bound on the time that a made-up program can take.
const STEPS: usize = 1_000_000;

pub(super) fn lint(program: &Program, infos: &[Vec<Info>], diags: &mut Diagnostics) {
    let mut ways = Ways {
        program,
        infos,
        classes: classes(program),
        waits: BTreeMap::new(),
        leases: BTreeMap::new(),
        steps: STEPS,
    };
    ways.block(program.session, State::default(), true);
    for cycle in cycles(&ways.waits) {
        diags.push(ways.warning(&cycle));
    }
}

/// Pools that no index tells apart, by the first of them.
type Class = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Units(Class),
    Queue(Class),
}

/// Who may wait for whom, and the header of a hold where that is so.
type Waits = BTreeMap<(Node, Node), Span>;

/// What a session may have.
#[derive(Clone, Default)]
struct State {
    held: BTreeSet<Class>,
    /// By leases without a bound.
    leased: BTreeSet<Class>,
}

/// What either of two ways leaves of `entry`; `None` is a way that leads nowhere. What is given back
/// on one of them counts as given back: which way a session takes often depends on whether it has it.
fn either(entry: &State, a: Option<State>, b: Option<State>) -> Option<State> {
    let (Some(a), Some(b)) = (&a, &b) else { return a.or(b) };
    let merge = |entry: &BTreeSet<Class>, a: &BTreeSet<Class>, b: &BTreeSet<Class>| {
        a.union(b)
            .filter(|c| !entry.contains(c) || (a.contains(c) && b.contains(c)))
            .copied()
            .collect()
    };
    Some(State {
        held: merge(&entry.held, &a.held, &b.held),
        leased: merge(&entry.leased, &a.leased, &b.leased),
    })
}

/// The members that a reference may mean.
fn members(r: &CRef) -> (usize, usize) {
    match r.index.as_deref() {
        None => (r.base, r.base + r.count),
        Some(CExpr::Num(index)) => {
            let at = r.base + (*index as usize).min(r.count.saturating_sub(1));
            (at, at + 1)
        }
        Some(_) => (r.base, r.base + r.count),
    }
}

/// The class of every pool.
fn classes(program: &Program) -> Vec<Class> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for stmt in program.blocks.iter().flatten() {
        if let CStmt::Hold(hold) = stmt {
            ranges.extend(hold.pools.iter().map(|claim| members(&claim.0)));
        }
    }
    ranges.sort_unstable();
    let mut classes: Vec<Class> = (0..program.pools.len()).collect();
    let (mut first, mut end) = (0, 0);
    for (from, to) in ranges {
        if from >= end {
            first = from;
        }
        for class in classes.iter_mut().take(to).skip(from.max(end)) {
            *class = first;
        }
        end = end.max(to);
    }
    classes
}

fn is_zero(e: &CExpr) -> bool {
    e.as_num() == Some(0.0)
}

struct Ways<'a> {
    program: &'a Program,
    infos: &'a [Vec<Info>],
    classes: Vec<Class>,
    waits: Waits,
    /// Of bodies of loops: the leases they may leave.
    leases: BTreeMap<BlockId, BTreeSet<Class>>,
    /// What is left of [`STEPS`].
    steps: usize,
}

impl Ways<'_> {
    fn class(&self, r: &CRef) -> Class {
        self.classes.get(members(r).0).copied().unwrap_or(r.base)
    }

    /// Whether one could ever wait for a pool's units.
    fn is_finite(&self, r: &CRef) -> bool {
        let (from, to) = members(r);
        self.program.pools.iter().take(to).skip(from).any(|p| p.cap.is_finite())
    }

    /// Follows the statements; `lasting` says that a wait in them is without end.
    fn block(&mut self, block: BlockId, mut state: State, lasting: bool) -> Option<State> {
        let program = self.program;
        for (at, stmt) in program.blocks[block].iter().enumerate() {
            self.steps = self.steps.checked_sub(1 + state.held.len() + state.leased.len())?;
            let head = self.infos[block][at].head;
            state = self.statement(stmt, head, state, lasting)?;
        }
        Some(state)
    }

    fn statement(
        &mut self,
        stmt: &CStmt,
        head: Span,
        mut state: State,
        lasting: bool,
    ) -> Option<State> {
        match stmt {
            CStmt::End => return None,
            CStmt::Hold(hold) => return self.hold(hold, head, state, lasting),
            CStmt::Branch(guard, then, other) => {
                return match guard.as_num() {
                    Some(0.0) => self.block(*other, state, lasting),
                    Some(_) => self.block(*then, state, lasting),
                    None => {
                        let a = self.block(*then, state.clone(), lasting);
                        let b = self.block(*other, state.clone(), lasting);
                        either(&state, a, b)
                    }
                };
            }
            CStmt::Loop(body) => {
                state.leased.extend(self.leases(*body));
                self.block(*body, state, lasting);
                return None;
            }
            CStmt::While(guard, body) if !is_zero(guard) => {
                state.leased.extend(self.leases(*body));
                let after = self.block(*body, state.clone(), lasting);
                return either(&state, after, Some(state.clone()));
            }
            CStmt::Until(deadline, body, other) => {
                let never = deadline.as_num() == Some(f64::INFINITY);
                let after = self.block(*body, state.clone(), lasting && never);
                let mut cut = state.clone();
                cut.leased.extend(after.iter().flat_map(|s| &s.leased));
                let other = self.block(*other, cut, lasting);
                return either(&state, after, other);
            }
            CStmt::Shield(body) => return self.block(*body, state, true),
            CStmt::Grow(pool, _) => {
                state.held.insert(self.class(pool));
            }
            CStmt::Run(run) => {
                if let Some(pool) = &run.growing {
                    state.held.insert(self.class(pool));
                }
                if let Some(tell) = &run.telling {
                    state.leased.remove(&self.class(&tell.pool));
                }
            }
            CStmt::Renew(renew) => {
                state.leased.insert(self.class(&renew.pool));
            }
            CStmt::Release(pool) => {
                let class = self.class(pool);
                if !state.held.remove(&class) {
                    state.leased.remove(&class);
                }
            }
            CStmt::Tell(tell) => {
                state.leased.remove(&self.class(&tell.pool));
            }
            CStmt::Abandon(pool) => {
                state.leased.remove(&self.class(pool));
            }
            _ => {}
        }
        Some(state)
    }

    /// The leases that a loop's body leaves for its next round.
    fn leases(&mut self, body: BlockId) -> BTreeSet<Class> {
        if let Some(leases) = self.leases.get(&body) {
            return leases.clone();
        }
        let waits = std::mem::take(&mut self.waits);
        let leases = self.block(body, State::default(), false).unwrap_or_default().leased;
        self.waits = waits;
        self.leases.insert(body, leases.clone());
        leases
    }

    fn hold(&mut self, hold: &CHold, head: Span, state: State, lasting: bool) -> Option<State> {
        let Some(first) = hold.pools.first().map(|claim| self.class(&claim.0)) else {
            return Some(state);
        };
        let has = state.held.union(&state.leased).filter(|class| **class != first);
        for class in has.filter(|_| lasting) {
            self.waits.entry((Node::Units(*class), Node::Queue(first))).or_insert(head);
        }
        let mut inner = state.clone();
        let mut claimed = BTreeSet::new();
        for claim in &hold.pools {
            let class = self.class(&claim.0);
            claimed.insert(class);
            if !self.is_finite(&claim.0) {
                continue;
            }
            let wants = !is_zero(&claim.1) || claim.2.as_ref().is_some_and(|e| !is_zero(e));
            if wants && lasting {
                self.waits.entry((Node::Queue(first), Node::Units(class))).or_insert(head);
            }
            if !is_zero(&claim.1) {
                inner.held.insert(class);
            }
        }
        let mut after = self.block(hold.body, inner, lasting)?;
        after.held.extend(claimed);
        after.held.retain(|class| state.held.contains(class));
        if let Some((pool, _)) =
            hold.lease.as_ref().filter(|(_, time)| time.as_num() == Some(f64::INFINITY))
        {
            after.leased.insert(self.class(pool));
        }
        Some(after)
    }

    fn name(&self, class: Class) -> &str {
        self.program.pools.get(class).map_or("", |p| &p.name)
    }

    /// About a cycle that begins with units.
    fn warning(&self, cycle: &[Node]) -> Diagnostic {
        let mut labels = Vec::new();
        let mut behind = None;
        for (at, from) in cycle.iter().enumerate() {
            let to = cycle[(at + 1) % cycle.len()];
            let Some(span) = self.waits.get(&(*from, to)) else { continue };
            match (*from, to) {
                (Node::Units(p), Node::Queue(q)) => {
                    let (p, q) = (self.name(p), self.name(q));
                    labels.push((*span, format!("a session that holds `{p}` waits here at `{q}`")));
                }
                (Node::Queue(q), Node::Units(r)) if q != r => {
                    let (q, r) = (self.name(q), self.name(r));
                    behind = Some((q, r));
                    labels.push((
                        *span,
                        format!("whoever is first at `{q}` may wait here for `{r}`"),
                    ));
                }
                _ => {}
            }
        }
        let help = match behind {
            Some((q, r)) => format!(
                "nobody should stand in the queue of `{q}` who wants `{r}` as well: claim `{r}` first in that hold"
            ),
            None => {
                "take the pools in one order on every way, or all of them in one hold".to_owned()
            }
        };
        let mut labels = labels.into_iter();
        let (span, text) = labels.next().unwrap_or_default();
        let mut d = Diagnostic::new(
            Code::W0703,
            span,
            "sessions can come to wait for each other for ever here",
        )
        .at(text);
        for (span, text) in labels {
            d = d.label(span, text);
        }
        d.help(help)
    }
}

/// Cycles without a common node, each from its first units on.
fn cycles(waits: &Waits) -> Vec<Vec<Node>> {
    let mut next: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
    for (from, to) in waits.keys() {
        next.entry(*from).or_default().insert(*to);
    }
    let mut found = Vec::new();
    while found.len() < MOST {
        peel(&mut next);
        let Some(cycle) = any(&next) else { break };
        for node in &cycle {
            next.remove(node);
        }
        found.push(cycle);
    }
    found
}

/// Removes what leads nowhere.
fn peel(next: &mut BTreeMap<Node, BTreeSet<Node>>) {
    let mut before: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    let mut ends = Vec::new();
    let known: BTreeSet<Node> = next.keys().copied().collect();
    for (from, to) in next.iter_mut() {
        to.retain(|node| known.contains(node));
        to.iter().for_each(|node| before.entry(*node).or_default().push(*from));
        if to.is_empty() {
            ends.push(*from);
        }
    }
    while let Some(end) = ends.pop() {
        next.remove(&end);
        for from in before.remove(&end).into_iter().flatten() {
            if let Some(to) = next.get_mut(&from) {
                if to.remove(&end) && to.is_empty() {
                    ends.push(from);
                }
            }
        }
    }
}

/// A cycle of a graph in which every node leads on, as short as its first node allows.
fn any(next: &BTreeMap<Node, BTreeSet<Node>>) -> Option<Vec<Node>> {
    let mut node = *next.keys().next()?;
    let mut seen = BTreeSet::new();
    // Units and queues take turns, so one of either is on the cycle.
    while seen.insert(node) || matches!(node, Node::Queue(_)) {
        node = *next.get(&node)?.first()?;
    }
    let mut came = BTreeMap::new();
    let mut queue = VecDeque::from([node]);
    while let Some(at) = queue.pop_front() {
        for to in next.get(&at)? {
            if *to == node {
                let mut cycle = vec![at];
                while let Some(from) = came.get(cycle.last()?) {
                    cycle.push(*from);
                }
                cycle.reverse();
                return Some(cycle);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = came.entry(*to) {
                entry.insert(at);
                queue.push_back(*to);
            }
        }
    }
    None
}
