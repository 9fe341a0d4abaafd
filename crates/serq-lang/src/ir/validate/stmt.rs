//! Checks of statements, in the context of the holds they stand in.

use super::{At, Check, Moment};
use crate::ir::{
    Bind, BlockId, CExpr, CHold, CPool, CRef, CRun, CStmt, Claim, MAX_BLOCK_DEPTH, Program,
    RunMode, Slot,
};

/// An enclosing hold and, per claim, the attribute its index reads that the body may have
/// changed so far.
struct Scope<'p> {
    pools: Vec<&'p CRef>,
    changed: Vec<Option<Slot>>,
}

impl<'p> Scope<'p> {
    fn over(pools: Vec<&'p CRef>) -> Self {
        Self { changed: vec![None; pools.len()], pools }
    }
}

pub(super) struct Walk<'p> {
    pub(super) program: &'p Program,
    scopes: Vec<Scope<'p>>,
    /// Every hold of the program.
    pub(super) holds: Vec<&'p CHold>,
    /// Blocks already entered.
    seen: Vec<bool>,
    /// In `init` or `turn`.
    workload: bool,
}

impl<'p> Check<'p> {
    pub(super) fn statements(&mut self) {
        let program = self.program;
        let holds = program.blocks.iter().flatten().filter_map(|s| match s {
            CStmt::Hold(hold) => Some(hold),
            _ => None,
        });
        let mut walk = Walk {
            program,
            scopes: Vec::new(),
            holds: holds.collect(),
            seen: vec![false; program.blocks.len()],
            workload: false,
        };
        for (root, name, workload) in [
            (program.init, "init", true),
            (program.turn, "turn", true),
            (program.session, "session", false),
        ] {
            walk.workload = workload;
            self.block(&mut walk, root, 0, &At { path: name.into(), place: None });
        }
    }

    fn block(&mut self, walk: &mut Walk<'p>, id: BlockId, depth: usize, from: &At) {
        let Some(block) = walk.program.blocks.get(id) else {
            self.missing(from, "block", id);
            return;
        };
        if depth > MAX_BLOCK_DEPTH {
            let reason = format!("statements are nested more than {MAX_BLOCK_DEPTH} deep");
            self.error(from, "block-depth", reason, "flatten the branches");
            return;
        }
        if std::mem::replace(&mut walk.seen[id], true) {
            let reason = format!("block {id} is the body of two statements, or of itself");
            self.error(from, "block-shared", reason, "give each statement a block of its own");
            return;
        }
        for (i, stmt) in block.iter().enumerate() {
            let place = self.spans(|s| s.statement(id, i));
            let at = At { path: format!("blocks[{id}][{i}]"), place };
            self.stmt(walk, stmt, depth, &at);
        }
    }

