//! Programs that link and do not do what they say.
//!
//! Two are errors, because the run would quietly be another deployment's: a hold sized by a reading
//! that was taken before it queued, and a closed workload in which no time passes. Two are
//! warnings.

use std::collections::{BTreeMap, BTreeSet};

use super::Info;
use crate::ast;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::ir::{Arrival, BlockId, CExpr, CHold, CRun, CStmt, Program, Slot};
use crate::source::Span;

pub(super) fn lint(
    program: &Program,
    infos: &[Vec<Info>],
    diags: &mut Diagnostics,
    tree: &ast::Program,
) {
    let mut lint = Lint { program, infos, diags, effects: BTreeMap::new(), holds: Vec::new() };
    lint.effect(program.session);
    lint.turn_effect();
    lint.block(program.session, Stale::new());
    lint.closed(tree);
}

/// Attributes that hold a reading of live state, and where each was read.
type Stale = BTreeMap<Slot, Span>;

/// What a block does to the readings: those it leaves, and the attributes it assigns on every way
/// through. A block that never comes to its end does nothing to what follows it.
#[derive(Clone, Default)]
struct Effect {
    leaves: Stale,
    clears: BTreeSet<Slot>,
    ends: bool,
}

impl Effect {
    fn then(&mut self, next: &Effect) {
        if self.ends {
            return;
        }
        self.leaves.retain(|slot, _| !next.clears.contains(slot));
        self.leaves.extend(&next.leaves);
        self.clears.extend(&next.clears);
        self.ends = next.ends;
    }

    fn apply(&self, stale: &mut Stale) {
        stale.retain(|slot, _| !self.clears.contains(slot));
        stale.extend(&self.leaves);
    }
}

struct Lint<'a> {
    program: &'a Program,
    infos: &'a [Vec<Info>],
    diags: &'a mut Diagnostics,
    /// Of each block, computed once: a loop's body is entered with what it leaves itself.
    effects: BTreeMap<BlockId, Effect>,
    holds: Vec<&'a CHold>,
}

/// Whether an expression reads the state of a pool or stage.
fn reads_live(e: &CExpr) -> bool {
    let mut live = false;
    e.walk(&mut |e| live |= matches!(e, CExpr::Call(fun, _) if !fun.is_arithmetic()));
    live
}

impl<'a> Lint<'a> {
    fn info(&self, block: BlockId, at: usize) -> Info {
        self.infos[block][at]
    }

    fn assign(&self, slot: Slot, value: Option<&CExpr>, span: Span) -> Effect {
        let mut effect = Effect::default();
        effect.clears.insert(slot);
        if value.is_some_and(reads_live) {
            effect.leaves.insert(slot, span);
        }
        effect
    }

    /// The attributes that samples change.
    fn sampled(&self, run: &CRun, span: Span) -> Effect {
        let mut effect = Effect::default();
        for slot in run.answers.into_iter().chain(run.first) {
            effect.then(&self.assign(slot, None, span));
        }
        effect
    }

    fn turn_effect(&mut self) {
        self.effect(self.program.turn);
    }

    /// The effect of a block as a whole, and of all blocks in it.
    fn effect(&mut self, block: BlockId) -> Effect {
        let mut whole = Effect::default();
        for (at, stmt) in self.program.blocks[block].iter().enumerate() {
            let effect = self.statement_effect(stmt, self.info(block, at).span);
            whole.then(&effect);
        }
        self.effects.insert(block, whole.clone());
        whole
    }

