//! Statements, and the sugar among them.

use super::{Linker, MAX_STATEMENTS, place};
use crate::ast::{
    self, Block, Branch, Expr, Mode, Ref, Role, RunStmt, ServePlace, Serving, Stmt, StmtKind, Tell,
};
use crate::diag::{Code, Diagnostic, closest};
use crate::ir::{CExpr, CRef, CRenew, CRun, CSegment, CStmt, CTell, Dist, RunMode};
use crate::source::Span;

impl<'a> Linker<'a> {
    /// Links a block of statements behind those already in `block`.
    pub(super) fn block_into(&mut self, statements: &'a Block, block: usize) {
        for stmt in statements {
            self.statements += 1;
            if self.statements > MAX_STATEMENTS {
                let d = Diagnostic::new(Code::E0425, stmt.span, "the program is too large")
                    .at(format!("more than {MAX_STATEMENTS} statements"))
                    .help("the server is copied to every `request`: make one of them a loop");
                self.report(d);
                return;
            }
            self.statement(stmt, block);
        }
    }

    pub(super) fn block(&mut self, statements: &'a Block) -> usize {
        let id = self.new_block();
        self.block_into(statements, id);
        id
    }

    /// What recurses has functions of its own, so that a level of nesting takes little of the stack.
    fn statement(&mut self, stmt: &'a Stmt, block: usize) {
        match &stmt.kind {
            StmtKind::Request => {
                if let Some(server) = self.server {
                    self.request(server, block);
                }
            }
            StmtKind::Branch(branch) => self.branch(branch, stmt.span, block),
            StmtKind::Hold(hold) => {
                if let Some(linked) = self.hold(hold) {
                    self.push(block, CStmt::Hold(*linked), stmt.span, hold.head);
                }
            }
            StmtKind::Loop(body) => {
                let body = self.block(body);
                self.push(block, CStmt::Loop(body), stmt.span, stmt.span);
            }
            StmtKind::Shield(body) => {
                let body = self.block(body);
                self.push(block, CStmt::Shield(body), stmt.span, stmt.span);
            }
            StmtKind::While(guard, body) => {
                let linked = self.guard(guard);
                let body = self.block(body);
                self.push(block, CStmt::While(linked, body), stmt.span, guard.span);
            }
            StmtKind::Until(until) => {
                let deadline = self.expr(&until.deadline, place::STATEMENT);
                let body = self.block(&until.body);
                let linked = CStmt::Until(deadline, body, self.block(&until.other));
                self.push(block, linked, stmt.span, until.deadline.span);
            }
            _ => self.flat(stmt, block),
        }
    }

    fn branch(&mut self, branch: &'a Branch, span: Span, block: usize) {
        let guard = if branch.with {
            let p = self.expr(&branch.guard, place::STATEMENT);
            self.probability(p, branch.guard.span)
        } else {
            self.guard(&branch.guard)
        };
        let then = self.block(&branch.then);
        let other = self.block(&branch.other);
        self.push(block, CStmt::Branch(guard, then, other), span, branch.guard.span);
    }

    fn guard(&mut self, guard: &'a Expr) -> CExpr {
        let linked = self.expr(guard, place::STATEMENT);
        self.constant_guard(&linked, guard.span);
        linked
    }

