//! From tokens to lines.
//!
//! A clause is what ends in `;` or in a block. It goes on one line if it fits and its blocks were
//! written on one line; otherwise every block of it opens up. A line that is too long is broken
//! where it hurts least: before a clause word, behind a comma, before the loosest operator.

use super::WIDTH;
use super::pieces::{Own, Piece};
use crate::lex::Tok;
use crate::parse::Hint;

const INDENT: usize = 2;
/// Further indentation of the lines that continue a clause.
const CONTINUED: usize = 4;

pub(super) fn layout(pieces: &[Piece<'_>]) -> String {
    let mut layout = Layout { pieces, lines: Vec::new(), fresh: true };
    let mut at = 0;
    let clauses = layout.sequence(&mut at);
    layout.clauses(&clauses, 0);
    if let Some(end) = pieces.last() {
        layout.own(&end.own, 0);
    }
    let mut out = String::new();
    let mut at = 0;
    while at < layout.lines.len() {
        let aligned = layout.lines[at..].iter().take_while(|line| line.is_aligned()).count();
        let run = &layout.lines[at..at + aligned.max(1)];
        let column = run.iter().map(|line| width(&line.code)).max().unwrap_or(0);
        for Line { code, comment } in run {
            let line = match comment.as_str() {
                "" => code.clone(),
                c if aligned > 0 => format!("{code:<column$} {c}"),
                c => format!("{code} {c}"),
            };
            out.push_str(line.trim_end());
            out.push('\n');
        }
        at += run.len();
    }
    out
}

/// Widest code that comments behind it are aligned with.
const ALIGNED: usize = 60;

/// A line and the comment that ends it. Comments of neighbouring lines stand in one column.
#[derive(Default)]
struct Line {
    code: String,
    comment: String,
}

impl Line {
    fn is_aligned(&self) -> bool {
        self.comment.starts_with("//") && width(&self.code) <= ALIGNED
    }
}

enum Part {
    Token(usize),
    Block { open: usize, body: Vec<Vec<Part>>, close: usize, inline: bool },
}

struct Layout<'p, 't> {
    pieces: &'p [Piece<'t>],
    lines: Vec<Line>,
    /// At the start of the text or of a block, where no blank line belongs.
    fresh: bool,
}

impl Layout<'_, '_> {
    fn ends(&self, at: usize) -> bool {
        let piece = &self.pieces[at];
        piece.tok == Tok::End || piece.is(b'}')
    }

    /// The clauses up to a closing brace or the end.
    fn sequence(&self, at: &mut usize) -> Vec<Vec<Part>> {
        let mut clauses = Vec::new();
        while !self.ends(*at) {
            clauses.push(self.clause_parts(at));
        }
        clauses
    }

    fn clause_parts(&self, at: &mut usize) -> Vec<Part> {
        let mut parts = Vec::new();
        while !self.ends(*at) {
            let piece = &self.pieces[*at];
            let this = *at;
            *at += 1;
            if piece.is(b';') {
                parts.push(Part::Token(this));
                break;
            }
            if !piece.is(b'{') {
                parts.push(Part::Token(this));
                continue;
            }
            let body = self.sequence(at);
            let close = (*at).min(self.pieces.len() - 1);
            *at = (close + 1).min(self.pieces.len() - 1);
            let inside = &self.pieces[this + 1..=close];
            let inline = inside.iter().all(|p| !p.newline && p.own.is_empty())
                && self.pieces[this..close].iter().all(|p| !p.ends_line());
            parts.push(Part::Block { open: this, body, close, inline });
            let next = &self.pieces[*at];
            let goes_on = next.is(b';') || matches!(next.text, "else" | "keep" | "cache" | "lease");
            if !goes_on {
                break;
            }
        }
        parts
    }

    fn push(&mut self, indent: usize, text: &str) {
        self.lines.push(Line { code: format!("{:indent$}{text}", ""), comment: String::new() });
        self.fresh = false;
    }

