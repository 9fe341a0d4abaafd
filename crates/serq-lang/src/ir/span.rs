//! Where in the source something was written, kept beside the program.

use serde::{Deserialize, Serialize};

/// A position: file (index into [`Spans::files`]), line and column, both counted from 1.
/// Column counts characters. In JSON: `[file, line, column]`. Line 0 means "unknown".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span(pub u32, pub u32, pub u32);

/// The side table. Every list may be shorter than what it describes: a missing entry is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spans {
    /// Names of the source files as the reader was given them.
    pub files: Vec<String>,
    /// One position per statement, in the shape of [`super::Program::blocks`].
    #[serde(default)]
    pub blocks: Vec<Vec<Span>>,
    /// The declaration of each pool (every member of a family has its family's).
    #[serde(default)]
    pub pools: Vec<Span>,
    /// The declaration of each stage.
    #[serde(default)]
    pub stages: Vec<Span>,
    /// The `arrive` clause.
    #[serde(default)]
    pub arrival: Option<Span>,
    /// The `run` declaration.
    #[serde(default)]
    pub run: Option<Span>,
    /// One position per hidden attribute, in the order of [`super::Program::hidden`].
    #[serde(default)]
    pub hidden: Vec<Span>,
    /// The declaration of each gauge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gauges: Vec<Span>,
}

/// A resolved position, ready to print as `file:line:column`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Spans {
    /// The place a span stands for; `None` when its file or line is unknown.
    pub fn resolve(&self, span: Span) -> Option<Place> {
        let file = self.files.get(span.0 as usize)?;
        (span.1 > 0).then(|| Place { file: file.clone(), line: span.1, column: span.2 })
    }

    /// The place of a statement.
    pub fn statement(&self, block: usize, at: usize) -> Option<Place> {
        self.resolve(*self.blocks.get(block)?.get(at)?)
    }

    /// The place of a pool's declaration.
    pub fn pool(&self, pool: usize) -> Option<Place> {
        self.resolve(*self.pools.get(pool)?)
    }

    /// The place of a stage's declaration.
    pub fn stage(&self, stage: usize) -> Option<Place> {
        self.resolve(*self.stages.get(stage)?)
    }
}
