//! A client that checks what it reads.

use serde_json::{Value, json};
use tl_api::openai::{Kind, ParsedChunk, Usage, parse_chunk};
use tl_api::sse::{Event, Parser};

use super::Cluster;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        let choice = &self.body["choices"][0];
        choice["message"]["content"].as_str().or(choice["text"].as_str()).unwrap_or("?")
    }

    /// `type/code` of an error body, which has exactly the contract's keys.
    pub(crate) fn error(&self) -> String {
        let error = self.body["error"].as_object().unwrap_or_else(|| panic!("{self:?}"));
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        assert!(!error["message"].as_str().unwrap().contains("SECRET"), "{self:?}");
        let text = |v: &Value| v.as_str().unwrap_or("null").to_owned();
        format!("{} {}/{}", self.status, text(&error["type"]), text(&error["code"]))
    }
}

/// A stream that is being read.
pub(crate) struct Streamed {
    pub(crate) response: reqwest::Response,
    kind: Kind,
    parser: Parser,
    events: std::collections::VecDeque<Event>,
    /// Text by choice.
    pub(crate) texts: Vec<String>,
    pub(crate) finishes: Vec<String>,
    pub(crate) usage: Option<Usage>,
    pub(crate) error: Option<String>,
    pub(crate) done: bool,
    pub(crate) raw: Vec<String>,
}

impl Streamed {
    /// Reads on to the next chunk with text; false at the end of the body.
    pub(crate) async fn step(&mut self) -> bool {
        loop {
            while let Some(event) = self.events.pop_front() {
                if self.take(event) {
                    return true;
                }
            }
            let Ok(Some(bytes)) = self.response.chunk().await else { return false };
            let mut events = Vec::new();
            self.parser.push(&bytes, &mut events).unwrap();
            self.events.extend(events);
        }
    }

    fn take(&mut self, event: Event) -> bool {
        assert!(!self.done && self.error.is_none(), "nothing follows the end");
        let Event::Data(data) = event else {
            self.done = true;
            return false;
        };
        self.raw.push(data.clone());
        match parse_chunk(self.kind, &data).unwrap_or_else(|| panic!("no chunk: {data}")) {
            ParsedChunk::Error(error) => {
                assert!(!error.contains("SECRET"), "{error}");
                self.error = Some(error);
                false
            }
            ParsedChunk::Parts { parts, usage } => {
                self.usage = usage.or(self.usage);
                let mut text = false;
                for part in parts {
                    let i = part.index as usize;
                    if self.texts.len() <= i {
                        self.texts.resize(i + 1, String::new());
                        self.finishes.resize(i + 1, String::new());
                    }
                    text |= !part.text.is_empty();
                    self.texts[i].push_str(&part.text);
                    if let Some(finish) = part.finish {
                        self.finishes[i].push_str(finish.as_str());
                    }
                }
                text
            }
        }
    }

    /// Reads to the end and says how it was: `text|finish`, then `done`, `error` or `cut`.
    pub(crate) async fn finish(mut self) -> (String, Streamed) {
        while self.step().await {}
        let end = match (&self.error, self.done) {
            (Some(_), _) => "error",
            (None, true) => "done",
            (None, false) => "cut",
        };
        let text: Vec<String> =
            self.texts.iter().zip(&self.finishes).map(|(t, f)| format!("{t}|{f}")).collect();
        (format!("{} {end}", text.join(" ")), self)
    }
}

/// The body of a request with `extra` fields.
pub(crate) fn body(kind: Kind, extra: Value) -> Value {
    let mut body = match kind {
        Kind::Chat => json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]}),
        Kind::Completion => json!({"model": "m", "prompt": "hello"}),
    };
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

impl Cluster {
    pub(crate) async fn send(&self, kind: Kind, extra: Value) -> reqwest::Response {
        let url = format!("{}?debug=route", self.url(kind.path()));
        let body = body(kind, extra).to_string();
        self.http.post(url).body(body).send().await.unwrap()
    }

    pub(crate) async fn ask(&self, kind: Kind, extra: Value) -> Answer {
        let response = self.send(kind, extra).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        assert_eq!(headers["content-type"], "application/json");
        let body = response.json().await.unwrap();
        Answer { status, headers, body }
    }

    pub(crate) async fn chat(&self, extra: Value) -> Answer {
        self.ask(Kind::Chat, extra).await
    }

    /// A stream that has begun; panics when it is refused.
    pub(crate) async fn stream(&self, kind: Kind, extra: Value) -> Streamed {
        let mut with = json!({"stream": true, "stream_options": {"include_usage": true}});
        with.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let response = self.send(kind, with).await;
        if response.status() != 200 {
            panic!("{} {}", response.status(), response.text().await.unwrap());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Streamed {
            response,
            kind,
            parser: Parser::default(),
            events: std::collections::VecDeque::new(),
            texts: Vec::new(),
            finishes: Vec::new(),
            usage: None,
            error: None,
            done: false,
            raw: Vec::new(),
        }
    }

    pub(crate) async fn chat_stream(&self) -> Streamed {
        self.stream(Kind::Chat, json!({})).await
    }
}
