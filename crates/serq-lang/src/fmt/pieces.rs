//! Tokens with their comments attached.

use crate::lex::{Tok, Token, Trivia, trivia};
use crate::parse::Hint;

/// A comment on a line of its own.
#[derive(Debug)]
pub(super) struct Own<'a> {
    pub(super) text: &'a str,
    /// Whether a blank line stands before it.
    pub(super) blank: bool,
}

#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) tok: Tok,
    pub(super) hint: Hint,
    /// Comments on the lines before.
    pub(super) own: Vec<Own<'a>>,
    /// Whether a blank line stands directly before it.
    pub(super) blank: bool,
    /// Whether it stands on another line than the token before.
    pub(super) newline: bool,
    /// Comments behind it, on its line.
    pub(super) trail: Vec<&'a str>,
}

impl Piece<'_> {
    pub(super) fn is(&self, sign: u8) -> bool {
        self.tok == Tok::Sign(sign, 0)
    }

    /// Whether a comment behind it makes the line end.
    pub(super) fn ends_line(&self) -> bool {
        self.trail.iter().any(|c| c.starts_with("//") || c.contains('\n'))
    }
}

/// Gives every comment to the token it stands with.
pub(super) fn attach<'a>(text: &'a str, tokens: &[Token], hints: &[Hint]) -> Vec<Piece<'a>> {
    let mut pieces: Vec<Piece<'a>> = Vec::with_capacity(tokens.len());
    let mut end = 0usize;
    for (token, &hint) in tokens.iter().zip(hints) {
        let (from, to) = (token.span.start as usize, token.span.end as usize);
        let mut own: Vec<Own<'a>> = Vec::new();
        let mut breaks = 0usize;
        let mut newline = pieces.is_empty();
        for piece in trivia(&text[end..from]) {
            let comment = match piece {
                Trivia::Space(s) => {
                    let found = s.bytes().filter(|&b| b == b'\n').count();
                    breaks += found;
                    newline |= found > 0;
                    continue;
                }
                Trivia::Line(s) => s.trim_end(),
                Trivia::Block(s) => s,
            };
            match pieces.last_mut() {
                Some(last) if !newline => last.trail.push(comment),
                _ => own.push(Own { text: comment, blank: breaks > 1 }),
            }
            breaks = 0;
        }
        pieces.push(Piece {
            text: &text[from..to],
            tok: token.tok,
            hint,
            blank: breaks > 1,
            own,
            newline,
            trail: Vec::new(),
        });
        end = to;
    }
    pieces
}
