//! What an answer holds, streamed and whole.

use crate::common::{CHAT, COMPLETIONS, Choice, Server, body, stream_choices, whole_choices};
use serde_json::{Value, json};

/// A whole answer and the same request streamed; checks that they are one answer.
async fn both(s: &Server, path: &str, prompt: &str, extra: Value) -> (Vec<Choice>, Value) {
    let mut request = body(path, prompt, extra);
    let answer = s.post(path, &request).await.ok();
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true});
    request["seed"] = answer["seed"].clone();
    let streamed = s.post(path, &request).await;
    assert_eq!(streamed.headers["x-tl-seed"], answer["seed"].to_string());
    let (choices, usage) = stream_choices(&streamed.events(), path == CHAT);
    let whole = whole_choices(&answer);
    assert_eq!(choices, whole, "{path} {request}");
    let (mut a, mut b) = (usage.expect("asked for usage"), answer["usage"].clone());
    for usage in [&mut a, &mut b] {
        // The second run finds the prompt in the cache.
        let cached = usage["prompt_tokens_details"]["cached_tokens"].take().as_u64().unwrap();
        assert!(cached <= usage["prompt_tokens"].as_u64().unwrap());
    }
    assert_eq!(a, b);
    (whole, answer)
}

#[tokio::test]
async fn streaming_equals_non_streaming() {
    let s = Server::unified().await;
    for path in [CHAT, COMPLETIONS] {
        for extra in [
            json!({"max_tokens": 24}),
            json!({"max_tokens": 24, "temperature": 0}),
            json!({"max_tokens": 24, "seed": 11, "temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.02}),
            json!({"max_tokens": 24, "seed": 3, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": -0.5}),
            json!({"max_tokens": 24, "seed": 9, "n": 3}),
            json!({"max_tokens": 24, "seed": 9, "stop": ["a", "e", "the"]}),
            json!({"max_tokens": 24, "seed": 5, "n": 2, "stop": "o", "logprobs": if path == CHAT { json!(true) } else { json!(2) }}),
            json!({"max_tokens": 1}),
        ] {
            both(&s, path, "tell me of the sea", extra).await;
        }
    }
    s.idle().await;
}

#[tokio::test]
async fn greedy_answers_repeat_and_ignore_the_seed() {
    let s = Server::unified().await;
    let run = async |seed: u64| {
        let request =
            body(CHAT, "hello", json!({"max_tokens": 20, "temperature": 0, "seed": seed}));
        whole_choices(&s.post(CHAT, &request).await.ok())
    };
    assert_eq!(run(1).await, run(2).await);
}

#[tokio::test]
async fn a_seed_decides_the_answer_and_a_drawn_one_is_told() {
    let s = Server::unified().await;
    let run = async |seed: Option<u64>| {
        let mut request = body(COMPLETIONS, "hello", json!({"max_tokens": 24}));
        if let Some(seed) = seed {
            request["seed"] = json!(seed);
        }
        s.post(COMPLETIONS, &request).await.ok()
    };
    let drawn = run(None).await;
    let seed = drawn["seed"].as_u64().unwrap();
    assert!(seed < 1 << 53);
    assert_eq!(run(Some(seed)).await["choices"], drawn["choices"]);
    let texts: std::collections::BTreeSet<String> = {
        let mut texts = std::collections::BTreeSet::new();
        for seed in 0..5 {
            texts.insert(run(Some(seed)).await["choices"].to_string());
        }
        texts
    };
    assert!(texts.len() > 1, "five seeds, one answer");
    assert_eq!(run(Some(u64::MAX >> 1)).await["seed"], u64::MAX >> 1);
}

#[tokio::test]
async fn choice_0_is_the_only_choice_and_the_others_differ() {
    let s = Server::unified().await;
    let run = async |n: u32| {
        let request = body(CHAT, "hello", json!({"max_tokens": 24, "seed": 42, "n": n}));
        whole_choices(&s.post(CHAT, &request).await.ok())
    };
    let (one, three) = (run(1).await, run(3).await);
    assert_eq!(three.len(), 3);
    assert_eq!(one[0], three[0]);
    assert_ne!(three[0].text, three[1].text);
    assert_ne!(three[1].text, three[2].text);
    // a choice's seed is the contract's child seed, so any of them can be had alone
    let seed = tl_api::openai::choice_seed(42, 2);
    let request = body(CHAT, "hello", json!({"max_tokens": 24, "tl_seed": seed}));
    assert_eq!(whole_choices(&s.post(CHAT, &request).await.ok())[0], three[2]);
}

#[tokio::test]
async fn usage_counts_every_choice_and_the_prompt_once() {
    let s = Server::unified().await;
    let request = body(
        COMPLETIONS,
        "some words here",
        json!({"max_tokens": 7, "n": 2, "seed": 1, "temperature": 0}),
    );
    let answer = s.post(COMPLETIONS, &request).await.ok();
    let usage = &answer["usage"];
    let prompt = usage["prompt_tokens"].as_u64().unwrap();
    let completion = usage["completion_tokens"].as_u64().unwrap();
    assert!(completion <= 14);
    assert_eq!(usage["total_tokens"], prompt + completion);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0, "a fresh prompt");
    let again = s.post(COMPLETIONS, &request).await.ok();
    let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    // full blocks of four tokens, the last prompt token always computed
    assert_eq!(cached, (prompt - 1) / 4 * 4);
    assert_eq!(again["choices"], answer["choices"]);
}

#[tokio::test]
async fn a_stop_string_ends_the_answer_and_does_not_show() {
    let s = Server::unified().await;
    for seed in 0..6_u64 {
        let ask = |stop: Option<&str>| {
            let mut extra = json!({"max_tokens": 40, "seed": seed});
            if let Some(stop) = stop {
                extra["stop"] = json!([stop, "never in there \u{1F30D}"]);
            }
            extra
        };
        let (free, _) = both(&s, COMPLETIONS, "abc", ask(None)).await;
        let chars: Vec<char> = free[0].text.chars().collect();
        if chars.len() < 12 {
            continue;
        }
        let stop: String = chars[6..9].iter().collect();
        let before = &free[0].text[..free[0].text.find(&stop).unwrap()];
        let (cut, answer) = both(&s, COMPLETIONS, "abc", ask(Some(&stop))).await;
        assert_eq!(cut[0].text, before);
        assert_eq!(cut[0].finish, "stop");
        let tokens = answer["usage"]["completion_tokens"].as_u64().unwrap();
        assert!(tokens < 40 && tokens >= 3, "{tokens} tokens");
    }
    s.idle().await;
}

#[tokio::test]
async fn logprobs_of_a_chat() {
    let s = Server::unified().await;
    let extra = json!({"max_tokens": 12, "seed": 4, "logprobs": true, "top_logprobs": 3});
    let (choices, answer) = both(&s, CHAT, "hello", extra).await;
    let choice = &choices[0];
    if choice.finish == "length" {
        assert_eq!(
            choice.logprobs.len(),
            answer["usage"]["completion_tokens"].as_u64().unwrap() as usize
        );
    }
    let mut bytes = Vec::new();
    for entry in &choice.logprobs {
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
        let own: Vec<u8> =
            entry["bytes"].as_array().unwrap().iter().map(|b| b.as_u64().unwrap() as u8).collect();
        assert_eq!(entry["token"], String::from_utf8_lossy(&own).as_ref());
        bytes.extend(own);
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        let values: Vec<f64> = top.iter().map(|t| t["logprob"].as_f64().unwrap()).collect();
        assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
    }
    assert_eq!(String::from_utf8_lossy(&bytes), choice.text);
}

#[tokio::test]
async fn logprobs_of_a_text_completion() {
    let s = Server::unified().await;
    let (choices, answer) =
        both(&s, COMPLETIONS, "hello", json!({"max_tokens": 12, "seed": 4, "logprobs": 2})).await;
    let logprobs = &answer["choices"][0]["logprobs"];
    let n = choices[0].logprobs.len();
    for key in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(logprobs[key].as_array().unwrap().len(), n, "{key}");
    }
    assert_eq!(logprobs["text_offset"][0], 0);
    let none =
        s.post(COMPLETIONS, &body(COMPLETIONS, "hello", json!({"max_tokens": 2}))).await.ok();
    assert_eq!(none["choices"][0]["logprobs"], Value::Null);
    let zero = s
        .post(COMPLETIONS, &body(COMPLETIONS, "hello", json!({"max_tokens": 2, "logprobs": 0})))
        .await
        .ok();
    assert_eq!(zero["choices"][0]["logprobs"]["top_logprobs"][0], json!({}));
}

#[tokio::test]
async fn any_max_tokens_is_clipped_to_the_context() {
    let s = Server::unified().await;
    for max in [1, 1_000_000, u64::from(u32::MAX)] {
        let answer = s
            .post(COMPLETIONS, &body(COMPLETIONS, "x", json!({"max_tokens": max, "seed": 1})))
            .await
            .ok();
        let usage = &answer["usage"];
        assert!(usage["total_tokens"].as_u64().unwrap() <= 1024, "{usage}");
        if max == 1 && answer["choices"][0]["finish_reason"] == "length" {
            assert_eq!(usage["completion_tokens"], 1);
        }
    }
    let no_limit = s.post(CHAT, &body(CHAT, "x", json!({"seed": 1}))).await.ok();
    assert!(no_limit["usage"]["total_tokens"].as_u64().unwrap() <= 1024);
    s.idle().await;
}

#[tokio::test]
async fn a_text_completion_has_16_tokens_unless_told() {
    let s = Server::unified().await;
    let answer = s.post(COMPLETIONS, &body(COMPLETIONS, "x", json!({"temperature": 0}))).await.ok();
    assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() <= 16);
}

#[tokio::test]
async fn many_streams_at_once_equal_one_at_a_time() {
    let s = Server::unified().await;
    let request = |i: u64| {
        body(CHAT, &format!("question {i}"), json!({"max_tokens": 16, "seed": i, "stream": true}))
    };
    let mut alone = Vec::new();
    for i in 0..16 {
        alone.push(stream_choices(&s.post(CHAT, &request(i)).await.events(), true).0);
    }
    let together = futures::future::join_all((0..16).map(|i| {
        let (s, request) = (&s, request(i));
        async move { stream_choices(&s.post(CHAT, &request).await.events(), true).0 }
    }))
    .await;
    assert_eq!(together, alone);
    s.idle().await;
}
