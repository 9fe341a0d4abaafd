use super::*;
use proptest::prelude::*;

fn read_in_pieces(bytes: &[u8], piece: usize, limit: usize) -> Result<Vec<Event>, SseError> {
    let mut parser = Parser::new(limit);
    let mut out = Vec::new();
    for part in bytes.chunks(piece.max(1)) {
        parser.push(part, &mut out)?;
    }
    Ok(out)
}

fn check(text: &str, expect: &[&str]) {
    let expect: Vec<Event> = expect
        .iter()
        .map(|data| if *data == "[DONE]" { Event::Done } else { Event::Data((*data).into()) })
        .collect();
    for piece in 1..=text.len().max(1) {
        let got = read_in_pieces(text.as_bytes(), piece, 1000).unwrap();
        assert_eq!(got, expect, "{text:?} in pieces of {piece}");
    }
}

#[test]
fn events_are_the_same_however_the_bytes_are_cut() {
    check("data: a\n\ndata: b\n\n", &["a", "b"]);
    check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
    check("data: a\r\rdata: b\n\n", &["a", "b"]);
    check(": ping\n\ndata: a\n\n: x\n\n", &["a"]);
    check("data:a\ndata:  b\n\n", &["a\n b"]);
    check("event: x\nid: 7\ndata: a\n\n", &["a"]);
    check("data\n\n", &[""]);
    check("\n\n\n", &[]);
    check("data: {\"t\":\"grüße 🦀\"}\n\ndata: [DONE]\n\n", &["{\"t\":\"grüße 🦀\"}", "[DONE]"]);
    check("\u{feff}data: a\n\n", &["a"]);
    check("data: unfinished\n", &[]);
}

#[test]
fn what_is_written_is_read() {
    let payload = serde_json::json!({"text": "a\nb\r\nc", "n": 1});
    let mut bytes = event(&payload);
    bytes.extend(comment("one\ntwo"));
    bytes.extend(PING);
    bytes.extend(DONE);
    let got = read_in_pieces(&bytes, 3, 1000).unwrap();
    assert_eq!(got, [Event::Data(payload.to_string()), Event::Done]);
}

#[test]
fn memory_is_bounded_and_errors_stay() {
    let limit = 64;
    assert_eq!(read_in_pieces(&[b'x'; 65], 8, limit), Err(SseError::TooLong { limit }));
    let many_lines = "data: 0123456789\n".repeat(20);
    assert_eq!(read_in_pieces(many_lines.as_bytes(), 5, limit), Err(SseError::TooLong { limit }));
    let mut parser = Parser::new(limit);
    let mut out = Vec::new();
    assert_eq!(parser.push(b"data: \xff\n", &mut out), Err(SseError::NotUtf8));
    assert_eq!(parser.push(b"\ndata: a\n\n", &mut out), Err(SseError::NotUtf8));
    assert_eq!(out, []);
}

#[test]
fn an_unfinished_event_is_noticed() {
    let mut parser = Parser::default();
    let mut out = Vec::new();
    parser.push(b"data: a\n\n", &mut out).unwrap();
    assert!(parser.is_between_events());
    parser.push(b"data: b\n", &mut out).unwrap();
    assert!(!parser.is_between_events());
}

proptest! {
    /// Mutations of a real stream: never a panic, never more memory than the bound, and the
    /// result does not depend on where the bytes are cut.
    #[test]
    fn mutated_streams(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 0..12),
        piece in 1usize..40,
    ) {
        let mut bytes = b"data: {\"id\":\"x\"}\n\n: ping\n\ndata: a\r\ndata: b\r\n\r\ndata: [DONE]\n\n".to_vec();
        for (at, byte, kind) in edits {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        let whole = read_in_pieces(&bytes, bytes.len(), 200);
        let mut parser = Parser::new(200);
        let mut out = Vec::new();
        let mut result = Ok(());
        for part in bytes.chunks(piece) {
            result = parser.push(part, &mut out);
            prop_assert!(parser.line.len() + parser.data.len() <= 200);
            if result.is_err() { break; }
        }
        match whole {
            Ok(events) => { prop_assert_eq!(result, Ok(())); prop_assert_eq!(events, out); }
            Err(error) => prop_assert_eq!(result, Err(error)),
        }
    }
}
