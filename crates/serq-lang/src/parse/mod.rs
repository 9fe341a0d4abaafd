//! Tokens to a tree, by recursive descent.
//!
//! Parsing goes on after an error: a broken statement is skipped to its `;`, a broken declaration
//! to the next one, so that one run reports several. The recursion is bounded by [`MAX_NESTING`]
//! and the height of expressions by [`MAX_HEIGHT`], since everything after the parser (and the
//! tree's own `Drop`) recurses over what is built here; a stack of 1 MiB is enough, unoptimised too.
//!
//! The parser also notes what only it knows about tokens ([`Hint`]), for the formatter: whether a
//! `-` has one operand or two, and whether a `(` opens the arguments of a call.

mod define;
mod expr;
mod hold;
mod item;
mod stmt;
mod structure;
mod table;
mod workload;

pub(crate) use item::described_twice;
pub(crate) use stmt::{refused, statements};
pub(crate) use structure::check_structure;

use crate::ast;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::lex::{Tok, Token, lex};
use crate::source::{Source, Span};

/// Deepest nesting of parentheses and blocks.
pub const MAX_NESTING: usize = 100;

/// Highest tree of one expression: sums and products of many terms are deep on their left side.
pub const MAX_HEIGHT: u16 = 200;

/// What the parser knows about a token and the formatter needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    #[default]
    Plain,
    /// A sign in front of its only operand.
    Prefix,
    /// The parenthesis behind a function's or a law's name.
    CallParen,
    /// The colon behind a key.
    KeyColon,
}

/// A parsed text.
#[derive(Debug)]
pub struct Parsed {
    pub items: Vec<ast::Item>,
    /// The whole text, to its last token.
    pub span: Span,
    pub tokens: Vec<Token>,
    /// One per token.
    pub hints: Vec<Hint>,
}

/// Parses a program; errors go to `diags`, and what could be read is returned all the same.
pub fn parse(source: &Source, number: u32, diags: &mut Diagnostics) -> Parsed {
    let tokens = lex(source.text(), number, diags);
    let mut parser = Parser::new(source.text(), tokens, diags);
    let items = parser.items();
    // Up to the last token: what is missing is missing there.
    let span = Span { start: 0, ..parser.before() };
    Parsed { items, span, tokens: parser.tokens, hints: parser.hints }
}

/// Parses `name = expression`, the form of an override.
pub fn parse_override(
    source: &Source,
    number: u32,
    diags: &mut Diagnostics,
) -> Option<(ast::Name, ast::Expr)> {
    let tokens = lex(source.text(), number, diags);
    let mut parser = Parser::new(source.text(), tokens, diags);
    let mut read = || {
        let name = parser.name("the name of a `let`")?;
        parser.expect("=")?;
        let value = parser.expr()?;
        if parser.token().tok == Tok::End {
            Ok((name, value))
        } else {
            Err(parser.expected("the end of the override"))
        }
    };
    read().ok()
}

/// The marker of an error that has been reported already.
pub(crate) struct Stop;

type Parse<T> = Result<T, Stop>;

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    hints: Vec<Hint>,
    at: usize,
    nesting: usize,
    side: Side,
    in_def: bool,
    /// What was read of the definition that is being read.
    facts: ast::DefFacts,
    diags: &'a mut Diagnostics,
}

