//! What is asked: every kind of boundary a hand-off has, and every sampling feature it carries.

use serde_json::{Value, json};

use super::client::{Client, Limits};

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) path: &'static str,
    pub(crate) body: Value,
}

const CHAT: &str = "/v1/chat/completions";
const PLAIN: &str = "/v1/completions";

/// Text to cut prompts of exact lengths from.
const PROSE: &str = "The lighthouse stood where the land gave up. Every evening at 6:45 its keeper climbed 199 steps, \
wound the clockwork and lit the lamp, and ships far out set their course by it. In the spring of 1871 a letter came: the \
lamp was to burn oil no longer. \u{201c}Progress,\u{201d} wrote the ministry; \u{201c}na\u{ef}ve,\u{201d} said the keeper, \
and read it twice. Das Meer schwieg. \u{6d77}\u{306f}\u{9759}\u{304b}\u{3060}\u{3002} \u{1f30a} ";

/// Prompt lengths around every boundary there is: one token, a block of `b`, several blocks, and the sizes at
/// which a prefill is cut into chunks.
fn lengths(b: usize, longest: usize) -> Vec<usize> {
    let mut all = vec![1, 2, 3];
    for edge in [b, 2 * b, 3 * b, 4 * b, 8 * b, 16 * b, 32 * b, 64 * b] {
        all.extend([edge - 1, edge, edge + 1]);
    }
    all.retain(|n| (1..=longest).contains(n));
    all.sort_unstable();
    all.dedup();
    all
}

pub(crate) async fn cases(
    one: &Client,
    limits: &Limits,
    max_tokens: u32,
) -> anyhow::Result<Vec<Case>> {
    let longest = limits.max_context.saturating_sub(max_tokens as usize + 1);
    let text = PROSE.repeat(longest.div_ceil(64).max(1));
    let ids = one.tokenize(&limits.model, &text).await?;
    let mut cases = Vec::new();
    for n in lengths(limits.block_size, longest.min(ids.len())) {
        // Each length starts elsewhere, so that the prefix cache does not answer for the prefill.
        let from = (n * 7) % (ids.len() - n + 1);
        let prompt = &ids[from..from + n];
        let mut push = |kind: &str, mut extra: Value| {
            extra["prompt"] = json!(prompt);
            extra["max_tokens"] = json!(max_tokens);
            extra["logprobs"] = json!(2);
            cases.push(Case { name: format!("{n} tokens, {kind}"), path: PLAIN, body: extra });
        };
        push("greedy", json!({"temperature": 0}));
        push("seeded", json!({"temperature": 0.9, "seed": 1000 + n}));
    }
    cases.extend(chats(max_tokens));
    cases.extend(features(max_tokens));
    cases.extend(early_stops(one, &limits.model, max_tokens).await?);
    for case in &mut cases {
        case.body["model"] = json!(limits.model);
    }
    Ok(cases)
}

/// Chat, streamed and not, greedy and seeded; a shared system line, so that later ones find cached blocks.
fn chats(max_tokens: u32) -> Vec<Case> {
    let system = "You answer in short, plain sentences. You never mention that you are a program. When a question \
                  has no answer you say so, and you say why.";
    let questions = [
        "Why is the sky blue? Answer in two sentences.",
        "Write a haiku about the sea.",
        "List three primes.",
        "Say caf\u{e9}, na\u{ef}ve and \u{1f600} in one line.",
        "",
    ];
    let mut cases = Vec::new();
    for (i, question) in questions.iter().enumerate() {
        for stream in [false, true] {
            for (kind, mut body) in [
                ("greedy", json!({"temperature": 0})),
                ("seeded", json!({"temperature": 1.1, "seed": 77 + i, "top_p": 0.95})),
            ] {
                body["messages"] = json!([
                    {"role": "system", "content": system},
                    {"role": "user", "content": question},
                ]);
                body["max_tokens"] = json!(max_tokens);
                body["logprobs"] = json!(true);
                body["top_logprobs"] = json!(3);
                if stream {
                    body["stream"] = json!(true);
                    body["stream_options"] = json!({"include_usage": true});
                }
                let how = if stream { "streamed" } else { "whole" };
                cases.push(Case { name: format!("chat {i}, {kind}, {how}"), path: CHAT, body });
            }
        }
    }
    cases
}

/// Stop strings that begin in the first token, cut from what the model says without them: the two
/// engines share the decision what of the first token is shown.
async fn early_stops(one: &Client, model: &str, max_tokens: u32) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for seed in 0..4 {
        let body = json!({
            "model": model, "prompt": "A stop may come early:", "max_tokens": max_tokens,
            "temperature": 1.0, "seed": seed, "logprobs": 1,
        });
        let plain = Case { name: String::new(), path: PLAIN, body: body.clone() };
        let said = one.ask(&plain).await?;
        let text: Vec<char> =
            said.choices.first().map(|c| c.text.chars().collect()).unwrap_or_default();
        for (begin, len) in [(0, 1), (0, 2), (0, 4), (1, 2), (2, 6)] {
            let Some(stop) = text.get(begin..begin + len) else { continue };
            let mut body = body.clone();
            body["stop"] = json!([stop.iter().collect::<String>()]);
            let name = format!("stop at character {begin} of {len}, seed {seed}");
            cases.push(Case { name, path: PLAIN, body });
        }
    }
    Ok(cases)
}

/// One case for every field that the hand-off carries.
fn features(max_tokens: u32) -> Vec<Case> {
    let prompt = "Once upon a time there was a keeper who counted: one, two, three,";
    [
        ("max_tokens 1", json!({"temperature": 0, "max_tokens": 1})),
        ("max_tokens 2", json!({"temperature": 0.7, "seed": 5, "max_tokens": 2})),
        ("stop string", json!({"temperature": 0, "stop": [" the", "e"]})),
        ("stop string that never comes", json!({"temperature": 0, "stop": ["\u{1f9ff}\u{1f9ff}"]})),
        ("top_k", json!({"temperature": 1.0, "top_k": 5, "seed": 6})),
        ("min_p", json!({"temperature": 1.3, "min_p": 0.05, "seed": 7})),
        ("repetition penalty", json!({"temperature": 0, "repetition_penalty": 1.3})),
        ("presence and frequency", json!({"temperature": 0.8, "presence_penalty": 0.6, "frequency_penalty": 0.4, "seed": 8})),
        ("three choices", json!({"temperature": 0.9, "n": 3, "seed": 9})),
        ("three choices, streamed", json!({"temperature": 0.9, "n": 3, "seed": 10, "stream": true, "stream_options": {"include_usage": true}})),
        ("logprobs 0", json!({"temperature": 0.9, "logprobs": 0, "seed": 11})),
        ("largest seed", json!({"temperature": 0.9, "seed": i64::MAX})),
    ]
    .into_iter()
    .map(|(name, mut body)| {
        body["prompt"] = json!(prompt);
        if body.get("max_tokens").is_none() {
            body["max_tokens"] = json!(max_tokens);
        }
        if body.get("logprobs").is_none() {
            body["logprobs"] = json!(1);
        }
        Case { name: name.to_owned(), path: PLAIN, body }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_hold_every_boundary_that_fits() {
        assert_eq!(lengths(4, 17), [1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17]);
        assert!(lengths(16, 2000).contains(&1025));
    }

    #[test]
    fn no_two_cases_have_one_name() {
        let mut names: Vec<_> =
            chats(4).into_iter().chain(features(4)).map(|case| case.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
