//! JSON lines with block ids. An id stands for one block of a prompt and everything before it, so equal
//! ids are equal prefixes, whatever they were computed from.

use serde::Deserialize;
use serq_sim::content::{Chain, Segment};

use super::lines::{numbered, some, tokens};
use super::{Arrival, OWN, Workload, Wrong, own_key};

/// A line. Other fields are none of ours.
#[derive(Deserialize)]
struct Row {
    /// Milliseconds.
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

pub(super) fn parse(text: &str, block: Option<u32>) -> Result<Workload, Wrong> {
    if block == Some(0) {
        return Err((None, "a block of 0 tokens: give at least 1".to_owned()));
    }
    let mut rows = Vec::new();
    for (line, text) in numbered(text) {
        let row: Row = serde_json::from_str(text).map_err(|e| (Some(line), shape(&e)))?;
        if !row.timestamp.is_finite() || row.timestamp < 0.0 {
            return Err((Some(line), format!("`timestamp` is {}", row.timestamp)));
        }
        tokens(line, "input_length", row.input_length)?;
        tokens(line, "output_length", row.output_length)?;
        if let Some(id) = row.hash_ids.iter().find(|&&id| id >= OWN) {
            return Err((Some(line), format!("the block id {id} is 2^63 or more")));
        }
        rows.push((line, row));
    }
    let rows = some(rows)?;
    let told = rows.iter().any(|(_, row)| !row.hash_ids.is_empty());
    let block = match block {
        _ if !told => None,
        Some(block) => Some(given(&rows, block)?),
        None => Some(inferred(&rows)?),
    };
    let requests = rows.iter().map(|(line, row)| Arrival {
        at: row.timestamp / 1000.0,
        prompt: prompt(*line, row, block),
        output: row.output_length,
        line: *line,
    });
    Ok(Workload { requests: requests.collect(), block, reordered: 0 })
}

/// The parser's words, without its line number, which is always 1.
fn shape(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    format!("{}, column {}", &text[..end], error.column())
}

/// Whether a prompt has so many blocks: some writers count a last one that is not full, some do not.
fn fits(row: &Row, block: u32) -> bool {
    let (block, ids) = (u64::from(block), row.hash_ids.len() as u64);
    ids == row.input_length / block || ids == row.input_length.div_ceil(block)
}

fn given(rows: &[(usize, Row)], block: u32) -> Result<u32, Wrong> {
    match rows.iter().find(|(_, row)| !fits(row, block)) {
        None => Ok(block),
        Some((line, row)) => {
            let what = "block ids for a prompt of";
            let (ids, n) = (row.hash_ids.len(), row.input_length);
            Err((
                Some(*line),
                format!("{ids} {what} {n} tokens; blocks of {block} give another number"),
            ))
        }
    }
}

/// The power of two that explains every line.
fn inferred(rows: &[(usize, Row)]) -> Result<u32, Wrong> {
    let mut possible: Vec<u32> = (0..20).map(|bits| 1 << bits).collect();
    for (line, row) in rows {
        possible.retain(|&block| fits(row, block));
        if possible.is_empty() {
            let what = "no block size explains the number of block ids up to here; give one";
            return Err((Some(*line), what.to_owned()));
        }
    }
    match possible[..] {
        [block] => Ok(block),
        _ => {
            let sizes: Vec<String> = possible.iter().map(u32::to_string).collect();
            let what = format!("blocks could have {} tokens: give the size", sizes.join(" or "));
            Err((None, what))
        }
    }
}

/// A segment for each id; what no id covers is the request's own.
fn prompt(line: usize, row: &Row, block: Option<u32>) -> Chain {
    let mut chain = Chain::default();
    for &key in &row.hash_ids {
        let block = u64::from(block.unwrap_or(1));
        chain.push(Segment { key, len: block.min(row.input_length - chain.len()) });
    }
    chain.push(Segment { key: own_key(line), len: row.input_length - chain.len() });
    chain
}
