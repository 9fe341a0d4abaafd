//! Errors of a run and of a representation, shown where in the program they happened.
//!
//! As JSON they are `{"errors": [...]}`; docs/language/report.md says what each has.

use std::path::Path;

use serde_json::{Value, json};
use serq_lang::diag::{Label, render_parts};
use serq_lang::ir::{IrError, Place};
use serq_lang::source::{LineCol, Sources, Span};
use serq_sim::{Fault, RunError};

use crate::out::Failure;

/// The failure a run's error is.
pub(crate) fn failure(error: &RunError, file: &Path, sources: &Sources) -> Failure {
    match error {
        RunError::Invalid(errors) => invalid(&file.display().to_string(), errors),
        RunError::Options(text) => Failure::usage(format!("error: {text}")),
        RunError::Stopped(time) => Failure::program(format!("stopped at time {time}")),
        RunError::Fault(fault) => {
            let json = Some(json!({ "errors": [fault_json(fault)] }));
            Failure { json, ..Failure::program(show(fault, sources)) }
        }
    }
}

/// The failure of the run with this seed, which the text names if there were several.
pub(crate) fn of_seed(mut failure: Failure, seed: u64, several: bool) -> Failure {
    if several {
        failure.text.push_str(&format!("this was the run with seed {seed}\n"));
    }
    let errors = failure.json.as_mut().and_then(|json| json["errors"].as_array_mut());
    for error in errors.into_iter().flatten() {
        error["seed"] = json!(seed);
    }
    failure
}

fn fault_json(fault: &Fault) -> Value {
    json!({
        "code": fault.code,
        "reason": fault.reason,
        "help": fault.help,
        "place": fault.place.as_ref().map(place_json),
        "path": fault.path,
        "session": fault.session,
        "time": fault.time,
    })
}

fn place_json(place: &Place) -> Value {
    json!({ "file": place.file, "line": place.line, "column": place.column })
}

/// The failure that mistakes of a representation are.
pub(crate) fn invalid(name: &str, errors: &[IrError]) -> Failure {
    let list: Vec<Value> = errors
        .iter()
        .map(|e| {
            json!({
                "code": e.code,
                "reason": e.reason,
                "help": e.help,
                "place": e.place.as_ref().map(place_json),
                "path": e.path,
            })
        })
        .collect();
    let json = Some(json!({ "errors": list }));
    Failure { json, ..Failure::program(ir_errors(name, errors)) }
}

/// Findings about a representation, for people.
fn ir_errors(name: &str, errors: &[IrError]) -> String {
    let mut text = String::new();
    for e in errors {
        let place = e.place.as_ref().map_or_else(|| e.path.clone(), ToString::to_string);
        text.push_str(&format!(
            "error[{}]: {}\n --> {name}: {place}\n  = help: {}\n\n",
            e.code, e.reason, e.help
        ));
    }
    text
}

fn show(fault: &Fault, sources: &Sources) -> String {
    let head = format!("error[{}]: {}", fault.code, fault.reason);
    let mut when = format!("at time {} s", fault.time);
    if let Some(session) = fault.session {
        when.push_str(&format!(", session {session}"));
    }
    let mut notes = vec![when, format!("help: {}", fault.help)];
    let label = fault.place.as_ref().and_then(|place| label(place, sources));
    if label.is_none() {
        let place = fault.place.as_ref().map_or_else(|| fault.path.clone(), ToString::to_string);
        notes.insert(0, format!("in {place}"));
    }
    render_parts(&head, &label.iter().collect::<Vec<_>>(), &notes, sources)
}

/// The statement's first line, from where it begins.
fn label(place: &Place, sources: &Sources) -> Option<Label> {
    let number = sources.iter().position(|s| s.name() == place.file)?;
    let source = sources.get(number as u32)?;
    let start = source.offset(LineCol { line: place.line, column: place.column });
    let line = source.line(place.line).trim_end();
    let line_start = source.offset(LineCol { line: place.line, column: 1 });
    let end = (line_start + line.len() as u32).max(start);
    Some(Label { span: Span { source: number as u32, start, end }, text: String::new() })
}
