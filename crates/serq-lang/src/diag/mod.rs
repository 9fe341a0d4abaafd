//! Diagnostics as data.
//!
//! A finding is a code, a message, places and ways out. What it looks like is decided at the edge:
//! [`render_text`] for people, [`to_json`] for programs. Nothing here prints.

mod codes;
mod json;
mod render;
mod suggest;

pub use codes::Code;
pub use json::to_json;
pub use render::{plural, render_all, render_parts, render_text};
pub use suggest::closest;

use crate::source::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program does not link.
    Error,
    /// It links, and something in it is probably not meant.
    Warning,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// A place and what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub span: Span,
    /// May be empty: then the place is only pointed at.
    pub text: String,
}

/// A replacement that would probably help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    pub span: Span,
    pub replacement: String,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: Code,
    /// Lower case, no final dot.
    pub message: String,
    pub primary: Label,
    /// Other places that matter.
    pub labels: Vec<Label>,
    /// Ways out, one line each.
    pub help: Vec<String>,
    pub suggestion: Option<Suggestion>,
}

impl Diagnostic {
    pub fn new(code: Code, span: Span, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            message: message.into(),
            primary: Label { span, text: String::new() },
            labels: Vec::new(),
            help: Vec::new(),
            suggestion: None,
        }
    }

    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Says something at the primary place.
    #[must_use]
    pub fn at(mut self, text: impl Into<String>) -> Self {
        self.primary.text = text.into();
        self
    }

    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into() });
        self
    }

    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    /// Offers `replacement` for the primary place, if there is one.
    #[must_use]
    pub fn did_you_mean(mut self, replacement: Option<&str>) -> Self {
        if let Some(replacement) = replacement {
            self.help.push(format!("did you mean `{replacement}`?"));
            self.suggestion =
                Some(Suggestion { span: self.primary.span, replacement: replacement.to_owned() });
        }
        self
    }
}

/// Most errors, and most warnings, that are kept of one program. A text that is no program at all would otherwise
/// bury the first, useful ones.
pub const MAX_DIAGNOSTICS: usize = 100;

/// Findings in the order they were made, each place and code once.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds a finding, unless the same one is already there (a server is linked once for every
    /// request) or there are too many.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let known =
            |d: &Diagnostic| d.code == diagnostic.code && d.primary.span == diagnostic.primary.span;
        let severity = diagnostic.severity();
        let room = self.list.iter().filter(|d| d.severity() == severity).count() < MAX_DIAGNOSTICS;
        if room && !self.list.iter().any(known) {
            self.list.push(diagnostic);
        }
    }

    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity() == Severity::Error)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The findings in the order of their places.
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|d| (d.primary.span, d.code));
        self.list
    }
}

impl Diagnostics {
    /// Adds to a finding that was already made.
    pub(crate) fn amend(
        &mut self,
        code: Code,
        span: Span,
        change: impl FnOnce(Diagnostic) -> Diagnostic,
    ) {
        let found = self.list.iter_mut().find(|d| d.code == code && d.primary.span == span);
        if let Some(d) = found {
            *d = change(d.clone());
        }
    }
}
