//! Definitions, the files a program uses, and calls.

use super::item::ITEMS;
use super::stmt::is_statement;
use super::{Hint, Parse, Parser, Side};
use crate::ast::{Block, Call, Def, DefBody, DefFacts, Item, Name, Stmt, StmtKind, Use};
use crate::diag::{Code, Diagnostic};
use crate::lex::Tok;

impl Parser<'_> {
    /// `def NAME(a, b) = expression;` or `def NAME(a, b) { statements or declarations }`
    pub(super) fn def(&mut self) -> Parse<Def> {
        self.bump();
        let name = self.name("the name of the definition")?;
        if self.at_sign("(") {
            self.hints[self.at] = Hint::CallParen;
        }
        self.expect("(")?;
        let params =
            if self.at_sign(")") { Vec::new() } else { self.names("the name of a parameter")? };
        self.expect(")")?;
        self.facts = DefFacts::default();
        self.in_def = true;
        let outer = std::mem::replace(&mut self.side, Side::Definition);
        let body = self.def_body();
        self.side = outer;
        self.in_def = false;
        Ok(Def { name, params, body: body?, facts: std::mem::take(&mut self.facts) })
    }

    fn def_body(&mut self) -> Parse<DefBody> {
        if self.eat("=") {
            let value = self.expr()?;
            self.semicolon()?;
            return Ok(DefBody::Expr(value));
        }
        if !self.at_sign("{") {
            return Err(self.expected("`=` or `{`"));
        }
        let mut block = Block::new();
        let mut items: Vec<Item> = Vec::new();
        self.braces(|p| {
            if p.at_item() {
                let word = p.token().span;
                if matches!(p.word(), "def" | "use" | "table") {
                    let message = format!("`{}` inside a definition", p.word());
                    let d = Diagnostic::new(Code::E0107, word, message)
                        .help("definitions, files and tables stand outside of all blocks");
                    return Err(p.report(d));
                }
                if let Some(other) = block.iter().find(|s| !is_call(s)) {
                    let d = Diagnostic::new(Code::E0115, word, "a declaration behind a statement")
                        .label(other.span, "this is a statement")
                        .help(
                            "a definition stands for statements or for declarations: make it two",
                        );
                    return Err(p.report(d));
                }
                items.extend(block.drain(..).filter_map(as_item));
                items.push(p.item()?);
            } else if p.at_call() && !items.is_empty() {
                items.push(Item::Call(p.call_clause()?));
            } else if !items.is_empty() && is_statement(p.word()) {
                let word = p.token().span;
                let d = Diagnostic::new(Code::E0115, word, "a statement behind a declaration")
                    .help("a definition stands for statements or for declarations: make it two");
                return Err(p.report(d));
            } else {
                let stmt = p.statement()?;
                block.push(stmt);
            }
            Ok(())
        })?;
        Ok(if items.is_empty() { DefBody::Block(block) } else { DefBody::Items(items) })
    }

    /// Whether a declaration begins here; a `run` at a stage is a statement.
    fn at_item(&self) -> bool {
        let word = self.word();
        ITEMS.contains(&word) && (word != "run" || Self::is_sign(self.peek(1), "{"))
    }

    /// `use "path";`
    pub(super) fn use_clause(&mut self) -> Parse<Use> {
        let word = self.bump().span;
        if self.token().tok != Tok::Str {
            return Err(self.expected("the file's path in double quotes"));
        }
        let path = self.bump();
        let spelling = self.spelling(path);
        self.semicolon()?;
        Ok(Use { path: spelling[1..spelling.len() - 1].to_owned(), span: word.to(path.span) })
    }

    /// Whether a call stands here: a name that begins nothing else, `( ... )`, and no block.
    pub(super) fn at_call(&self) -> bool {
        let len = self.name_len();
        let word = self.word();
        if len == 0 || (len == 1 && (ITEMS.contains(&word) || is_statement(word))) {
            return false;
        }
        if !Self::is_sign(self.peek(len), "(") {
            return false;
        }
        // A block behind the parentheses is a statement whose word is misspelled. One pass over the
        // clause: every token is looked at once per call at most.
        let mut depth = 0usize;
        let rest = self.tokens.get(self.at + len..).unwrap_or(&[]);
        for token in rest {
            match token.tok {
                Tok::Sign(b'(', 0) => depth += 1,
                Tok::Sign(b')', 0) => depth = depth.saturating_sub(1),
                Tok::Sign(b'{', 0) => return depth > 0,
                Tok::Sign(b';' | b'}', 0) | Tok::End => return true,
                // `name (x) keep`, `name (x) on`: no call.
                _ if depth == 0 => return false,
                _ => {}
            }
        }
        true
    }

    pub(super) fn called(&mut self, name: &Name) {
        if self.in_def {
            self.facts.calls.push(name.clone());
        }
    }

    /// Notes that the definition being read gives a name a value.
    pub(super) fn changes(&mut self, name: &Name) {
        if self.in_def {
            self.facts.changes.push(name.text.clone());
        }
    }

    /// `NAME(arguments);`
    pub(super) fn call_clause(&mut self) -> Parse<Call> {
        let name = self.name("a definition")?;
        self.called(&name);
        let args = self.arguments()?;
        let span = name.span.to(self.before());
        self.semicolon()?;
        Ok(Call { name, args, span })
    }
}

fn is_call(stmt: &Stmt) -> bool {
    matches!(stmt.kind, StmtKind::Call(_))
}

fn as_item(stmt: Stmt) -> Option<Item> {
    match stmt.kind {
        StmtKind::Call(call) => Some(Item::Call(call)),
        _ => None,
    }
}
