//! Chat and text completion requests, as one normalized type.

use std::fmt;

use serde_json::{Map, Value, json};

use super::fields::{Fields, parse_object, token_ids, wrong};
use super::unsupported;
use crate::error::ApiError;

/// Largest body a client may send.
pub const MAX_BODY_BYTES: usize = 4 << 20;
/// Largest body one server of ours may send another: a client's body and its token ids.
pub const MAX_INTERNAL_BODY_BYTES: usize = 16 << 20;
/// Most choices (`n`) of one request.
pub const MAX_CHOICES: u64 = 16;
/// Most alternatives reported per token.
pub const MAX_TOP_LOGPROBS: u64 = 20;
/// `max_tokens` of a text completion that names none.
pub const DEFAULT_COMPLETION_TOKENS: u64 = 16;

const MAX_STOPS: usize = 4;
const MAX_USER_CHARS: usize = 256;
const MAX_MODEL_CHARS: usize = 256;
const MAX_SEED: u64 = i64::MAX as u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Chat,
    Completion,
}

impl Kind {
    /// The path that serves it.
    pub fn path(self) -> &'static str {
        match self {
            Kind::Chat => "/v1/chat/completions",
            Kind::Completion => "/v1/completions",
        }
    }

    /// `gen_ai.operation.name` of metrics.
    pub fn operation(self) -> &'static str {
        match self {
            Kind::Chat => "chat",
            Kind::Completion => "text_completion",
        }
    }

    /// The kind of that [`Kind::operation`].
    pub fn of_operation(text: &str) -> Option<Kind> {
        [Kind::Chat, Kind::Completion].into_iter().find(|kind| kind.operation() == text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One message; a content of several text parts is their concatenation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    pub role: Role,
    pub content: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Not empty.
    Messages(Vec<ChatMessage>),
    /// Not empty.
    Text(String),
    /// Not empty.
    Ids(Vec<u32>),
}

/// How tokens are chosen. Every value is an f32 widened to f64, so that it crosses the
/// protobuf `float` of a hand-off unchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 to 2; 0 is greedy.
    pub temperature: f64,
    /// Above 0, at most 1; 1 is off.
    pub top_p: f64,
    /// 0 is off; at most `i32::MAX`.
    pub top_k: u32,
    /// 0 to 1; 0 is off.
    pub min_p: f64,
    /// Above 0, at most 10; 1 is off.
    pub repetition_penalty: f64,
    /// -2 to 2; 0 is off.
    pub presence_penalty: f64,
    /// -2 to 2; 0 is off.
    pub frequency_penalty: f64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
        }
    }
}

/// What a server is asked to generate: all of it, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Generate {
    pub kind: Kind,
    pub model: String,
    pub input: Input,
    pub sampling: Sampling,
    /// At most 4, none empty.
    pub stop: Vec<String>,
    /// At least 1; `None`: the rest of the context.
    pub max_tokens: Option<u64>,
    /// 1 to [`MAX_CHOICES`].
    pub n: u32,
    /// A client's is below 2^63; one that another server sent is any.
    pub seed: Option<u64>,
    /// Report the chosen token's logprob and that many alternatives, 0 to 20. `None`: nothing.
    pub logprobs: Option<u32>,
    pub stream: bool,
    /// Send a usage chunk at the end of a stream.
    pub include_usage: bool,
    pub user: Option<String>,
    /// The prompt as token ids, from a server that tokenized it; not empty.
    pub tl_prompt_ids: Option<Vec<u32>>,
}

/// Whether `tl_` fields of a body are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Internal {
    /// The body is a client's: the fields are unknown fields.
    Ignored,
    /// The body may be a server's of ours.
    Honoured,
}

