//! Requests of the drills, and what came of them.

use futures::StreamExt;
use serde_json::{Value, json};
use tl_api::sse::{Event, Parser};

use super::parts::Drill;

/// How a stream ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// `[DONE]`.
    Done,
    /// An error event, and nothing after it.
    Error(Value),
    /// The bytes just stopped: what must never happen.
    Cut,
}

#[derive(Debug)]
pub struct Streamed {
    pub text: String,
    pub chunks: usize,
    pub end: End,
    pub prefill: Option<String>,
}

pub fn body(prompt: &str, max_tokens: u32, seed: u64) -> Value {
    json!({
        "model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "temperature": 1.0, "seed": seed, "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// Opens a stream; panics unless it is accepted.
pub async fn open(drill: &Drill, body: &Value) -> reqwest::Response {
    let answer = drill
        .http
        .post(drill.url("/v1/completions?debug=route"))
        .json(body)
        .send()
        .await
        .expect("an answer");
    let status = answer.status();
    if status.is_success() {
        return answer;
    }
    panic!("status {status}: {}", answer.text().await.unwrap_or_default());
}

fn header(answer: &reqwest::Response, name: &str) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_owned())
}

/// Reads a stream to its end. `at` is called after each chunk with the number of chunks so far.
pub async fn read(answer: reqwest::Response, mut at: impl FnMut(usize)) -> Streamed {
    let prefill = header(&answer, "x-tl-route-prefill");
    let mut streamed = Streamed { text: String::new(), chunks: 0, end: End::Cut, prefill };
    let mut parser = Parser::default();
    let mut bytes = answer.bytes_stream();
    let mut events = Vec::new();
    while let Some(Ok(piece)) = bytes.next().await {
        parser.push(&piece, &mut events).expect("well-formed events");
        for event in events.drain(..) {
            let Event::Data(text) = event else {
                streamed.end = End::Done;
                continue;
            };
            let chunk: Value = serde_json::from_str(&text).expect("JSON");
            if chunk["error"].is_object() {
                streamed.end = End::Error(chunk["error"].clone());
                continue;
            }
            assert_eq!(streamed.end, End::Cut, "nothing follows the end");
            if let Some(text) = chunk["choices"][0]["text"].as_str() {
                streamed.text.push_str(text);
            }
            streamed.chunks += 1;
            at(streamed.chunks);
        }
    }
    streamed
}

/// A whole stream that ends well.
pub async fn complete(drill: &Drill, body: &Value) -> Streamed {
    let streamed = read(open(drill, body).await, |_| ()).await;
    assert_eq!(streamed.end, End::Done, "{streamed:?}");
    streamed
}