    fn blank(&mut self, wanted: bool) {
        if wanted && !self.fresh {
            self.lines.push(Line::default());
            self.fresh = true;
        }
    }

    fn own(&mut self, own: &[Own<'_>], indent: usize) {
        for comment in own {
            self.blank(comment.blank);
            self.push(indent, comment.text);
        }
    }

    fn clauses(&mut self, clauses: &[Vec<Part>], indent: usize) {
        for clause in clauses {
            let first = match clause.first() {
                Some(Part::Token(at)) => *at,
                Some(Part::Block { open, .. }) => *open,
                None => continue,
            };
            let piece = &self.pieces[first];
            self.own(&piece.own, indent);
            self.blank(piece.blank);
            self.clause(clause, indent);
        }
    }

    fn clause(&mut self, clause: &[Part], indent: usize) {
        if clause.iter().all(|p| !matches!(p, Part::Block { inline: false, .. })) {
            let mut tokens = Vec::new();
            flatten(clause, &mut tokens);
            let quiet = tokens.iter().skip(1).all(|&t| self.pieces[t].own.is_empty())
                && tokens.iter().rev().skip(1).all(|&t| !self.pieces[t].ends_line());
            let line = self.flat(&tokens);
            let has_blocks = clause.iter().any(|p| matches!(p, Part::Block { .. }));
            if quiet && (indent + width(&line) <= WIDTH) {
                let last = tokens.last().copied();
                self.push(indent, &line);
                self.trail(last);
                return;
            }
            if !has_blocks {
                self.wrap(&tokens, indent);
                return;
            }
        }
        let mut segment: Vec<usize> = Vec::new();
        for part in clause {
            match part {
                Part::Token(at) => segment.push(*at),
                Part::Block { open, body, close, .. } => {
                    segment.push(*open);
                    let nothing = body.is_empty()
                        && self.pieces[*close].own.is_empty()
                        && !self.pieces[*open].ends_line();
                    if nothing {
                        segment.push(*close);
                        continue;
                    }
                    self.wrap(&segment, indent);
                    self.fresh = true;
                    self.clauses(body, indent + INDENT);
                    self.own(&self.pieces[*close].own, indent + INDENT);
                    if self.lines.last().is_some_and(|line| line.code.is_empty()) {
                        self.lines.pop();
                    }
                    segment = vec![*close];
                }
            }
        }
        self.wrap(&segment, indent);
    }

    /// Comments behind the last token of a line.
    fn trail(&mut self, token: Option<usize>) {
        let Some(token) = token else { return };
        let Some(line) = self.lines.last_mut() else { return };
        line.comment = self.pieces[token].trail.join(" ");
    }

    /// Tokens on one line; comments between them are part of it, the last token's are not.
    fn flat(&self, tokens: &[usize]) -> String {
        let mut line = String::new();
        for (k, &at) in tokens.iter().enumerate() {
            if k > 0 {
                let before = &self.pieces[tokens[k - 1]];
                for comment in &before.trail {
                    line.push(' ');
                    line.push_str(comment);
                }
                let commented = !before.trail.is_empty();
                if commented || spaced(before, &self.pieces[at]) {
                    line.push(' ');
                }
            }
            line.push_str(self.pieces[at].text);
        }
        line
    }

    /// A clause, or the part of it up to a block, on as many lines as it needs.
    fn wrap(&mut self, tokens: &[usize], indent: usize) {
        let mut from = 0;
        let mut at = indent;
        for to in 1..=tokens.len() {
            let forced = to == tokens.len()
                || !self.pieces[tokens[to]].own.is_empty()
                || self.pieces[tokens[to - 1]].ends_line();
            if !forced {
                continue;
            }
            if from > 0 {
                let own = &self.pieces[tokens[from]].own;
                self.own(own, indent + CONTINUED);
            }
            self.fill(&tokens[from..to], at, indent + CONTINUED);
            at = indent + CONTINUED;
            from = to;
        }
    }

    fn fill(&mut self, tokens: &[usize], first: usize, rest: usize) {
        let mut start = 0;
        let mut indent = first;
        while start < tokens.len() {
            let end = self.break_at(&tokens[start..], indent).map_or(tokens.len(), |k| start + k);
            let line = self.flat(&tokens[start..end]);
            self.push(indent, &line);
            self.trail(Some(tokens[end - 1]));
            start = end;
            indent = rest;
        }
    }

    /// How many tokens go on this line; `None` if all do.
    fn break_at(&self, tokens: &[usize], indent: usize) -> Option<usize> {
        let room = WIDTH.saturating_sub(indent);
        let mut best: Option<(usize, usize)> = None;
        let mut depth = 0usize;
        let mut used = tokens.first().map_or(0, |&t| width(self.pieces[t].text));
        for k in 1..tokens.len() {
            let (before, piece) = (&self.pieces[tokens[k - 1]], &self.pieces[tokens[k]]);
            if before.is(b'(') || before.is(b'[') {
                depth += 1;
            } else if before.is(b')') || before.is(b']') {
                depth = depth.saturating_sub(1);
            }
            let class = break_class(before, piece);
            if used > room && class.is_some() {
                // Nothing that fits was found: the first break that comes is the least bad.
                return Some(best.map_or(k, |(_, k)| k));
            }
            if let Some(class) = class {
                let cost = depth * 10 + class;
                if best.is_none_or(|(least, _)| cost <= least) {
                    best = Some((cost, k));
                }
            }
            used += width(&self.flat(&tokens[k - 1..=k])) - width(before.text);
            if used > room && best.is_some() {
                return best.map(|(_, k)| k);
            }
        }
        None
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn flatten(parts: &[Part], tokens: &mut Vec<usize>) {
    for part in parts {
        match part {
            Part::Token(at) => tokens.push(*at),
            Part::Block { open, body, close, .. } => {
                tokens.push(*open);
                for clause in body {
                    flatten(clause, tokens);
                }
                tokens.push(*close);
            }
        }
    }
}

/// Whether a space stands between two tokens of a line.
fn spaced(a: &Piece<'_>, b: &Piece<'_>) -> bool {
    let tight_before = [b';', b',', b')', b']', b'[', b'.'].iter().any(|&s| b.is(s))
        || matches!(b.hint, Hint::CallParen | Hint::KeyColon);
    let tight_after = [b'(', b'[', b'.'].iter().any(|&s| a.is(s)) || a.hint == Hint::Prefix;
    let power = a.is(b'^') || b.is(b'^');
    !(tight_before || tight_after || power)
}

/// How much a break between two tokens hurts; `None` where there is none.
fn break_class(a: &Piece<'_>, b: &Piece<'_>) -> Option<usize> {
    const CLAUSES: [&str; 14] = [
        "reserve", "reuse", "where", "at", "keep", "cache", "lease", "growing", "from", "when",
        "decode", "telling", "requeue", "every",
    ];
    let closed = a.is(b')') || a.is(b']') || a.text == "fit";
    if closed && b.tok == Tok::Name && CLAUSES.contains(&b.text) {
        return Some(0);
    }
    if a.is(b',') {
        return Some(1);
    }
    if a.is(b'=') {
        return Some(4);
    }
    if matches!(b.hint, Hint::Prefix | Hint::KeyColon) {
        return None;
    }
    match b.tok {
        Tok::Sign(b'?' | b':', 0) => Some(2),
        Tok::Sign(b'|' | b'&', _) => Some(3),
        Tok::Sign(b'<' | b'>', _) | Tok::Sign(b'=' | b'!', b'=') => Some(5),
        Tok::Sign(b'+' | b'-', 0) => Some(6),
        Tok::Sign(b'*' | b'/', 0) => Some(7),
        _ => None,
    }
}