impl Generate {
    /// Reads and checks a body.
    pub fn parse(kind: Kind, body: &[u8], internal: Internal) -> Result<Generate, ApiError> {
        let limit = match internal {
            Internal::Ignored => MAX_BODY_BYTES,
            Internal::Honoured => MAX_INTERNAL_BODY_BYTES,
        };
        if body.len() > limit {
            return Err(ApiError::body_too_large(limit));
        }
        let map = parse_object(body)?;
        let fields = Fields::top(&map);
        unsupported::check(kind, &fields)?;
        let max_tokens = fields.uint("max_tokens", 1, u64::from(u32::MAX))?;
        let stream_options = fields
            .get("stream_options")
            .map(|value| Fields::nested(value, "stream_options".into()))
            .transpose()?;
        let (input, max_tokens, logprobs) = match kind {
            Kind::Chat => (
                Input::Messages(messages(&fields)?),
                fields.uint("max_completion_tokens", 1, u64::from(u32::MAX))?.or(max_tokens),
                chat_logprobs(&fields)?,
            ),
            Kind::Completion => (
                prompt(&fields)?,
                max_tokens.or(Some(DEFAULT_COMPLETION_TOKENS)),
                fields.uint("logprobs", 0, MAX_TOP_LOGPROBS)?.map(|n| n as u32),
            ),
        };
        let seed = fields.uint("seed", 0, MAX_SEED)?;
        let (tl_seed, tl_prompt_ids) = match internal {
            Internal::Ignored => (None, None),
            Internal::Honoured => (fields.uint("tl_seed", 0, u64::MAX)?, internal_ids(&fields)?),
        };
        Ok(Generate {
            kind,
            model: model(&fields)?,
            input,
            sampling: sampling(&fields)?,
            stop: stop(&fields)?,
            max_tokens,
            n: fields.uint("n", 1, MAX_CHOICES)?.unwrap_or(1) as u32,
            seed: tl_seed.or(seed),
            logprobs,
            stream: fields.bool("stream")?.unwrap_or(false),
            include_usage: match stream_options {
                Some(options) => options.bool("include_usage")?.unwrap_or(false),
                None => false,
            },
            user: user(&fields)?,
            tl_prompt_ids,
        })
    }

    /// The body that [`Generate::parse`] with [`Internal::Honoured`] reads back as `self`.
    pub fn to_body(&self) -> Value {
        let Generate {
            kind,
            model,
            input,
            sampling,
            stop,
            max_tokens,
            n,
            seed,
            logprobs,
            stream,
            include_usage,
            user,
            tl_prompt_ids,
        } = self;
        let Sampling {
            temperature,
            top_p,
            top_k,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
        } = *sampling;
        let mut body = Map::new();
        let mut put = |key: &str, value: Value| {
            body.insert(key.to_owned(), value);
        };
        put("model", json!(model));
        match input {
            Input::Messages(messages) => put("messages", messages_json(messages)),
            Input::Text(text) => put("prompt", json!(text)),
            Input::Ids(ids) => put("prompt", json!(ids)),
        }
        put("temperature", json!(temperature));
        put("top_p", json!(top_p));
        put("top_k", json!(top_k));
        put("min_p", json!(min_p));
        put("repetition_penalty", json!(repetition_penalty));
        put("presence_penalty", json!(presence_penalty));
        put("frequency_penalty", json!(frequency_penalty));
        if !stop.is_empty() {
            put("stop", json!(stop));
        }
        if let Some(max) = max_tokens {
            put("max_tokens", json!(max));
        }
        put("n", json!(n));
        if let Some(seed) = seed {
            put("tl_seed", json!(seed));
        }
        match (kind, logprobs) {
            (_, None) => {}
            (Kind::Chat, Some(top)) => {
                put("logprobs", json!(true));
                put("top_logprobs", json!(top));
            }
            (Kind::Completion, Some(top)) => put("logprobs", json!(top)),
        }
        put("stream", json!(stream));
        put("stream_options", json!({"include_usage": include_usage}));
        if let Some(user) = user {
            put("user", json!(user));
        }
        if let Some(ids) = tl_prompt_ids {
            put("tl_prompt_ids", json!(ids));
        }
        Value::Object(body)
    }
}

