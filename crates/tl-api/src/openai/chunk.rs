//! Reading a stream's chunks, as the gateway does with a decode engine's.

use serde_json::Value;

use super::request::Kind;
use super::response::{FinishReason, TokenLogprob, TopLogprob, Usage};

/// One choice's part of a chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkPart {
    pub index: u32,
    pub text: String,
    pub logprobs: Option<Vec<TokenLogprob>>,
    pub finish: Option<FinishReason>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ParsedChunk {
    Parts {
        parts: Vec<ChunkPart>,
        usage: Option<Usage>,
    },
    /// The stream's error event; the object under `error` as text, for a log line.
    Error(String),
}

/// Reads one event's data. `None`: it is no chunk of this kind.
pub fn parse_chunk(kind: Kind, data: &str) -> Option<ParsedChunk> {
    let value: Value = serde_json::from_str(data).ok()?;
    if let Some(error) = value.get("error").filter(|e| !e.is_null()) {
        return Some(ParsedChunk::Error(error.to_string().chars().take(300).collect()));
    }
    let parts = value.get("choices")?.as_array()?;
    let parts: Option<Vec<ChunkPart>> = parts.iter().map(|choice| part(kind, choice)).collect();
    Some(ParsedChunk::Parts { parts: parts?, usage: value.get("usage").and_then(usage) })
}

fn part(kind: Kind, choice: &Value) -> Option<ChunkPart> {
    let logprobs = choice.get("logprobs").filter(|l| !l.is_null());
    let (text, logprobs) = match kind {
        Kind::Chat => {
            let text = choice.get("delta")?.get("content").and_then(Value::as_str);
            (text.unwrap_or_default(), logprobs.map(chat_logprobs))
        }
        Kind::Completion => (choice.get("text")?.as_str()?, logprobs.map(text_logprobs)),
    };
    let finish = match choice.get("finish_reason").filter(|f| !f.is_null()) {
        None => None,
        Some(reason) => Some(FinishReason::parse(reason.as_str()?)?),
    };
    Some(ChunkPart {
        index: u32::try_from(choice.get("index")?.as_u64()?).ok()?,
        text: text.to_owned(),
        logprobs: match logprobs {
            None => None,
            Some(list) => Some(list?),
        },
        finish,
    })
}

fn bytes(value: Option<&Value>) -> Option<Vec<u8>> {
    let list = value?.as_array()?;
    list.iter().map(|b| b.as_u64().and_then(|b| u8::try_from(b).ok())).collect()
}

fn chat_logprobs(value: &Value) -> Option<Vec<TokenLogprob>> {
    let one = |entry: &Value| {
        Some(TopLogprob {
            token: entry.get("token")?.as_str()?.to_owned(),
            logprob: entry.get("logprob")?.as_f64()?,
            bytes: bytes(entry.get("bytes")),
        })
    };
    let content = value.get("content")?.as_array()?;
    content
        .iter()
        .map(|entry| {
            let TopLogprob { token, logprob, bytes } = one(entry)?;
            let top: Option<Vec<TopLogprob>> =
                entry.get("top_logprobs")?.as_array()?.iter().map(one).collect();
            Some(TokenLogprob { token, logprob, bytes, top: top?, text_offset: 0 })
        })
        .collect()
}

fn text_logprobs(value: &Value) -> Option<Vec<TokenLogprob>> {
    let tokens = value.get("tokens")?.as_array()?;
    let logprobs = value.get("token_logprobs")?.as_array()?;
    let tops = value.get("top_logprobs").and_then(Value::as_array);
    let offsets = value.get("text_offset")?.as_array()?;
    if logprobs.len() != tokens.len() || offsets.len() != tokens.len() {
        return None;
    }
    tokens
        .iter()
        .zip(logprobs)
        .zip(offsets)
        .enumerate()
        .map(|(i, ((token, logprob), offset))| {
            let top = tops.and_then(|t| t.get(i)).and_then(Value::as_object);
            let top: Option<Vec<TopLogprob>> = top
                .into_iter()
                .flatten()
                .map(|(token, logprob)| {
                    Some(TopLogprob {
                        token: token.clone(),
                        logprob: logprob.as_f64()?,
                        bytes: None,
                    })
                })
                .collect();
            Some(TokenLogprob {
                token: token.as_str()?.to_owned(),
                logprob: logprob.as_f64()?,
                bytes: None,
                top: top?,
                text_offset: usize::try_from(offset.as_u64()?).ok()?,
            })
        })
        .collect()
}

fn usage(value: &Value) -> Option<Usage> {
    let cached = value.get("prompt_tokens_details").and_then(|d| d.get("cached_tokens"));
    Some(Usage {
        prompt_tokens: value.get("prompt_tokens")?.as_u64()?,
        completion_tokens: value.get("completion_tokens")?.as_u64()?,
        cached_tokens: cached.and_then(Value::as_u64).unwrap_or(0),
    })
}
