//! Comma-separated text, with the place of every field.
//!
//! Plain: fields hold no commas and no quotes, as profilers write them. Blank lines are none.

use crate::source::Span;

/// A text's columns, and its rows on demand.
pub(super) struct Sheet<'t> {
    /// Names of the columns, from the first line.
    pub(super) header: Vec<Field<'t>>,
    text: &'t str,
    source: u32,
}

/// A field without the blanks around it.
pub(super) struct Field<'t> {
    pub(super) text: &'t str,
    pub(super) span: Span,
}

pub(super) struct Row<'t> {
    pub(super) fields: Vec<Field<'t>>,
    pub(super) span: Span,
}

impl<'t> Sheet<'t> {
    pub(super) fn of(text: &'t str, source: u32) -> Self {
        let text_start = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut sheet = Sheet { header: Vec::new(), text, source };
        let skipped = text.len() - text_start.len();
        sheet.header =
            lines(text, skipped).next().map_or(Vec::new(), |(at, line)| sheet.row(at, line).fields);
        sheet
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'t>> {
        lines(self.text, 0).skip(1).map(|(at, line)| self.row(at, line))
    }

    fn row(&self, at: usize, line: &'t str) -> Row<'t> {
        let mut fields = Vec::new();
        let mut from = at;
        for part in line.split(',') {
            let text = part.trim();
            let start = from + (part.len() - part.trim_start().len());
            fields.push(Field { text, span: self.span(start, text.len()) });
            from += part.len() + 1;
        }
        Row { fields, span: self.span(at, line.len()) }
    }

    fn span(&self, start: usize, len: usize) -> Span {
        Span { source: self.source, start: start as u32, end: (start + len) as u32 }
    }
}

/// Lines that are not blank, with their offsets.
fn lines(text: &str, skipped: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split('\n')
        .map(move |line| {
            let start = at;
            at += line.len() + 1;
            (start, line)
        })
        .map(move |(start, line)| match start {
            0 => (skipped, line.get(skipped..).unwrap_or("")),
            _ => (start, line),
        })
        .map(|(start, line)| (start, line.trim_end_matches('\r')))
        .filter(|(_, line)| !line.trim().is_empty())
}

/// A finite number.
pub(super) fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|v| v.is_finite())
}
