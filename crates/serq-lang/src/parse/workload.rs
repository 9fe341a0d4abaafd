//! The workload: how sessions come, what their marks are, what the client does.

use super::{Hint, Parse, Parser, Side};
use crate::ast::{Arrive, ArriveLaw, Expr, TraceClause, Workload};
use crate::diag::{Code, Diagnostic};
use crate::lex::Tok;
use crate::source::Span;

const OPTIONS: [&str; 6] = ["arrive", "trace", "init", "turn", "session", "hidden"];
const LAWS: [&str; 8] = ["poisson", "renewal", "rates", "at", "trace", "closed", "batch", "none"];

impl Parser<'_> {
    pub(super) fn workload(&mut self, word: Span) -> Parse<Workload> {
        let mut w = Workload { span: word, ..Workload::default() };
        let outer = self.side;
        let read = self.braces(|p| p.workload_option(&mut w));
        self.side = outer;
        read.map(|_| w)
    }

    fn workload_option(&mut self, w: &mut Workload) -> Parse<()> {
        let at = self.token().span;
        match self.word() {
            "arrive" => {
                self.bump();
                self.once(&w.arrive, at, "`arrive`");
                let law = self.law()?;
                let limit = if self.eat_word("for") { Some(self.expr()?) } else { None };
                w.arrive = Some(Arrive { law, limit, span: at.to(self.before()) });
                self.semicolon()
            }
            "trace" => {
                self.bump();
                self.once(&w.trace, at, "`trace`");
                if self.token().tok != Tok::Str {
                    return Err(self.expected("the trace's path in double quotes"));
                }
                let path = self.bump();
                let spelling = self.spelling(path);
                let ordered = self.eat_word("ordered");
                w.trace = Some(TraceClause {
                    path: spelling[1..spelling.len() - 1].to_owned(),
                    ordered,
                    span: path.span,
                });
                self.semicolon()
            }
            "init" => {
                let section = self.section(Side::Marks)?;
                self.section_once(w.init.is_some(), at, "`init`");
                w.init.get_or_insert(section);
                Ok(())
            }
            "turn" => {
                let section = self.section(Side::Marks)?;
                self.section_once(w.turn.is_some(), at, "`turn`");
                w.turn.get_or_insert(section);
                Ok(())
            }
            "session" => {
                let section = self.section(Side::Client)?;
                self.section_once(w.session.is_some(), at, "the client's `session`");
                w.session.get_or_insert(section);
                Ok(())
            }
            "hidden" => {
                self.bump();
                let names = self.names("the name of an attribute")?;
                w.hidden.extend(names);
                self.semicolon()
            }
            "server" => {
                let d = Diagnostic::new(Code::E0108, at, "the server is no part of the workload")
                    .help("move `server { ... }` out, beside the workload");
                Err(self.report(d))
            }
            _ => Err(self.unknown_word(Code::E0108, "a workload option", &OPTIONS)),
        }
    }

    /// `(rate from time, ...)`
    fn rates(&mut self) -> Parse<Vec<(Expr, Expr)>> {
        if self.at_sign("(") {
            self.hints[self.at] = Hint::CallParen;
        }
        self.expect("(")?;
        let mut rates = Vec::new();
        loop {
            let rate = self.expr()?;
            self.expect_word("from")?;
            rates.push((rate, self.expr()?));
            if !self.eat(",") {
                self.expect(")")?;
                return Ok(rates);
            }
        }
    }

    fn law(&mut self) -> Parse<ArriveLaw> {
        Ok(match self.one_of("a law of arrivals", &LAWS)? {
            "poisson" => ArriveLaw::Poisson(self.tight_parens()?),
            "closed" => ArriveLaw::Closed(self.tight_parens()?),
            "batch" => ArriveLaw::Batch(self.tight_parens()?),
            "renewal" => ArriveLaw::Renewal(self.tight_parens()?),
            "rates" => ArriveLaw::Rates(self.rates()?),
            "at" => {
                if self.at_sign("(") {
                    self.hints[self.at] = Hint::CallParen;
                }
                ArriveLaw::At(self.parens_list()?)
            }
            "trace" => ArriveLaw::Trace,
            _ => ArriveLaw::None,
        })
    }
}
