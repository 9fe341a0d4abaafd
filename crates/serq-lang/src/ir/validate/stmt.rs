//! Checks of statements, in the context of the holds they stand in.

use super::{At, Check, Moment};
use crate::ir::{
    Bind, BlockId, CEnter, CExpr, CHold, CPool, CRef, CRun, CSegment, CStmt, Claim,
    MAX_BLOCK_DEPTH, Program, RunMode, Slot,
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

struct Walk<'p> {
    program: &'p Program,
    scopes: Vec<Scope<'p>>,
    /// Every reference some hold of the program leases.
    leased: Vec<&'p CRef>,
    /// What some statement books.
    booked: Vec<&'p [Claim]>,
    /// Blocks already entered.
    seen: Vec<bool>,
    /// In `init` or `turn`.
    workload: bool,
}

impl<'p> Check<'p> {
    pub(super) fn statements(&mut self) {
        let program = self.program;
        let leased = program
            .blocks
            .iter()
            .flatten()
            .filter_map(|s| match s {
                CStmt::Hold(CHold { lease: Some((r, _)), .. })
                | CStmt::Enter(CEnter { lease: Some((r, _)), .. }) => Some(r),
                _ => None,
            })
            .collect();
        let booked = program
            .blocks
            .iter()
            .flatten()
            .filter_map(|s| match s {
                CStmt::Book(claims) => Some(claims.as_slice()),
                _ => None,
            })
            .collect();
        let mut walk = Walk {
            program,
            scopes: Vec::new(),
            leased,
            booked,
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
            CStmt::Book(claims) => self.book(walk, claims, at),
            CStmt::Enter(enter) => self.enter(walk, enter, depth, at),
            CStmt::Drop(pool) => {
                self.pool_ref(pool, at);
            }
            CStmt::Release(pool) => {
                let elsewhere = walk.leased.contains(&pool) || walk.is_booked(pool);
                if self.pool_ref(pool, at) && !elsewhere {
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
        self.hold_names(hold, at);
        if let Some(reuse) = &hold.reuse {
            self.expr(reuse, Moment::Admit, false, &at.field("reuse"));
        }
        for CSegment(key, length) in &hold.names {
            self.expr(key, Moment::Admit, false, &at.field("names"));
            self.expr(length, Moment::Admit, false, &at.field("names"));
        }
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
        self.scope(walk, hold.body, hold.cache.as_ref(), hold.lease.as_ref(), depth, at);
    }

    /// A scope over what was booked has the pools of every booking it can open.
    fn enter(&mut self, walk: &mut Walk<'p>, enter: &'p CEnter, depth: usize, at: &At) {
        let mut pools: Vec<&CRef> = vec![&enter.pool];
        let books = walk.booked.iter().filter(|c| c.first().is_some_and(|c| c.0 == enter.pool));
        for claim in books.copied().flatten() {
            if !pools.contains(&&claim.0) {
                pools.push(&claim.0);
            }
        }
        if self.pool_ref(&enter.pool, at) && !walk.is_booked(&enter.pool) {
            let name = walk.pool(&enter.pool).map_or("?", |p| &p.name).to_owned();
            let reason = format!("nothing books pool `{name}`");
            let help = "write `book P (n)` before, same pool and same index";
            self.error(at, "enter", reason, help);
        }
        if let Some(reuse) = &enter.reuse {
            self.expr(reuse, Moment::Admit, false, &at.field("reuse"));
        }
        walk.scopes.push(Scope::over(pools));
        self.scope(walk, enter.body, enter.cache.as_ref(), enter.lease.as_ref(), depth, at);
    }

    fn book(&mut self, walk: &mut Walk<'p>, claims: &'p [Claim], at: &At) {
        self.claims(walk, claims, at);
        for Claim(r, ..) in claims {
            let members = walk.program.pools.get(r.base..r.base.saturating_add(r.count));
            if let Some(pool) = members.into_iter().flatten().find(|p| p.shared) {
                let reason = format!("a booking names shared pool `{}`", pool.name);
                let help = "what is found in a shared pool is known at admission only: `hold` it";
                self.error(at, "book-shared", reason, help);
            }
        }
    }

    /// Pools, units and reserves of a hold or a booking.
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
                let name = walk.pool(&claim.0).map_or("?", |p| &p.name).to_owned();
                let reason = format!("a hold names pool `{name}` twice");
                self.error(at, "hold-twice", reason, "claim the sum of the units once");
            }
        }
    }

    /// Body, cache clause and lease of the scope just opened.
    fn scope(
        &mut self,
        walk: &mut Walk<'p>,
        body: BlockId,
        cache: Option<&'p CExpr>,
        lease: Option<&'p (CRef, CExpr)>,
        depth: usize,
        at: &At,
    ) {
        self.block(walk, body, depth + 1, at);
        if let Some(cache) = cache {
            self.expr(cache, Moment::Session, true, &at.field("cache"));
        }
        if let Some((pool, time)) = lease {
            let claimed = walk.scopes.last().is_some_and(|s| s.pools.contains(&pool));
            if self.pool_ref(pool, at) && !claimed {
                let name = walk.pool(pool).map_or("?", |p| &p.name).to_owned();
                let reason = format!("a hold leases pool `{name}`, which it does not claim");
                self.error(at, "lease-pool", reason, "lease one of the hold's pools, same index");
            } else {
                self.unchanged(walk, pool, "lease", at);
            }
            self.expr(time, Moment::Session, true, &at.field("lease"));
        }
        walk.scopes.pop();
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
            let reason = format!("a run on step stage `{name}` does not say prefill or decode");
            self.error(at, "run-mode", reason, "write `run S prefill (n)` or `run S decode (n)`");
        }
        if run.mode != RunMode::Plain && !self.is_step(&run.stage) {
            let reason = format!("a run on `{name}`, no step stage, says prefill or decode");
            self.error(at, "run-mode", reason, "write `run S (work)`");
        }
        self.flow(run, at);
        if let Some(pool) = &run.growing {
            if !self.is_step(&run.stage) {
                let reason = format!("a run on `{name}`, no step stage, says growing");
                self.error(at, "run-growing", reason, "use `grow P (n)` before, or `load` after");
            }
            if self.pool_ref(pool, at) {
                self.inside_hold(walk, pool, "growing", at);
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
        let name = walk.pool(pool).map_or("?", |p| &p.name).to_owned();
        let reason = format!("`{what}` of pool `{name}` stands in no hold of it");
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
            let name = walk.pool(pool).map_or("?", |p| &p.name).to_owned();
            let reason = format!(
                "`{what}` of pool `{name}` comes after `{attr}` changed, which the hold's index reads"
            );
            self.error(at, "index-changed", reason, "keep the index in an attribute of its own");
        }
    }

    fn pool_ref(&mut self, r: &CRef, at: &At) -> bool {
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

    /// Whether some statement books a pool written like this, first.
    fn is_booked(&self, pool: &CRef) -> bool {
        self.booked.iter().any(|claims| claims.first().is_some_and(|c| c.0 == *pool))
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
                    CStmt::Turn => todo.push(self.program.turn),
                    _ => {}
                }
                todo.extend(stmt.blocks());
            }
        }
        found
    }
}
