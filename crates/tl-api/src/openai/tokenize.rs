//! `POST /v1/tokenize` of an engine: the gateway asks it for a prompt's token ids.

use serde_json::{Value, json};

use super::fields::{Fields, parse_object, token_ids};
use super::request::{
    ChatMessage, Generate, Input, MAX_BODY_BYTES, messages, messages_json, model,
};
use crate::error::ApiError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizeInput {
    /// Text as it stands; `add_special` lets the tokenizer add its begin and end marks.
    Text { text: String, add_special: bool },
    /// Messages, rendered by the model's template with the assistant's turn opened.
    Messages(Vec<ChatMessage>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokenize {
    pub model: String,
    pub input: TokenizeInput,
}

impl Tokenize {
    /// What a request's prompt is tokenized from, `None` when it came as ids. An engine that
    /// serves the request whole tokenizes exactly this, so that both ways give one prompt.
    pub fn of(request: &Generate) -> Option<Tokenize> {
        let input = match &request.input {
            Input::Messages(messages) => TokenizeInput::Messages(messages.clone()),
            Input::Text(text) => TokenizeInput::Text { text: text.clone(), add_special: true },
            Input::Ids(_) => return None,
        };
        Some(Tokenize { model: request.model.clone(), input })
    }

    /// Reads and checks a body: `{model, text, add_special}` or `{model, messages}`.
    pub fn parse(body: &[u8]) -> Result<Tokenize, ApiError> {
        if body.len() > MAX_BODY_BYTES {
            return Err(ApiError::body_too_large(MAX_BODY_BYTES));
        }
        let map = parse_object(body)?;
        let fields = Fields::top(&map);
        let add_special = fields.bool("add_special")?.unwrap_or(false);
        let input = if fields.get("messages").is_some() {
            TokenizeInput::Messages(messages(&fields)?)
        } else {
            let text = fields.str("text")?.ok_or_else(|| fields.missing("text"))?.to_owned();
            TokenizeInput::Text { text, add_special }
        };
        Ok(Tokenize { model: model(&fields)?, input })
    }

    /// The body that [`Tokenize::parse`] reads back as `self`.
    pub fn to_body(&self) -> Value {
        let Tokenize { model, input } = self;
        match input {
            TokenizeInput::Text { text, add_special } => {
                json!({"model": model, "text": text, "add_special": add_special})
            }
            TokenizeInput::Messages(messages) => {
                json!({"model": model, "messages": messages_json(messages)})
            }
        }
    }
}

/// `{"ids": [..]}`.
pub fn tokenize_response(ids: &[u32]) -> Value {
    json!({"ids": ids})
}

/// Reads [`tokenize_response`]; `None` for anything else.
pub fn parse_tokenize_response(body: &[u8]) -> Option<Vec<u32>> {
    let value: Value = serde_json::from_slice(body).ok()?;
    token_ids(value.get("ids")?.as_array()?, "ids").ok()
}