    fn stmt(&mut self, walk: &mut Walk<'p>, stmt: &'p CStmt, depth: usize, at: &At) {
        if walk.workload && !matches!(stmt, CStmt::Set(..) | CStmt::Observe(..)) {
            let reason = format!("`{}` stands in the workload's init or turn block", stmt.word());
            self.error(at, "workload-stmt", reason, "only `set` and `observe` may stand there");
            return;
        }
        match stmt {
            CStmt::Turn => walk.assigned_by_turn(),
            CStmt::End => {}
            CStmt::Set(slot, e) => {
                self.slot(*slot, at);
                self.expr(e, Moment::Session, true, at);
                walk.assigned(*slot);
            }
            CStmt::Observe(k, e) => {
                if *k >= walk.program.observes.len() {
                    self.missing(at, "observe", *k);
                }
                self.expr(e, Moment::Session, true, at);
            }
            CStmt::Choose { var, count, key } => {
                self.slot(*var, at);
                self.expr(count, Moment::Session, true, at);
                self.expr(key, Moment::Session, true, at);
                walk.assigned(*var);
            }
            CStmt::Branch(guard, then, other) => {
                self.expr(guard, Moment::Session, true, at);
                self.guard(guard, at);
                self.block(walk, *then, depth + 1, at);
                self.block(walk, *other, depth + 1, at);
            }
            CStmt::Loop(body) => {
                for slot in walk.slots_assigned_in(*body) {
                    walk.assigned(slot);
                }
                self.block(walk, *body, depth + 1, at);
            }
            CStmt::While(guard, body) => {
                self.expr(guard, Moment::Session, true, at);
                self.guard(guard, at);
                for slot in walk.slots_assigned_in(*body) {
                    walk.assigned(slot);
                }
                self.block(walk, *body, depth + 1, at);
            }
            CStmt::Hold(hold) => self.hold(walk, hold, depth, at),
            CStmt::Book(number) => self.booked(walk, *number, at),
            CStmt::Content { parts, .. } => self.content(parts, at),
            CStmt::Tell(tell) => {
                if tell.on.is_none() {
                    let reason = "a lease is told, but no stage hears of it";
                    self.error(at, "lease-on", reason, "name a step stage, or write a `Release`");
                }
                self.tell(walk, tell, at);
            }
            CStmt::Abandon(pool) => self.abandon(walk, pool, at),
            CStmt::Renew(renew) => self.renew(walk, renew, at),
            CStmt::Until(deadline, body, other) => {
                self.expr(deadline, Moment::Session, true, at);
                self.block(walk, *body, depth + 1, at);
                self.block(walk, *other, depth + 1, at);
            }
            CStmt::Shield(body) => self.block(walk, *body, depth + 1, at),
            CStmt::Drop(pool) => {
                if self.pool_ref(pool, at) {
                    self.drop_shared(pool, at);
                }
            }
            CStmt::Release(pool) => {
                let leased = walk.leases_of(pool).next().is_some();
                if self.pool_ref(pool, at) && !leased {
                    self.inside_hold(walk, pool, "release", at);
                }
            }
            CStmt::Grow(pool, e) | CStmt::Load(pool, e) => {
                if self.pool_ref(pool, at) {
                    self.inside_hold(walk, pool, stmt.word(), at);
                }
                self.expr(e, Moment::Session, true, at);
            }
            CStmt::Run(run) => self.run(walk, run, at),
        }
    }

    fn hold(&mut self, walk: &mut Walk<'p>, hold: &'p CHold, depth: usize, at: &At) {
        self.claims(walk, &hold.pools, at);
        if let Some(reuse) = &hold.reuse {
            self.expr(reuse, Moment::Admit, false, &at.field("reuse"));
        }
        if let Some(when) = &hold.when {
            self.expr(when, Moment::Admit, false, &at.field("when"));
        }
        if let Some(number) = hold.booked {
            self.enters(walk, number, at);
        }
        self.hold_shared(hold, at);
        self.takes_claimed(hold, at);
        self.lease_on(walk, hold, at);
        walk.scopes.push(Scope::over(hold.pools.iter().map(|c| &c.0).collect()));
        for Bind(slot, value) in &hold.binds {
            self.slot(*slot, at);
            self.expr(value, Moment::Admit, false, &at.field("binds"));
            if walk.program.slots.all().contains(slot) {
                let reason = "a binding sets a built-in attribute";
                self.error(at, "bind", reason, "bind a name of its own");
            }
            walk.assigned(*slot);
        }
        self.block(walk, hold.body, depth + 1, at);
        if let Some(cache) = &hold.cache {
            self.expr(cache, Moment::Session, true, &at.field("cache"));
        }
        if let Some((pool, time)) = &hold.lease {
            let claimed = walk.scopes.last().is_some_and(|s| s.pools.contains(&pool));
            if self.pool_ref(pool, at) && !claimed {
                let reason =
                    format!("a hold leases pool `{}`, which it does not claim", walk.name(pool));
                self.error(at, "lease-pool", reason, "lease one of the hold's pools, same index");
            } else {
                self.unchanged(walk, pool, "lease", at);
            }
            self.expr(time, Moment::Session, true, &at.field("lease"));
        }
        walk.scopes.pop();
    }

    /// Pools, units and reserves of a hold.
    fn claims(&mut self, walk: &mut Walk<'p>, claims: &'p [Claim], at: &At) {
        if claims.is_empty() {
            self.error(at, "hold-empty", "a hold claims no pool", "name at least one pool");
        }
        for (k, claim) in claims.iter().enumerate() {
            let ok = self.pool_ref(&claim.0, at);
            for (name, units) in [("units", Some(&claim.1)), ("reserve", claim.2.as_ref())] {
                let Some(units) = units else { continue };
                self.expr(units, Moment::Admit, false, &at.field(name));
                if ok {
                    self.fits(walk, &claim.0, units, name, at);
                }
            }
            if claims[..k].iter().any(|other| other.0 == claim.0) {
                let reason = format!("a hold names pool `{}` twice", walk.name(&claim.0));
                self.error(at, "hold-twice", reason, "claim the sum of the units once");
            }
        }
    }

