//! Expressions, loosest to tightest: `c ? a : b`, `||`, `&&`, one comparison, `+ -`, `* /`,
//! `- ! ~`, `^`.

use super::{Hint, MAX_HEIGHT, Parse, Parser, Stop};
use crate::ast::{Arg, BinaryOp, Expr, ExprKind, Name, Ref, UnaryOp};
use crate::diag::{Code, Diagnostic};
use crate::lex::{Tok, Token};
use crate::source::Span;

const COMPARISON: u8 = 3;

/// The operator a token stands for between two operands, and how tightly it binds.
fn binary(token: Token) -> Option<(BinaryOp, u8)> {
    let Tok::Sign(a, b) = token.tok else { return None };
    Some(match (a, b) {
        (b'|', b'|') => (BinaryOp::Or, 1),
        (b'&', b'&') => (BinaryOp::And, 2),
        (b'<', 0) => (BinaryOp::Lt, COMPARISON),
        (b'<', b'=') => (BinaryOp::Le, COMPARISON),
        (b'>', 0) => (BinaryOp::Gt, COMPARISON),
        (b'>', b'=') => (BinaryOp::Ge, COMPARISON),
        (b'=', b'=') => (BinaryOp::Eq, COMPARISON),
        (b'!', b'=') => (BinaryOp::Ne, COMPARISON),
        (b'+', 0) => (BinaryOp::Add, 4),
        (b'-', 0) => (BinaryOp::Sub, 4),
        (b'*', 0) => (BinaryOp::Mul, 5),
        (b'/', 0) => (BinaryOp::Div, 5),
        _ => return None,
    })
}

