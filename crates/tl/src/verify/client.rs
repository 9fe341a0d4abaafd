//! A client of the API: asks, and brings streamed and whole answers into one shape.

use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use serde_json::{Value, json};
use tl_api::sse::{Event, Parser};

use super::compare::{Answer, Choice};
use super::corpus::Case;

/// A case may wait for a cold engine, never for ever.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Client {
    base: String,
    http: reqwest::Client,
}

/// What the corpus has to fit into.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) model: String,
    pub(crate) max_context: usize,
    pub(crate) block_size: usize,
}

impl Client {
    pub(crate) fn new(base: &str) -> anyhow::Result<Client> {
        let http = reqwest::Client::builder().timeout(PATIENCE).build()?;
        Ok(Client { base: base.trim_end_matches('/').to_owned(), http })
    }

    /// From the model list, where the engine says what it can hold.
    pub(crate) async fn limits(&self) -> anyhow::Result<Limits> {
        let list: Value =
            self.http.get(format!("{}/v1/models", self.base)).send().await?.json().await?;
        let model = &list["data"][0];
        let field = |name: &str| model[name].as_u64().and_then(|n| usize::try_from(n).ok());
        Ok(Limits {
            model: model["id"].as_str().context("the model list has no id")?.to_owned(),
            max_context: field("max_context").context("the model list has no max_context")?,
            block_size: field("block_size").context("the model list has no block_size")?,
        })
    }

    pub(crate) async fn tokenize(&self, model: &str, text: &str) -> anyhow::Result<Vec<u32>> {
        let url = format!("{}/v1/tokenize", self.base);
        let answer = self
            .http
            .post(url)
            .json(&json!({"model": model, "text": text, "add_special": false}))
            .send()
            .await?;
        let body: Value = answer.error_for_status()?.json().await?;
        serde_json::from_value(body["ids"].clone()).context("no ids in the answer of /v1/tokenize")
    }

    pub(crate) async fn ask(&self, case: &Case) -> anyhow::Result<Answer> {
        let url = format!("{}{}?debug=route", self.base, case.path);
        let answer = self.http.post(url).json(&case.body).send().await?;
        let status = answer.status();
        let handed_over = answer.headers().contains_key("x-tl-route-prefill");
        if !status.is_success() {
            bail!("status {status}: {}", answer.text().await.unwrap_or_default());
        }
        let mut result = if case.body["stream"] == true {
            streamed(answer).await?
        } else {
            whole(&answer.json().await?)?
        };
        result.handed_over = handed_over;
        Ok(result)
    }
}

fn whole(body: &Value) -> anyhow::Result<Answer> {
    let mut answer = Answer::default();
    for choice in body["choices"].as_array().context("no choices")? {
        let mut one = Choice::default();
        add(&mut one, choice, &choice["message"]["content"]);
        place(&mut answer, choice, one)?;
    }
    usage(&mut answer, &body["usage"]);
    Ok(answer)
}

async fn streamed(response: reqwest::Response) -> anyhow::Result<Answer> {
    let mut answer = Answer::default();
    let mut parser = Parser::default();
    let mut events = Vec::new();
    let mut bytes = response.bytes_stream();
    let mut done = false;
    while let Some(piece) = bytes.next().await {
        parser.push(&piece?, &mut events)?;
        for event in events.drain(..) {
            match event {
                Event::Done => done = true,
                Event::Data(text) => {
                    let chunk: Value =
                        serde_json::from_str(&text).context("a chunk is not JSON")?;
                    if !chunk["error"].is_null() {
                        bail!("error event: {}", chunk["error"]);
                    }
                    for choice in chunk["choices"].as_array().context("no choices in a chunk")? {
                        let index = index(choice)?;
                        while answer.choices.len() <= index {
                            answer.choices.push(Choice::default());
                        }
                        add(&mut answer.choices[index], choice, &choice["delta"]["content"]);
                    }
                    if chunk["usage"].is_object() {
                        usage(&mut answer, &chunk["usage"]);
                    }
                }
            }
        }
    }
    if !done {
        bail!("the stream ended without [DONE]");
    }
    Ok(answer)
}

fn index(choice: &Value) -> anyhow::Result<usize> {
    let index = choice["index"].as_u64().context("a choice without index")?;
    usize::try_from(index).ok().filter(|index| *index < 128).context("an index out of range")
}

fn place(answer: &mut Answer, choice: &Value, one: Choice) -> anyhow::Result<()> {
    let index = index(choice)?;
    while answer.choices.len() <= index {
        answer.choices.push(Choice::default());
    }
    answer.choices[index] = one;
    Ok(())
}

/// Adds what a choice or a chunk of it holds: chat text or plain text, and either shape of log-probabilities.
fn add(to: &mut Choice, choice: &Value, content: &Value) {
    if let Some(text) = content.as_str().or_else(|| choice["text"].as_str()) {
        to.text.push_str(text);
    }
    if let Some(reason) = choice["finish_reason"].as_str() {
        to.finish_reason = Some(reason.to_owned());
    }
    let logprobs = &choice["logprobs"];
    if let Some(content) = logprobs["content"].as_array() {
        to.logprobs.extend(content.iter().cloned());
    } else if let Some(tokens) = logprobs["tokens"].as_array() {
        for i in 0..tokens.len() {
            let at = |key: &str| logprobs[key].get(i).cloned().unwrap_or(Value::Null);
            to.logprobs.push(json!([
                at("tokens"),
                at("token_logprobs"),
                at("top_logprobs"),
                at("text_offset")
            ]));
        }
    }
}

fn usage(answer: &mut Answer, usage: &Value) {
    answer.prompt_tokens = usage["prompt_tokens"].as_u64().unwrap_or(0);
    answer.completion_tokens = usage["completion_tokens"].as_u64().unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_of_an_answer_become_one() {
        let chat = json!({"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop",
            "logprobs": {"content": [{"token": "hi", "logprob": -1.0}]}}], "usage": {"prompt_tokens": 4, "completion_tokens": 1}});
        let plain = json!({"choices": [{"index": 0, "text": "hi", "finish_reason": "stop",
            "logprobs": {"tokens": ["hi"], "token_logprobs": [-1.0], "top_logprobs": [{}], "text_offset": [0]}}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 1}});
        for body in [chat, plain] {
            let answer = whole(&body).unwrap();
            assert_eq!(
                (answer.choices[0].text.as_str(), answer.choices[0].logprobs.len()),
                ("hi", 1)
            );
            assert_eq!((answer.prompt_tokens, answer.completion_tokens), (4, 1));
        }
        assert!(whole(&json!({"choices": [{"index": 9999, "text": ""}]})).is_err());
    }
}
