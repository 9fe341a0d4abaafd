//! One choice of an answer: from tokens to text, logprobs and a finish reason.
//!
//! A pure machine. Streaming and whole answers are driven by the same one, so they cannot differ;
//! the decode side of a hand-off feeds it the first token silently and stands exactly where the
//! prefill side stopped.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use tl_api::openai::{FinishReason, TokenLogprob, TopLogprob};
use tl_api::text::{Emit, TextStream};
use tl_engine::engine::TokenOut;
use tl_model::Tokenizer;

/// What a token, or the end, has made certain.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Out {
    pub text: String,
    /// Entries of the tokens whose text begins within what has come out; `None` when none were
    /// asked for.
    pub logprobs: Option<Vec<TokenLogprob>>,
}

impl Out {
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.logprobs.as_ref().is_none_or(Vec::is_empty)
    }
}

/// The bytes of tokens: a tokenizer, or a table in tests.
pub(crate) trait TokenBytes {
    fn token_bytes(&self, id: u32) -> &[u8];
}

impl TokenBytes for Tokenizer {
    fn token_bytes(&self, id: u32) -> &[u8] {
        Tokenizer::token_bytes(self, id)
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Choice {
    stream: TextStream,
    /// Entries whose text has not come out yet; `None` when nobody asked for any.
    waiting: Option<VecDeque<TokenLogprob>>,
    tokens: u64,
}

impl Choice {
    pub(crate) fn new(stop: &[String], logprobs: bool) -> Choice {
        Choice { stream: TextStream::new(stop), waiting: logprobs.then(VecDeque::new), tokens: 0 }
    }

    /// Takes a token that somebody else has already shown: its text up to what is certain, and its
    /// logprobs.
    pub(crate) fn silently(&mut self, id: u32, tokenizer: &dyn TokenBytes) {
        self.tokens += 1;
        self.stream.push(tokenizer.token_bytes(id));
    }

    /// Takes the next token. Once [`Choice::stopped`], further tokens change nothing.
    pub(crate) fn token(&mut self, token: &TokenOut, tokenizer: &dyn TokenBytes) -> Out {
        self.tokens += 1;
        let bytes = tokenizer.token_bytes(token.id);
        let Emit { text, stopped: _, begins } = self.stream.push(bytes);
        if let Some(waiting) = &mut self.waiting {
            let top = token.top.iter().map(|&(id, logprob)| {
                let bytes = tokenizer.token_bytes(id);
                TopLogprob {
                    token: TokenLogprob::text_of(bytes),
                    logprob,
                    bytes: Some(bytes.to_vec()),
                }
            });
            waiting.push_back(TokenLogprob {
                token: TokenLogprob::text_of(bytes),
                logprob: token.logprob,
                bytes: Some(bytes.to_vec()),
                top: top.collect(),
                text_offset: begins,
            });
        }
        let shown = self.stream.emitted_chars();
        self.out(text, shown)
    }

    /// Ends the answer: what was held back comes out, except behind a stop string.
    pub(crate) fn finish(&mut self) -> Out {
        let text = self.stream.finish();
        let shown = if self.stream.stopped() { self.stream.emitted_chars() } else { usize::MAX };
        self.out(text, shown)
    }

    /// Whether a stop string ended the answer.
    pub(crate) fn stopped(&self) -> bool {
        self.stream.stopped()
    }

    /// Tokens taken, those of a stop string included.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    fn out(&mut self, text: String, shown: usize) -> Out {
        let Some(waiting) = &mut self.waiting else { return Out { text, logprobs: None } };
        let certain = waiting.iter().take_while(|entry| entry.text_offset < shown).count();
        let entries = waiting.drain(..certain).collect();
        Out { text, logprobs: Some(entries) }
    }
}

/// The wire's word for how an engine ended a request.
pub(crate) fn finish_reason(reason: tl_engine::engine::Finish) -> FinishReason {
    match reason {
        tl_engine::engine::Finish::Stop => FinishReason::Stop,
        tl_engine::engine::Finish::Length => FinishReason::Length,
    }
}
