//! What is hidden decides nothing before it may be known.
//!
//! A hidden attribute is what only the client knows, such as the length of an answer. A deployment
//! learns it by serving it: once a run sized by it has ended, it is known. Until then it may size work and
//! what stays cached, and decide nothing else. The linker refuses names of hidden attributes in headers
//! and keys where they stand; here is followed where their values go: through `set`, branches, loops,
//! holds that are preempted and done again, deadlines, and from one turn to the next.
//!
//! The analysis goes over the blocks as the session does and keeps, for every attribute, which hidden
//! values it may come from. Where ways meet, an attribute comes from whatever it comes from on any of
//! them, and a hidden value is known only if it is on all of them. What is entered again (loops,
//! preemptible holds) keeps the union of all entries, and passes over the program are repeated until
//! none of these grows; findings are those of the last pass.

mod state;

use std::collections::BTreeMap;

use super::{Family, Info};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::ir::{BlockId, CEvict, CExpr, CHold, CPreempt, CRef, CServe, CStageKind};
use crate::ir::{CStmt, Program, Slot};
use crate::source::Span;
use state::{From, Secret, State, assign, join, ran};

/// Most statements visited and attributes looked at; programs take thousands.
const MAX_WORK: usize = 20_000_000;

struct Flow<'a> {
    program: &'a Program,
    infos: &'a [Vec<Info>],
    hidden: &'a BTreeMap<Slot, Span>,
    /// What policies there are, and which of them read an attribute.
    policy_places: Vec<(String, Span)>,
    policies: BTreeMap<Slot, Vec<usize>>,
    /// With what a block that is entered again was entered so far.
    entries: BTreeMap<BlockId, State>,
    grown: bool,
    /// The union of all states since a point, innermost last.
    since: Vec<State>,
    /// The same since a booking, by its number.
    booked: BTreeMap<usize, State>,
    /// What was done so far, against [`MAX_WORK`].
    work: usize,
    /// Where findings go; none before the last pass.
    diags: Option<&'a mut Diagnostics>,
}

/// Refuses what decides by a hidden attribute.
pub(super) fn check(
    program: &Program,
    infos: &[Vec<Info>],
    hidden: &BTreeMap<Slot, Span>,
    (pools, stages): (&[Family], &[Family]),
    diags: &mut Diagnostics,
) {
    let Some(first) = hidden.values().next() else { return };
    let mut flow = Flow {
        program,
        infos,
        hidden,
        policy_places: Vec::new(),
        policies: BTreeMap::new(),
        entries: BTreeMap::new(),
        grown: true,
        since: Vec::new(),
        booked: BTreeMap::new(),
        work: 0,
        diags: None,
    };
    flow.list_policies(pools, stages);
    while std::mem::take(&mut flow.grown) && flow.work < MAX_WORK {
        flow.pass();
    }
    if flow.work >= MAX_WORK {
        let message = "there is too much to follow what is hidden through the program";
        let d = Diagnostic::new(Code::E0425, *first, message)
            .help("hide fewer attributes, or set fewer from them");
        diags.push(d);
        return;
    }
    // Another pass over the same, which is not more than the last one was.
    flow.work = 0;
    flow.diags = Some(diags);
    flow.pass();
}