    fn statement_effect(&mut self, stmt: &CStmt, span: Span) -> Effect {
        match stmt {
            CStmt::Set(slot, value) => self.assign(*slot, Some(value), span),
            CStmt::Choose { var, .. } => self.assign(*var, None, span),
            CStmt::Turn => match self.effects.get(&self.program.turn) {
                Some(effect) => effect.clone(),
                None => self.effect(self.program.turn),
            },
            CStmt::End => Effect { ends: true, ..Effect::default() },
            CStmt::Loop(body) => Effect { ends: true, ..self.effect(*body) },
            CStmt::Run(run) => self.sampled(run, span),
            CStmt::Hold(hold) => self.effect(hold.body),
            CStmt::Shield(body) => self.effect(*body),
            CStmt::While(_, body) => maybe(self.effect(*body)),
            CStmt::Until(_, body, other) => {
                let (body, other) = (self.effect(*body), self.effect(*other));
                cut(body, other)
            }
            CStmt::Branch(_, then, other) => {
                let (mut a, b) = (self.effect(*then), self.effect(*other));
                match (a.ends, b.ends) {
                    (true, _) => b,
                    (_, true) => a,
                    _ => {
                        a.leaves.extend(b.leaves);
                        a.clears = a.clears.intersection(&b.clears).copied().collect();
                        a
                    }
                }
            }
            _ => Effect::default(),
        }
    }

    fn block(&mut self, block: BlockId, mut stale: Stale) {
        for (at, stmt) in self.program.blocks[block].iter().enumerate() {
            let info = self.info(block, at);
            match stmt {
                CStmt::Hold(hold) => self.hold(hold, info, &stale),
                CStmt::Branch(_, then, other) => {
                    self.block(*then, stale.clone());
                    self.block(*other, stale.clone());
                }
                CStmt::Until(_, body, other) => {
                    self.block(*body, stale.clone());
                    let mut entry = stale.clone();
                    if let Some(effect) = self.effects.get(body) {
                        entry.extend(&effect.leaves);
                    }
                    self.block(*other, entry);
                }
                CStmt::Shield(body) => self.block(*body, stale.clone()),
                CStmt::Loop(body) | CStmt::While(_, body) => {
                    let mut entry = stale.clone();
                    if let Some(effect) = self.effects.get(body) {
                        entry.extend(&effect.leaves);
                    }
                    self.block(*body, entry);
                }
                _ => {}
            }
            let effect = match stmt {
                CStmt::Branch(_, then, other) => {
                    let ends = |id: &BlockId| self.effects.get(id).is_some_and(|e| e.ends);
                    if ends(then) && ends(other) {
                        self.unreachable(block, at);
                        return;
                    }
                    self.known_effect(stmt, info.span)
                }
                _ => self.known_effect(stmt, info.span),
            };
            if effect.ends {
                self.unreachable(block, at);
                return;
            }
            effect.apply(&mut stale);
        }
    }

    /// The effect of a statement whose blocks have theirs already.
    fn known_effect(&self, stmt: &CStmt, span: Span) -> Effect {
        let of = |id: &BlockId| self.effects.get(id).cloned().unwrap_or_default();
        match stmt {
            CStmt::Set(slot, value) => self.assign(*slot, Some(value), span),
            CStmt::Choose { var, .. } => self.assign(*var, None, span),
            CStmt::Turn => of(&self.program.turn),
            CStmt::End | CStmt::Loop(_) => Effect { ends: true, ..Effect::default() },
            CStmt::Run(run) => self.sampled(run, span),
            CStmt::Hold(hold) => of(&hold.body),
            CStmt::Shield(body) => of(body),
            CStmt::While(_, body) => maybe(of(body)),
            CStmt::Until(_, body, other) => cut(of(body), of(other)),
            CStmt::Branch(_, then, other) => {
                let (mut a, b) = (of(then), of(other));
                match (a.ends, b.ends) {
                    (true, _) => b,
                    (_, true) => a,
                    _ => {
                        a.leaves.extend(b.leaves);
                        a.clears = a.clears.intersection(&b.clears).copied().collect();
                        a
                    }
                }
            }
            _ => Effect::default(),
        }
    }

    fn unreachable(&mut self, block: BlockId, at: usize) {
        let block = &self.infos[block];
        // What a server's copy leaves unreachable behind a request lies in another section.
        let Some(next) = block.get(at + 1).filter(|next| next.span > block[at].span) else {
            return;
        };
        let d = Diagnostic::new(Code::W0701, next.span, "this is never reached")
            .label(block[at].span, "nothing comes out of this")
            .help("a loop is left by `end;` alone, which ends the session");
        self.diags.push(d);
    }