    /// A constant amount must fit some member of the family.
    fn fits(&mut self, walk: &Walk<'_>, r: &CRef, units: &CExpr, name: &str, at: &At) {
        let Some(v) = units.as_num() else { return };
        if v < 0.0 {
            let reason = format!("a hold's {name} is {v}");
            self.error(at, "hold-negative", reason, "amounts are 0 or more");
            return;
        }
        let members = &walk.program.pools[r.base..r.base + r.count];
        if let Some(largest) = members.iter().max_by(|a, b| a.cap.total_cmp(&b.cap))
            && members.iter().all(|p| p.round_up(v) > p.cap)
        {
            let reason = format!(
                "a hold's {name} of {v} never fits pool `{}`, whose cap is {}",
                largest.name, largest.cap
            );
            self.error(at, "hold-cap", reason, "raise the cap or claim less");
        }
    }

    fn run(&mut self, walk: &mut Walk<'p>, run: &'p CRun, at: &At) {
        self.expr(&run.work, Moment::Session, true, &at.field("work"));
        if !self.family(&run.stage, walk.program.stages.len(), "stage", at) {
            return;
        }
        let name = walk.program.stages[run.stage.base].name.clone();
        if run.mode == RunMode::Plain && self.has_step(&run.stage) {
            let reason = format!("a run on step stage `{name}` does not say what it does");
            let help = "write `run S prefill (n)`, `run S decode (n)` or `run S steps (k)`";
            self.error(at, "run-mode", reason, help);
        }
        if run.mode != RunMode::Plain && !self.is_step(&run.stage) {
            let reason = format!("a run on `{name}`, no step stage, says prefill, decode or steps");
            self.error(at, "run-mode", reason, "write `run S (work)`");
        }
        self.flow(run, at);
        self.samples(walk, run, at);
        if let Some(telling) = &run.telling {
            if run.mode != RunMode::Steps {
                let reason = "a run that waits for no steps tells a lease";
                self.error(at, "run-steps", reason, "write `release P on S` behind the run");
            }
            self.tell(walk, telling, &at.field("telling"));
        }
        if let Some(pool) = &run.growing {
            if !self.is_step(&run.stage) {
                let reason = format!("a run on `{name}`, no step stage, says growing");
                self.error(at, "run-growing", reason, "use `grow P (n)` before, or `load` after");
            }
            if run.mode == RunMode::Steps {
                let reason = "a run that waits for steps says growing";
                self.error(at, "run-steps", reason, "it computes nothing: leave that out");
            }
            if self.pool_ref(pool, at) {
                self.inside_hold(walk, pool, "growing", at);
            }
        }
    }

