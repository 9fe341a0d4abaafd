//! W3C trace context: the name under which one request is found in the logs of every process it
//! passed.
//!
//! The header is read strictly, since its text goes into logs and to peers: what is not well formed
//! begins a new trace, as the recommendation asks. Spans are not exported; a process draws a span id
//! of its own so that a log line says whose part of the trace it is.

use std::fmt;

use http::HeaderMap;

use crate::headers::TRACEPARENT;

/// A place in a trace. Its text is the value of `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// Never 0.
    trace_id: u128,
    /// Never 0.
    span_id: u64,
    flags: u8,
}

impl Trace {
    /// `None` unless `text` is a `traceparent` of version 00, or of a later one that begins like it.
    pub fn parse(text: &str) -> Option<Trace> {
        let mut parts = text.split('-');
        let mut hex = |digits: usize| {
            let part = parts.next()?;
            let lower = part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            if part.len() == digits && lower { u128::from_str_radix(part, 16).ok() } else { None }
        };
        let (version, trace_id) = (hex(2)?, hex(32)?);
        let (span_id, flags) = (u64::try_from(hex(16)?).ok()?, u8::try_from(hex(2)?).ok()?);
        let more = parts.next().is_some();
        let known = version != 0xff && !(version == 0 && more);
        (known && trace_id != 0 && span_id != 0).then_some(Trace { trace_id, span_id, flags })
    }

    /// Where the sender of these headers stands.
    pub fn of(headers: &HeaderMap) -> Option<Trace> {
        Trace::parse(headers.get(TRACEPARENT)?.to_str().ok()?)
    }

    /// A trace that begins here. It is not marked as recorded.
    pub fn begin() -> Result<Trace, getrandom::Error> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes)?;
        let trace_id = u128::from_le_bytes(bytes).max(1);
        Ok(Trace { trace_id, span_id: getrandom::u64()?.max(1), flags: 0 })
    }

    /// Our part of the sender's trace, or of a new one; `None` only without randomness.
    pub fn continued(from: Option<Trace>) -> Option<Trace> {
        match from {
            None => Trace::begin().ok(),
            Some(Trace { trace_id, span_id: _, flags }) => {
                Some(Trace { trace_id, span_id: getrandom::u64().ok()?.max(1), flags })
            }
        }
    }

    /// Thirty-two lower-case hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    /// Sixteen lower-case hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span_id)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trace { trace_id, span_id, flags } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn well_formed_and_nothing_else_is_read() {
        let check = |text: &str, ok: bool| assert_eq!(Trace::parse(text).is_some(), ok, "{text}");
        check(SAMPLE, true);
        check(&SAMPLE.replacen("00", "01", 1), true);
        check(&format!("{}-more", SAMPLE.replacen("00", "01", 1)), true);
        check(&format!("{SAMPLE}-more"), false);
        check(&SAMPLE.replacen("00", "ff", 1), false);
        check(&SAMPLE.to_uppercase(), false);
        check("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false);
        check("00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", false);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736-+0f067aa0ba902b7-01", false);
        check("00-4bf92f3577b34da6a3ce929d0e0e4736", false);
        check("", false);
    }

    #[test]
    fn a_hop_keeps_the_trace_and_draws_a_span() {
        let from = Trace::parse(SAMPLE).unwrap();
        assert_eq!(from.to_string(), SAMPLE);
        let here = Trace::continued(Some(from)).unwrap();
        assert_eq!((here.trace_id, here.flags), (from.trace_id, from.flags));
        assert_ne!(here.span_id, from.span_id);
        assert_eq!(Trace::parse(&here.to_string()), Some(here));
        let new = Trace::continued(None).unwrap();
        assert_ne!(new.trace_id, from.trace_id);
        assert_eq!(Trace::parse(&new.to_string()), Some(new));
    }
}
