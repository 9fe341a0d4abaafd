//! `table`: a function given by measured points.

use super::{Hint, Parse, Parser};
use crate::ast::{Name, Only, Row, Rows, Table, TableFile};
use crate::ir::Outside;
use crate::lex::Tok;

impl Parser<'_> {
    /// Behind `table`: `NAME(axis, ...) [from "FILE" value COLUMN] [in UNIT] [where COLUMN = "TEXT", ...]
    /// [outside extend|clamp|refuse]`, and `;` or the points in braces.
    pub(super) fn table(&mut self) -> Parse<Table> {
        let name = self.name("the table's name")?;
        self.tight();
        self.expect("(")?;
        let axes = self.names("the name of an axis")?;
        self.expect(")")?;
        let mut file = None;
        if self.eat_word("from") {
            let (path, path_span) = self.text("the file's path in double quotes")?;
            self.expect_word("value")?;
            let value = self.name("the column of the values")?;
            file = Some(TableFile { path, path_span, value, only: Vec::new(), source: None });
        }
        let unit = if self.eat_word("in") { Some(self.name("a unit of time")?) } else { None };
        if let Some(file) = &mut file
            && self.eat_word("where")
        {
            file.only.push(self.only()?);
            while self.eat(",") {
                file.only.push(self.only()?);
            }
        }
        let mut outside = Outside::default();
        if self.eat_word("outside") {
            let word = self.one_of("what is outside", &Outside::ALL.map(Outside::name))?;
            outside = Outside::ALL.into_iter().find(|o| o.name() == word).unwrap_or_default();
        }
        let rows = match file {
            Some(file) => {
                self.semicolon()?;
                Rows::File(file)
            }
            None if self.at_sign("{") => {
                let rows = self.rows()?;
                self.eat(";");
                Rows::Here(rows)
            }
            None => return Err(self.expected("`from` a file, or points in braces")),
        };
        Ok(Table { name, axes, rows, unit, outside })
    }

    /// A string's text and place.
    fn text(&mut self, what: &str) -> Parse<(String, crate::source::Span)> {
        if self.token().tok != Tok::Str {
            return Err(self.expected(what));
        }
        let token = self.bump();
        let spelling = self.spelling(token);
        let inner = spelling.get(1..spelling.len().saturating_sub(1)).unwrap_or("");
        Ok((inner.to_owned(), token.span))
    }

    /// `COLUMN = "TEXT"` or `COLUMN = 8`
    fn only(&mut self) -> Parse<Only> {
        let column: Name = self.name("a column")?;
        self.expect("=")?;
        if let Tok::Number(_) = self.token().tok {
            let token = self.bump();
            return Ok(Only { column, text: self.spelling(token).to_owned() });
        }
        let (text, _) = self.text("a text in double quotes, or a number")?;
        Ok(Only { column, text })
    }

    /// `{ 1: 0.2, 16: 0.3 }`, with several axes `{ (1, 16): 0.2 }`
    fn rows(&mut self) -> Parse<Vec<Row>> {
        self.expect("{")?;
        let mut rows = Vec::new();
        while !self.at_sign("}") {
            let start = self.token().span;
            let mut at = Vec::new();
            if self.eat("(") {
                at.push(self.signed()?);
                while self.eat(",") {
                    at.push(self.signed()?);
                }
                self.expect(")")?;
            } else {
                at.push(self.signed()?);
            }
            if self.at_sign(":") {
                self.hints[self.at] = Hint::KeyColon;
            }
            self.expect(":")?;
            let value = self.signed()?;
            rows.push(Row { at, value, span: start.to(self.before()) });
            if !self.eat(",") {
                break;
            }
        }
        if !self.at_sign("}") {
            return Err(self.expected("`,` and a point, or `}`"));
        }
        self.bump();
        Ok(rows)
    }

    /// A number, or a negative one.
    fn signed(&mut self) -> Parse<f64> {
        let negative = self.at_sign("-");
        if negative {
            self.hints[self.at] = Hint::Prefix;
            self.bump();
        }
        let Tok::Number(value) = self.token().tok else { return Err(self.expected("a number")) };
        self.bump();
        Ok(if negative { -value } else { value })
    }

    fn tight(&mut self) {
        if self.at_sign("(") {
            self.hints[self.at] = Hint::CallParen;
        }
    }
}
