//! Recorded sessions, from a file of comma-separated values.
//!
//! One row per turn: `session,turn,new,out,think[,forced]`. Rows of one session stand together, in
//! the order of its turns. `new` tokens are added to the prompt, `out` are answered, the next turn
//! comes `think` seconds after this one ends; `forced` is 1 where the prompt matches nothing
//! cached. Empty lines, lines that begin with `#` and a first line of titles are skipped.

use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::ir::TraceTurn;
use crate::source::Span;

/// Reads a trace; `source` is the number of its text among the caller's sources.
///
/// Errors go to `diags`, one per bad row; then the result is not to be used.
pub fn read_sessions(text: &str, source: u32, diags: &mut Diagnostics) -> Vec<Vec<TraceTurn>> {
    let mut sessions: Vec<Vec<TraceTurn>> = Vec::new();
    let mut current: Option<&str> = None;
    let mut first = true;
    let mut at = 0usize;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let row = line.trim();
        if row.is_empty() || row.starts_with('#') {
            continue;
        }
        let titles = std::mem::replace(&mut first, false) && is_titles(row);
        if titles {
            continue;
        }
        let offset = start + (line.len() - line.trim_start().len());
        let span = Span { source, start: offset as u32, end: (offset + row.len()) as u32 };
        match turn(row) {
            Err(reason) => {
                let d = Diagnostic::new(Code::E0603, span, reason).help(
                    "a row is session,turn,new,out,think or session,turn,new,out,think,forced",
                );
                diags.push(d);
            }
            Ok((session, turn)) => {
                if current != Some(session) {
                    sessions.push(Vec::new());
                    current = Some(session);
                }
                if let Some(turns) = sessions.last_mut() {
                    turns.push(turn);
                }
            }
        }
    }
    if sessions.is_empty() && !diags.has_errors() {
        let d =
            Diagnostic::new(Code::E0604, Span { source, start: 0, end: 0 }, "the trace has no row")
                .help("a row is session,turn,new,out,think or session,turn,new,out,think,forced");
        diags.push(d);
    }
    sessions
}

/// A first line without a number behind the session's name.
fn is_titles(row: &str) -> bool {
    row.split(',').skip(1).all(|field| field.trim().parse::<f64>().is_err())
}

fn turn(row: &str) -> Result<(&str, TraceTurn), String> {
    let fields: Vec<&str> = row.split(',').map(str::trim).collect();
    if !(5..=6).contains(&fields.len()) {
        return Err(format!("{} columns instead of 5 or 6", fields.len()));
    }
    let number = |at: usize, name: &str| -> Result<f64, String> {
        let field = fields.get(at).copied().unwrap_or("0");
        match field.parse::<f64>() {
            Ok(v) if v.is_finite() && v >= 0.0 => Ok(v),
            Ok(v) => Err(format!("`{name}` is {v}, and must be 0 or more")),
            Err(_) => Err(format!("`{name}` is `{}`, which is no number", field.escape_debug())),
        }
    };
    number(1, "turn")?;
    let turn =
        TraceTurn(number(2, "new")?, number(3, "out")?, number(4, "think")?, number(5, "forced")?);
    Ok((fields[0], turn))
}
