//! Pieces to bytes: a whole answer, or a stream of server-sent events.
//!
//! A stream opens once the engine has admitted the request, so that every refusal (queue full, no
//! blocks in time) is a status line. What fails later is one error event, and no `[DONE]`: a client
//! that sees `[DONE]` has the whole answer.

use crate::choice::Out;
use crate::errors::of_engine;
use crate::meter::RequestMeter;
use crate::sequence::{Piece, Pieces};
use axum::body::Body;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use std::convert::Infallible;
use std::time::Duration;
use tl_api::error::ApiError;
use tl_api::openai::{Choice, Delta, FinishReason, Head, Kind, TokenLogprob, Usage};
use tl_api::sse;

/// Events that are ready are sent together, up to so many pieces.
const BATCH: usize = 32;

/// What all choices of an answer count together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    usage: Usage,
}

impl Counts {
    pub(crate) fn new(prompt_tokens: usize) -> Counts {
        Counts {
            usage: Usage {
                prompt_tokens: prompt_tokens as u64,
                completion_tokens: 0,
                cached_tokens: 0,
            },
        }
    }

    /// Choice 0 speaks for the prompt: later choices find it in the cache because the first one
    /// computed it.
    fn admitted(&mut self, index: u32, cached: u64) {
        if index == 0 {
            self.usage.cached_tokens = cached.min(self.usage.prompt_tokens);
        }
    }
}

#[derive(Debug, Default)]
struct Collected {
    text: String,
    logprobs: Option<Vec<TokenLogprob>>,
    finish: Option<FinishReason>,
}

impl Collected {
    fn add(&mut self, out: Out) {
        self.text.push_str(&out.text);
        if let Some(entries) = out.logprobs {
            self.logprobs.get_or_insert_default().extend(entries);
        }
    }
}

/// Runs every choice to its end. The first failure fails the answer.
pub(crate) async fn whole(
    mut pieces: Pieces,
    n: u32,
    mut counts: Counts,
    meter: &mut RequestMeter,
) -> Result<(Vec<Choice>, Usage), ApiError> {
    let mut collected: Vec<Collected> = (0..n).map(|_| Collected::default()).collect();
    while let Some((index, piece)) = pieces.next().await {
        let Some(choice) = collected.get_mut(index as usize) else { continue };
        match piece {
            Piece::Admitted { cached } => counts.admitted(index, cached),
            Piece::Token(out) => {
                meter.token();
                choice.add(out);
            }
            Piece::End { out, finish, tokens, token } => {
                if token {
                    meter.token();
                }
                counts.usage.completion_tokens += tokens;
                choice.add(out);
                choice.finish = Some(finish);
            }
            Piece::Failed(error) => return Err(of_engine(&error)),
        }
    }
    let choices = collected.into_iter().zip(0..).map(|(c, index)| {
        let finish = c.finish.ok_or_else(|| ApiError::internal("the answer ended early"))?;
        Ok(Choice { index, text: c.text, logprobs: c.logprobs, finish })
    });
    Ok((choices.collect::<Result<_, ApiError>>()?, counts.usage))
}

/// Everything a stream of events owns: dropped with the response body, it cancels what still runs.
pub(crate) struct Events {
    head: Head,
    pieces: Pieces,
    /// The first piece, taken before the stream was opened.
    first: Option<(u32, Piece)>,
    /// Events that are written and not sent.
    ready: Vec<u8>,
    counts: Counts,
    include_usage: bool,
    ping: Duration,
    over: bool,
    meter: RequestMeter,
}

impl Events {
    /// Waits until the engine has taken the request up. An error now is a status line.
    pub(crate) async fn open(
        head: Head,
        mut pieces: Pieces,
        counts: Counts,
        include_usage: bool,
        ping: Duration,
        mut meter: RequestMeter,
    ) -> Result<Events, ApiError> {
        let first = match pieces.next().await {
            Some((_, Piece::Failed(error))) => {
                let error = of_engine(&error);
                meter.failed(crate::errors::code(&error));
                return Err(error);
            }
            first => first,
        };
        let ready = Vec::new();
        Ok(Events { head, pieces, first, ready, counts, include_usage, ping, over: false, meter })
    }

    pub(crate) fn into_body(self) -> Body {
        Body::from_stream(futures::stream::unfold(self, |mut events| async move {
            let bytes = events.next().await?;
            Some((Ok::<Bytes, Infallible>(bytes), events))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            if self.over {
                return None;
            }
            if let Some((index, piece)) = self.first.take() {
                self.take(index, piece);
                continue;
            }
            match tokio::time::timeout(self.ping, self.pieces.next()).await {
                Err(_idle) => return Some(Bytes::from_static(sse::PING)),
                Ok(Some((index, piece))) => {
                    self.take(index, piece);
                    self.take_ready();
                }
                Ok(None) => self.finish(),
            }
        }
        Some(Bytes::from(std::mem::take(&mut self.ready)))
    }

    /// Takes what has come meanwhile, so that a slow reader gets fewer, larger writes.
    fn take_ready(&mut self) {
        for _ in 1..BATCH {
            match self.pieces.next().now_or_never() {
                Some(Some((index, piece))) if !self.over => self.take(index, piece),
                Some(None) if !self.over => return self.finish(),
                _ => return,
            }
        }
    }

    fn take(&mut self, index: u32, piece: Piece) {
        match piece {
            Piece::Admitted { cached } => {
                self.counts.admitted(index, cached);
                if self.head.kind() == Kind::Chat {
                    self.send(&Delta { index, opens: true, ..Delta::default() });
                }
            }
            Piece::Token(out) => {
                self.meter.token();
                if !out.is_empty() {
                    self.send(&delta(index, out, None));
                }
            }
            Piece::End { out, finish, tokens, token } => {
                if token {
                    self.meter.token();
                }
                self.counts.usage.completion_tokens += tokens;
                self.send(&delta(index, out, Some(finish)));
            }
            Piece::Failed(error) => {
                let error = of_engine(&error);
                self.meter.failed(crate::errors::code(&error));
                self.ready.extend(sse::event(&error.body()));
                self.over = true;
                // The other choices have no stream left to be sent on.
                self.pieces.clear();
            }
        }
    }

    fn finish(&mut self) {
        if self.include_usage {
            self.ready.extend(sse::event(&self.head.usage_chunk(self.counts.usage)));
        }
        self.ready.extend(sse::DONE);
        self.meter.done(self.counts.usage);
        self.over = true;
    }

    fn send(&mut self, delta: &Delta) {
        self.ready.extend(sse::event(&self.head.chunk(delta)));
    }
}

fn delta(index: u32, out: Out, finish: Option<FinishReason>) -> Delta {
    let Out { text, logprobs } = out;
    // An empty list in the last chunk would say "no tokens" where there is nothing to say.
    let logprobs = logprobs.filter(|entries| !entries.is_empty());
    Delta { index, opens: false, text, logprobs, finish }
}
