//! Request bodies with deterministic damage: whatever comes, the answer is a 2xx or a 4xx of the
//! contract's shape, the engine lives, and every block comes back.

use crate::common::{CHAT, COMPLETIONS, Server};
use serde_json::{Map, Value, json};

/// SplitMix64: the same damage in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

fn odd_value(dice: &mut Dice) -> Value {
    let values = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(1e308),
        json!(0.1),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("\u{0}\u{fffd}\u{10ffff}"),
        json!("<|im_end|><|im_start|>system\n"),
        json!([]),
        json!({}),
        json!([[[[]]]]),
        json!([null]),
        json!({"a": {"b": [1, {"c": null}]}}),
        json!(["a", 1, null]),
        json!([0, 259, 300]),
        json!("x".repeat(3000)),
    ];
    values[dice.roll(values.len())].clone()
}

/// Changes one place somewhere in the tree.
fn damage(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Object(map) if !map.is_empty() && dice.roll(4) > 0 => {
            let key = map.keys().nth(dice.roll(map.len())).cloned().unwrap();
            match dice.roll(5) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(key, odd_value(dice))),
                2 => {
                    let moved = map.remove(&key).unwrap();
                    map.insert(format!("{key}_"), moved);
                }
                _ => damage(map.get_mut(&key).unwrap(), dice),
            }
        }
        Value::Array(list) if !list.is_empty() && dice.roll(3) > 0 => {
            let at = dice.roll(list.len());
            match dice.roll(3) {
                0 => drop(list.remove(at)),
                1 => {
                    let copy = list[at].clone();
                    list.insert(at, copy);
                }
                _ => damage(&mut list[at], dice),
            }
        }
        other => *other = odd_value(dice),
    }
}

fn seeds() -> [(&'static str, Value); 3] {
    let knobs = json!({
        "model": "tiny", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1,
        "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.1, "seed": 7, "n": 2,
        "stop": ["ab", "c"], "stream": false, "stream_options": {"include_usage": true}, "user": "u",
        "tl_prompt_ids": [1, 2, 3], "logit_bias": {}, "tl_seed": 3
    });
    let with = |extra: Value| {
        let mut map: Map<String, Value> = knobs.as_object().unwrap().clone();
        map.extend(extra.as_object().unwrap().clone());
        Value::Object(map)
    };
    [
        (
            CHAT,
            with(json!({
                "messages": [
                    {"role": "system", "content": "s"},
                    {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "!"}]},
                    {"role": "assistant", "content": "yes", "tool_calls": []}
                ],
                "logprobs": true, "top_logprobs": 2, "max_completion_tokens": 2, "tools": [],
                "tool_choice": "none", "response_format": {"type": "text"}
            })),
        ),
        (
            COMPLETIONS,
            with(
                json!({"prompt": "hello", "logprobs": 1, "echo": false, "best_of": 1, "suffix": ""}),
            ),
        ),
        ("/v1/tokenize", json!({"model": "tiny", "text": "hi", "add_special": true})),
    ]
}

#[tokio::test]
async fn damaged_bodies_never_make_a_5xx() {
    let s = Server::unified().await;
    let mut dice = Dice(2026);
    let mut statuses = std::collections::BTreeMap::<u16, u32>::new();
    for round in 0..700 {
        for (path, seed) in seeds() {
            let mut request = seed;
            for _ in 0..=dice.roll(3) {
                damage(&mut request, &mut dice);
            }
            let mut bytes = request.to_string().into_bytes();
            if dice.roll(5) == 0 && !bytes.is_empty() {
                let at = dice.roll(bytes.len());
                match dice.roll(3) {
                    0 => bytes.truncate(at),
                    1 => bytes[at] = dice.roll(256) as u8,
                    _ => bytes.insert(at, dice.roll(256) as u8),
                }
            }
            let shown = String::from_utf8_lossy(&bytes).chars().take(400).collect::<String>();
            let response = s.client.post(s.url(path)).body(bytes).send().await.unwrap();
            let status = response.status().as_u16();
            let answer = crate::common::Answer::read(response).await;
            assert!(status < 500, "round {round} {path}: {status} {} for {shown}", answer.text);
            if status >= 400 {
                answer.error();
            }
            *statuses.entry(status).or_default() += 1;
        }
    }
    // The damage neither spares every request nor ruins all of them.
    assert!(statuses[&200] > 100 && statuses[&400] > 100 && statuses[&422] > 5, "{statuses:?}");
    s.idle().await;
    assert_eq!(s.health("/readyz").await.status, 200);
}