impl Parser<'_> {
    /// An expression. What every level of nesting goes through are small functions, which call larger
    /// ones for what is not always there: a level takes little of the stack.
    pub(super) fn expr(&mut self) -> Parse<Expr> {
        self.nested(|p| {
            let guard = p.binary(1)?;
            if p.eat("?") { p.conditional(guard) } else { Ok(guard) }
        })
    }

    fn conditional(&mut self, guard: Expr) -> Parse<Expr> {
        let then = self.expr()?;
        self.expect(":")?;
        let other = self.expr()?;
        let span = guard.span.to(other.span);
        let height = guard.height.max(then.height).max(other.height);
        self.tree(ExprKind::Cond(Box::new(guard), Box::new(then), Box::new(other)), span, height)
    }

    /// `( expression )`
    pub(super) fn parens(&mut self) -> Parse<Expr> {
        self.expect("(")?;
        let e = self.expr()?;
        self.expect(")")?;
        Ok(e)
    }

    /// The same directly behind a word, as in a call.
    pub(super) fn tight_parens(&mut self) -> Parse<Expr> {
        if self.at_sign("(") {
            self.hints[self.at] = Hint::CallParen;
        }
        self.parens()
    }

    /// `( expression, ... )`, at least one.
    pub(super) fn parens_list(&mut self) -> Parse<Vec<Expr>> {
        self.expect("(")?;
        let mut list = vec![self.expr()?];
        while self.eat(",") {
            list.push(self.expr()?);
        }
        self.expect(")")?;
        Ok(list)
    }

    /// `name` or `name[index]`
    pub(super) fn reference(&mut self, what: &str) -> Parse<Ref> {
        let name = self.name(what)?;
        let mut span = name.span;
        let mut index = None;
        if self.eat("[") {
            index = Some(self.expr()?);
            span = span.to(self.expect("]")?.span);
        }
        Ok(Ref { name, index, span })
    }

    /// A node one higher than its highest part.
    fn tree(&mut self, kind: ExprKind, span: Span, parts: u16) -> Parse<Expr> {
        if parts >= MAX_HEIGHT {
            return Err(self.too_high(span));
        }
        Ok(Expr { kind, span, height: parts + 1 })
    }

    fn too_high(&mut self, span: Span) -> Stop {
        let message = format!("an expression of more than {MAX_HEIGHT} levels");
        let d = Diagnostic::new(Code::E0109, span, message)
            .help("give a part of it a name with `let` or `set`");
        self.report(d)
    }

    fn binary(&mut self, loosest: u8) -> Parse<Expr> {
        let mut left = self.unary()?;
        let mut compared: Option<Span> = None;
        while let Some((op, level)) = binary(self.token()).filter(|&(_, level)| level >= loosest) {
            let sign = self.bump();
            if level == COMPARISON {
                if let Some(first) = compared.replace(sign.span) {
                    self.chained(first, sign.span);
                }
            }
            let right = self.binary(level + 1)?;
            left = self.joined(op, left, right)?;
        }
        Ok(left)
    }

    fn joined(&mut self, op: BinaryOp, left: Expr, right: Expr) -> Parse<Expr> {
        let span = left.span.to(right.span);
        let height = left.height.max(right.height);
        self.tree(ExprKind::Binary(op, Box::new(left), Box::new(right)), span, height)
    }

    fn chained(&mut self, first: Span, sign: Span) {
        let d = Diagnostic::new(Code::E0110, sign, "comparisons do not chain")
            .label(first, "already compared here")
            .help("write `a < b && b < c`");
        self.report(d);
    }

    fn unary(&mut self) -> Parse<Expr> {
        let op = match self.token().tok {
            Tok::Sign(b'-', 0) => UnaryOp::Neg,
            Tok::Sign(b'!', 0) => UnaryOp::Not,
            _ => return self.power(),
        };
        self.hints[self.at] = Hint::Prefix;
        let sign = self.bump();
        self.nested(|p| {
            let operand = p.unary()?;
            let (span, height) = (sign.span.to(operand.span), operand.height);
            p.tree(ExprKind::Unary(op, Box::new(operand)), span, height)
        })
    }

    fn power(&mut self) -> Parse<Expr> {
        let base = self.atom()?;
        if self.eat("^") { self.raised(base) } else { Ok(base) }
    }

    fn raised(&mut self, base: Expr) -> Parse<Expr> {
        let exponent = self.nested(Self::unary)?;
        self.joined(BinaryOp::Pow, base, exponent)
    }

    fn atom(&mut self) -> Parse<Expr> {
        let token = self.token();
        match token.tok {
            Tok::Number(value) => {
                self.bump();
                Ok(Expr { kind: ExprKind::Num(value), span: token.span, height: 1 })
            }
            Tok::Sign(b'(', 0) => self.group(),
            Tok::Sign(b'~', 0) => self.draw(),
            Tok::Name if Self::is_sign(self.peek(self.name_len()), "(") => self.call(),
            Tok::Name => self.read_name(),
            _ => Err(self.expected("an expression")),
        }
    }

    /// `( expression )`, whose place includes the parentheses.
    fn group(&mut self) -> Parse<Expr> {
        let open = self.bump();
        let mut inner = self.expr()?;
        let close = self.expect(")")?;
        inner.span = open.span.to(close.span);
        Ok(inner)
    }

    fn read_name(&mut self) -> Parse<Expr> {
        let Name { text, span } = self.name("a name")?;
        if self.at_sign("[") {
            let message = format!("`{text}` is indexed, and this is the place of a number");
            let d = Diagnostic::new(Code::E0105, self.token().span, message).help(
                "only pools and stages have members, and they stand inside a function: used(kv[i])",
            );
            return Err(self.report(d));
        }
        Ok(Expr { kind: ExprKind::Name(text), span, height: 1 })
    }

    fn draw(&mut self) -> Parse<Expr> {
        self.hints[self.at] = Hint::Prefix;
        let tilde = self.bump();
        let name = self.name("the name of a distribution")?;
        if self.at_sign("(") {
            self.hints[self.at] = Hint::CallParen;
        }
        let args = self.parens_list()?;
        let height = args.iter().map(|e| e.height).max().unwrap_or(0);
        let span = tilde.span.to(self.before());
        self.tree(ExprKind::Sample(name, args), span, height)
    }

    fn call(&mut self) -> Parse<Expr> {
        let name = self.name("a function")?;
        self.called(&name);
        let args = self.arguments()?;
        let height = args.iter().map(arg_height).max().unwrap_or(0);
        let span = name.span.to(self.before());
        self.tree(ExprKind::Call(name, args), span, height)
    }

    /// `( argument, ... )`, possibly none, behind the name of a function or a definition.
    pub(super) fn arguments(&mut self) -> Parse<Vec<Arg>> {
        if self.at_sign("(") {
            self.hints[self.at] = Hint::CallParen;
        }
        self.expect("(")?;
        let mut args = Vec::new();
        if !self.at_sign(")") {
            args.push(self.argument()?);
            while self.eat(",") {
                args.push(self.argument()?);
            }
        }
        self.expect(")")?;
        Ok(args)
    }

    /// A bare name, or a name with an index, that is the whole argument stays a reference.
    fn argument(&mut self) -> Parse<Arg> {
        let len = self.name_len();
        let behind = self.peek(len);
        if len > 0 && (ends(behind) || Self::is_sign(behind, "[")) {
            return self.reference_argument();
        }
        self.expr().map(Arg::Expr)
    }

    fn reference_argument(&mut self) -> Parse<Arg> {
        let r = self.reference("an argument")?;
        if ends(self.token()) {
            return Ok(Arg::Ref(r));
        }
        Err(self.expected("`,` or `)` behind a member of a family"))
    }

    /// `NAME = expression`
    pub(super) fn assignment(&mut self, what: &str) -> Parse<(Name, Expr)> {
        let name = self.name(what)?;
        self.expect("=")?;
        Ok((name, self.expr()?))
    }
}

/// Whether an argument ends in front of this token.
fn ends(t: Token) -> bool {
    Parser::is_sign(t, ",") || Parser::is_sign(t, ")")
}

fn arg_height(arg: &Arg) -> u16 {
    match arg {
        Arg::Expr(e) => e.height,
        Arg::Ref(r) => r.index.as_ref().map_or(1, |e| e.height + 1),
    }
}
