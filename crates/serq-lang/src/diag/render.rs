//! Diagnostics for people: position, the line, a caret, help.

use std::fmt::Write as _;

use super::{Diagnostic, Label, Severity};
use crate::source::{LineCol, Sources, Span};

/// Characters of a source line that are shown; longer ones are cut around the place.
const MAX_LINE: usize = 120;

/// One diagnostic as text, ending in a line break.
pub fn render_text(diagnostic: &Diagnostic, sources: &Sources) -> String {
    let severity = diagnostic.severity().word();
    let head = format!("{severity}[{}]: {}", diagnostic.code.as_str(), diagnostic.message);
    let places: Vec<&Label> =
        std::iter::once(&diagnostic.primary).chain(&diagnostic.labels).collect();
    let notes: Vec<String> = diagnostic.help.iter().map(|h| format!("help: {h}")).collect();
    render_parts(&head, &places, &notes, sources)
}

/// The same layout for a finding of another kind: a first line, places, and notes.
pub fn render_parts(head: &str, places: &[&Label], notes: &[String], sources: &Sources) -> String {
    let mut out = format!("{head}\n");
    let gutter = places
        .iter()
        .map(|label| sources.start(label.span).line.to_string().len())
        .max()
        .unwrap_or(1);
    let mut shown_source = None;
    for (at, label) in places.iter().enumerate() {
        let arrow = if shown_source == Some(label.span.source) { ":::" } else { "-->" };
        shown_source = Some(label.span.source);
        excerpt(&mut out, sources, label, gutter, arrow, at == 0);
    }
    for note in notes {
        let _ = writeln!(out, "{:gutter$} = {note}", "");
    }
    out
}

/// All diagnostics, a blank line between them, and a last line that counts them.
pub fn render_all(diagnostics: &[Diagnostic], sources: &Sources) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        out.push_str(&render_text(diagnostic, sources));
        out.push('\n');
    }
    let count = |severity| diagnostics.iter().filter(|d| d.severity() == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    match (errors, warnings) {
        (0, 0) => {}
        (0, w) => writeln!(out, "{}", plural(w, "warning")).unwrap_or_default(),
        (e, 0) => writeln!(out, "{}", plural(e, "error")).unwrap_or_default(),
        (e, w) => {
            writeln!(out, "{}, {}", plural(e, "error"), plural(w, "warning")).unwrap_or_default()
        }
    }
    if let Some(first) = diagnostics.first() {
        let _ = writeln!(out, "`serq explain {}` says more", first.code.as_str());
    }
    out
}

/// "1 pool", "2 pools".
pub fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn excerpt(
    out: &mut String,
    sources: &Sources,
    label: &Label,
    gutter: usize,
    arrow: &str,
    primary: bool,
) {
    let Some(source) = sources.get(label.span.source) else { return };
    let LineCol { line, column } = source.line_col(label.span.start);
    let _ = writeln!(out, "{:gutter$}{arrow} {}:{line}:{column}", "", source.name());
    let (text, first, width) = window(source.line(line), column, label.span);
    let _ = writeln!(out, "{:gutter$} |", "");
    let _ = writeln!(out, "{line:gutter$} | {text}");
    let mark = if primary { "^" } else { "-" };
    let said = if label.text.is_empty() { String::new() } else { format!(" {}", label.text) };
    let _ = writeln!(out, "{:gutter$} | {:first$}{}{said}", "", "", mark.repeat(width));
}

/// The visible part of a line, the offset of the place in it and the place's width there.
fn window(line: &str, column: u32, span: Span) -> (String, usize, usize) {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let chars: Vec<char> = line.chars().map(visible).collect();
    let at = (column as usize - 1).min(chars.len());
    let rest: String = line.chars().skip(at).collect();
    let bytes = (span.end - span.start) as usize;
    let width =
        rest.char_indices().take_while(|&(offset, _)| offset < bytes).count().clamp(1, MAX_LINE);
    if chars.len() <= MAX_LINE {
        return (chars.into_iter().collect(), at, width);
    }
    let from = at.saturating_sub(MAX_LINE / 3);
    let to = (from + MAX_LINE).min(chars.len());
    let mut text = String::new();
    let dots = if from > 0 { "..." } else { "" };
    text.push_str(dots);
    text.extend(&chars[from..to]);
    if to < chars.len() {
        text.push_str("...");
    }
    (text, at - from + dots.len(), width.min((to - at).max(1)))
}