    /// Decode tokens behind a prefill, and the attributes that samples change.
    fn samples(&mut self, walk: &mut Walk<'p>, run: &'p CRun, at: &At) {
        if let Some(then) = &run.then {
            self.expr(then, Moment::Session, true, &at.field("then"));
            if run.mode != RunMode::Prefill {
                let reason = "decode tokens follow a run that prefills nothing";
                self.error(at, "run-then", reason, "write `run S prefill (n) decode (m)`");
            }
        }
        for (k, slot) in [run.answers, run.first].into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            self.slot(slot, at);
            walk.assigned(slot);
            if !matches!(run.mode, RunMode::Prefill | RunMode::Decode) {
                let reason = "a run that samples nothing counts its samples";
                self.error(at, "run-answers", reason, "only prefill and decode answer");
            }
            if walk.program.slots.all().contains(&slot) || (k > 0 && run.answers == Some(slot)) {
                let reason = "samples change a built-in attribute, or one attribute twice";
                self.error(at, "run-answers", reason, "count them in an attribute of its own");
            }
        }
    }

    fn guard(&mut self, guard: &CExpr, at: &At) {
        let Some(v) = guard.as_num() else { return };
        if v > 0.0 && v < 1.0 {
            let reason = format!("a branch is guarded by the constant {v}");
            self.error(at, "guard", reason, "that is a draw: write `branch with`");
        } else if v != 0.0 && v != 1.0 {
            let reason = format!("a branch is guarded by the constant {v}");
            self.error(at, "guard", reason, "a guard is exactly 0 or 1: compare with something");
        }
    }

    fn inside_hold(&mut self, walk: &Walk<'p>, pool: &CRef, what: &str, at: &At) {
        if walk.scopes.iter().any(|s| s.pools.contains(&pool)) {
            self.unchanged(walk, pool, what, at);
            return;
        }
        let reason = format!("`{what}` of pool `{}` stands in no hold of it", walk.name(pool));
        self.error(at, "outside-hold", reason, "move it into the hold, same pool and same index");
    }

    /// The index of the hold that a statement acts on must still mean the member it meant.
    fn unchanged(&mut self, walk: &Walk<'p>, pool: &CRef, what: &str, at: &At) {
        let changed = walk.scopes.iter().rev().find_map(|s| {
            let k = s.pools.iter().position(|r| *r == pool)?;
            Some(s.changed[k])
        });
        if let Some(Some(slot)) = changed {
            let attr = walk.program.attrs.get(slot).map_or("?", String::as_str).to_owned();
            let name = walk.name(pool);
            let reason = format!(
                "`{what}` of pool `{name}` comes after `{attr}` changed, which the hold's index reads"
            );
            self.error(at, "index-changed", reason, "keep the index in an attribute of its own");
        }
    }

    pub(super) fn pool_ref(&mut self, r: &CRef, at: &At) -> bool {
        if let Some(index) = &r.index {
            self.expr(index, Moment::Session, false, at);
        }
        self.family(r, self.program.pools.len(), "pool", at)
    }

    fn slot(&mut self, slot: Slot, at: &At) {
        if slot >= self.program.attrs.len() {
            self.missing(at, "attribute", slot);
        }
    }
}

impl<'p> Walk<'p> {
    fn pool(&self, r: &CRef) -> Option<&'p CPool> {
        self.program.pools.get(r.base)
    }

    /// A pool's name, for messages.
    pub(super) fn name(&self, r: &CRef) -> &'p str {
        self.pool(r).map_or("?", |p| &p.name)
    }

    /// The holds that lease a pool, written like this.
    pub(super) fn leases_of(&self, pool: &'p CRef) -> impl Iterator<Item = &'p CHold> {
        let leases = move |h: &&CHold| h.lease.as_ref().is_some_and(|(r, _)| r == pool);
        self.holds.iter().copied().filter(leases)
    }

    fn assigned(&mut self, slot: Slot) {
        for scope in &mut self.scopes {
            for (pool, changed) in scope.pools.iter().zip(&mut scope.changed) {
                let Some(index) = &pool.index else { continue };
                index.walk(&mut |e| {
                    if *e == CExpr::Attr(slot) {
                        *changed = Some(slot);
                    }
                });
            }
        }
    }

    fn assigned_by_turn(&mut self) {
        let slots = self.program.slots;
        for slot in [slots.turn_no, slots.new, slots.out, slots.think, slots.more, slots.forced] {
            self.assigned(slot);
        }
        for slot in self.slots_assigned_in(self.program.turn) {
            self.assigned(slot);
        }
    }

    /// Attributes that a block, and the blocks in it, assign.
    fn slots_assigned_in(&self, root: BlockId) -> Vec<Slot> {
        let mut found = Vec::new();
        let mut seen = vec![false; self.program.blocks.len()];
        let mut todo = vec![root];
        while let Some(id) = todo.pop() {
            let Some(block) = self.program.blocks.get(id) else { continue };
            if std::mem::replace(&mut seen[id], true) {
                continue;
            }
            for stmt in block {
                match stmt {
                    CStmt::Set(slot, _) | CStmt::Choose { var: slot, .. } => found.push(*slot),
                    CStmt::Hold(hold) => found.extend(hold.binds.iter().map(|b| b.0)),
                    CStmt::Run(run) => found.extend(run.answers.into_iter().chain(run.first)),
                    CStmt::Turn => todo.push(self.program.turn),
                    _ => {}
                }
                todo.extend(stmt.blocks());
            }
        }
        found
    }
}