    fn hold(&mut self, hold: &'a CHold, info: Info, stale: &Stale) {
        let header = hold
            .pools
            .iter()
            .flat_map(|c| [Some((&c.1, "units")), c.2.as_ref().map(|e| (e, "reserve"))])
            .flatten()
            .chain(hold.reuse.as_ref().map(|e| (e, "reuse")))
            .chain(hold.when.as_ref().map(|e| (e, "condition")));
        let mut found = Vec::new();
        for (e, what) in header {
            stale_reads(e, stale, &mut |slot, read| found.push((slot, read, what)));
        }
        if let Some(cache) = &hold.cache {
            let mut after = stale.clone();
            if let Some(effect) = self.effects.get(&hold.body) {
                after.retain(|slot, _| !effect.clears.contains(slot));
            }
            stale_reads(cache, &after, &mut |slot, read| found.push((slot, read, "cache")));
        }
        for (slot, read, what) in found {
            let name = &self.program.attrs[slot];
            let d = Diagnostic::new(
                Code::E0501,
                info.head,
                format!("the {what} of this hold uses `{name}`, which was read before the hold queued"),
            )
            .label(read, "read here, and possibly out of date when the hold is admitted")
            .help(format!(
                "read it when the hold is admitted: `at admission ({name} = ...)`, in a server `where {name} = ...`"
            ));
            self.diags.push(d);
        }
        self.queue_order(hold, info);
        self.holds.push(hold);
        self.block(hold.body, stale.clone());
        self.holds.pop();
    }

    /// A stage tries its queues in the order of their declaration and stops at the first head that
    /// does not fit. Whoever holds the first pool and queues at a later one waits behind sessions
    /// that wait for what it holds.
    fn queue_order(&mut self, inner: &CHold, info: Info) {
        let served = |hold: &CHold| {
            let r = &hold.pools.first()?.0;
            let members = &self.program.pools[r.base..r.base + r.count];
            let via: BTreeSet<usize> = members.iter().filter_map(|p| p.admit_via).collect();
            Some((r.base, members.first()?.name.clone(), via))
        };
        let Some((base, name, via)) = served(inner) else { return };
        for outer in &self.holds {
            let Some((outer_base, outer_name, outer_via)) = served(outer) else { continue };
            if outer_base < base && outer_name != name && !via.is_disjoint(&outer_via) {
                let d = Diagnostic::new(
                    Code::W0703,
                    info.head,
                    format!("a session that holds `{outer_name}` queues here at `{name}`, behind everyone at `{outer_name}`"),
                )
                .help(format!("one stage serves both queues, in the order of declaration: declare `{name}` above `{outer_name}`"));
                self.diags.push(d);
            }
        }
    }

    /// Sessions of a closed workload that never take time replace each other for ever.
    fn closed(&mut self, tree: &ast::Program) {
        let Arrival::Closed(n) = self.program.arrival else { return };
        let takes_time = self.program.blocks.iter().flatten().any(
            |stmt| matches!(stmt, CStmt::Run(run) if run.work.as_num().is_none_or(|w| w > 0.0)),
        );
        let arrive = tree.workload.as_ref().and_then(|w| w.arrive.as_ref());
        if let Some(arrive) = arrive.filter(|_| n > 0 && !takes_time) {
            let d = Diagnostic::new(
                Code::E0504,
                arrive.span,
                "no session of this closed workload ever takes time",
            )
            .at("each one that ends is replaced at once")
            .help("let the session run somewhere: run S (work);");
            self.diags.push(d);
        }
    }
}

/// The effect of a block that may be cut anywhere, and of what follows a cut.
fn cut(body: Effect, other: Effect) -> Effect {
    let ends = body.ends && other.ends;
    let mut leaves = body.leaves;
    leaves.extend(other.leaves);
    Effect { leaves, ends, ..Effect::default() }
}

/// The effect of what may be done any number of times, or not at all.
fn maybe(effect: Effect) -> Effect {
    Effect { leaves: effect.leaves, ..Effect::default() }
}

fn stale_reads(e: &CExpr, stale: &Stale, f: &mut dyn FnMut(Slot, Span)) {
    e.walk(&mut |e| {
        if let CExpr::Attr(slot) = e {
            if let Some(read) = stale.get(slot) {
                f(*slot, *read);
            }
        }
    });
}
