//! Diagnostics for programs.
//!
//! An array of objects:
//!
//! ```json
//! {"code": "E0303", "severity": "error", "message": "...",
//!  "primary": {"file": "a.sq", "line": 3, "column": 9, "end_line": 3, "end_column": 14,
//!              "offset": 40, "length": 5, "text": ""},
//!  "labels": [{"file": "...", "text": "..."}],
//!  "help": ["..."],
//!  "suggestion": {"file": "...", "replacement": "lambda"}}
//! ```
//!
//! Lines and columns count from 1, columns in characters; `offset` and `length` in bytes.
//! `suggestion` is null where there is none; otherwise it has the fields of a place.

use serde_json::{Map, Value, json};

use super::{Diagnostic, Label};
use crate::source::{Sources, Span};

/// The array described above.
pub fn to_json(diagnostics: &[Diagnostic], sources: &Sources) -> Value {
    Value::Array(diagnostics.iter().map(|d| one(d, sources)).collect())
}

fn one(d: &Diagnostic, sources: &Sources) -> Value {
    let suggestion = d.suggestion.as_ref().map_or(Value::Null, |s| {
        let mut place = place(s.span, sources);
        place.insert("replacement".to_owned(), json!(s.replacement));
        Value::Object(place)
    });
    json!({
        "code": d.code.as_str(),
        "severity": d.severity().word(),
        "message": d.message,
        "primary": label(&d.primary, sources),
        "labels": d.labels.iter().map(|l| label(l, sources)).collect::<Vec<_>>(),
        "help": d.help,
        "suggestion": suggestion,
    })
}

fn label(label: &Label, sources: &Sources) -> Value {
    let mut place = place(label.span, sources);
    place.insert("text".to_owned(), json!(label.text));
    Value::Object(place)
}

fn place(span: Span, sources: &Sources) -> Map<String, Value> {
    let mut map = Map::new();
    let Some(source) = sources.get(span.source) else { return map };
    let (start, end) = (source.line_col(span.start), source.line_col(span.end));
    map.insert("file".to_owned(), json!(source.name()));
    map.insert("line".to_owned(), json!(start.line));
    map.insert("column".to_owned(), json!(start.column));
    map.insert("end_line".to_owned(), json!(end.line));
    map.insert("end_column".to_owned(), json!(end.column));
    map.insert("offset".to_owned(), json!(span.start));
    map.insert("length".to_owned(), json!(span.end - span.start));
    map
}
