//! What both readers need: lines with their numbers, and amounts that are amounts.

use super::Wrong;

/// More tokens than any prompt or answer has.
const MOST: u64 = 1 << 32;

/// Lines that say something, numbered from 1, without the byte-order mark some tools write.
pub(super) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    (1..).zip(text.lines()).map(|(n, line)| (n, line.trim())).filter(|(_, line)| !line.is_empty())
}

/// A positive number of tokens.
pub(super) fn tokens(line: usize, name: &str, value: u64) -> Result<u64, Wrong> {
    match value {
        0 => Err((
            Some(line),
            format!("`{name}` is 0: a request has at least one token; leave it out"),
        )),
        n if n > MOST => Err((Some(line), format!("`{name}` is {n}, more than {MOST} tokens"))),
        n => Ok(n),
    }
}

/// A file must have a request.
pub(super) fn some<T>(requests: Vec<T>) -> Result<Vec<T>, Wrong> {
    if requests.is_empty() { Err((None, "no request in it".to_owned())) } else { Ok(requests) }
}
