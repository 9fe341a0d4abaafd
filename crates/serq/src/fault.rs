//! Errors of a run, shown where in the program they happened.

use std::path::Path;

use serq_lang::diag::{Label, render_parts};
use serq_lang::ir::Place;
use serq_lang::source::{LineCol, Sources, Span};
use serq_sim::{Fault, RunError};

use crate::load::ir_errors;
use crate::out::Failure;

/// The failure a run's error is.
pub(crate) fn failure(error: &RunError, file: &Path, sources: &Sources) -> Failure {
    match error {
        RunError::Invalid(errors) => {
            Failure::program(ir_errors(&file.display().to_string(), errors))
        }
        RunError::Options(text) => Failure::usage(format!("error: {text}")),
        RunError::Stopped(time) => Failure::program(format!("stopped at time {time}")),
        RunError::Fault(fault) => Failure::program(show(fault, sources)),
    }
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
