//! What a client sees of the split, field by field, against one engine that serves whole.

use serde_json::{Value, json};

use super::parts::{Drill, Shape};

/// A whole answer and its headers that count.
async fn ask(drill: &Drill, base: &str, path: &str, body: &Value) -> (Value, Option<String>, bool) {
    let url = format!("http://{base}{path}?debug=route");
    let answer = drill.http.post(url).json(body).send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{body}");
    let seed = answer.headers().get("x-tl-seed").map(|v| v.to_str().unwrap().to_owned());
    let split = answer.headers().contains_key("x-tl-route-prefill");
    (answer.json().await.expect("JSON"), seed, split)
}

/// The same of both; what differs by nature (id, time, cache) is left out.
async fn same(drill: &Drill, path: &str, body: &Value) -> Value {
    let mut answers = Vec::new();
    for base in [drill.gateway.addr("http"), drill.unified[0].addr("http")] {
        let through_gateway = answers.is_empty();
        let (mut answer, seed, split) = ask(drill, &base, path, body).await;
        assert_eq!(split, through_gateway, "{body}");
        assert_eq!(seed, Some(answer["seed"].to_string()), "{body}");
        for key in ["id", "created"] {
            answer[key].take();
        }
        answer["usage"]["prompt_tokens_details"].take();
        answers.push(answer);
    }
    assert_eq!(answers[0], answers[1], "{path} {body}");
    answers.swap_remove(0)
}

#[tokio::test]
async fn a_stop_string_that_begins_in_the_first_token_leaves_the_logprobs_one_engine_leaves() {
    let drill = Drill::start(Shape::new(1, 1).unified(1)).await;
    let (mut in_first, mut across) = (0, 0);
    for seed in 0..40 {
        let mut body = json!({
            "model": "tiny", "prompt": format!("prompt number {seed}"), "max_tokens": 8,
            "temperature": 1.0, "seed": seed, "logprobs": 1,
        });
        let plain = same(&drill, "/v1/completions", &body).await;
        let tokens = plain["choices"][0]["logprobs"]["tokens"].as_array().unwrap().clone();
        let text: Vec<char> = plain["choices"][0]["text"].as_str().unwrap().chars().collect();
        let first = tokens[0].as_str().unwrap().chars().count();
        // Every stop string that begins in the first token and has up to four characters.
        for begin in 0..first.min(3) {
            for len in 1..=4_usize.min(text.len() - begin) {
                let stop: String = text[begin..begin + len].iter().collect();
                body["stop"] = json!([stop]);
                let answer = same(&drill, "/v1/completions", &body).await;
                let text = answer["choices"][0]["text"].as_str().unwrap();
                assert!(text.chars().count() <= begin, "{answer}");
                let mut chat = body.clone();
                chat.as_object_mut().unwrap().remove("prompt");
                chat["messages"] = json!([{"role": "user", "content": format!("number {seed}")}]);
                chat["logprobs"] = json!(true);
                same(&drill, "/v1/chat/completions", &chat).await;
                if begin + len > first { across += 1 } else { in_first += 1 }
            }
        }
    }
    assert!(in_first > 10 && across > 10, "{in_first} within the first token, {across} across");
    drill.until_baseline().await;
}

#[tokio::test]
async fn offsets_and_seeds_are_reported_alike() {
    let drill = Drill::start(Shape::new(1, 1).unified(1)).await;
    let mut shared = 0;
    for seed in 0..30 {
        let body = json!({
            "model": "tiny", "prompt": format!("caf\u{e9} {seed}"), "max_tokens": 24,
            "temperature": 1.6, "seed": seed, "logprobs": 0, "n": 1 + seed % 2,
        });
        let answer = same(&drill, "/v1/completions", &body).await;
        for choice in answer["choices"].as_array().unwrap() {
            let text: Vec<char> = choice["text"].as_str().unwrap().chars().collect();
            let logprobs = &choice["logprobs"];
            let mut last = 0;
            for (token, offset) in logprobs["tokens"]
                .as_array()
                .unwrap()
                .iter()
                .zip(logprobs["text_offset"].as_array().unwrap())
            {
                let offset = usize::try_from(offset.as_u64().unwrap()).unwrap();
                assert!((last..=text.len()).contains(&offset), "{choice}");
                let token = token.as_str().unwrap();
                if !token.contains('\u{fffd}') {
                    let there: String = text[offset..].iter().take(token.chars().count()).collect();
                    assert_eq!(there, token, "{choice}");
                } else if offset == last {
                    shared += 1;
                }
                last = offset;
            }
        }
    }
    assert!(shared > 0, "no character spanned two tokens: the model changed");
    // A seed that was drawn is reported, and makes the same answer again, on one engine too.
    for n in [1, 2] {
        let mut body = json!({"model": "tiny", "prompt": "drawn", "max_tokens": 12, "n": n});
        let base = drill.gateway.addr("http");
        let (drawn, header, split) = ask(&drill, &base, "/v1/completions", &body).await;
        assert!(split);
        assert_eq!(header, Some(drawn["seed"].to_string()));
        body["seed"] = drawn["seed"].clone();
        let again = same(&drill, "/v1/completions", &body).await;
        assert_eq!(again["choices"], drawn["choices"]);
    }
    drill.until_baseline().await;
}

/// Tokens that the cache held are those of the engine that computed the prompt: none of a new prompt,
/// and for a known one what one engine would say, never what was handed over.
#[tokio::test]
async fn cached_tokens_are_what_one_engine_says() {
    let drill = Drill::start(Shape::new(1, 1).unified(1)).await;
    let cached = async |base: &str, body: &Value| -> u64 {
        let (answer, _, _) = ask(&drill, base, "/v1/completions", body).await;
        let usage = &answer["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        assert!(cached <= usage["prompt_tokens"].as_u64().unwrap(), "{usage}");
        cached
    };
    let (split, one) = (drill.gateway.addr("http"), drill.unified[0].addr("http"));
    for (i, words) in [1, 2, 12, 60].into_iter().enumerate() {
        let prompt = format!("{i} {}", "tide ".repeat(words));
        let body = json!({"model": "tiny", "prompt": prompt, "max_tokens": 4, "seed": 1});
        for round in 0..3 {
            let (through, alone) = (cached(&split, &body).await, cached(&one, &body).await);
            assert_eq!(through, alone, "{words} words, round {round}");
            assert_eq!(through > 0, round > 0 && words > 3, "{words} words, round {round}");
        }
        // Streamed, the same.
        let mut streamed = body.clone();
        streamed["stream"] = true.into();
        streamed["stream_options"] = json!({"include_usage": true});
        let url = format!("http://{split}/v1/completions");
        let text = drill.http.post(url).json(&streamed).send().await.unwrap().text().await.unwrap();
        let usage = text
            .lines()
            .filter_map(|l| l.strip_prefix("data: "))
            .find(|l| l.contains("cached_tokens"));
        let usage: Value = serde_json::from_str(usage.expect("asked for usage")).unwrap();
        let streamed = usage["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        assert_eq!(streamed, cached(&one, &body).await);
    }
    drill.until_baseline().await;
}