/// The seed of choice `index` (from 0) of a request with `seed`: choice 0 has the request's
/// own, so that `n` does not change it; the others are child seeds 16 + index.
pub fn choice_seed(seed: u64, index: u32) -> u64 {
    if index == 0 {
        return seed;
    }
    let purpose = 16 + u64::from(index);
    let mut z = seed.wrapping_add(purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

pub(super) fn messages_json(messages: &[ChatMessage]) -> Value {
    messages.iter().map(|m| json!({"role": m.role.as_str(), "content": m.content})).collect()
}

pub(super) fn model(fields: &Fields<'_>) -> Result<String, ApiError> {
    let model = fields.str("model")?.ok_or_else(|| fields.missing("model"))?;
    if model.is_empty() || model.chars().count() > MAX_MODEL_CHARS {
        let message = format!("`model` must be 1 to {MAX_MODEL_CHARS} characters long");
        return Err(ApiError::bad_request(message, "model"));
    }
    Ok(model.to_owned())
}

fn user(fields: &Fields<'_>) -> Result<Option<String>, ApiError> {
    match fields.str("user")? {
        Some(user) if user.chars().count() > MAX_USER_CHARS => Err(ApiError::bad_request(
            format!("`user` is longer than {MAX_USER_CHARS} characters"),
            "user",
        )),
        user => Ok(user.map(str::to_owned)),
    }
}

fn sampling(fields: &Fields<'_>) -> Result<Sampling, ApiError> {
    let default = Sampling::default();
    let within = |lo: f64, hi: f64| move |x: f64| (lo..=hi).contains(&x);
    let float = |name: &str, rule: &str, lo: f64, hi: f64, off: f64| {
        fields.float(name, rule, within(lo, hi)).map(|x| x.unwrap_or(off))
    };
    let penalty = "a number from -2 to 2";
    let repetition = "a number above 0 and at most 10";
    Ok(Sampling {
        temperature: float("temperature", "a number from 0 to 2", 0.0, 2.0, default.temperature)?,
        top_p: fields
            .float("top_p", "a number above 0 and at most 1", |x| x > 0.0 && x <= 1.0)?
            .unwrap_or(default.top_p),
        top_k: fields.uint("top_k", 0, i32::MAX as u64)?.map_or(default.top_k, |k| k as u32),
        min_p: float("min_p", "a number from 0 to 1", 0.0, 1.0, default.min_p)?,
        repetition_penalty: fields
            .float("repetition_penalty", repetition, |x| x > 0.0 && x <= 10.0)?
            .unwrap_or(default.repetition_penalty),
        presence_penalty: float("presence_penalty", penalty, -2.0, 2.0, 0.0)?,
        frequency_penalty: float("frequency_penalty", penalty, -2.0, 2.0, 0.0)?,
    })
}

fn stop(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let one = |value: &Value, path: &str| match value {
        Value::String(s) if !s.is_empty() => Ok(s.clone()),
        other => Err(wrong(path, "a non-empty string", other)),
    };
    match fields.get("stop") {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= MAX_STOPS => {
            list.iter().enumerate().map(|(i, v)| one(v, &format!("stop[{i}]"))).collect()
        }
        Some(list @ Value::Array(_)) => {
            Err(wrong("stop", &format!("at most {MAX_STOPS} strings"), list))
        }
        Some(value) => Ok(vec![one(value, "stop")?]),
    }
}

fn chat_logprobs(fields: &Fields<'_>) -> Result<Option<u32>, ApiError> {
    let top = fields.uint("top_logprobs", 0, MAX_TOP_LOGPROBS)?;
    match (fields.bool("logprobs")?.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0) as u32)),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::bad_request("`top_logprobs` needs `logprobs` to be true", "top_logprobs"))
        }
    }
}

