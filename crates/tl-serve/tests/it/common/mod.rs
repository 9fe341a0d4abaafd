//! Engines of this process on ports of the system's choice, and a client for them.
#![allow(unreachable_pub, reason = "a module of a test binary")]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};
use tl_api::config::EngineRole;
use tl_api::sse;
use tl_engine::backend::Backend;
use tl_engine::engine::EngineConfig;
use tl_kv::{KvStats, lock};
use tl_serve::{EngineSettings, RunningEngine, start_engine_with};

pub mod slow;

/// Seed of the tiny model's weights.
pub const MODEL_SEED: u64 = 7;
pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";

/// A small engine.
pub fn settings(role: EngineRole) -> EngineSettings {
    EngineSettings {
        role,
        model_id: Some("tiny".to_owned()),
        engine: EngineConfig {
            kv_blocks: 256,
            block_tokens: 4,
            max_batch_tokens: 64,
            ..EngineConfig::default()
        },
        threads: 1,
        ..EngineSettings::default()
    }
}

pub struct Server {
    pub running: RunningEngine,
    pub client: reqwest::Client,
}

impl Server {
    pub async fn unified() -> Server {
        Server::start(settings(EngineRole::Unified)).await
    }

    pub async fn start(settings: EngineSettings) -> Server {
        Server::start_with(settings, |backend| backend).await
    }

    pub async fn start_with(
        settings: EngineSettings,
        wrap: impl FnOnce(Box<dyn Backend>) -> Box<dyn Backend>,
    ) -> Server {
        let running = start_engine_with(settings, tl_model::tiny(MODEL_SEED), wrap).await.unwrap();
        Server { running, client: reqwest::Client::new() }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.addresses().http)
    }

    pub fn health_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.addresses().health)
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::read(self.client.get(self.url(path)).send().await.unwrap()).await
    }

    pub async fn health(&self, path: &str) -> Answer {
        Answer::read(self.client.get(self.health_url(path)).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, body.to_string(), &[]).await
    }

    pub async fn post_with(
        &self,
        path: &str,
        body: impl Into<reqwest::Body>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = self.client.post(self.url(path)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::read(request.send().await.unwrap()).await
    }

    pub fn kv(&self) -> KvStats {
        lock(&self.running.engine().pool()).stats()
    }

    /// Waits until no block is in use.
    pub async fn idle(&self) {
        eventually("all blocks are back", || self.kv().used == 0).await;
    }
}

pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub text: String,
}

impl Answer {
    pub async fn read(response: reqwest::Response) -> Answer {
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(k, v)| (k.as_str().to_owned(), v.to_str().unwrap().to_owned()))
            .collect();
        let text = String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap();
        Answer { status, headers, text }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The events of a stream that must be complete.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        let (events, done) = self.events_so_far();
        assert!(done, "no [DONE] in {}", self.text);
        events
    }

    #[track_caller]
    pub fn events_so_far(&self) -> (Vec<Value>, bool) {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let mut out = Vec::new();
        sse::Parser::default().push(self.text.as_bytes(), &mut out).unwrap();
        let done = matches!(out.last(), Some(sse::Event::Done));
        let events = out
            .into_iter()
            .filter_map(|e| match e {
                sse::Event::Data(data) => Some(serde_json::from_str(&data).unwrap()),
                sse::Event::Done => None,
            })
            .collect();
        (events, done)
    }

    /// Checks the shape of an error and returns its `(type, code, param, message)`.
    #[track_caller]
    pub fn error(&self) -> (String, Option<String>, Option<String>, String) {
        assert_eq!(
            self.headers.get("content-type").map(String::as_str),
            Some("application/json"),
            "{}",
            self.text
        );
        check_error(self.status, &self.json())
    }
}

/// The contract's error object: these four keys, a type of the table, and the status of its row.
#[track_caller]
pub fn check_error(status: u16, body: &Value) -> (String, Option<String>, Option<String>, String) {
    let object = body.as_object().unwrap_or_else(|| panic!("{body}"));
    assert_eq!(object.keys().collect::<Vec<_>>(), ["error"], "{body}");
    let error = object["error"].as_object().unwrap_or_else(|| panic!("{body}"));
    let mut keys: Vec<&str> = error.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["code", "message", "param", "type"], "{body}");
    let text = |key: &str| match &error[key] {
        Value::Null => None,
        Value::String(s) => Some(s.clone()),
        other => panic!("{key} is {other}"),
    };
    let kind = text("type").expect("type is a string");
    let code = text("code");
    let message = text("message").expect("message is a string");
    assert!(!message.is_empty());
    let row = (status, kind.as_str(), code.as_deref());
    let rows = [
        (400, "invalid_request_error", None),
        (400, "invalid_request_error", Some("context_length_exceeded")),
        (404, "invalid_request_error", None),
        (404, "invalid_request_error", Some("model_not_found")),
        (404, "invalid_request_error", Some("kv_handle_not_found")),
        (405, "invalid_request_error", None),
        (409, "invalid_request_error", None),
        (413, "invalid_request_error", None),
        (422, "invalid_request_error", Some("unsupported_parameter")),
        (429, "rate_limit_error", Some("rate_limit_exceeded")),
        (500, "server_error", Some("internal_error")),
        (503, "server_error", Some("no_capacity")),
    ];
    assert!(rows.contains(&row), "no row {row:?}: {message}");
    (kind, code, text("param"), message)
}