    /// A statement without blocks in it.
    fn flat(&mut self, stmt: &'a Stmt, block: usize) {
        let span = stmt.span;
        let linked = match &stmt.kind {
            StmtKind::Turn => CStmt::Turn,
            StmtKind::End => CStmt::End,
            StmtKind::Set(name, value) => {
                let value = self.expr(value, place::STATEMENT);
                let Some(slot) = self.slot(&name.text) else { return };
                CStmt::Set(slot, value)
            }
            StmtKind::Observe(name, value) => {
                let value = self.expr(value, place::STATEMENT);
                let k = self.names.observe(&name.text, &mut self.program.observes);
                CStmt::Observe(k, value)
            }
            StmtKind::Choose(choose) => {
                let count = self.amount(&choose.count, place::STATEMENT);
                let key = self.expr(&choose.key, place::STATEMENT);
                let Some(var) = self.slot(&choose.var.text) else { return };
                let linked = CStmt::Choose { var, count, key };
                self.push(block, linked, span, choose.key.span);
                return;
            }
            StmtKind::Grow(pool, units) => {
                let units = self.amount(units, place::STATEMENT);
                let Some(pool) = self.pool_ref(pool, place::INDEX) else { return };
                CStmt::Grow(pool, units)
            }
            StmtKind::Load(pool, units) => {
                let units = self.amount(units, place::STATEMENT);
                let Some(pool) = self.pool_ref(pool, place::INDEX) else { return };
                CStmt::Load(pool, units)
            }
            StmtKind::Drop(pool) => {
                let Some(pool) = self.pool_ref(pool, place::INDEX) else { return };
                CStmt::Drop(pool)
            }
            StmtKind::Release(tell) => {
                let Some(tell) = self.tell(tell) else { return };
                match tell {
                    CTell { pool, on: None, after: None } => CStmt::Release(pool),
                    tell => CStmt::Tell(tell),
                }
            }
            StmtKind::Abandon(pool) => {
                let Some(pool) = self.pool_ref(pool, place::INDEX) else { return };
                CStmt::Abandon(pool)
            }
            StmtKind::Renew(renew) => {
                let time = self.amount(&renew.time, place::STATEMENT);
                let every = self.amount(&renew.every, place::STATEMENT);
                let after = renew.after.as_ref().map(|e| self.amount(e, place::STATEMENT));
                let pool = self.pool_ref(&renew.pool, place::INDEX);
                let from = self.stage_ref(&renew.from, place::INDEX);
                let (Some(pool), Some(from)) = (pool, from) else { return };
                CStmt::Renew(CRenew { pool, time, every, from, after })
            }
            StmtKind::Content(content) => {
                let parts = content.parts.iter();
                let linked = parts.map(|(key, length)| {
                    let key = self.amount(key, place::CONTENT);
                    CSegment(key, self.amount(length, place::CONTENT))
                });
                CStmt::Content { add: content.add, parts: linked.collect() }
            }
            StmtKind::Run(run) => {
                let Some(run) = self.run(run) else { return };
                CStmt::Run(run)
            }
            StmtKind::Book(name) => {
                let Some(number) = self.bookings.number(&name.text) else { return };
                CStmt::Book(number)
            }
            StmtKind::Serving(serving) => {
                self.serving(serving, span, block);
                return;
            }
            // The others have blocks, and calls have been replaced by what they stand for.
            _ => return,
        };
        self.push(block, linked, span, span);
    }

    fn probability(&mut self, p: CExpr, span: Span) -> CExpr {
        if let Some(v) = p.as_num().filter(|&v| !super::expr::is_probability(v)) {
            let d = Diagnostic::new(Code::E0405, span, format!("{v} as a probability"))
                .help("a probability lies between 0 and 1");
            self.report(d);
        }
        CExpr::Sample(Dist::Bernoulli, vec![p])
    }

    fn constant_guard(&mut self, guard: &CExpr, span: Span) {
        let Some(v) = guard.as_num().filter(|v| *v != 0.0 && *v != 1.0) else { return };
        let d = Diagnostic::new(Code::E0502, span, format!("the guard is always {v}"));
        let d = if v > 0.0 && v < 1.0 {
            d.help(format!("that is a draw: write `branch with ({v})`"))
        } else {
            d.help("a guard is exactly 0 or 1: compare with something")
        };
        self.report(d);
    }

    fn run(&mut self, run: &'a RunStmt) -> Option<CRun> {
        let work = self.amount(&run.work, place::STATEMENT);
        let then = run.then.as_ref().map(|e| self.amount(e, place::STATEMENT));
        let growing = self.growing(run.growing.as_ref());
        let also = self.also(&run.also);
        let telling = match &run.telling {
            Some(tell) => self.tell(tell).map(Some),
            None => Some(None),
        };
        let stage = self.stage_ref(&run.stage, place::INDEX)?;
        let step = self.stages.get(&run.stage.name.text).is_some_and(|f| f.step);
        let mode = self.mode(run.mode, step, &run.stage)?;
        if let Some(pool) = run.growing.as_ref().filter(|_| !step) {
            self.growing_off_step(pool, &run.stage.name.text);
        }
        let slot = |name: &Option<ast::Name>| name.as_ref().and_then(|n| self.slot(&n.text));
        Some(CRun {
            growing: growing?,
            also: also?,
            then,
            answers: slot(&run.answers),
            first: slot(&run.first),
            telling: telling?,
            ..CRun::new(stage, mode, work)
        })
    }

