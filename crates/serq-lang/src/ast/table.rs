//! Tables of measured points, as written.

use super::Name;
use crate::ir::Outside;
use crate::source::Span;

/// `table name(axis, ...) from "file" value column in unit where column = "text" outside clamp;` or
/// `table name(axis, ...) { 1: 0.2, 16: 0.3 }`
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub name: Name,
    pub axes: Vec<Name>,
    pub rows: Rows,
    /// What values are measured in.
    pub unit: Option<Name>,
    pub outside: Outside,
}

/// Where the points are.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    Here(Vec<Row>),
    File(File),
}

/// A point in the program's text.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub at: Vec<f64>,
    pub value: f64,
    pub span: Span,
}

/// Points in a file of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    pub path: String,
    pub path_span: Span,
    /// The column of the values.
    pub value: Name,
    /// Only rows with these texts count.
    pub only: Vec<Only>,
    /// The file's text number; none before it is read.
    pub source: Option<u32>,
}

/// `column = "text"`, or a number, as spelt.
#[derive(Clone, Debug, PartialEq)]
pub struct Only {
    pub column: Name,
    pub text: String,
}
