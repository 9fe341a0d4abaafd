//! Characters to tokens, nothing lost.
//!
//! A token is a kind and a range; what lies between two tokens is trivia (white space and
//! comments). Ranges are ascending and cover the text together with the trivia, so tokens and
//! trivia written one after the other are the source, byte for byte. That is what the formatter
//! stands on. Keywords are plain identifiers here: the parser knows where which one means
//! something, and a program may use all of them as names.

use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::Span;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tok {
    /// A name or a word of the language.
    Name,
    /// The value was read; the spelling stays in the source.
    Number(f64),
    /// In double quotes, without escapes.
    Str,
    /// One of the signs, as one or two ASCII characters (the second is 0 in a single one).
    Sign(u8, u8),
    /// Characters that are no token; an error has been reported.
    Bad,
    /// The end, carrying the last trivia.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    pub tok: Tok,
    pub span: Span,
}

/// A piece of trivia.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trivia<'a> {
    /// Spaces, tabs and line breaks.
    Space(&'a str),
    /// `// ...` without its line break.
    Line(&'a str),
    /// `/* ... */`
    Block(&'a str),
}

/// The tokens of a text; the last one is [`Tok::End`].
pub fn lex(text: &str, source: u32, diags: &mut Diagnostics) -> Vec<Token> {
    let mut lexer = Lexer { text, source, at: 0, diags };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token();
        tokens.push(token);
        if token.tok == Tok::End {
            return tokens;
        }
    }
}

/// Splits what lies between two tokens into its pieces.
pub fn trivia(text: &str) -> Vec<Trivia<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (len, make): (usize, fn(&str) -> Trivia<'_>) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), |s| Trivia::Line(s))
        } else if let Some(body) = rest.strip_prefix("/*") {
            (body.find("*/").map_or(rest.len(), |at| at + 4), |s| Trivia::Block(s))
        } else {
            (rest.find('/').filter(|&at| at > 0).unwrap_or(rest.len()), |s| Trivia::Space(s))
        };
        let (piece, after) = rest.split_at(len);
        pieces.push(make(piece));
        rest = after;
    }
    pieces
}

struct Lexer<'a> {
    text: &'a str,
    source: u32,
    at: usize,
    diags: &'a mut Diagnostics,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn peek_at(&self, ahead: usize) -> Option<char> {
        self.text[self.at..].chars().nth(ahead)
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) {
        while let Some(c) = self.peek().filter(|&c| keep(c)) {
            self.at += c.len_utf8();
        }
    }

    fn span(&self, start: usize) -> Span {
        Span { source: self.source, start: start as u32, end: self.at as u32 }
    }

    fn report(&mut self, code: Code, start: usize, message: String, help: &str) {
        let diagnostic = Diagnostic::new(code, self.span(start), message).help(help);
        self.diags.push(diagnostic);
    }

    fn skip_trivia(&mut self) {
        // Some editors begin a file with a mark of its byte order, which means nothing in UTF-8.
        if self.at == 0 && self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
        }
        loop {
            self.take_while(char::is_whitespace);
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.take_while(|c| c != '\n');
            } else if let Some(body) = rest.strip_prefix("/*") {
                let start = self.at;
                match body.find("*/") {
                    Some(end) => self.at += end + 4,
                    None => {
                        self.at += 2;
                        let message = "this comment never ends".to_owned();
                        self.report(Code::E0102, start, message, "close it with `*/`");
                        self.at = self.text.len();
                    }
                }
            } else {
                return;
            }
        }
    }

    fn token(&mut self) -> Token {
        self.skip_trivia();
        let start = self.at;
        let tok = match self.peek() {
            None => Tok::End,
            Some(c) if c.is_alphabetic() || c == '_' => {
                self.take_while(|c| c.is_alphanumeric() || c == '_');
                Tok::Name
            }
            Some(c) if c.is_ascii_digit() => self.number(),
            Some('.') if self.peek_at(1).is_some_and(|c| c.is_ascii_digit()) => self.number(),
            Some('"') => self.string(),
            Some(c) => self.sign(c),
        };
        Token { tok, span: self.span(start) }
    }

    fn number(&mut self) -> Tok {
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit() || c == '.' || c == '_');
        if matches!(self.peek(), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.peek_at(1), Some('+' | '-')));
            if self.peek_at(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
                self.at += 1 + sign;
                self.take_while(|c| c.is_ascii_digit());
            }
        }
        let unit = self.at;
        self.take_while(|c| c.is_alphanumeric() || c == '_' || c == '.');
        let digits = self.text[start..unit].replace('_', "");
        let written = self.text[start..self.at].to_owned();
        if self.at > unit {
            let message = format!("`{written}` is no number");
            self.report(
                Code::E0104,
                start,
                message,
                "numbers have no units: write 16e3, or 4 * 1024",
            );
            return Tok::Bad;
        }
        match digits.parse::<f64>() {
            Ok(value) if value.is_finite() => Tok::Number(value),
            Ok(_) => {
                let message = format!("`{written}` is too large for a number");
                self.report(Code::E0104, start, message, "an unlimited amount is written `inf`");
                Tok::Bad
            }
            Err(_) => {
                let message = format!("`{written}` is no number");
                self.report(
                    Code::E0104,
                    start,
                    message,
                    "a number has at most one point, like 0.25",
                );
                Tok::Bad
            }
        }
    }

    fn string(&mut self) -> Tok {
        let start = self.at;
        self.at += 1;
        self.take_while(|c| c != '"' && c != '\n');
        if self.peek() == Some('"') {
            self.at += 1;
            return Tok::Str;
        }
        let message = "this string never ends".to_owned();
        self.report(Code::E0103, start, message, "close it with `\"` on the same line");
        Tok::Bad
    }

    fn sign(&mut self, c: char) -> Tok {
        let start = self.at;
        self.at += c.len_utf8();
        let next = self.peek();
        match (c, next) {
            ('<' | '>' | '=' | '!', Some('=')) | ('&', Some('&')) | ('|', Some('|')) => {
                self.at += 1;
                Tok::Sign(c as u8, self.text.as_bytes()[start + 1])
            }
            _ if "{}()[],;:.=~?+-*/^<>!".contains(c) => Tok::Sign(c as u8, 0),
            _ => {
                let help = match c {
                    '&' => "both conditions: `&&`",
                    '|' => "either condition: `||`",
                    '%' => "the remainder of a by b is `a - b * floor(a / b)`",
                    '\'' => "names in quotes are written with `\"`",
                    '#' => "comments begin with `//`",
                    _ => "remove it",
                };
                let message = format!("the character `{}` means nothing here", c.escape_debug());
                self.report(Code::E0101, start, message, help);
                Tok::Bad
            }
        }
    }
}
