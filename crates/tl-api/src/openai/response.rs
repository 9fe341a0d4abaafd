//! Answers: whole, streamed, and the model list. Both servers build them here only.

use serde_json::{Value, json};

use super::request::Kind;
use crate::headers::random_hex;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
}

impl FinishReason {
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::ContentFilter => "content_filter",
        }
    }

    /// `None` for a text that is none of the four.
    pub fn parse(text: &str) -> Option<FinishReason> {
        match text {
            "stop" => Some(FinishReason::Stop),
            "length" => Some(FinishReason::Length),
            "tool_calls" => Some(FinishReason::ToolCalls),
            "content_filter" => Some(FinishReason::ContentFilter),
            _ => None,
        }
    }
}

/// An alternative at one position.
#[derive(Debug, Clone, PartialEq)]
pub struct TopLogprob {
    pub token: String,
    /// Natural logarithm of the probability.
    pub logprob: f64,
    /// The token's bytes; `None` when not known.
    pub bytes: Option<Vec<u8>>,
}

/// A generated token with its logprob and alternatives.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    pub token: String,
    pub logprob: f64,
    pub bytes: Option<Vec<u8>>,
    pub top: Vec<TopLogprob>,
    /// Where in the answer's text, in characters, the token begins. Tokens that share a character
    /// all begin with it. Only text completions report it; 0 where it is not known.
    pub text_offset: usize,
}

impl TokenLogprob {
    /// A token as text: its bytes, with U+FFFD where they are no UTF-8.
    pub fn text_of(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Of the prompt's tokens, those a prefix cache held; at most `prompt_tokens`.
    pub cached_tokens: u64,
}

impl Usage {
    pub fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        })
    }
}

/// What one chunk adds to one choice.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delta {
    pub index: u32,
    /// Opens the choice: a chat chunk says the role. Ignored for text completions.
    pub opens: bool,
    pub text: String,
    /// `None` when the request asked for no logprobs.
    pub logprobs: Option<Vec<TokenLogprob>>,
    pub finish: Option<FinishReason>,
}

/// One choice of a whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub index: u32,
    pub text: String,
    pub logprobs: Option<Vec<TokenLogprob>>,
    pub finish: FinishReason,
}

/// What all chunks of one answer share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    kind: Kind,
    /// `chatcmpl-` or `cmpl-` and sixteen hexadecimal digits.
    pub id: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// As the client named it.
    pub model: String,
}

impl Head {
    /// Draws the id.
    pub fn new(kind: Kind, model: &str, created: u64) -> Result<Head, getrandom::Error> {
        let prefix = match kind {
            Kind::Chat => "chatcmpl-",
            Kind::Completion => "cmpl-",
        };
        let id = format!("{prefix}{}", random_hex::<8>()?);
        Ok(Head { kind, id, created, model: model.to_owned() })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn object(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn chunk_object(&self) -> &'static str {
        match self.kind {
            Kind::Chat => "chat.completion.chunk",
            Kind::Completion => "text_completion",
        }
    }

    /// One chunk of a stream.
    pub fn chunk(&self, delta: &Delta) -> Value {
        let finish = delta.finish.map(FinishReason::as_str);
        let choice = match self.kind {
            Kind::Chat => {
                let mut inner = serde_json::Map::new();
                if delta.opens {
                    inner.insert("role".into(), json!("assistant"));
                }
                if delta.opens || !delta.text.is_empty() {
                    inner.insert("content".into(), json!(delta.text));
                }
                json!({
                    "index": delta.index,
                    "delta": inner,
                    "logprobs": delta.logprobs.as_deref().map(chat_logprobs),
                    "finish_reason": finish,
                })
            }
            Kind::Completion => json!({
                "index": delta.index,
                "text": delta.text,
                "logprobs": delta.logprobs.as_deref().map(text_logprobs),
                "finish_reason": finish,
            }),
        };
        self.object(self.chunk_object(), json!([choice]))
    }

    /// The chunk with `choices: []` that ends a stream whose client asked for usage.
    pub fn usage_chunk(&self, usage: Usage) -> Value {
        let mut chunk = self.object(self.chunk_object(), json!([]));
        chunk["usage"] = usage.to_json();
        chunk
    }

    /// A whole answer. `seed` is the request's or the one drawn for it; see [`draw_seed`].
    pub fn answer(&self, choices: &[Choice], usage: Usage, seed: u64) -> Value {
        let choices: Value = choices.iter().map(|c| self.choice(c)).collect();
        let object = match self.kind {
            Kind::Chat => "chat.completion",
            Kind::Completion => "text_completion",
        };
        let mut answer = self.object(object, choices);
        answer["usage"] = usage.to_json();
        answer["seed"] = seed.into();
        answer
    }

    fn choice(&self, choice: &Choice) -> Value {
        let finish = choice.finish.as_str();
        match self.kind {
            Kind::Chat => json!({
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text},
                "logprobs": choice.logprobs.as_deref().map(chat_logprobs),
                "finish_reason": finish,
            }),
            Kind::Completion => json!({
                "index": choice.index,
                "text": choice.text,
                "logprobs": choice.logprobs.as_deref().map(text_logprobs),
                "finish_reason": finish,
            }),
        }
    }
}

/// Drawn seeds stay exact in every JSON reader: integers below 2^53.
const DRAWN_SEED_BITS: u32 = 53;

/// A seed for a request that named none.
pub fn draw_seed() -> Result<u64, getrandom::Error> {
    Ok(getrandom::u64()? >> (64 - DRAWN_SEED_BITS))
}

/// Stands for minus infinity, which json cannot say.
const NEVER: f64 = -9999.0;

fn finite(logprob: f64) -> f64 {
    if logprob.is_finite() { logprob } else { NEVER }
}

fn chat_logprobs(tokens: &[TokenLogprob]) -> Value {
    let content: Value = tokens
        .iter()
        .map(|t| {
            let top: Value = t
                .top
                .iter()
                .map(|a| json!({"token": a.token, "logprob": finite(a.logprob), "bytes": a.bytes}))
                .collect();
            json!({
                "token": t.token,
                "logprob": finite(t.logprob),
                "bytes": t.bytes,
                "top_logprobs": top,
            })
        })
        .collect();
    json!({"content": content})
}

fn text_logprobs(tokens: &[TokenLogprob]) -> Value {
    let tops: Value = tokens
        .iter()
        .map(|t| {
            let mut map = serde_json::Map::new();
            for a in &t.top {
                // Two alternatives with one text: the likelier, which comes first, stays.
                map.entry(a.token.clone()).or_insert_with(|| json!(finite(a.logprob)));
            }
            Value::Object(map)
        })
        .collect();
    json!({
        "tokens": tokens.iter().map(|t| &t.token).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|t| finite(t.logprob)).collect::<Vec<_>>(),
        "top_logprobs": tops,
        "text_offset": tokens.iter().map(|t| t.text_offset).collect::<Vec<_>>(),
    })
}

/// One entry of the model list, also the answer of `GET /v1/models/{id}`.
pub fn model_object(id: &str, created: u64) -> Value {
    json!({"id": id, "object": "model", "created": created, "owned_by": "tl"})
}

/// `GET /v1/models`.
pub fn model_list<'a>(ids: impl IntoIterator<Item = &'a str>, created: u64) -> Value {
    let data: Value = ids.into_iter().map(|id| model_object(id, created)).collect();
    json!({"object": "list", "data": data})
}