fn internal_ids(fields: &Fields<'_>) -> Result<Option<Vec<u32>>, ApiError> {
    match fields.array("tl_prompt_ids")? {
        None => Ok(None),
        Some([]) => Err(ApiError::bad_request("`tl_prompt_ids` is empty", "tl_prompt_ids")),
        Some(values) => token_ids(values, "tl_prompt_ids").map(Some),
    }
}

/// The prompt of a text completion: a string, token ids, or a list of exactly one of these.
fn prompt(fields: &Fields<'_>) -> Result<Input, ApiError> {
    let empty = || ApiError::bad_request("`prompt` is empty", "prompt");
    let text = |s: &str| if s.is_empty() { Err(empty()) } else { Ok(Input::Text(s.to_owned())) };
    let ids = |list: &[Value], path: &str| match list {
        [] => Err(empty()),
        list => token_ids(list, path).map(Input::Ids),
    };
    let value = fields.get("prompt").ok_or_else(|| fields.missing("prompt"))?;
    match value {
        Value::String(s) => text(s),
        Value::Array(list) => match list.as_slice() {
            [] => Err(empty()),
            [Value::String(s)] => text(s),
            [Value::Array(list)] => ids(list, "prompt[0]"),
            [Value::String(_) | Value::Array(_), ..] => Err(ApiError::unsupported_parameter(
                "prompt",
                "several prompts in one request are not supported; send one request for each",
            )),
            list => ids(list, "prompt"),
        },
        other => Err(wrong("prompt", "a string or an array of token ids", other)),
    }
}

pub(super) fn messages(fields: &Fields<'_>) -> Result<Vec<ChatMessage>, ApiError> {
    let list = fields.array("messages")?.ok_or_else(|| fields.missing("messages"))?;
    if list.is_empty() {
        return Err(ApiError::bad_request("`messages` is empty", "messages"));
    }
    list.iter().enumerate().map(|(i, value)| message(value, format!("messages[{i}]"))).collect()
}

fn message(value: &Value, path: String) -> Result<ChatMessage, ApiError> {
    let fields = Fields::nested(value, path)?;
    let role = match fields.str("role")?.ok_or_else(|| fields.missing("role"))? {
        // Newer clients call the system role so.
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => {
            let rule = "system, user, assistant or tool";
            return Err(wrong(&fields.path_of("role"), rule, &json!(other)));
        }
    };
    for name in ["tool_calls", "function_call"] {
        let asks = match fields.get(name) {
            None => false,
            Some(Value::Array(calls)) => !calls.is_empty(),
            Some(_) => true,
        };
        if asks {
            let path = fields.path_of(name);
            let message = format!("`{path}` is not supported: this server calls no tools");
            return Err(ApiError::unsupported_parameter(path, message));
        }
    }
    let content = match fields.get("content").ok_or_else(|| fields.missing("content"))? {
        Value::String(s) => s.clone(),
        Value::Array(parts) => {
            let path = fields.path_of("content");
            let parts = parts.iter().enumerate();
            let texts: Result<Vec<&str>, ApiError> =
                parts.map(|(i, p)| text_part(p, format!("{path}[{i}]"))).collect();
            texts?.concat()
        }
        other => {
            let rule = "a string or an array of text parts";
            return Err(wrong(&fields.path_of("content"), rule, other));
        }
    };
    Ok(ChatMessage { role, content })
}

fn text_part(value: &Value, path: String) -> Result<&str, ApiError> {
    let fields = Fields::nested(value, path)?;
    match fields.str("type")?.ok_or_else(|| fields.missing("type"))? {
        "text" => fields.str("text")?.ok_or_else(|| fields.missing("text")),
        _ => {
            let path = fields.path_of("type");
            let message = format!("`{path}`: only text parts are supported");
            Err(ApiError::unsupported_parameter(path, message))
        }
    }
}
