//! Statements.

use super::{Parse, Parser, Side};
use crate::ast::{
    Bind, Block, Branch, Choose, Claim, Expr, Form, Hold, Mode, Move, OPEN, Open, Ref, Role,
    RunStmt, ServePlace, Serving, Stmt, StmtKind,
};
use crate::diag::{Code, Diagnostic, closest};
use crate::lex::Tok;
use crate::source::Span;

static STATEMENTS: [&str; 23] = [
    "turn", "request", "end", "set", "observe", "hold", "enter", "admit", "grow", "drop",
    "release", "load", "run", "branch", "loop", "while", "choose", "book", "prefill", "decode",
    "transfer", "tool", "else",
];

/// The words that begin a statement.
pub(crate) fn statements() -> &'static [&'static str] {
    &STATEMENTS
}

/// Whether a statement begins with this word.
pub(super) fn is_statement(word: &str) -> bool {
    STATEMENTS.contains(&word)
}

impl Parser<'_> {
    /// `{ statements }`
    pub(super) fn block(&mut self) -> Parse<Block> {
        let mut block = Block::new();
        self.braces(|p| {
            let stmt = p.statement()?;
            block.push(stmt);
            Ok(())
        })?;
        Ok(block)
    }

    pub(super) fn statement(&mut self) -> Parse<Stmt> {
        let start = self.token().span;
        self.check_side(start)?;
        let kind = match self.word() {
            "turn" => self.plain(StmtKind::Turn)?,
            "request" => self.plain(StmtKind::Request)?,
            "end" => self.plain(StmtKind::End)?,
            "set" => {
                self.bump();
                let (name, value) = self.assignment("the name of an attribute")?;
                self.changes(&name);
                self.semicolon()?;
                StmtKind::Set(name, value)
            }
            "observe" => {
                self.bump();
                let (name, value) = self.assignment("the name of what is observed")?;
                self.semicolon()?;
                StmtKind::Observe(name, value)
            }
            "hold" => self.hold(Form::Hold)?,
            "enter" if self.at_open() => self.open()?,
            "enter" => self.hold(Form::Enter)?,
            "admit" => self.hold(Form::Admit)?,
            "grow" => {
                let (pool, units) = self.pool_amount()?;
                StmtKind::Grow(pool, units)
            }
            "load" => {
                let (pool, units) = self.pool_amount()?;
                StmtKind::Load(pool, units)
            }
            "drop" => StmtKind::Drop(self.pool_only()?),
            "release" => StmtKind::Release(self.pool_only()?),
            "run" => self.run_stmt()?,
            "branch" => self.branch()?,
            "loop" => {
                self.bump();
                StmtKind::Loop(self.block()?)
            }
            "while" => {
                self.bump();
                let guard = self.parens()?;
                StmtKind::While(guard, self.block()?)
            }
            "book" => {
                self.bump();
                let claims = self.claims()?;
                self.semicolon()?;
                StmtKind::Book(claims)
            }
            "choose" => self.choose()?,
            "prefill" => self.serving(Role::Prefill)?,
            "decode" => self.serving(Role::Decode)?,
            "transfer" => self.serving(Role::Transfer)?,
            "tool" => self.serving(Role::Tool)?,
            _ if self.at_call() => StmtKind::Call(self.call_clause()?),
            "else" => {
                let d = Diagnostic::new(Code::E0107, start, "this `else` belongs to no branch")
                    .help("it follows the `}` of a `branch` directly, without `;`");
                return Err(self.report(d));
            }
            _ => return Err(self.unknown_statement()),
        };
        Ok(Stmt { kind, span: start.to(self.before()) })
    }

    fn unknown_statement(&mut self) -> super::Stop {
        let token = self.token();
        let found = self.describe(token);
        let word = self.word();
        let mut d = Diagnostic::new(
            Code::E0107,
            token.span,
            format!("expected a statement, found {found}"),
        )
        .did_you_mean(closest(word, STATEMENTS));
        if Self::is_sign(self.peek(1), "=") {
            d = d.help(format!("an assignment begins with `set`: set {word} = ..."));
        } else if matches!(word, "for" | "repeat") {
            d = d.help(
                "repetition is `while (condition) { ... }`, or `loop { ... }`, left by `end;`",
            );
        } else if word == "if" {
            d = d.help("a decision is `branch (condition) { ... } else { ... }`");
        } else if Self::is_sign(token, ";") {
            d = d.help("remove it: a block needs no `;` behind it");
        } else if matches!(word, "let" | "pool" | "stage") {
            d = d.help("declarations stand outside of all blocks");
        }
        self.report(d)
    }

    /// Refuses what does not belong on this side, and skips it.
    fn check_side(&mut self, start: Span) -> Parse<()> {
        let word = if self.at_open() { OPEN } else { self.word() };
        match refused(self.side, word, start) {
            Some(d) => Err(self.report(d)),
            None => Ok(()),
        }
    }

    fn plain(&mut self, kind: StmtKind) -> Parse<StmtKind> {
        self.bump();
        self.semicolon()?;
        Ok(kind)
    }

    fn pool_amount(&mut self) -> Parse<(Ref, Expr)> {
        self.bump();
        let pool = self.reference("the name of a pool")?;
        let units = self.parens()?;
        self.semicolon()?;
        Ok((pool, units))
    }

    fn pool_only(&mut self) -> Parse<Ref> {
        self.bump();
        let pool = self.reference("the name of a pool")?;
        self.semicolon()?;
        Ok(pool)
    }

    fn growing(&mut self) -> Parse<Option<Ref>> {
        if self.eat_word("growing") {
            return Ok(Some(self.reference("the name of the pool that grows")?));
        }
        Ok(None)
    }

    fn run_stmt(&mut self) -> Parse<StmtKind> {
        self.bump();
        let stage = self.reference("the name of a stage")?;
        let also = self.further()?;
        let at = self.token().span;
        let mode = if self.eat_word("prefill") {
            Some((Mode::Prefill, at))
        } else if self.eat_word("decode") {
            Some((Mode::Decode, at))
        } else {
            None
        };
        let work = self.parens()?;
        let growing = self.growing()?;
        self.semicolon()?;
        Ok(StmtKind::Run(Box::new(RunStmt { stage, also, mode, work, growing })))
    }

    /// `, stage` and so on, behind the first of several stages.
    fn further(&mut self) -> Parse<Vec<Ref>> {
        let mut also = Vec::new();
        while self.eat(",") {
            also.push(self.reference("the name of a stage")?);
        }
        Ok(also)
    }

    fn branch(&mut self) -> Parse<StmtKind> {
        self.bump();
        let with = self.eat_word("with");
        let guard = self.parens()?;
        let then = self.block()?;
        if self.at_sign(";") && self.spelling(self.peek(1)) == "else" {
            let at = self.token().span;
            let d = Diagnostic::new(Code::E0107, at, "this `;` ends the branch before its `else`")
                .help("remove it");
            self.report(d);
            self.bump();
        }
        let other = if self.eat_word("else") { self.block()? } else { Block::new() };
        Ok(StmtKind::Branch(Box::new(Branch { with, guard, then, other })))
    }

    fn choose(&mut self) -> Parse<StmtKind> {
        self.bump();
        let var = self.name("the name of an attribute")?;
        self.changes(&var);
        self.expect_word("in")?;
        let count = self.expr()?;
        self.expect_word("by")?;
        let key = self.parens()?;
        self.semicolon()?;
        Ok(StmtKind::Choose(Box::new(Choose { var, count, key })))
    }

    fn serving(&mut self, role: Role) -> Parse<StmtKind> {
        let role_span = self.bump().span;
        let mut also = Vec::new();
        let place = if self.eat("[") {
            let index = self.expr()?;
            self.expect("]")?;
            ServePlace::Index(index)
        } else if self.eat_word("on") {
            let stage = self.reference("the name of a stage")?;
            also = self.further()?;
            ServePlace::On(stage)
        } else {
            ServePlace::Role
        };
        let work = self.expr()?;
        let mut growing = self.growing()?;
        let mut moves = None;
        if role == Role::Transfer && self.eat_word("from") {
            let from = self.reference("the pool the units leave")?;
            self.expect_word("to")?;
            let to = self.reference("the pool the units reach")?;
            let units = self.parens()?;
            moves = Some(Move { from, to, units });
        }
        let late = self.token().span;
        if moves.is_some() {
            let after = self.growing()?;
            if growing.is_some() || after.is_some() {
                let at = growing.as_ref().map_or(late, |r| r.span);
                let d = Diagnostic::new(Code::E0207, at, "a transfer between pools with `growing`")
                    .help("the units arrive when the transfer ends: grow the destination before, with `grow pool (units);`");
                self.report(d);
            }
            growing = None;
        }
        self.semicolon()?;
        Ok(StmtKind::Serving(Box::new(Serving {
            role,
            role_span,
            place,
            also,
            work,
            growing,
            moves,
        })))
    }

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

    fn hold(&mut self, form: Form) -> Parse<StmtKind> {
        let start = self.bump().span;
        if form == Form::Admit {
            self.expect_word("if")?;
        }
        let claims = self.claims()?;
        if form == Form::Admit {
            self.expect_word("fit")?;
        }
        let mut hold = Hold {
            form,
            claims,
            reuse: None,
            names: Vec::new(),
            binds: Vec::new(),
            body: Block::new(),
            cache: None,
            lease: None,
            head: start,
        };
        self.header_clauses(form, &mut hold)?;
        hold.head = start.to(self.before());
        hold.body = self.block()?;
        self.trailer(&mut hold.cache, &mut hold.lease)?;
        Ok(StmtKind::Hold(Box::new(hold)))
    }

    /// The clauses behind a body.
    fn trailer(&mut self, cache: &mut Option<Expr>, lease: &mut Option<(Ref, Expr)>) -> Parse<()> {
        loop {
            let at = self.token().span;
            if self.eat_word("cache") || self.eat_word("keep") {
                self.once(cache, at, "what stays cached");
                *cache = Some(self.parens()?);
            } else if self.eat_word("lease") {
                self.once(lease, at, "`lease`");
                let pool = self.reference("the name of the leased pool")?;
                *lease = Some((pool, self.parens()?));
            } else {
                break;
            }
        }
        self.eat(";");
        Ok(())
    }

    /// Whether an `enter` without units stands here: the scope of a booking.
    fn at_open(&self) -> bool {
        if !self.at_word("enter") {
            return false;
        }
        let mut depth = 0usize;
        for token in self.tokens.iter().skip(self.at + 1) {
            match token.tok {
                Tok::Sign(b'[', 0) => depth += 1,
                Tok::Sign(b']', 0) => depth = depth.saturating_sub(1),
                Tok::Sign(b'(', 0) if depth == 0 => return false,
                Tok::Sign(b'{', 0) if depth == 0 => return true,
                Tok::Name if depth == 0 && self.spelling(*token) == "reuse" => return true,
                Tok::Sign(b';' | b'{' | b'}', 0) | Tok::End => return false,
                _ => {}
            }
        }
        false
    }

    fn open(&mut self) -> Parse<StmtKind> {
        let start = self.bump().span;
        let pool = self.reference("the first pool of the booking")?;
        let reuse = if self.eat_word("reuse") { Some(self.parens()?) } else { None };
        let head = start.to(self.before());
        let body = self.block()?;
        let mut open = Open { pool, reuse, body, cache: None, lease: None, head };
        self.trailer(&mut open.cache, &mut open.lease)?;
        Ok(StmtKind::Open(Box::new(open)))
    }

    /// `reuse (...)`, `names (...)` and the bindings, in front of the body.
    fn header_clauses(&mut self, form: Form, hold: &mut Hold) -> Parse<()> {
        loop {
            let at = self.token().span;
            if self.eat_word("reuse") {
                self.once(&hold.reuse, at, "`reuse`");
                hold.reuse = Some(self.parens()?);
            } else if self.eat_word("names") {
                if !hold.names.is_empty() {
                    self.twice(at, "`names`");
                }
                self.expect("(")?;
                loop {
                    let key = self.expr()?;
                    self.expect(":")?;
                    hold.names.push((key, self.expr()?));
                    if !self.eat(",") {
                        break;
                    }
                }
                self.expect(")")?;
            } else if self.eat_word("where") {
                if form != Form::Admit {
                    let d = Diagnostic::new(Code::E0205, at, "`where` outside `admit if`")
                        .help("here the bindings are written `at admission (name = value)`");
                    self.report(d);
                }
                self.binds(at, hold)?;
            } else if self.eat_word("at") {
                self.expect_word("admission")?;
                if form == Form::Admit {
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

/// The finding about a statement that does not belong on a side; the word is its first.
pub(crate) fn refused(side: Side, word: &str, start: Span) -> Option<Diagnostic> {
    match (side, word) {
        (Side::Marks, "set" | "observe") => None,
        (Side::Marks, _) if STATEMENTS.contains(&word) || word == OPEN => Some(
            Diagnostic::new(
                Code::E0215,
                start,
                format!("`{word}` in a block that only draws a client's attributes"),
            )
            .help("`init` and `turn` may `set` and `observe`; the rest belongs into the session"),
        ),
        (Side::Server, "turn" | "end" | "request") => Some(
            Diagnostic::new(Code::E0201, start, format!("`{word}` in the server"))
                .help("turns, requests and the end of a session are the client's: write it in the workload's session"),
        ),
        (Side::Kernel, "request") => Some(
            Diagnostic::new(Code::E0202, start, "`request` outside the workload's session")
                .help("move this session into the workload and write a `server`, or write here what the server does"),
        ),
        (Side::Kernel | Side::Client, "book" | OPEN) => Some(
            Diagnostic::new(Code::E0217, start, format!("`{word}` outside the server"))
                .help("a booking is the server's: a session enters with `enter pool (units) { ... }`"),
        ),
        (Side::Server, "enter") => Some(
            Diagnostic::new(Code::E0203, start, "`enter` in the server")
                .help("the server admits: `admit if pool (units) fit { ... }`"),
        ),
        (Side::Kernel | Side::Client, "admit") => Some(
            Diagnostic::new(Code::E0204, start, "`admit` outside the server")
                .help("a session enters: `enter pool (units) { ... } keep (units);`"),
        ),
        _ => None,
    }
}
