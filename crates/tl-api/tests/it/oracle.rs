//! What must hold for any bytes. Run on a fixed number of inputs by `mutation`, and open-endedly by
//! the fuzz targets.

use tl_api::config::RuntimeConfig;
use tl_api::openai::{Generate, Internal, Kind, ParsedChunk, Tokenize, parse_chunk};
use tl_api::sse::{Event, Parser};
use tl_api::text::TextStream;

/// A request body is refused with a client's error, or what was read of it is sent on and read back
/// without a loss.
pub fn body(data: &[u8]) {
    for kind in [Kind::Chat, Kind::Completion] {
        for internal in [Internal::Ignored, Internal::Honoured] {
            match Generate::parse(kind, data, internal) {
                Ok(request) => {
                    let sent = request.to_body().to_string();
                    let read = Generate::parse(kind, sent.as_bytes(), Internal::Honoured);
                    assert_eq!(read.as_ref(), Ok(&request), "{sent}");
                    if let Some(question) = Tokenize::of(&request) {
                        let sent = question.to_body().to_string();
                        assert_eq!(Tokenize::parse(sent.as_bytes()), Ok(question));
                    }
                }
                Err(error) => {
                    assert!(error.status.is_client_error(), "{error}");
                    assert!(!error.message.is_empty() && error.message.len() < 4096, "{error}");
                }
            }
        }
    }
    let _ = Tokenize::parse(data);
}

/// A stream gives the same events however it is cut, within its bound, and its events are chunks or
/// are refused.
pub fn stream(data: &[u8]) {
    const LIMIT: usize = 512;
    let read = |sizes: &mut dyn FnMut() -> usize| {
        let mut parser = Parser::new(LIMIT);
        let (mut events, mut rest) = (Vec::new(), data);
        let mut result = Ok(());
        while !rest.is_empty() && result.is_ok() {
            let (now, later) = rest.split_at(sizes().clamp(1, rest.len()));
            result = parser.push(now, &mut events);
            rest = later;
        }
        if result.is_err() {
            assert_eq!(parser.push(b"data: x\n\n", &mut Vec::new()), result, "an error stays");
        }
        (events, result)
    };
    let whole = read(&mut || usize::MAX);
    let mut turn = 0;
    let cut = read(&mut || {
        turn += 1;
        usize::from(data.get(turn).copied().unwrap_or(0) % 9)
    });
    assert_eq!(whole, cut);
    for event in &whole.0 {
        let Event::Data(data) = event else { continue };
        assert!(data.len() <= LIMIT, "an event beyond its bound");
        for kind in [Kind::Chat, Kind::Completion] {
            if let Some(ParsedChunk::Error(text)) = parse_chunk(kind, data) {
                assert!(text.chars().count() <= 300);
            }
        }
    }
}

/// Tokens of any bytes, under stop strings cut from them: what comes out is the text up to the stop.
pub fn text(data: &[u8]) {
    let (&first, data) = data.split_first().unwrap_or((&0, data));
    let stop = String::from_utf8_lossy(&data[data.len() / 2..]);
    let stop: String = stop.chars().take(usize::from(first % 5)).collect();
    let mut stream = TextStream::new([&stop]);
    let mut seen = String::new();
    for piece in data.chunks(1 + usize::from(first / 5 % 6)) {
        seen.push_str(&stream.push(piece).text);
    }
    seen.push_str(&stream.finish());
    let all = String::from_utf8_lossy(data);
    let expect = if stop.is_empty() { &all } else { all.split(&stop).next().unwrap_or_default() };
    assert_eq!(seen, expect, "stop {stop:?}");
    assert_eq!(seen.chars().count(), stream.emitted_chars());
}

/// A configuration is read, or refused with words for whoever has to change it. `path` is written.
pub fn config(data: &[u8], path: &std::path::Path) {
    let text = String::from_utf8_lossy(data);
    // Lines of the form NAME=VALUE after the first empty line are the environment.
    let (file, env) = text.split_once("\n\n").unwrap_or((&text, ""));
    let env = env.lines().filter_map(|line| line.split_once('='));
    let env: Vec<(String, String)> =
        env.map(|(name, value)| (format!("TL_{name}"), value.to_owned())).collect();
    std::fs::write(path, file).expect("a file of our own");
    match RuntimeConfig::load_with(Some(path), env) {
        Ok(config) => {
            let _ = config.check_engine();
            let _ = config.check_gateway();
        }
        Err(error) => {
            assert!(!error.problems.is_empty());
            assert!(error.problems.iter().all(|p| !p.reason.is_empty() && !p.source.is_empty()));
            assert!(!error.to_string().is_empty());
        }
    }
}
