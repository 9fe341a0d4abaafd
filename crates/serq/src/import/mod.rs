//! Recorded traffic of others as a workload: when requests come, how long they are, and what their
//! prompts share.
//!
//! Two shapes are read: the CSV of Azure's inference traces (time stamp, prompt and answer tokens), and the
//! JSON lines of Mooncake's, which many tools write (also LLMServingSim's runs and Dynamo's samples): they
//! give each block of a prompt an id that stands for the block and everything before it. These ids become
//! the segments of a [`Chain`], so a workload drives the prefix cache that requests share.

mod azure;
mod lines;
mod mooncake;
mod recorded;

#[cfg(test)]
mod tests;

use std::path::Path;

use serq_sim::content::Chain;
use thiserror::Error;

pub use recorded::Recorded;

/// Requests in the order in which they come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    pub requests: Vec<Arrival>,
    /// Tokens in a block of the file's prompts, if it tells blocks.
    pub block: Option<u32>,
    /// Lines of the file that stood after a later one.
    pub reordered: usize,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Seconds after the file's first request.
    pub at: f64,
    /// What its prompt is. Without block ids in the file it shares nothing with any other.
    pub prompt: Chain,
    /// Tokens it produces.
    pub output: u64,
    /// Line of the file, from 1.
    pub line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CSV with the columns `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`.
    Azure,
    /// JSON lines with `timestamp` (milliseconds), `input_length`, `output_length`, `hash_ids`.
    Mooncake,
}

/// What the reader cannot know from the file, or should not follow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Told from the first line if not given.
    pub format: Option<Format>,
    /// Tokens in a block of `hash_ids`; told from the lengths if they leave no doubt.
    pub block: Option<u32>,
    /// Requests come this many times as fast.
    pub rate_scale: Option<f64>,
}

/// A file that cannot be read.
#[derive(Debug, Error)]
#[error("{file}{}: {what}", at_line(*line))]
pub struct ImportError {
    /// As it was named.
    pub file: String,
    /// From 1; `None` if it is about the whole file.
    pub line: Option<usize>,
    pub what: String,
}

fn at_line(line: Option<usize>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}

/// What is wrong, and in which line.
type Wrong = (Option<usize>, String);

/// Content that is nobody else's is keyed from here on.
const OWN: u64 = 1 << 63;

/// The key of what only the request of a line has.
fn own_key(line: usize) -> u64 {
    OWN | line as u64
}

/// Reads a file.
pub fn read(path: &Path, options: &Options) -> Result<Workload, ImportError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&file, &text, options),
        Err(error) => Err(ImportError { file, line: None, what: error.to_string() }),
    }
}

/// Reads the text of a file, called `file` in errors.
pub fn parse(file: &str, text: &str, options: &Options) -> Result<Workload, ImportError> {
    let workload = match options.format.unwrap_or_else(|| Format::of(text)) {
        Format::Azure => azure::parse(text),
        Format::Mooncake => mooncake::parse(text, options.block),
    };
    let scaled = workload.and_then(|workload| {
        let mut workload = in_order(workload);
        workload.scale_rate(options.rate_scale.unwrap_or(1.0)).map_err(|what| (None, what))?;
        Ok(workload)
    });
    scaled.map_err(|(line, what)| ImportError { file: file.to_owned(), line, what })
}

impl Format {
    /// JSON lines begin with a brace.
    fn of(text: &str) -> Format {
        if text.trim_start().starts_with('{') { Format::Mooncake } else { Format::Azure }
    }
}

impl Workload {
    /// Makes requests come `factor` times as fast; their lengths and order stay.
    pub fn scale_rate(&mut self, factor: f64) -> Result<(), String> {
        if !(factor.is_finite() && factor > 0.0) {
            return Err(format!("a rate scale of {factor}: give a positive number"));
        }
        for request in &mut self.requests {
            request.at /= factor;
        }
        Ok(())
    }

    /// Seconds from the first request to the last.
    pub fn span(&self) -> f64 {
        self.requests.last().map_or(0.0, |r| r.at)
    }
}

/// By time, lines of one time as they stand, the first at 0.
fn in_order(mut workload: Workload) -> Workload {
    let mut latest = f64::NEG_INFINITY;
    for request in &workload.requests {
        workload.reordered += usize::from(request.at < latest);
        latest = latest.max(request.at);
    }
    workload.requests.sort_by(|a, b| a.at.total_cmp(&b.at));
    let first = workload.requests.first().map_or(0.0, |r| r.at);
    for request in &mut workload.requests {
        request.at -= first;
    }
    workload
}
