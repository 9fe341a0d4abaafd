//! Holds: what they claim, the clauses in front of the body and behind it.

use super::{Parse, Parser};
use crate::ast::{Bind, Block, Claim, Form, Hold, Lease, StmtKind};
use crate::diag::{Code, Diagnostic};
use crate::lex::Tok;
use crate::source::Span;

impl Parser<'_> {
    fn claims(&mut self) -> Parse<Vec<Claim>> {
        let mut claims = Vec::new();
        loop {
            let pool = self.reference("the name of a pool")?;
            let units = self.parens()?;
            if self.at_word("fits") {
                let at = self.token().span;
                let d = Diagnostic::new(Code::E0111, at, "`fits` is an old spelling")
                    .did_you_mean(Some("reserve"));
                self.report(d);
            }
            let reserve = if self.at_word("reserve") || self.at_word("fits") {
                self.bump();
                Some(self.parens()?)
            } else {
                None
            };
            claims.push(Claim { pool, units, reserve });
            if !self.eat(",") {
                return Ok(claims);
            }
        }
    }

    pub(super) fn hold(&mut self, form: Form) -> Parse<StmtKind> {
        let mut hold = self.header(form)?;
        hold.body = self.block()?;
        self.trailer(&mut hold)?;
        Ok(StmtKind::Hold(hold))
    }

    /// A hold up to its body.
    fn header(&mut self, form: Form) -> Parse<Box<Hold>> {
        let start = self.bump().span;
        let served = matches!(form, Form::Admit | Form::Booked);
        let booking =
            if form == Form::Booked { Some(self.name("the name of a booking")?) } else { None };
        if served {
            self.expect_word("if")?;
        }
        let claims = self.claims()?;
        if served {
            self.expect_word("fit")?;
        }
        let mut hold = Hold {
            form,
            booking,
            claims,
            reuse: None,
            when: None,
            binds: Vec::new(),
            body: Block::new(),
            cache: None,
            lease: None,
            head: start,
        };
        self.header_clauses(served, &mut hold)?;
        hold.head = start.to(self.before());
        Ok(Box::new(hold))
    }

    /// The clauses behind a body.
    fn trailer(&mut self, hold: &mut Hold) -> Parse<()> {
        loop {
            let at = self.token().span;
            if self.eat_word("cache") || self.eat_word("keep") {
                self.once(&hold.cache, at, "what stays cached");
                hold.cache = Some(self.parens()?);
            } else if self.eat_word("lease") {
                self.once(&hold.lease, at, "`lease`");
                let pool = self.reference("the name of the leased pool")?;
                let time = self.parens()?;
                let on = if self.eat_word("on") {
                    Some(self.reference("the name of the stage that minds it")?)
                } else {
                    None
                };
                hold.lease = Some(Lease { pool, time, on });
            } else {
                break;
            }
        }
        self.eat(";");
        Ok(())
    }

    /// Whether the hold of a booking stands here: `enter NAME if`.
    pub(super) fn at_open(&self) -> bool {
        if !self.at_word("enter") || self.peek(1).tok != Tok::Name {
            return false;
        }
        let mut at = 2;
        while Self::is_sign(self.peek(at), ".") && self.peek(at + 1).tok == Tok::Name {
            at += 2;
        }
        self.peek(at).tok == Tok::Name && self.spelling(self.peek(at)) == "if"
    }

    /// `reuse (...)`, `when (...)` and the bindings, in front of the body. A server binds with `where`.
    fn header_clauses(&mut self, served: bool, hold: &mut Hold) -> Parse<()> {
        loop {
            let at = self.token().span;
            if self.eat_word("reuse") {
                self.once(&hold.reuse, at, "`reuse`");
                hold.reuse = Some(self.parens()?);
            } else if self.eat_word("when") {
                self.once(&hold.when, at, "`when`");
                hold.when = Some(self.parens()?);
            } else if self.eat_word("where") {
                if !served {
                    let d = Diagnostic::new(Code::E0205, at, "`where` outside `admit if`")
                        .help("here the bindings are written `at admission (name = value)`");
                    self.report(d);
                }
                self.binds(at, hold)?;
            } else if self.eat_word("at") {
                self.expect_word("admission")?;
                if served {
                    let d = Diagnostic::new(Code::E0206, at, "`at admission` inside `admit if`")
                        .help("here the bindings are written `where name = value`");
                    self.report(d);
                }
                self.expect("(")?;
                self.binds(at, hold)?;
                self.expect(")")?;
            } else {
                return Ok(());
            }
        }
    }

    fn binds(&mut self, word: Span, hold: &mut Hold) -> Parse<()> {
        if !hold.binds.is_empty() {
            self.twice(word, "the list of bindings");
        }
        loop {
            let (name, value) = self.assignment("the name of a binding")?;
            self.changes(&name);
            if let Some(first) = hold.binds.iter().find(|b| b.name.text == name.text) {
                let d = Diagnostic::new(
                    Code::E0113,
                    name.span,
                    format!("`{}` is bound twice", name.text),
                )
                .label(first.name.span, "first here")
                .help("give the second another name");
                self.report(d);
            }
            if let Some(draw) = value.draw() {
                let d = Diagnostic::new(
                    Code::E0114,
                    draw,
                    format!("the binding `{}` draws", name.text),
                )
                .help("a binding stands for its text, so each use would draw again: draw with `set` before the hold");
                self.report(d);
            }
            hold.binds.push(Bind { name, value });
            if !self.eat(",") {
                return Ok(());
            }
        }
    }
}
