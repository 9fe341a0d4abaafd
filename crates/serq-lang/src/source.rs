//! Source texts and places in them.
//!
//! A program comes from more than one text: the file, and one per `--set`. A [`Span`] therefore
//! carries the text it belongs to, so that an error in an override points into the override.
//!
//! What a definition stands for is copied to every call. Each copy has a text number of its own,
//! which leads to the definition's text and to the call ([`Sources::expand`]): so places of two
//! copies differ, and a finding can show both.

/// Largest text that is read, in bytes. Far above any deployment; it keeps every offset in a
/// `u32` and every pass over the text short.
pub const MAX_SOURCE_BYTES: usize = 4 << 20;

/// A half-open range of bytes of one text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Index into [`Sources`].
    pub source: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `other`, which comes later in the same text.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span { source: self.source, start: self.start, end: other.end.max(self.start) }
    }

    /// The empty range just behind this one.
    #[must_use]
    pub fn after(self) -> Span {
        Span { source: self.source, start: self.end, end: self.end }
    }
}

/// One text and the name it is shown under.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Byte offset of the start of each line.
    lines: Vec<u32>,
    /// Then columns need no counting.
    ascii: bool,
}

/// A position counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineCol {
    pub line: u32,
    pub column: u32,
}

impl Source {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let mut lines = vec![0];
        for (at, byte) in text.bytes().enumerate() {
            if byte == b'\n' {
                lines.push(at as u32 + 1);
            }
        }
        Source { name: name.into(), ascii: text.is_ascii(), text, lines }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The position of a byte offset.
    pub fn line_col(&self, offset: u32) -> LineCol {
        let line = self.lines.partition_point(|&start| start <= offset).max(1);
        let start = self.lines[line - 1] as usize;
        let before = self.text.get(start..offset as usize).unwrap_or("");
        let column = if self.ascii { before.len() } else { before.chars().count() };
        LineCol { line: line as u32, column: column as u32 + 1 }
    }

    /// The byte offset of a position; the end of the line if it is shorter.
    pub fn offset(&self, at: LineCol) -> u32 {
        let Some(&start) = self.lines.get((at.line as usize).saturating_sub(1)) else {
            return self.text.len() as u32;
        };
        let line = self.line(at.line);
        let skipped = (at.column as usize).saturating_sub(1);
        let within = line.char_indices().nth(skipped).map_or(line.len(), |(offset, _)| offset);
        start + within as u32
    }

    /// A line's text without its line break; `line` counts from 1.
    pub fn line(&self, line: u32) -> &str {
        let at = (line as usize).saturating_sub(1);
        let Some(&start) = self.lines.get(at) else { return "" };
        let end = self.lines.get(at + 1).map_or(self.text.len(), |&e| e as usize);
        self.text.get(start as usize..end).unwrap_or("").trim_end_matches(['\n', '\r'])
    }
}

/// Text numbers from here on are those of copies.
const COPIES: u32 = 1 << 24;

/// All texts of one compilation; the program's file is the first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    list: Vec<Source>,
    /// Of each copy: the text it was copied from, and the call.
    copies: Vec<(u32, Span)>,
}

impl Sources {
    /// Adds a text and returns its number.
    pub fn add(&mut self, source: Source) -> u32 {
        self.list.push(source);
        self.list.len() as u32 - 1
    }

    /// A number for a copy of what stands in `source`, made for a call.
    pub fn expand(&mut self, source: u32, call: Span) -> u32 {
        self.copies.push((self.base(source), call));
        COPIES + self.copies.len() as u32 - 1
    }

    /// The text behind a number: itself, or what it is a copy of.
    pub fn base(&self, source: u32) -> u32 {
        match source.checked_sub(COPIES) {
            Some(at) => self.copies.get(at as usize).map_or(source, |c| c.0),
            None => source,
        }
    }

    /// The place in a text that was read.
    pub fn written(&self, span: Span) -> Span {
        Span { source: self.base(span.source), ..span }
    }

    /// The calls that brought a place into the program, innermost first.
    pub fn calls(&self, span: Span) -> Vec<Span> {
        let mut calls = Vec::new();
        let mut source = span.source;
        while let Some(&(_, call)) =
            source.checked_sub(COPIES).and_then(|at| self.copies.get(at as usize))
        {
            calls.push(self.written(call));
            source = call.source;
        }
        calls
    }

    pub fn get(&self, source: u32) -> Option<&Source> {
        self.list.get(self.base(source) as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.list.iter()
    }

    /// The text a span covers; empty if the span is not of these sources.
    pub fn snippet(&self, span: Span) -> &str {
        self.get(span.source)
            .and_then(|s| s.text.get(span.start as usize..span.end as usize))
            .unwrap_or("")
    }

    /// The position where a span starts.
    pub fn start(&self, span: Span) -> LineCol {
        self.get(span.source)
            .map_or(LineCol { line: 1, column: 1 }, |source| source.line_col(span.start))
    }
}
