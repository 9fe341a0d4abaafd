//! SmolLM2-135M against an independent numpy pass over the same dequantised weights.

use std::path::PathBuf;
use std::sync::OnceLock;

use serde_json::Value;

use super::{Runner, argmax};
use crate::{ChatMessage, Loaded, WeightKind, load};

/// How far a logit may be from numpy's.
#[derive(Clone, Copy, Debug)]
enum Pass {
    /// f32 weights and f32 keys and values: differences of summation order alone.
    Exact,
    /// f32 weights over the pool's halves.
    HalfKv,
    /// What is served by default: floats as f16, and this file's blocks as they are.
    Default,
}

impl Pass {
    fn tolerance(self) -> f32 {
        match self {
            Self::Exact => 1e-3,
            Self::HalfKv => 1.5e-2,
            Self::Default => 3e-2,
        }
    }

    /// Greedy tokens that are followed: each reads all weights, and f32 ones are twice as many bytes.
    fn steps(self) -> usize {
        match self {
            Self::Exact | Self::HalfKv => 6,
            Self::Default => usize::MAX,
        }
    }
}

/// A greedy token is compared only where the best two logits are further apart.
const CLEAR: f64 = 0.1;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The file that `TL_SMOLLM2_GGUF` names, which must be there, or the one in the cache, if it is.
fn model_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("TL_SMOLLM2_GGUF") {
        return Some(path.into());
    }
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    Some(cache.join("tl/models").join(FILE)).filter(|path| path.exists())
}

/// The model, or a line that says which test did not run and why.
fn smollm2(test: &str, kind: WeightKind) -> Option<&'static Loaded> {
    static F16: OnceLock<Loaded> = OnceLock::new();
    static F32: OnceLock<Loaded> = OnceLock::new();
    let Some(path) = model_path() else {
        println!("skipped: {test}: no {FILE} in the cache and no TL_SMOLLM2_GGUF");
        return None;
    };
    let once = match kind {
        WeightKind::F16 => &F16,
        WeightKind::F32 => &F32,
    };
    Some(once.get_or_init(|| load(&path, kind).unwrap()))
}

fn golden() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/smollm2-golden.json");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = json["cases"].as_array().unwrap().clone();
    assert_eq!(cases.len(), 5);
    cases
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

fn check(test: &str, kind: WeightKind, pass: Pass) {
    let Some(loaded) = smollm2(test, kind) else { return };
    for case in golden() {
        let name = case["name"].as_str().unwrap();
        let prompt = ids(&case["ids"]);
        let greedy = ids(&case["greedy"]);
        let positions = prompt.len() + greedy.len();
        let mut runner = match pass {
            Pass::Exact => Runner::exact(&loaded.model, positions),
            Pass::HalfKv | Pass::Default => Runner::pool(&loaded.model, positions),
        };
        let mut logits = runner.step(&prompt, 0);

        let mut worst = 0f32;
        for key in ["top", "probe"] {
            for pair in case[key].as_array().unwrap() {
                let (id, expected) = (pair[0].as_u64().unwrap(), pair[1].as_f64().unwrap());
                worst = worst.max((logits[id as usize] - expected as f32).abs());
            }
        }
        println!("{name}, {pass:?}: logits differ by {worst:.2e} at most");
        assert!(worst <= pass.tolerance(), "{name}, {pass:?}: {worst}");
        let n = logits.len() as f64;
        let mean = logits.iter().map(|&l| f64::from(l)).sum::<f64>() / n;
        assert!((mean - case["mean"].as_f64().unwrap()).abs() <= pass.tolerance().into(), "{name}");

        let margins = case["margin"].as_array().unwrap();
        let mut compared = 0;
        for (i, (&expected, margin)) in greedy.iter().zip(margins).enumerate().take(pass.steps()) {
            if margin.as_f64().unwrap() > CLEAR {
                assert_eq!(argmax(&logits), expected, "{name}, {pass:?}: token {i}");
                compared += 1;
            }
            // The golden token goes on even after a near tie, so that every step is comparable.
            logits = runner.step(&[expected], prompt.len() + i);
        }
        assert!(compared > 0, "{name}: nothing was compared");
    }
}

#[test]
fn smollm2_exact_pass_matches_numpy() {
    check("smollm2_exact_pass_matches_numpy", WeightKind::F32, Pass::Exact);
}

#[test]
fn smollm2_half_kv_stays_close_to_numpy() {
    check("smollm2_half_kv_stays_close_to_numpy", WeightKind::F32, Pass::HalfKv);
}

#[test]
fn smollm2_as_served_stays_close_to_numpy() {
    check("smollm2_as_served_stays_close_to_numpy", WeightKind::F16, Pass::Default);
}

#[test]
fn smollm2_text_is_tokenized_as_it_was_trained() {
    let test = "smollm2_text_is_tokenized_as_it_was_trained";
    let Some(loaded) = smollm2(test, WeightKind::F16) else { return };
    let t = &loaded.tokenizer;
    for case in golden() {
        let (name, text) = (case["name"].as_str().unwrap(), case["text"].as_str().unwrap());
        let prompt = ids(&case["ids"]);
        assert_eq!(t.encode(text, false).unwrap(), prompt, "{name}");
        assert_eq!(t.encode(text, true).unwrap(), prompt, "{name}: nothing is added");
        let greedy = t.decode(&ids(&case["greedy"]));
        assert_eq!(String::from_utf8_lossy(&greedy), case["greedy_text"].as_str().unwrap());
    }
    for text in ["año 2024: naïve\r\n\ttabs  and   spaces", "日本語🙂", "a\u{ad}b"] {
        let ids = t.encode(text, false).unwrap();
        assert_eq!(String::from_utf8(t.decode(&ids)).unwrap(), text);
    }
    assert!(t.is_special(2) && t.token_bytes(2).is_empty());
    assert_eq!(loaded.stop_ids, [0, 2]);
    assert_eq!(loaded.name, "SmolLM2-135M-Instruct");
    let messages = [ChatMessage::new("user", "Why is the sky blue? Answer in two sentences.")];
    let text = loaded.template.render(&messages, true).unwrap();
    assert_eq!(t.encode(&text, false).unwrap(), ids(&golden()[0]["ids"]));
}
