//! Copies of expressions and statements.

use super::{Expander, Scope};
use crate::ast::{
    Arg, Bind, Block, Branch, Call, Choose, Claim, Content, DefBody, Expr, ExprKind, Hold, Lease,
    Move, Name, Ref, Renew, RunStmt, ServePlace, Serving, Stmt, StmtKind, Tell, Until,
};
use crate::diag::{Code, Diagnostic};
use crate::parse::{MAX_HEIGHT, MAX_NESTING, Side, refused};
use crate::source::Span;

/// Expressions that may surround one while it is copied: those of a call's arguments count, which
/// the result does not keep. It bounds the recursion.
const MAX_COPIED: usize = 2 * MAX_HEIGHT as usize;

/// Where a block stands.
#[derive(Clone, Copy)]
pub(super) struct Where {
    pub(super) side: Side,
    /// Blocks around it.
    pub(super) nesting: usize,
}

impl<'d> Expander<'d, '_> {
    pub(super) fn expr(&mut self, e: &'d Expr, scope: &Scope<'d>) -> Option<Expr> {
        let span = scope.span(e.span);
        if !self.count(span, scope) {
            return None;
        }
        if self.deep >= MAX_COPIED {
            self.too_high(span);
            return None;
        }
        self.deep += 1;
        let copied = self.copied(e, span, scope);
        self.deep -= 1;
        copied
    }

    fn too_high(&mut self, span: Span) {
        let message = format!("an expression of more than {MAX_HEIGHT} levels");
        let d = Diagnostic::new(Code::E0109, span, message)
            .help("give a part of it a name with `let` or `set`");
        self.report(d);
    }

    fn copied(&mut self, e: &'d Expr, span: Span, scope: &Scope<'d>) -> Option<Expr> {
        let kind = match &e.kind {
            ExprKind::Num(v) => ExprKind::Num(*v),
            ExprKind::Name(name) => return self.value(name, e.span, scope),
            ExprKind::Call(name, args) if self.defs.contains_key(&name.text) => {
                return self.called(name, args, e.span, scope);
            }
            ExprKind::Call(name, args) => {
                let args: Option<Vec<Arg>> = args.iter().map(|a| self.arg(a, scope)).collect();
                ExprKind::Call(placed(name, scope), args?)
            }
            ExprKind::Sample(name, args) => {
                let args: Option<Vec<Expr>> = args.iter().map(|a| self.expr(a, scope)).collect();
                ExprKind::Sample(placed(name, scope), args?)
            }
            ExprKind::Unary(op, a) => ExprKind::Unary(*op, self.boxed(a, scope)?),
            ExprKind::Binary(op, a, b) => {
                ExprKind::Binary(*op, self.boxed(a, scope)?, self.boxed(b, scope)?)
            }
            ExprKind::Cond(c, a, b) => {
                let (c, a) = (self.boxed(c, scope)?, self.boxed(a, scope)?);
                ExprKind::Cond(c, a, self.boxed(b, scope)?)
            }
        };
        self.tree(kind, span)
    }

    fn boxed(&mut self, e: &'d Expr, scope: &Scope<'d>) -> Option<Box<Expr>> {
        self.expr(e, scope).map(Box::new)
    }

    /// The definition's expression in the place of a call.
    fn called(
        &mut self,
        name: &Name,
        args: &'d [Arg],
        span: Span,
        scope: &Scope<'d>,
    ) -> Option<Expr> {
        let call = Call { name: name.clone(), args: args.to_vec(), span };
        let (def, inner) = self.enter(&call, args, scope)?;
        match &def.body {
            DefBody::Expr(e) => {
                let mut e = self.expr(e, &inner)?;
                // Its own place is the call: what is wrong with the value is wrong there.
                if scope.copy.is_none() {
                    e.span = call.span;
                }
                Some(e)
            }
            _ => {
                self.other_kind(def, scope.span(call.span), "a value");
                None
            }
        }
    }

    /// A node as high as its parts make it.
    fn tree(&mut self, kind: ExprKind, span: Span) -> Option<Expr> {
        let of = |arg: &Arg| match arg {
            Arg::Expr(e) => e.height,
            Arg::Ref(r) => r.index.as_ref().map_or(1, |e| e.height + 1),
        };
        let height = match &kind {
            ExprKind::Num(_) | ExprKind::Name(_) => 0,
            ExprKind::Call(_, args) => args.iter().map(of).max().unwrap_or(0),
            ExprKind::Sample(_, args) => args.iter().map(|e| e.height).max().unwrap_or(0),
            ExprKind::Unary(_, a) => a.height,
            ExprKind::Binary(_, a, b) => a.height.max(b.height),
            ExprKind::Cond(c, a, b) => c.height.max(a.height).max(b.height),
        };
        if height >= MAX_HEIGHT {
            self.too_high(span);
            return None;
        }
        Some(Expr { kind, span, height: height + 1 })
    }

    pub(super) fn optional(
        &mut self,
        e: Option<&'d Expr>,
        scope: &Scope<'d>,
    ) -> Option<Option<Expr>> {
        match e {
            Some(e) => self.expr(e, scope).map(Some),
            None => Some(None),
        }
    }

    pub(super) fn block(&mut self, block: &'d Block, scope: &Scope<'d>, at: Where) -> Block {
        let mut out = Block::with_capacity(block.len());
        if at.nesting >= MAX_NESTING {
            if let Some(first) = block.first() {
                let message = format!("nested more than {MAX_NESTING} deep once expanded");
                self.report(Diagnostic::new(Code::E0109, scope.span(first.span), message));
            }
            return out;
        }
        for stmt in block {
            self.statement(stmt, scope, at, &mut out);
        }
        out
    }

    /// After an error there is no statement: nothing is linked then.
    fn statement(&mut self, stmt: &'d Stmt, scope: &Scope<'d>, at: Where, out: &mut Block) {
        let span = scope.span(stmt.span);
        if !self.count(span, scope) {
            return;
        }
        if let StmtKind::Call(call) = &stmt.kind {
            let Some((def, inner)) = self.enter(call, &call.args, scope) else { return };
            match &def.body {
                DefBody::Block(body) => {
                    for stmt in body {
                        self.statement(stmt, &inner, at, out);
                    }
                }
                _ => self.other_kind(def, span, "a statement"),
            }
            return;
        }
        // Outside of definitions the parser has looked.
        if scope.copy.is_some() {
            if let Some(d) = refused(at.side, stmt.kind.word(), span) {
                self.report(d);
                return;
            }
        }
        if let Some(kind) = self.kind(&stmt.kind, scope, at) {
            out.push(Stmt { kind, span });
        }
    }

    /// What recurses has a function of its own, so that a level of nesting takes little of the stack.
    fn kind(&mut self, kind: &'d StmtKind, scope: &Scope<'d>, at: Where) -> Option<StmtKind> {
        let inside = Where { nesting: at.nesting + 1, ..at };
        Some(match kind {
            StmtKind::Until(until) => {
                let deadline = self.expr(&until.deadline, scope)?;
                let body = self.block(&until.body, scope, inside);
                let other = self.block(&until.other, scope, inside);
                StmtKind::Until(Box::new(Until { deadline, body, other }))
            }
            StmtKind::Shield(body) => StmtKind::Shield(self.block(body, scope, inside)),
            StmtKind::Loop(body) => StmtKind::Loop(self.block(body, scope, inside)),
            StmtKind::Branch(branch) => {
                let guard = self.expr(&branch.guard, scope)?;
                let then = self.block(&branch.then, scope, inside);
                let other = self.block(&branch.other, scope, inside);
                StmtKind::Branch(Box::new(Branch { with: branch.with, guard, then, other }))
            }
            StmtKind::Hold(hold) => {
                let mut copied = self.header(hold, scope)?;
                copied.body = self.block(&hold.body, scope, inside);
                StmtKind::Hold(copied)
            }
            StmtKind::While(guard, body) => {
                StmtKind::While(self.expr(guard, scope)?, self.block(body, scope, inside))
            }
            _ => return self.flat(kind, scope),
        })
    }

    /// A statement without blocks in it.
    fn flat(&mut self, kind: &'d StmtKind, scope: &Scope<'d>) -> Option<StmtKind> {
        Some(match kind {
            StmtKind::Turn | StmtKind::Request | StmtKind::End => kind.clone(),
            StmtKind::Set(name, e) => StmtKind::Set(self.name(name, scope)?, self.expr(e, scope)?),
            StmtKind::Observe(name, e) => {
                StmtKind::Observe(self.name(name, scope)?, self.expr(e, scope)?)
            }
            StmtKind::Grow(r, e) => StmtKind::Grow(self.reference(r, scope)?, self.expr(e, scope)?),
            StmtKind::Load(r, e) => StmtKind::Load(self.reference(r, scope)?, self.expr(e, scope)?),
            StmtKind::Drop(r) => StmtKind::Drop(self.reference(r, scope)?),
            StmtKind::Release(tell) => StmtKind::Release(Box::new(self.tell(tell, scope)?)),
            StmtKind::Abandon(r) => StmtKind::Abandon(self.reference(r, scope)?),
            StmtKind::Renew(renew) => StmtKind::Renew(Box::new(Renew {
                pool: self.reference(&renew.pool, scope)?,
                time: self.expr(&renew.time, scope)?,
                every: self.expr(&renew.every, scope)?,
                from: self.reference(&renew.from, scope)?,
                after: self.optional(renew.after.as_ref(), scope)?,
            })),
            StmtKind::Content(content) => {
                let mut parts = Vec::with_capacity(content.parts.len());
                for (key, length) in &content.parts {
                    parts.push((self.expr(key, scope)?, self.expr(length, scope)?));
                }
                StmtKind::Content(Box::new(Content { add: content.add, parts }))
            }
            StmtKind::Choose(choose) => StmtKind::Choose(Box::new(Choose {
                var: self.name(&choose.var, scope)?,
                count: self.expr(&choose.count, scope)?,
                key: self.expr(&choose.key, scope)?,
            })),
            StmtKind::Run(run) => StmtKind::Run(Box::new(RunStmt {
                stage: self.reference(&run.stage, scope)?,
                also: self.references(&run.also, scope)?,
                mode: run.mode.map(|(mode, span)| (mode, scope.span(span))),
                work: self.expr(&run.work, scope)?,
                then: self.optional(run.then.as_ref(), scope)?,
                growing: self.optional_ref(run.growing.as_ref(), scope)?,
                answers: self.optional_name(run.answers.as_ref(), scope)?,
                first: self.optional_name(run.first.as_ref(), scope)?,
                telling: match &run.telling {
                    Some(tell) => Some(self.tell(tell, scope)?),
                    None => None,
                },
            })),
            StmtKind::Serving(serving) => {
                StmtKind::Serving(Box::new(self.serving(serving, scope)?))
            }
            StmtKind::Book(name) => StmtKind::Book(self.name(name, scope)?),
            _ => return None,
        })
    }

    fn optional_ref(&mut self, r: Option<&'d Ref>, scope: &Scope<'d>) -> Option<Option<Ref>> {
        match r {
            Some(r) => self.reference(r, scope).map(Some),
            None => Some(None),
        }
    }

    fn tell(&mut self, tell: &'d Tell, scope: &Scope<'d>) -> Option<Tell> {
        Some(Tell {
            pool: self.reference(&tell.pool, scope)?,
            on: self.optional_ref(tell.on.as_ref(), scope)?,
            after: self.optional(tell.after.as_ref(), scope)?,
        })
    }

    fn serving(&mut self, serving: &'d Serving, scope: &Scope<'d>) -> Option<Serving> {
        Some(Serving {
            role: serving.role,
            role_span: scope.span(serving.role_span),
            place: match &serving.place {
                ServePlace::Role => ServePlace::Role,
                ServePlace::Index(e) => ServePlace::Index(self.expr(e, scope)?),
                ServePlace::On(r) => ServePlace::On(self.reference(r, scope)?),
            },
            also: self.references(&serving.also, scope)?,
            work: self.expr(&serving.work, scope)?,
            growing: self.optional_ref(serving.growing.as_ref(), scope)?,
            moves: match &serving.moves {
                Some(moves) => Some(Move {
                    from: self.reference(&moves.from, scope)?,
                    to: self.reference(&moves.to, scope)?,
                    units: self.expr(&moves.units, scope)?,
                }),
                None => None,
            },
        })
    }

    fn claims(&mut self, claims: &'d [Claim], scope: &Scope<'d>) -> Option<Vec<Claim>> {
        let mut copied = Vec::with_capacity(claims.len());
        for claim in claims {
            copied.push(Claim {
                pool: self.reference(&claim.pool, scope)?,
                units: self.expr(&claim.units, scope)?,
                reserve: self.optional(claim.reserve.as_ref(), scope)?,
            });
        }
        Some(copied)
    }

    fn references(&mut self, list: &'d [Ref], scope: &Scope<'d>) -> Option<Vec<Ref>> {
        list.iter().map(|r| self.reference(r, scope)).collect()
    }

    fn lease(&mut self, lease: Option<&'d Lease>, scope: &Scope<'d>) -> Option<Option<Lease>> {
        let Some(lease) = lease else { return Some(None) };
        Some(Some(Lease {
            pool: self.reference(&lease.pool, scope)?,
            time: self.expr(&lease.time, scope)?,
            on: self.optional_ref(lease.on.as_ref(), scope)?,
        }))
    }

    /// A hold without its body.
    fn header(&mut self, hold: &'d Hold, scope: &Scope<'d>) -> Option<Box<Hold>> {
        let claims = self.claims(&hold.claims, scope)?;
        let reuse = self.optional(hold.reuse.as_ref(), scope)?;
        let when = self.optional(hold.when.as_ref(), scope)?;
        let booking = self.optional_name(hold.booking.as_ref(), scope)?;
        let mut binds = Vec::with_capacity(hold.binds.len());
        for bind in &hold.binds {
            let bind =
                Bind { name: self.name(&bind.name, scope)?, value: self.expr(&bind.value, scope)? };
            // The parser has looked at what is written; this draw came with an argument.
            if let Some(draw) = bind.value.draw().filter(|_| scope.copy.is_some()) {
                let message = format!("the binding `{}` draws", bind.name.text);
                let d = Diagnostic::new(Code::E0114, draw, message)
                    .help("draw with `set` before the hold");
                self.report(d);
            }
            binds.push(bind);
        }
        Some(Box::new(Hold {
            form: hold.form,
            booking,
            claims,
            reuse,
            when,
            binds,
            body: Block::new(),
            cache: self.optional(hold.cache.as_ref(), scope)?,
            lease: self.lease(hold.lease.as_ref(), scope)?,
            head: scope.span(hold.head),
        }))
    }
}

/// A name in the place it is copied to.
fn placed(name: &Name, scope: &Scope<'_>) -> Name {
    Name { text: name.text.clone(), span: scope.span(name.span) }
}
