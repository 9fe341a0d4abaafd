//! The log of a run.

use std::path::Path;

use serde::Deserialize;

/// A request as it was served. Times are seconds; those of arrival are of another clock than the others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Entry {
    #[serde(rename = "input_toks")]
    pub prompt: u64,
    #[serde(rename = "output_toks")]
    pub output: u64,
    /// When the client sent it.
    #[serde(rename = "arrival_time")]
    pub arrival: f64,
    /// When the engine put it into its queue.
    #[serde(rename = "queued_ts")]
    pub queued: f64,
    #[serde(rename = "first_token_ts")]
    pub first: f64,
    #[serde(rename = "last_token_ts")]
    pub last: f64,
}

impl Entry {
    /// Seconds to the first token, from the queue on.
    pub fn ttft(&self) -> f64 {
        self.first - self.queued
    }

    /// Seconds for a token after the first; not a number for a single token.
    pub fn tpot(&self) -> f64 {
        if self.output > 1 { (self.last - self.first) / (self.output - 1) as f64 } else { f64::NAN }
    }

    /// Seconds to the last token, from the queue on.
    pub fn e2e(&self) -> f64 {
        self.last - self.queued
    }
}

/// Reads a log. Errors are texts with file and line.
pub fn read(path: &Path) -> Result<Vec<Entry>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
    parse(&name.to_string(), &text)
}

pub(super) fn parse(name: &str, text: &str) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let wrong = |what: String| format!("{name}, line {}: {what}", at + 1);
        let entry: Entry = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
        let times = [entry.arrival, entry.queued, entry.first, entry.last];
        if times.iter().any(|t| !t.is_finite())
            || entry.queued > entry.first
            || entry.first > entry.last
        {
            return Err(wrong(
                "the times are not in the order queued, first token, last token".into(),
            ));
        }
        if entry.prompt == 0 || entry.output == 0 {
            return Err(wrong("a request without a prompt or without an answer".into()));
        }
        entries.push(entry);
    }
    if entries.is_empty() {
        return Err(format!("{name} has no requests"));
    }
    Ok(entries)
}