    fn tell(&mut self, tell: &'a Tell) -> Option<CTell> {
        let after = tell.after.as_ref().map(|e| self.amount(e, place::STATEMENT));
        let pool = self.pool_ref(&tell.pool, place::INDEX);
        let on = match &tell.on {
            Some(stage) => Some(self.stage_ref(stage, place::INDEX)?),
            None => None,
        };
        Some(CTell { pool: pool?, on, after })
    }

    /// The growing pool; the outer option is `None` after an error.
    fn growing(&mut self, growing: Option<&'a Ref>) -> Option<Option<CRef>> {
        match growing {
            None => Some(None),
            Some(r) => self.pool_ref(r, place::INDEX).map(Some),
        }
    }

    fn growing_off_step(&mut self, pool: &Ref, stage: &str) {
        let message = format!("`growing` at `{stage}`, which computes no tokens");
        let d = Diagnostic::new(Code::E0416, pool.span, message)
            .help("only a step stage grows an allocation token by token: use `grow` before, or `load` after");
        self.report(d);
    }

    fn mode(&mut self, mode: Option<(Mode, Span)>, step: bool, stage: &Ref) -> Option<RunMode> {
        let name = &stage.name.text;
        match (mode, step) {
            (None, false) => Some(RunMode::Plain),
            (Some((Mode::Prefill, _)), true) => Some(RunMode::Prefill),
            (Some((Mode::Decode, _)), true) => Some(RunMode::Decode),
            (Some((Mode::Steps, _)), true) => Some(RunMode::Steps),
            (None, true) => {
                let message =
                    format!("a run on the step stage `{name}` that is neither prefill nor decode");
                let d = Diagnostic::new(Code::E0414, stage.span, message).help(format!(
                    "write `run {name} prefill (tokens);` or `run {name} decode (tokens);`, or wait for its iterations: `run {name} steps (k);`"
                ));
                self.report(d);
                None
            }
            (Some((_, at)), false) => {
                let message =
                    format!("`{name}` is no step stage: it knows no prefill, decode and steps");
                let d = Diagnostic::new(Code::E0415, at, message)
                    .help(format!("write `run {name} (work);`"));
                self.report(d);
                None
            }
        }
    }

    /// Further stages of a run; `None` after an error.
    fn also(&mut self, also: &'a [Ref]) -> Option<Vec<CRef>> {
        let linked: Vec<Option<CRef>> =
            also.iter().map(|r| self.stage_ref(r, place::INDEX)).collect();
        linked.into_iter().collect()
    }