/// Polls until `condition` holds; panics after five seconds.
#[track_caller]
pub fn eventually(what: &'static str, condition: impl Fn() -> bool) -> impl Future<Output = ()> {
    within(Duration::from_secs(5), what, condition)
}

#[track_caller]
pub fn within(
    limit: Duration,
    what: &'static str,
    condition: impl Fn() -> bool,
) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < limit, "not within {limit:?}: {what} ({caller})");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A request of `kind` for the tiny model with `extra` fields.
pub fn body(path: &str, prompt: &str, extra: Value) -> Value {
    let mut body = match path {
        CHAT => json!({"model": "tiny", "messages": [{"role": "user", "content": prompt}]}),
        _ => json!({"model": "tiny", "prompt": prompt}),
    };
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// One choice, put together from a stream or taken from a whole answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice {
    pub text: String,
    pub finish: String,
    /// `(token, logprob)`, tops and offsets as they came.
    pub logprobs: Vec<Value>,
}

pub fn whole_choices(answer: &Value) -> Vec<Choice> {
    let mut choices: Vec<(u64, Choice)> = answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            let text = c.get("message").map_or(&c["text"], |m| &m["content"]);
            let choice = Choice {
                text: text.as_str().unwrap().to_owned(),
                finish: c["finish_reason"].as_str().unwrap().to_owned(),
                logprobs: logprob_entries(&c["logprobs"]),
            };
            (c["index"].as_u64().unwrap(), choice)
        })
        .collect();
    choices.sort_by_key(|(index, _)| *index);
    choices.into_iter().map(|(_, c)| c).collect()
}

/// Puts a stream's choices together, checking its form on the way. Returns the usage if there was
/// one.
#[track_caller]
pub fn stream_choices(events: &[Value], chat: bool) -> (Vec<Choice>, Option<Value>) {
    let mut choices: BTreeMap<u64, Choice> = BTreeMap::new();
    let mut usage = None;
    let id = events[0]["id"].as_str().unwrap();
    assert!(id.starts_with(if chat { "chatcmpl-" } else { "cmpl-" }), "{id}");
    for event in events {
        assert_eq!(event["id"], id);
        assert_eq!(event["object"], if chat { "chat.completion.chunk" } else { "text_completion" });
        assert!(usage.is_none(), "usage is the last chunk");
        if let Some(u) = event.get("usage").filter(|u| !u.is_null()) {
            assert_eq!(event["choices"], json!([]));
            usage = Some(u.clone());
        }
        for part in event["choices"].as_array().unwrap() {
            let index = part["index"].as_u64().unwrap();
            let known = choices.contains_key(&index);
            let choice = choices.entry(index).or_default();
            assert!(choice.finish.is_empty(), "a chunk after the finish");
            let text = if chat {
                assert_eq!(
                    part["delta"].get("role").is_some(),
                    !known,
                    "the role opens a choice: {part}"
                );
                part["delta"].get("content")
            } else {
                part.get("text")
            };
            choice.text.push_str(text.and_then(Value::as_str).unwrap_or_default());
            choice.logprobs.extend(logprob_entries(&part["logprobs"]));
            if let Some(finish) = part["finish_reason"].as_str() {
                choice.finish = finish.to_owned();
            }
        }
    }
    for choice in choices.values() {
        assert!(!choice.finish.is_empty(), "a choice without a finish");
    }
    (choices.into_values().collect(), usage)
}

/// One value per token, whatever the shape.
fn logprob_entries(logprobs: &Value) -> Vec<Value> {
    if let Some(content) = logprobs.get("content").and_then(Value::as_array) {
        return content.clone();
    }
    let Some(tokens) = logprobs.get("tokens").and_then(Value::as_array) else { return Vec::new() };
    (0..tokens.len())
        .map(|i| {
            let mut entry = BTreeMap::new();
            for key in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                entry.insert(key, logprobs[key][i].clone());
            }
            json!(entry)
        })
        .collect()
}
