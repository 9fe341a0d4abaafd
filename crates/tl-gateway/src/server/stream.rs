//! A decode engine's stream of events, read with a bound on its silence.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tl_api::openai::{ChunkPart, Kind, ParsedChunk, Usage, parse_chunk};
use tl_api::sse::{Event, Parser};
use tokio::time::Instant;

/// What came of the stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Item {
    /// Output of the one choice: never empty.
    Output(Vec<ChunkPart>),
    /// It finished as it should.
    Ended,
    /// It did not; the text is for the log.
    Failed(String),
}

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, String>> + Send>>;

pub(crate) struct DecodeStream {
    kind: Kind,
    chunks: Chunks,
    parser: Parser,
    events: VecDeque<Event>,
    /// Output must have come by then.
    first_by: Option<Instant>,
    stall: Duration,
    finished: bool,
    /// The part that finishes, until the engine has said what it counted.
    last: Option<ChunkPart>,
    usage: Option<Usage>,
    /// Chunks with output.
    outputs: u64,
}

impl std::fmt::Debug for DecodeStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecodeStream").field("outputs", &self.outputs).finish_non_exhaustive()
    }
}

impl DecodeStream {
    pub(crate) fn new(
        kind: Kind,
        chunks: impl Stream<Item = Result<Bytes, String>> + Send + 'static,
        first_by: Instant,
        stall: Duration,
    ) -> DecodeStream {
        DecodeStream {
            kind,
            chunks: Box::pin(chunks),
            parser: Parser::default(),
            events: VecDeque::new(),
            first_by: Some(first_by),
            stall,
            finished: false,
            last: None,
            usage: None,
            outputs: 0,
        }
    }

    /// What the engine counted, once it has said so: at the latest with the part that finishes.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Chunks with output so far: about one per token.
    pub(crate) fn outputs(&self) -> u64 {
        self.outputs
    }

    /// Reads what follows a finished answer, which is nothing but the end of the body.
    pub(crate) async fn drain(mut self) {
        let rest = async { while self.chunks.next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
    }

    /// The next thing that matters. May be dropped between two of them without loss.
    pub(crate) async fn next(&mut self) -> Item {
        loop {
            if let Some(item) = self.take_events() {
                return item;
            }
            let now = Instant::now();
            let wait_until = self.first_by.unwrap_or(now + self.stall).min(now + self.stall);
            let chunk = match tokio::time::timeout_at(wait_until, self.chunks.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(error))) => return Item::Failed(format!("broken off: {error}")),
                Ok(None) => return Item::Failed("ended before it was finished".into()),
                Err(_) => return Item::Failed("fell silent".into()),
            };
            let mut events = Vec::new();
            if let Err(error) = self.parser.push(&chunk, &mut events) {
                return Item::Failed(error.to_string());
            }
            self.events.extend(events);
        }
    }

    /// Works off what has been read, all output of one read together.
    fn take_events(&mut self) -> Option<Item> {
        let mut output = Vec::new();
        while let Some(event) = self.events.pop_front() {
            let data = match event {
                Event::Data(data) => data,
                Event::Done if self.last.is_some() => {
                    output.extend(self.last.take());
                    self.events.push_front(Event::Done);
                    break;
                }
                Event::Done if !output.is_empty() => {
                    self.events.push_front(Event::Done);
                    break;
                }
                Event::Done if self.finished => return Some(Item::Ended),
                Event::Done => return Some(Item::Failed("said done before it finished".into())),
            };
            match parse_chunk(self.kind, &data) {
                Some(ParsedChunk::Parts { parts, usage }) => {
                    self.usage = usage.or(self.usage);
                    for part in parts.into_iter().filter(|p| p.index == 0 && has_output(p)) {
                        match part.finish {
                            Some(_) => self.last = Some(part),
                            None => output.push(part),
                        }
                    }
                    if self.usage.is_some() {
                        output.extend(self.last.take());
                    }
                }
                Some(ParsedChunk::Error(error)) => {
                    return Some(Item::Failed(format!("error event: {error}")));
                }
                None => return Some(Item::Failed("sent an event that is no chunk".into())),
            }
        }
        if output.is_empty() {
            return None;
        }
        self.first_by = None;
        self.outputs += output.len() as u64;
        self.finished |= output.iter().any(|p| p.finish.is_some());
        Some(Item::Output(output))
    }
}

fn has_output(part: &ChunkPart) -> bool {
    !part.text.is_empty()
        || part.finish.is_some()
        || part.logprobs.as_ref().is_some_and(|l| !l.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
    const TEXT: &str =
        r#"data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
    const END: &str = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    const USAGE: &str = r#"data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;

    async fn check(events: &[&str], expect: &str) {
        let text: String = events.iter().map(|e| format!("{e}\n\n")).collect();
        for piece in [1, 7, 10_000] {
            let chunks: Vec<Result<Bytes, String>> =
                text.as_bytes().chunks(piece).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
            let first_by = Instant::now() + Duration::from_secs(60);
            let chunks = futures::stream::iter(chunks);
            let mut stream =
                DecodeStream::new(Kind::Chat, chunks, first_by, Duration::from_secs(60));
            let mut seen = String::new();
            loop {
                match stream.next().await {
                    Item::Output(parts) => parts.iter().for_each(|p| {
                        seen.push_str(&p.text);
                        seen.push_str(p.finish.map_or("", |_| "|"));
                    }),
                    Item::Ended => {
                        let usage = stream.usage().map_or(0, |u| u.completion_tokens);
                        seen.push_str(&format!(" ended {usage}"));
                        break;
                    }
                    Item::Failed(why) => {
                        seen.push_str(&format!(" failed: {why}"));
                        break;
                    }
                }
            }
            assert_eq!(seen, expect, "in pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn a_stream_counts_only_when_it_is_whole() {
        check(&[HEAD, TEXT, TEXT, ": ping", END, USAGE, "data: [DONE]"], "aa| ended 2").await;
        check(&[HEAD, TEXT, END, "data: [DONE]"], "a| ended 0").await;
        check(&[HEAD, TEXT, "data: [DONE]"], "a failed: said done before it finished").await;
        check(&[HEAD, TEXT, END], "a failed: ended before it was finished").await;
        check(&[HEAD, TEXT, END, USAGE], "a| failed: ended before it was finished").await;
        check(&["data: {}"], " failed: sent an event that is no chunk").await;
        let error = r#"data: {"error":{"message":"x"}}"#;
        check(&[HEAD, error], r#" failed: error event: {"message":"x"}"#).await;
    }

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn silence_has_a_bound() {
        let begun = Instant::now();
        let by = begun + Duration::from_secs(60);
        let mut stream = DecodeStream::new(Kind::Chat, futures::stream::pending(), by, MS * 50);
        assert_eq!(stream.next().await, Item::Failed("fell silent".into()));
        assert!(begun.elapsed() >= MS * 50 && begun.elapsed() < Duration::from_secs(30));
    }

    #[tokio::test]
    async fn comments_break_silence_and_are_no_first_token() {
        let pings = futures::stream::unfold((), |()| async {
            tokio::time::sleep(MS * 5).await;
            Some((Ok(Bytes::from_static(b": ping\n\n")), ()))
        });
        let begun = Instant::now();
        let stall = Duration::from_secs(30);
        let mut stream = DecodeStream::new(Kind::Chat, pings, begun + MS * 100, stall);
        assert_eq!(stream.next().await, Item::Failed("fell silent".into()));
        assert!(begun.elapsed() >= MS * 100 && begun.elapsed() < stall);
    }
}
