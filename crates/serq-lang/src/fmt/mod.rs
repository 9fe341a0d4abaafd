//! One layout for every program.
//!
//! The formatter moves tokens and never changes, adds or drops one, so what a program means cannot
//! change; before it answers it reads its own output and compares. The layout is a function of the
//! tokens, the comments, the blank lines, and of one choice that stays with the author: a block
//! written on one line stays on one line if it fits.

mod layout;
mod pieces;

use crate::diag::{Diagnostic, Diagnostics};
use crate::lex::{Tok, Trivia, lex, trivia};
use crate::parse::parse;
use crate::source::{Source, Sources};

/// Widest line, in characters, where a break is possible.
pub const WIDTH: usize = 100;

/// Formats a program.
///
/// Errors: what keeps it from being parsed, with the sources the diagnostics point into. A program
/// that parses and does not link is formatted.
pub fn format(name: &str, text: &str) -> Result<String, (Vec<Diagnostic>, Sources)> {
    let mut diags = Diagnostics::default();
    let source = Source::new(name, text);
    let parsed = parse(&source, 0, &mut diags);
    if diags.has_errors() {
        let mut sources = Sources::default();
        sources.add(source);
        return Err((diags.into_sorted(), sources));
    }
    let pieces = pieces::attach(text, &parsed.tokens, &parsed.hints);
    let out = layout::layout(&pieces);
    // A fault in the layout must not cost anybody their program.
    Ok(if skeleton(&out) == skeleton(text) { out } else { text.to_owned() })
}

/// Everything of a text but its white space: tokens, and comments without the spaces at their ends.
fn skeleton(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut end = 0usize;
    for token in lex(text, 0, &mut Diagnostics::default()) {
        let (from, to) = (token.span.start as usize, token.span.end as usize);
        for piece in trivia(&text[end..from]) {
            if let Trivia::Line(s) | Trivia::Block(s) = piece {
                pieces.push(s.trim_end().to_owned());
            }
        }
        if token.tok != Tok::End {
            pieces.push(text[from..to].to_owned());
        }
        end = to;
    }
    pieces
}
