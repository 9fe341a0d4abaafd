//! stories260K: a real model of a megabyte, in its author's own file format.

use std::collections::HashMap;

use super::Runner;
use crate::WeightKind;
use crate::checkpoint::{Checkpoint, Dtype};
use crate::config::{ModelConfig, RopeScaling};
use crate::error::ModelError;
use crate::model::Model;

const CHECKPOINT: &[u8] = include_bytes!("../../tests/data/stories260k/checkpoint.bin");
const TOKENIZER: &[u8] = include_bytes!("../../tests/data/stories260k/tokenizer.bin");

/// Greedy continuation of the prompt by an independent numpy pass in f32.
const PROMPT: &str = "Once upon a time";
const PROMPT_IDS: [u32; 5] = [1, 403, 407, 261, 378];
const GREEDY: [u32; 19] =
    [432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396, 267, 337, 410, 408, 419];
const TEXT: &str = "Once upon a time, there was a little girl named Lily. She loved to play outside in \
    the park. One day, she saw a big, red ball.";

struct Stories {
    config: ModelConfig,
    tensors: HashMap<String, (Vec<usize>, Vec<u8>)>,
}

impl Stories {
    fn read() -> Self {
        let header = CHECKPOINT[..28].as_chunks::<4>().0;
        let [dim, hidden, n_layers, n_heads, n_kv_heads, vocab, seq] =
            std::array::from_fn(|i| i32::from_le_bytes(header[i]) as usize);
        let head_dim = dim / n_heads;
        let config = ModelConfig {
            vocab,
            dim,
            hidden,
            n_layers,
            n_heads,
            n_kv_heads,
            head_dim,
            max_positions: seq,
            norm_eps: 1e-5,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            tied_head: true,
        };
        let mut rest = &CHECKPOINT[28..];
        let mut tensors = HashMap::new();
        let mut take = |name: String, shape: &[usize]| {
            let (bytes, after) = rest.split_at(shape.iter().product::<usize>() * 4);
            rest = after;
            tensors.insert(name, (shape.to_vec(), bytes.to_vec()));
        };
        take("token_embd.weight".into(), &[vocab, dim]);
        // Each kind of tensor of all layers lies together.
        for (part, shape) in [
            ("attn_norm", vec![dim]),
            ("attn_q", vec![dim, dim]),
            ("attn_k", vec![n_kv_heads * head_dim, dim]),
            ("attn_v", vec![n_kv_heads * head_dim, dim]),
            ("attn_output", vec![dim, dim]),
            ("ffn_norm", vec![dim]),
            ("ffn_gate", vec![hidden, dim]),
            ("ffn_down", vec![dim, hidden]),
            ("ffn_up", vec![hidden, dim]),
        ] {
            for layer in 0..n_layers {
                take(format!("blk.{layer}.{part}.weight"), &shape);
            }
        }
        take("output_norm.weight".into(), &[dim]);
        assert_eq!(rest.len(), 2 * seq * head_dim / 2 * 4, "two unused RoPE tables are left");
        Self { config, tensors }
    }
}

impl Checkpoint for Stories {
    fn shape(&self, name: &str) -> Option<(Dtype, Vec<usize>)> {
        self.tensors.get(name).map(|(shape, _)| (Dtype::F32, shape.clone()))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        Ok(self.tensors[name].1.clone())
    }

    fn half_split_rope(&self) -> bool {
        false
    }
}

/// The model's own tokenizer: pieces with scores, merged best first.
struct Pieces(Vec<(f32, Vec<u8>)>);

impl Pieces {
    fn read() -> Self {
        let mut rest = &TOKENIZER[4..];
        let mut pieces = Vec::new();
        while let Some((head, after)) = rest.split_first_chunk::<8>() {
            let score = f32::from_le_bytes(head[..4].try_into().unwrap());
            let len = i32::from_le_bytes(head[4..].try_into().unwrap()) as usize;
            pieces.push((score, after[..len].to_vec()));
            rest = &after[len..];
        }
        Self(pieces)
    }

    fn id(&self, piece: &[u8]) -> Option<u32> {
        self.0.iter().position(|(_, p)| p == piece).map(|i| i as u32)
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids: Vec<u32> = self.id(b" ").into_iter().collect();
        for c in text.chars() {
            let bytes = c.to_string();
            match self.id(bytes.as_bytes()) {
                Some(id) => ids.push(id),
                None => ids.extend(bytes.bytes().map(|b| u32::from(b) + 3)),
            }
        }
        loop {
            let merged = |w: &[u32]| {
                let piece = [&self.0[w[0] as usize].1[..], &self.0[w[1] as usize].1].concat();
                self.id(&piece)
            };
            let pairs = ids.windows(2).enumerate().filter_map(|(i, w)| Some((i, merged(w)?)));
            let score = |id: u32| self.0[id as usize].0;
            // The leftmost of the best.
            let best = pairs.rev().max_by(|a, b| score(a.1).total_cmp(&score(b.1)));
            let Some((i, id)) = best else { break };
            ids.splice(i..i + 2, [id]);
        }
        std::iter::once(1).chain(ids).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.0[id as usize].1.clone()).collect();
        String::from_utf8(bytes).unwrap()
    }
}

fn check(kind: WeightKind, exact: bool) {
    let stories = Stories::read();
    let model = Model::load(&stories, stories.config.clone(), kind, 2).unwrap();
    let pieces = Pieces::read();
    let prompt = pieces.encode(PROMPT);
    assert_eq!(prompt, PROMPT_IDS);
    let mut runner = if exact { Runner::exact(&model, 200) } else { Runner::pool(&model, 200) };
    let ids = runner.greedy(&prompt, 60);
    assert_eq!(ids[..GREEDY.len()], GREEDY, "{kind:?}");
    let text = format!("{PROMPT}{}", pieces.decode(&ids));
    assert!(text.starts_with(TEXT), "{kind:?}: {text}");
}

#[test]
fn stories_in_f32() {
    check(WeightKind::F32, true);
}

#[test]
fn stories_over_the_pool() {
    check(WeightKind::F32, false);
}

#[test]
fn stories_as_served() {
    check(WeightKind::F16, false);
}
