//! A log's requests as a program's sessions.

use serq_lang::ir::{Arrival, CSession, Content, Preset, Program, version_needed};
use thiserror::Error;

use super::log::Entry;
use crate::import::Workload;

/// Answers are keyed from here on: content that is nobody else's.
const ANSWERS: u64 = 1 << 62;

/// Why a program cannot be run on a log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    #[error("no `set` of the program assigns `{0}`, which a request of a log has")]
    Attribute(&'static str),
    #[error("the trace has {trace} requests and the log {log}")]
    Count { trace: usize, log: usize },
    #[error("request {at} has {log} tokens in the log and {trace} in the trace ({what})")]
    Length { at: usize, what: &'static str, log: u64, trace: u64 },
}

/// The program with a session for each request, in order of arrival, and the entries in that order.
///
/// `prompts`, in the order of the log, says what the prompts are; without it no two share anything.
pub fn prepare(
    mut program: Program,
    log: &[Entry],
    prompts: Option<&Workload>,
) -> Result<(Program, Vec<Entry>), Mismatch> {
    let slot = |name: &'static str| {
        program.attrs.iter().position(|a| a == name).ok_or(Mismatch::Attribute(name))
    };
    let (prompt, o) = (slot("prompt")?, slot("o")?);
    let born = slot("born").ok();
    if let Some(w) = prompts
        && w.requests.len() != log.len()
    {
        return Err(Mismatch::Count { trace: w.requests.len(), log: log.len() });
    }
    let first = log.iter().map(|e| e.arrival).fold(f64::INFINITY, f64::min);
    let mut all = Vec::with_capacity(log.len());
    for (at, entry) in log.iter().enumerate() {
        let mut content = Vec::new();
        if let Some(request) = prompts.map(|w| &w.requests[at]) {
            let pairs = [
                ("prompt", entry.prompt, request.prompt.len()),
                ("answer", entry.output, request.output),
            ];
            for (what, log, trace) in pairs {
                if log != trace {
                    return Err(Mismatch::Length { at, what, log, trace });
                }
            }
            content.extend(request.prompt.segments().iter().map(|s| Content(s.key, s.len as f64)));
            content.push(Content(ANSWERS | at as u64, f64::INFINITY));
        }
        let time = entry.arrival - first;
        let mut attrs = vec![Preset(prompt, entry.prompt as f64), Preset(o, entry.output as f64)];
        attrs.extend(born.map(|slot| Preset(slot, time)));
        all.push((CSession { attrs, at: time, content, ..CSession::default() }, entry.clone()));
    }
    all.sort_by(|a, b| a.0.at.total_cmp(&b.0.at));
    let (sessions, entries) = all.into_iter().unzip();
    program.arrival = Arrival::Sessions(sessions);
    (program.limit, program.trace) = (None, None);
    program.trace_times.clear();
    program.warmup = 0.0;
    program.horizon = f64::INFINITY;
    program.version = version_needed(&program);
    Ok((program, entries))
}
