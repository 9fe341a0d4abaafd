//! Llama models made of random numbers: for tests, and to try a deployment without a download.
//!
//! The scales keep every part of the pass in play. Attention is peaked enough that the context
//! decides, the residual stream is fed by each layer, and the logits spread over several units, so
//! that a wrong bit in the KV cache soon shows as another token.

use crate::checkpoint::{Checkpoint, Dtype};
use crate::config::{ModelConfig, RopeScaling, WeightKind};
use crate::error::ModelError;
use crate::fingerprint::Hasher;
use crate::model::Model;
use crate::tokenizer::{self, Tokenizer};
use crate::{ChatTemplate, Loaded};

/// Shape of a random model.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomLlama {
    /// At least [`crate::tokenizer::BYTE_VOCAB`] for [`Self::loaded`].
    pub vocab: usize,
    pub dim: usize,
    pub hidden: usize,
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub max_positions: usize,
    pub tied_head: bool,
}

impl Default for RandomLlama {
    /// The shape of [`crate::tiny`].
    fn default() -> Self {
        Self {
            vocab: tokenizer::BYTE_VOCAB,
            dim: 64,
            hidden: 160,
            n_layers: 3,
            n_heads: 4,
            n_kv_heads: 2,
            head_dim: 16,
            max_positions: 4096,
            tied_head: false,
        }
    }
}

/// The template of the byte-level models.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
    message['content'] + '<|im_end|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

impl RandomLlama {
    pub fn config(&self) -> ModelConfig {
        ModelConfig {
            vocab: self.vocab,
            dim: self.dim,
            hidden: self.hidden,
            n_layers: self.n_layers,
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            max_positions: self.max_positions,
            norm_eps: 1e-5,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            tied_head: self.tied_head,
        }
    }

    /// The model of `seed`, with f16 weights.
    pub fn build(&self, seed: u64) -> Result<Model, ModelError> {
        self.build_as(seed, WeightKind::F16)
    }

    /// The model of `seed`; f16 weights are the f32 ones, rounded.
    pub fn build_as(&self, seed: u64, kind: WeightKind) -> Result<Model, ModelError> {
        Model::load(&Numbers { config: self.config(), seed }, self.config(), kind, 1)
    }

    /// The model of `seed` with the byte tokenizer and a ChatML template.
    pub fn loaded(&self, seed: u64) -> Result<Loaded, ModelError> {
        if self.vocab < tokenizer::BYTE_VOCAB {
            let (have, need) = (self.vocab, tokenizer::BYTE_VOCAB);
            return Err(ModelError::Config(format!(
                "a vocabulary of {have} is too small for the byte tokenizer, which needs {need}"
            )));
        }
        Ok(Loaded {
            model: self.build(seed)?,
            tokenizer: Tokenizer::byte_level(),
            template: ChatTemplate::new(CHATML, None, Some("<|im_end|>"))?,
            stop_ids: vec![tokenizer::END_OF_TEXT, tokenizer::IM_END],
            name: "tiny".to_owned(),
        })
    }
}

/// A checkpoint whose tensors are made when they are asked for.
pub(crate) struct Numbers {
    pub(crate) config: ModelConfig,
    pub(crate) seed: u64,
}

impl Numbers {
    /// Shape of a tensor and the deviation of its elements around 0; a norm's around 1.
    fn describe(&self, name: &str) -> Option<(Vec<usize>, f32)> {
        let c = &self.config;
        let fan_in = |n: usize| 1.0 / (n as f32).sqrt();
        let part = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        Some(match part.map_or(name, |(_, part)| part) {
            "token_embd.weight" => (vec![c.vocab, c.dim], 1.0),
            "output.weight" if !c.tied_head => (vec![c.vocab, c.dim], 3.0 * fan_in(c.dim)),
            "output_norm.weight" | "attn_norm.weight" | "ffn_norm.weight" => (vec![c.dim], 0.1),
            // Scores are products of two: a deviation of 1.5 each peaks the softmax.
            "attn_q.weight" => (vec![c.q_dim(), c.dim], 1.5 * fan_in(c.dim)),
            "attn_k.weight" => (vec![c.kv_dim(), c.dim], 1.5 * fan_in(c.dim)),
            "attn_v.weight" => (vec![c.kv_dim(), c.dim], fan_in(c.dim)),
            "attn_output.weight" => (vec![c.dim, c.q_dim()], 1.5 * fan_in(c.q_dim())),
            "ffn_gate.weight" | "ffn_up.weight" => (vec![c.hidden, c.dim], 1.5 * fan_in(c.dim)),
            "ffn_down.weight" => (vec![c.dim, c.hidden], fan_in(c.hidden)),
            _ => return None,
        })
    }
}

impl Checkpoint for Numbers {
    fn shape(&self, name: &str) -> Option<(Dtype, Vec<usize>)> {
        self.describe(name).map(|(shape, _)| (Dtype::F32, shape))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        let (shape, deviation) =
            self.describe(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        let mut hasher = Hasher::new();
        hasher.number(self.seed);
        hasher.field(name.as_bytes());
        let mut state = hasher.finish();
        let mean = if shape.len() == 1 { 1.0 } else { 0.0 };
        let columns = self.config.dim;
        let head = name == "output.weight";
        let mut bytes = Vec::with_capacity(shape.iter().product::<usize>() * 4);
        for i in 0..shape.iter().product() {
            let scale = if head { loudness(i / columns) } else { 1.0 };
            let value = mean + deviation * scale * uniform(&mut state);
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        Ok(bytes)
    }

    fn half_split_rope(&self) -> bool {
        false
    }
}

/// Printable ASCII more often than other bytes, so that the model's text can be read; the end of a
/// turn sometimes, the other special tokens hardly ever.
fn loudness(token: usize) -> f32 {
    match token {
        0x20..=0x7e => 1.0,
        258 => 0.85,
        256..=263 => 0.2,
        _ => 0.6,
    }
}

/// Deviation 1, mean 0, between plus and minus the root of 3; SplitMix64.
fn uniform(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let unit = (z >> 40) as f32 / (1u64 << 24) as f32;
    (2.0 * unit - 1.0) * 1.732_050_8
}