impl Flow<'_> {
    /// Keys and clauses that read a session's attributes whenever somebody is to be chosen.
    fn list_policies(&mut self, pools: &[Family], stages: &[Family]) {
        for family in pools {
            let pool = &self.program.pools[family.base];
            let mut exprs: Vec<&CExpr> = pool.queue.iter().flat_map(|q| q.keys()).collect();
            if let CEvict::By(keys) = &pool.evict {
                exprs.extend(keys);
            }
            if let CPreempt::By { keys, requeue } = &pool.preempt {
                exprs.extend(keys.iter().chain([requeue]));
            }
            exprs.extend(pool.spill.iter().flat_map(|s| [&s.work, &s.when]));
            self.policy(
                format!("is read in a policy of pool `{}`", family.name),
                family.span,
                &exprs,
            );
        }
        for family in stages {
            let CStageKind::Step(step) = &self.program.stages[family.base].kind else { continue };
            let CServe::By(keys) = &step.serve else { continue };
            let exprs: Vec<&CExpr> = keys.iter().collect();
            let what = format!("is read in a serving key of stage `{}`", family.name);
            self.policy(what, family.span, &exprs);
        }
    }

    fn policy(&mut self, what: String, place: Span, exprs: &[&CExpr]) {
        let number = self.policy_places.len();
        self.policy_places.push((what, place));
        for e in exprs {
            e.walk(&mut |e| {
                if let CExpr::Attr(slot) = e {
                    self.policies.entry(*slot).or_default().push(number);
                }
            });
        }
    }

    fn pass(&mut self) {
        let secrets = self.hidden.keys().map(|slot| Secret { slot: *slot, past: false }).collect();
        let start = State { secrets, ..State::default() };
        let control = From::new();
        if let Some(state) = self.block(self.program.init, start, &control) {
            self.block(self.program.session, state, &control);
        }
    }

    /// Goes over a block; the state behind it, if its end is ever reached. `control` is what decides
    /// whether the client comes here at all.
    fn block(&mut self, id: BlockId, state: State, control: &From) -> Option<State> {
        let mut state = state;
        for (at, stmt) in self.program.blocks[id].iter().enumerate() {
            self.here(&state);
            if self.work >= MAX_WORK {
                return None;
            }
            state = self.statement(stmt, self.infos[id][at], state, control)?;
        }
        self.here(&state);
        Some(state)
    }

    /// A point of the program: what waits for the union of all of them gets it.
    fn here(&mut self, state: &State) {
        let joins = 1 + self.since.len().min(1) + self.booked.len();
        self.work += 1 + joins * state.from.len();
        for all in self.since.last_mut().into_iter().chain(self.booked.values_mut()) {
            all.join(state);
        }
        if self.diags.is_some() {
            for slot in state.from.keys() {
                for i in self.policies.get(slot).cloned().unwrap_or_default() {
                    let (what, place) = self.policy_places[i].clone();
                    self.decides(&state.of_slot(*slot), &what, place);
                }
            }
        }
    }

    /// Goes over a block and returns the union of all states in it as well.
    fn watched(&mut self, id: BlockId, state: State, control: &From) -> (Option<State>, State) {
        self.since.push(state.clone());
        let end = self.block(id, state, control);
        let all = self.since.pop().unwrap_or_default();
        if let Some(outer) = self.since.last_mut() {
            outer.join(&all);
        }
        (end, all)
    }

    /// The union of all entries of a block, with this one.
    fn enter(&mut self, id: BlockId, state: &State) -> State {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.grown |= entry.join(state);
        } else {
            self.entries.insert(id, state.clone());
            self.grown = true;
        }
        self.entries[&id].clone()
    }

    fn statement(
        &mut self,
        stmt: &CStmt,
        info: Info,
        mut state: State,
        control: &From,
    ) -> Option<State> {
        if info.decides {
            self.decisions(stmt, info, &state);
        }
        match stmt {
            CStmt::Set(slot, e) => {
                let mut from = state.of(e);
                if !info.decides {
                    join(&mut from, control);
                }
                assign(&mut state, self.hidden, *slot, from, info.span);
            }
            CStmt::Choose { var, .. } => {
                assign(&mut state, self.hidden, *var, From::new(), info.span);
            }
            CStmt::Turn => {
                let s = self.program.slots;
                for slot in [s.turn_no, s.new, s.out, s.think, s.more, s.forced] {
                    assign(&mut state, self.hidden, slot, From::new(), info.span);
                }
                return self.block(self.program.turn, state, control);
            }
            CStmt::Run(run) => ran(&mut state, run, self.hidden, info.span),
            CStmt::Hold(hold) => return self.hold(hold, info, state, control),
            CStmt::Book(number) => {
                self.booked.insert(*number, state.clone());
            }
            CStmt::Branch(guard, then, other) => {
                if let Some(v) = guard.as_num() {
                    return self.block(if v == 0.0 { *other } else { *then }, state, control);
                }
                let control = &inside(control, &state.of(guard), info);
                let a = self.block(*then, state.clone(), control);
                return meet(a, self.block(*other, state, control));
            }
            CStmt::Loop(body) => {
                let entry = self.enter(*body, &state);
                if let Some(end) = self.block(*body, entry, control) {
                    self.enter(*body, &end);
                }
                return None;
            }
            CStmt::While(guard, body) => {
                let entry = self.enter(*body, &state);
                if info.decides {
                    self.decides(&entry.of(guard), "decides this loop", info.head);
                }
                let inner = &inside(control, &entry.of(guard), info);
                if guard.as_num() != Some(0.0)
                    && let Some(end) = self.block(*body, entry.clone(), inner)
                {
                    self.enter(*body, &end);
                }
                return (guard.as_num() != Some(1.0)).then_some(entry);
            }
            CStmt::Until(_, body, other) => {
                let (end, all) = self.watched(*body, state, control);
                return meet(end, self.block(*other, all, control));
            }
            CStmt::Shield(body) => return self.block(*body, state, control),
            CStmt::End => return None,
            _ => {}
        }
        Some(state)
    }

    fn hold(&mut self, hold: &CHold, info: Info, state: State, control: &From) -> Option<State> {
        let mut judged = state.clone();
        if let Some(since) = hold.booked.and_then(|number| self.booked.remove(&number)) {
            judged.join(&since);
        }
        let preempts = |r: &CRef| {
            let members = &self.program.pools[r.base..r.base + r.count];
            members.iter().any(|p| p.preempt != CPreempt::None)
        };
        let again = hold.pools.iter().any(|c| preempts(&c.0));
        let entry = if again { self.enter(hold.body, &state) } else { state };
        judged.join(&entry);
        let claims = hold.pools.iter().flat_map(|c| [Some(&c.1), c.2.as_ref()]).flatten();
        let binds = hold.binds.iter().map(|b| &b.1);
        let header = claims.chain(&hold.reuse).chain(&hold.when).chain(binds);
        let header: Vec<&CExpr> = header.chain(indices(hold.pools.iter().map(|c| &c.0))).collect();
        for e in header {
            self.decides(&judged.of(e), "is read in the header of this hold", info.head);
        }
        let mut entry = entry;
        for bind in &hold.binds {
            assign(&mut entry, self.hidden, bind.0, From::new(), info.head);
        }
        let (end, all) = self.watched(hold.body, entry, control);
        if again {
            self.enter(hold.body, &all);
        }
        let end = end?;
        if let Some((pool, time)) = &hold.lease {
            let on = hold.lease_on.iter();
            for e in indices([pool].into_iter().chain(on)).chain([time]) {
                self.decides(&end.of(e), "decides the lease of this hold", info.head);
            }
        }
        Some(end)
    }

    /// What a statement of the deployment decides, holds and `while` aside.
    fn decisions(&mut self, stmt: &CStmt, info: Info, state: &State) {
        let mut by = |exprs: &mut dyn Iterator<Item = &CExpr>, what: &str| {
            for e in exprs {
                self.decides(&state.of(e), what, info.head);
            }
        };
        let mut members: Vec<&CRef> = Vec::new();
        match stmt {
            CStmt::Branch(guard, ..) => by(&mut [guard].into_iter(), "decides this branch"),
            // For its key the attribute is the candidate.
            CStmt::Choose { var, count, key } => {
                by(&mut [count].into_iter(), "decides this choice");
                let mut judged = state.clone();
                assign(&mut judged, self.hidden, *var, From::new(), info.span);
                self.decides(&judged.of(key), "decides this choice", info.head);
                return;
            }
            CStmt::Until(deadline, ..) => by(&mut [deadline].into_iter(), "decides this deadline"),
            CStmt::Grow(pool, e) | CStmt::Load(pool, e) => {
                members.push(pool);
                by(&mut [e].into_iter(), &format!("decides this `{}`", stmt.word()));
            }
            CStmt::Drop(pool) | CStmt::Release(pool) | CStmt::Abandon(pool) => members.push(pool),
            CStmt::Tell(tell) => {
                members.extend([&tell.pool].into_iter().chain(&tell.on));
                by(&mut tell.after.iter(), "decides when this is told");
            }
            CStmt::Renew(renew) => {
                members.extend([&renew.pool, &renew.from]);
                let mut times = [&renew.time, &renew.every].into_iter().chain(&renew.after);
                by(&mut times, "decides this renewal");
            }
            CStmt::Run(run) => {
                members.extend([&run.stage].into_iter().chain(&run.growing).chain(&run.also));
                if let Some(tell) = &run.telling {
                    members.extend([&tell.pool].into_iter().chain(&tell.on));
                    by(&mut tell.after.iter(), "decides when this is told");
                }
            }
            _ => {}
        }
        by(&mut indices(members.into_iter()), "decides where this goes");
    }

    /// Reports what comes from a hidden attribute; `what` says what it does.
    fn decides(&mut self, from: &From, what: &str, place: Span) {
        let Some(diags) = &mut self.diags else { return };
        let Some((secret, trace)) = from.first_key_value() else { return };
        let name = |slot: Slot| self.program.attrs[slot].as_str();
        let root = name(secret.slot);
        let message = match trace.chain.last() {
            None => format!("the hidden attribute `{root}` {what}"),
            Some((read, _)) => {
                format!("`{}` {what}, and comes from the hidden attribute `{root}`", name(*read))
            }
        };
        let mut d = Diagnostic::new(Code::E0509, place, message);
        if let Some(at) = self.hidden.get(&secret.slot) {
            d = d.label(*at, "hidden here");
        }
        let mut source = root;
        for (slot, at) in &trace.chain {
            let step = match name(*slot) {
                same if same == source => format!("`{same}` is set again here"),
                other => format!("`{other}` is set from `{source}` here"),
            };
            d = d.label(*at, step);
            source = name(*slot);
        }
        let d = d.help(format!(
            "nobody knows `{root}` before a run of that size has ended: decide behind that run, or by an estimate"
        ));
        diags.push(d.help("what was answered so far is known: a run counts it with `answers`"));
    }
}

/// What decides over the client's statements in a block that it enters by a guard.
fn inside(control: &From, guard: &From, info: Info) -> From {
    let mut all = control.clone();
    if !info.decides {
        join(&mut all, guard);
    }
    all
}

fn meet(a: Option<State>, b: Option<State>) -> Option<State> {
    match (a, b) {
        (Some(mut a), Some(b)) => {
            a.join(&b);
            Some(a)
        }
        (a, b) => a.or(b),
    }
}

fn indices<'e>(refs: impl Iterator<Item = &'e CRef>) -> impl Iterator<Item = &'e CExpr> {
    refs.filter_map(|r| r.index.as_deref())
}