/// Where a statement stands, which decides what it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A `session` outside the workload.
    Kernel,
    /// The workload's `session`.
    Client,
    Server,
    /// `init` or `turn`.
    Marks,
    /// A definition, which may be put anywhere: what it says is checked there.
    Definition,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, tokens: Vec<Token>, diags: &'a mut Diagnostics) -> Self {
        let hints = vec![Hint::Plain; tokens.len()];
        Parser {
            text,
            tokens,
            hints,
            at: 0,
            nesting: 0,
            side: Side::Kernel,
            in_def: false,
            facts: ast::DefFacts::default(),
            diags,
        }
    }

    fn token(&self) -> Token {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn peek(&self, ahead: usize) -> Token {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn spelling(&self, token: Token) -> &'a str {
        self.text.get(token.span.start as usize..token.span.end as usize).unwrap_or("")
    }

    /// The place of the token before the current one.
    fn before(&self) -> Span {
        match self.at.checked_sub(1) {
            Some(at) => self.tokens[at].span,
            None => Span { end: self.token().span.start, ..self.token().span },
        }
    }

    fn bump(&mut self) -> Token {
        let token = self.token();
        if token.tok != Tok::End {
            self.at += 1;
        }
        token
    }

    fn is_sign(token: Token, sign: &str) -> bool {
        let bytes = sign.as_bytes();
        token.tok == Tok::Sign(bytes[0], bytes.get(1).copied().unwrap_or(0))
    }

    fn at_sign(&self, sign: &str) -> bool {
        Self::is_sign(self.token(), sign)
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = self.at_sign(sign);
        if found {
            self.bump();
        }
        found
    }

    /// The current token's text if it is a name, otherwise the empty string.
    fn word(&self) -> &'a str {
        if self.token().tok == Tok::Name { self.spelling(self.token()) } else { "" }
    }

    fn at_word(&self, word: &str) -> bool {
        self.word() == word
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.bump();
        }
        found
    }

    fn report(&mut self, diagnostic: Diagnostic) -> Stop {
        self.diags.push(diagnostic);
        Stop
    }

    /// Reports that something else was expected here.
    fn expected(&mut self, what: &str) -> Stop {
        // An error about these characters has been reported.
        if self.token().tok == Tok::Bad {
            return Stop;
        }
        let d = self.expected_data(what);
        self.report(d)
    }

    fn expected_data(&self, what: &str) -> Diagnostic {
        let token = self.token();
        let found = self.describe(token);
        Diagnostic::new(Code::E0105, token.span, format!("expected {what}, found {found}"))
    }

    fn describe(&self, token: Token) -> String {
        match token.tok {
            Tok::End => "the end of the text".to_owned(),
            _ => format!("`{}`", self.spelling(token).escape_debug()),
        }
    }

    fn expect(&mut self, sign: &str) -> Parse<Token> {
        if self.at_sign(sign) { Ok(self.bump()) } else { Err(self.expected(&format!("`{sign}`"))) }
    }

    fn expect_word(&mut self, word: &str) -> Parse<Token> {
        if self.at_word(word) { Ok(self.bump()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    fn name(&mut self, what: &str) -> Parse<ast::Name> {
        if self.token().tok != Tok::Name {
            return Err(self.expected(what));
        }
        let token = self.bump();
        let mut name = ast::Name { text: self.spelling(token).to_owned(), span: token.span };
        while self.at_sign(".") && self.peek(1).tok == Tok::Name {
            self.bump();
            let part = self.bump();
            name.text.push('.');
            name.text.push_str(self.spelling(part));
            name.span = name.span.to(part.span);
        }
        if self.in_def {
            self.facts.names.push(name.text.clone());
        }
        Ok(name)
    }

    /// How many tokens the name that begins here has; 0 if none does.
    fn name_len(&self) -> usize {
        if self.token().tok != Tok::Name {
            return 0;
        }
        let mut len = 1;
        while Self::is_sign(self.peek(len), ".") && self.peek(len + 1).tok == Tok::Name {
            len += 2;
        }
        len
    }

    /// The `;` behind a clause. A forgotten one at the end of a line is reported, and the next
    /// line is read as if it were there.
    fn semicolon(&mut self) -> Parse<()> {
        if self.eat(";") {
            return Ok(());
        }
        let (last, next) = (self.before(), self.token());
        if next.tok == Tok::Bad {
            return Err(Stop);
        }
        let d = self.expected_data("`;`");
        let between = self.text.get(last.end as usize..next.span.start as usize).unwrap_or("");
        if between.contains('\n') || Self::is_sign(next, "}") || next.tok == Tok::End {
            let mut d = Diagnostic::new(Code::E0105, last.after(), "expected `;`");
            d.suggestion =
                Some(crate::diag::Suggestion { span: last.after(), replacement: ";".to_owned() });
            self.diags.push(d);
            return Ok(());
        }
        Err(self.report(d))
    }

    fn too_deep(&mut self) -> Stop {
        let message = format!("nested more than {MAX_NESTING} deep");
        let d = Diagnostic::new(Code::E0109, self.token().span, message)
            .help("give the inner part a name with `let` or `set`");
        self.report(d)
    }

    /// Runs `f` one level deeper, or reports that the text is nested too deeply.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.nesting >= MAX_NESTING {
            return Err(self.too_deep());
        }
        self.nesting += 1;
        let result = f(self);
        self.nesting -= 1;
        result
    }

    /// Skips the rest of a broken clause: to behind its `;` or block, or to the `}` around it.
    fn skip_clause(&mut self) {
        let mut depth = 0usize;
        loop {
            let token = self.token();
            if token.tok == Tok::End {
                return;
            }
            if Self::is_sign(token, "}") {
                match depth {
                    0 => return,
                    1 => {
                        self.bump();
                        return;
                    }
                    _ => depth -= 1,
                }
            } else if Self::is_sign(token, "{") {
                depth += 1;
            } else if Self::is_sign(token, ";") && depth == 0 {
                self.bump();
                return;
            }
            self.bump();
        }
    }

    /// Reads `{ clause* }`; a clause that fails is skipped and the next one is read.
    fn braces(&mut self, mut clause: impl FnMut(&mut Self) -> Parse<()>) -> Parse<Span> {
        let open = self.expect("{")?;
        self.nested(|p| {
            while !p.at_sign("}") {
                if p.token().tok == Tok::End {
                    return Err(p.never_closed(open.span));
                }
                let from = p.at;
                if clause(p).is_err() {
                    p.skip_clause();
                    if p.at == from && !p.at_sign("}") {
                        p.bump();
                    }
                }
            }
            Ok(open.span.to(p.bump().span))
        })
    }

    fn never_closed(&mut self, open: Span) -> Stop {
        let d = Diagnostic::new(Code::E0105, open, "this `{` is never closed")
            .label(self.token().span, "the text ends here");
        self.report(d)
    }

    /// Reports a clause that is given a second time.
    fn once<T>(&mut self, slot: &Option<T>, word: Span, what: &str) {
        if slot.is_some() {
            self.twice(word, what);
        }
    }

    fn twice(&mut self, word: Span, what: &str) {
        let d = Diagnostic::new(Code::E0112, word, format!("{what} is given twice"))
            .help("keep one of the two");
        self.report(d);
    }

    /// Reports an unknown word where one of `known` belongs.
    fn unknown_word(&mut self, code: Code, what: &str, known: &[&str]) -> Stop {
        let token = self.token();
        if token.tok == Tok::Bad {
            return Stop;
        }
        let found = self.describe(token);
        let word = self.word();
        let near = crate::diag::closest(word, known.iter().copied());
        let d = Diagnostic::new(code, token.span, format!("expected {what}, found {found}"))
            .did_you_mean(near)
            .help(format!("known here: {}", known.join(", ")));
        self.report(d)
    }
}
