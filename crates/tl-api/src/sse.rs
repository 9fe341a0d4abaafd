//! Server-sent events: writing them, and reading them from bytes cut anywhere.
//!
//! The reader keeps the unfinished event and nothing else; an event longer than its bound
//! is an error, so that a peer can not make it grow. It follows the living standard for line
//! ends (LF, CRLF, CR), comments, the optional space after the colon and several `data`
//! lines; `event`, `id` and `retry` are skipped, since nobody here sends them.

use serde_json::Value;

/// `content-type` of a stream.
pub const CONTENT_TYPE: &str = "text/event-stream";
/// What keeps an idle stream open.
pub const PING: &[u8] = b": ping\n\n";
/// What ends a complete stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";
/// Default bound of one event, in bytes.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// One event with a JSON payload.
pub fn event(payload: &Value) -> Vec<u8> {
    format!("data: {payload}\n\n").into_bytes()
}

/// A comment: readers skip it. Line ends in `text` become spaces.
pub fn comment(text: &str) -> Vec<u8> {
    format!(": {}\n\n", text.replace(['\r', '\n'], " ")).into_bytes()
}

/// What a stream carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The joined `data` lines.
    Data(String),
    /// `data: [DONE]`.
    Done,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// One event exceeds the reader's bound.
    #[error("an event is longer than {limit} bytes")]
    TooLong { limit: usize },
    /// A line is not UTF-8.
    #[error("a line is not utf-8")]
    NotUtf8,
}

/// Incremental reader. After an error it stays in error.
#[derive(Debug)]
pub struct Parser {
    line: Vec<u8>,
    data: String,
    has_data: bool,
    after_cr: bool,
    first_line: bool,
    limit: usize,
    failed: Option<SseError>,
}

impl Default for Parser {
    fn default() -> Parser {
        Parser::new(MAX_EVENT_BYTES)
    }
}

impl Parser {
    /// A reader that holds at most `limit` bytes of an unfinished event.
    pub fn new(limit: usize) -> Parser {
        Parser {
            line: Vec::new(),
            data: String::new(),
            has_data: false,
            after_cr: false,
            first_line: true,
            limit,
            failed: None,
        }
    }

    /// Takes the next bytes of the stream and appends the events they complete to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<Event>) -> Result<(), SseError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance(bytes, out);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Whether the bytes so far end between two events.
    pub fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.has_data
    }

    fn advance(&mut self, mut bytes: &[u8], out: &mut Vec<Event>) -> Result<(), SseError> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                return self.keep(bytes);
            };
            self.keep(&bytes[..end])?;
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.take_line(&line, out)?;
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + self.data.len() + bytes.len() > self.limit {
            return Err(SseError::TooLong { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], out: &mut Vec<Event>) -> Result<(), SseError> {
        let mut line = std::str::from_utf8(line).map_err(|_| SseError::NotUtf8)?;
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                let data = std::mem::take(&mut self.data);
                out.push(if data == "[DONE]" { Event::Done } else { Event::Data(data) });
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field == "data" {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push('\n');
            }
            self.data.push_str(value.strip_prefix(' ').unwrap_or(value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