    pub(super) fn without_binds<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let binds = self.binds.take();
        let result = f(self);
        self.binds = binds;
        result
    }

    /// `prefill W;` and the like: a run at the stage that has the role.
    fn serving(&mut self, serving: &'a Serving, span: Span, block: usize) {
        let work = self.amount(&serving.work, place::STATEMENT);
        let growing = self.growing(serving.growing.as_ref());
        let also = self.also(&serving.also);
        let stage = match &serving.place {
            ServePlace::On(r) => self.stage_above(r),
            ServePlace::Role => self.role_stage(serving, None),
            ServePlace::Index(index) => self.role_stage(serving, Some(index)),
        };
        let moves = serving.moves.as_ref().map(|moves| {
            let units = self.amount(&moves.units, place::STATEMENT);
            let to = self.pool_ref(&moves.to, place::INDEX);
            let from = self.pool_ref(&moves.from, place::INDEX);
            (units, to, from)
        });
        let (Some((stage, step, name)), Some(growing), Some(also)) = (stage, growing, also) else {
            return;
        };
        let mode = match (serving.role, step) {
            (Role::Prefill, true) => RunMode::Prefill,
            (Role::Decode, true) => RunMode::Decode,
            (_, false) => RunMode::Plain,
            (role, true) => {
                let message = format!("`{}` on the step stage `{name}`", role.word());
                let d = Diagnostic::new(Code::E0414, serving.role_span, message)
                    .help("a step stage runs `prefill` and `decode` only");
                self.report(d);
                return;
            }
        };
        if let Some(pool) = serving.growing.as_ref().filter(|_| !step) {
            self.growing_off_step(pool, &name);
        }
        let run = CRun { growing, also, ..CRun::new(stage, mode, work) };
        self.push(block, CStmt::Run(run), span, span);
        if let Some((units, Some(to), Some(from))) = moves {
            self.push(block, CStmt::Load(to, units), span, span);
            self.push(block, CStmt::Release(from), span, span);
        }
    }

    /// A stage by name, which must be declared above.
    fn stage_above(&mut self, r: &'a Ref) -> Option<(CRef, bool, String)> {
        match self.stages.get(&r.name.text) {
            Some(family) if family.order > self.order => {
                let declared = family.span;
                let message = format!("the stage `{}` is declared further down", r.name.text);
                let d = Diagnostic::new(Code::E0312, r.name.span, message)
                    .label(declared, "here")
                    .help("move its declaration above");
                self.report(d);
                None
            }
            Some(family) => {
                let step = family.step;
                Some((self.stage_ref(r, place::INDEX)?, step, r.name.text.clone()))
            }
            None => {
                let above = self.stages.list.iter().filter(|f| f.order < self.order);
                let near = closest(&r.name.text, above.map(|f| f.name.as_str()));
                let message = format!("unknown stage `{}`", r.name.text);
                let d = Diagnostic::new(Code::E0302, r.name.span, message).did_you_mean(near);
                self.report(d);
                None
            }
        }
    }

    /// The one stage declared above that has the role.
    fn role_stage(
        &mut self,
        serving: &'a Serving,
        index: Option<&'a Expr>,
    ) -> Option<(CRef, bool, String)> {
        let role = serving.role;
        let names: &[&str] = match role {
            Role::Transfer => &["link", "transfer"],
            _ => &[role.word()],
        };
        let order = self.order;
        let above = |f: &&super::Family| f.order < order;
        let mut found: Vec<&super::Family> = self
            .stages
            .list
            .iter()
            .filter(above)
            .filter(|f| names.contains(&f.name.as_str()))
            .collect();
        if found.is_empty() && matches!(role, Role::Prefill | Role::Decode) {
            found = self.stages.list.iter().filter(above).filter(|f| f.step).collect();
        }
        if let [family] = found[..] {
            let (base, count, step, name) =
                (family.base, family.count, family.step, family.name.clone());
            let reference = self.role_member(serving, index, base, count, &name)?;
            return Some((reference, step, name));
        }
        let several: Vec<(String, Span)> = found.iter().map(|f| (f.name.clone(), f.span)).collect();
        let below = self.stages.list.iter().find(|f| names.contains(&f.name.as_str()));
        let below = below.map(|f| f.span).filter(|_| several.is_empty());
        let what = if several.is_empty() { "no stage" } else { "several stages" };
        let mut d = Diagnostic::new(
            Code::E0216,
            serving.role_span,
            format!("{what} for `{}`", role.word()),
        );
        for (name, at) in &several {
            d = d.label(*at, format!("`{name}` could be meant"));
        }
        d = match below {
            Some(at) => d.label(at, "declared further down").help("move its declaration above"),
            None => d.help(format!(
                "declare `stage {} : ...;` above, or name the stage: {} on S (work);",
                names[0],
                role.word()
            )),
        };
        self.report(d);
        None
    }

    fn role_member(
        &mut self,
        serving: &'a Serving,
        index: Option<&'a Expr>,
        base: usize,
        count: usize,
        name: &str,
    ) -> Option<CRef> {
        let Some(index) = index else {
            if count > 1 {
                let message = format!("`{name}` is a family of {count}, and no member is named");
                let word = serving.role.word();
                let d = Diagnostic::new(Code::E0403, serving.role_span, message)
                    .help(format!("say which one: {word}[i] (work);"));
                self.report(d);
                return None;
            }
            return Some(CRef::one(base));
        };
        let linked = self.expr(index, place::INDEX);
        match linked.as_num() {
            None => Some(CRef::member(base, count, linked)),
            Some(v) if v >= 0.0 && v < count as f64 && libm::floor(v) == v => {
                Some(CRef::one(base + v as usize))
            }
            Some(v) => {
                let d =
                    Diagnostic::new(Code::E0411, index.span, format!("`{name}` has no member {v}"))
                        .help(format!("members are 0 to {}", count - 1));
                self.report(d);
                None
            }
        }
    }
}
