//! Statements.

use super::{Hint, Parse, Parser, Side};
use crate::ast::{
    Block, Branch, Choose, Content, Expr, Form, Mode, Move, OPEN, Ref, Renew, Role, RunStmt,
    ServePlace, Serving, Stmt, StmtKind, Tell, Until,
};
use crate::diag::{Code, Diagnostic, closest};
use crate::source::Span;

static STATEMENTS: [&str; 28] = [
    "turn", "request", "end", "set", "observe", "hold", "enter", "admit", "grow", "drop",
    "release", "load", "run", "branch", "loop", "while", "until", "shield", "choose", "book",
    "content", "renew", "abandon", "prefill", "decode", "transfer", "tool", "else",
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
        let kind = self.kind()(self)?;
        Ok(Stmt { kind, span: start.to(self.before()) })
    }

    /// What reads the statement that begins here. What has blocks in it recurses, and each has a function of
    /// its own, so that a level of nesting takes little of the stack.
    fn kind(&self) -> fn(&mut Self) -> Parse<StmtKind> {
        match self.word() {
            "hold" => |p| p.hold(Form::Hold),
            "enter" if self.at_open() => |p| p.hold(Form::Booked),
            "enter" => |p| p.hold(Form::Enter),
            "admit" => |p| p.hold(Form::Admit),
            "branch" => Self::branch,
            "loop" => |p| p.body().map(StmtKind::Loop),
            "shield" => |p| p.body().map(StmtKind::Shield),
            "while" => Self::while_stmt,
            "until" => Self::until,
            _ => Self::flat,
        }
    }

    /// A word and the block behind it.
    fn body(&mut self) -> Parse<Block> {
        self.bump();
        self.block()
    }

    fn while_stmt(&mut self) -> Parse<StmtKind> {
        self.bump();
        let guard = self.parens()?;
        Ok(StmtKind::While(guard, self.block()?))
    }

    fn until(&mut self) -> Parse<StmtKind> {
        self.bump();
        let deadline = self.parens()?;
        let body = self.block()?;
        let other = if self.eat_word("else") { self.block()? } else { Block::new() };
        Ok(StmtKind::Until(Box::new(Until { deadline, body, other })))
    }

    /// A statement without blocks in it.
    fn flat(&mut self) -> Parse<StmtKind> {
        let start = self.token().span;
        Ok(match self.word() {
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
            "grow" => {
                let (pool, units) = self.pool_amount()?;
                StmtKind::Grow(pool, units)
            }
            "load" => {
                let (pool, units) = self.pool_amount()?;
                StmtKind::Load(pool, units)
            }
            "drop" => StmtKind::Drop(self.pool_only()?),
            "release" => {
                self.bump();
                let tell = self.tell()?;
                self.semicolon()?;
                StmtKind::Release(Box::new(tell))
            }
            "abandon" => StmtKind::Abandon(self.pool_only()?),
            "renew" => self.renew()?,
            "content" => self.content()?,
            "run" => self.run_stmt()?,
            "book" => {
                self.bump();
                let name = self.name("a name for the booking")?;
                if self.at_sign("(") || self.at_sign("[") {
                    let d = Diagnostic::new(Code::E0111, name.span, "a booking of amounts is an old spelling")
                        .help("what is booked is a hold: `book NAME;`, and later `enter NAME if P (units) fit { ... }`");
                    return Err(self.report(d));
                }
                self.semicolon()?;
                StmtKind::Book(name)
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
        })
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

    /// `pool on stage after (e)`
    fn tell(&mut self) -> Parse<Tell> {
        let pool = self.reference("the name of a pool")?;
        let on =
            if self.eat_word("on") { Some(self.reference("the name of a stage")?) } else { None };
        let after = if self.eat_word("after") { Some(self.parens()?) } else { None };
        Ok(Tell { pool, on, after })
    }

    fn renew(&mut self) -> Parse<StmtKind> {
        self.bump();
        let pool = self.reference("the name of the leased pool")?;
        let time = self.parens()?;
        self.expect_word("every")?;
        let every = self.parens()?;
        self.expect_word("from")?;
        let from = self.reference("the name of the stage that renews")?;
        let after = if self.eat_word("after") { Some(self.parens()?) } else { None };
        self.semicolon()?;
        Ok(StmtKind::Renew(Box::new(Renew { pool, time, every, from, after })))
    }

    fn content(&mut self) -> Parse<StmtKind> {
        self.bump();
        let add = self.eat_word("add");
        self.expect("(")?;
        let mut parts = Vec::new();
        loop {
            let key = self.expr()?;
            if self.at_sign(":") {
                self.hints[self.at] = Hint::KeyColon;
            }
            self.expect(":")?;
            parts.push((key, self.expr()?));
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")")?;
        self.semicolon()?;
        Ok(StmtKind::Content(Box::new(Content { add, parts })))
    }

    fn run_stmt(&mut self) -> Parse<StmtKind> {
        self.bump();
        let stage = self.reference("the name of a stage")?;
        let also = self.further()?;
        let at = self.token().span;
        let mode = match self.word() {
            "prefill" => Some((Mode::Prefill, at)),
            "decode" => Some((Mode::Decode, at)),
            "steps" => Some((Mode::Steps, at)),
            _ => None,
        };
        if mode.is_some() {
            self.bump();
        }
        let work = self.parens()?;
        let then = if self.eat_word("decode") { Some(self.parens()?) } else { None };
        let growing = self.growing()?;
        let answers = self.sampled("answers")?;
        let first = self.sampled("first")?;
        let telling = if self.eat_word("telling") { Some(self.tell()?) } else { None };
        self.semicolon()?;
        Ok(StmtKind::Run(Box::new(RunStmt {
            stage,
            also,
            mode,
            work,
            then,
            growing,
            answers,
            first,
            telling,
        })))
    }

    /// `word attribute`
    fn sampled(&mut self, word: &str) -> Parse<Option<crate::ast::Name>> {
        if !self.eat_word(word) {
            return Ok(None);
        }
        let name = self.name("the name of an attribute")?;
        self.changes(&name);
        Ok(Some(name))
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
        self.no_semicolon_before_else();
        let other = if self.eat_word("else") { self.block()? } else { Block::new() };
        Ok(StmtKind::Branch(Box::new(Branch { with, guard, then, other })))
    }

    fn no_semicolon_before_else(&mut self) {
        if self.at_sign(";") && self.spelling(self.peek(1)) == "else" {
            let at = self.token().span;
            let d = Diagnostic::new(Code::E0107, at, "this `;` ends the branch before its `else`")
                .help("remove it");
            self.report(d);
            self.bump();
        }
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
                .help("the server admits: `admit if pool (units) fit { ... }`, and enters what it booked: `enter NAME if ...`"),
        ),
        (Side::Kernel | Side::Client, "admit") => Some(
            Diagnostic::new(Code::E0204, start, "`admit` outside the server")
                .help("a session enters: `enter pool (units) { ... } keep (units);`"),
        ),
        _ => None,
    }
}
