use super::{f64_of, f64s, list, u32s, u64_of, vectors};
use crate::sample::*;
use serde_json::Value;

fn params_of(value: &Value) -> SamplingParams {
    let f = |name: &str| value[name].as_f64().expect("a number");
    SamplingParams {
        temperature: f("temperature"),
        top_p: f("top_p"),
        top_k: value["top_k"].as_i64().expect("a number") as i32,
        min_p: f("min_p"),
        repetition_penalty: f("repetition_penalty"),
        presence_penalty: f("presence_penalty"),
        frequency_penalty: f("frequency_penalty"),
    }
}

fn logits_of(hex: &str) -> Vec<f32> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len())
        .step_by(8)
        .map(|at| f32::from_le_bytes([byte(at), byte(at + 2), byte(at + 4), byte(at + 6)]))
        .collect()
}

#[test]
fn worked_example() {
    let file = vectors("sampler.json");
    let case = &file["worked"];
    let logits: Vec<f32> =
        list(&case["logits"]).iter().map(|v| v.as_f64().expect("a number") as f32).collect();
    let mut rng = stream(u64_of(&case["seed"]), PURPOSE_SAMPLE);
    assert_eq!(rng.clone().uniform_f64(), f64_of(&case["uniform"]));
    let history = History::default();
    let got = sample(&logits, &params_of(&case["params"]), &history, &mut rng).expect("a token");
    assert_eq!(Some(u64::from(got.token)), case["id"].as_u64());
    assert_eq!(got.logprob, f64_of(&case["logprob"]));
    assert_eq!(got.draws, 1);
}

#[test]
fn twelve_cases_bit_for_bit() {
    let file = vectors("sampler.json");
    let cases = list(&file["cases"]);
    assert_eq!(cases.len(), 12);
    let mut sampler = Sampler::new();
    for case in cases {
        let name = &case["name"];
        let params = params_of(&case["params"]);
        let logits = logits_of(case["logits_f32_le"].as_str().expect("hex"));
        assert_eq!(logits.len(), 48);
        let mut history = History::new(&u32s(&case["prompt"]));
        let mut rng = stream(u64_of(&case["seed"]), PURPOSE_SAMPLE);
        let (mut ids, mut logprobs, mut draws) = (Vec::new(), Vec::new(), 0);
        for _ in 0..12 {
            let mut scored = sampler.score(&logits, &params, &history).expect("scores");
            let got = scored.sample(&mut rng).expect("a token");
            history.push(got.token);
            ids.push(got.token);
            logprobs.push(got.logprob);
            draws += got.draws;
        }
        assert_eq!(ids, u32s(&case["ids"]), "{name}");
        assert_eq!(logprobs, f64s(&case["logprobs"]), "{name}");
        assert_eq!(rng.state().0, u64_of(&case["state_after"]), "{name}");
        assert_eq!(draws, 12 * params.draws_per_token(), "{name}");
    }
}
