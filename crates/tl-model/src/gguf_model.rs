//! A Llama model in a GGUF file: its configuration and its tensors.

use std::path::{Path, PathBuf};

use crate::checkpoint::{Checkpoint, Dtype};
use crate::config::{ModelConfig, RopeScaling};
use crate::error::ModelError;
use crate::gguf::{Gguf, GgufError};

/// An opened GGUF file with its path, for errors that name it.
pub(crate) struct GgufModel {
    pub(crate) file: Gguf,
    pub(crate) path: PathBuf,
}

impl GgufModel {
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let file = Gguf::open(path)
            .map_err(|source| ModelError::Gguf { path: path.to_owned(), source })?;
        Ok(Self { file, path: path.to_owned() })
    }

    fn fail(&self, source: GgufError) -> ModelError {
        ModelError::Gguf { path: self.path.clone(), source }
    }

    /// A number under the architecture's prefix.
    fn number(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let key = format!("llama.{key}");
        let value = self.file.u64(&key).map_err(|e| self.fail(e))?;
        value
            .map(|v| usize::try_from(v).map_err(|_| ModelError::Config(format!("`{key}` is {v}"))))
            .transpose()
    }

    fn need(&self, key: &str) -> Result<usize, ModelError> {
        self.number(key)?.ok_or_else(|| self.fail(Gguf::missing(&format!("llama.{key}"))))
    }

    fn float(&self, key: &str) -> Result<Option<f32>, ModelError> {
        self.file.f32(&format!("llama.{key}")).map_err(|e| self.fail(e))
    }

    pub(crate) fn config(&self) -> Result<ModelConfig, ModelError> {
        let unsupported = |what: String| Err(ModelError::Unsupported(what));
        let arch = self.file.str("general.architecture").map_err(|e| self.fail(e))?;
        if arch != Some("llama") {
            let arch = arch.unwrap_or("none");
            return unsupported(format!("architecture `{arch}`, only `llama` is"));
        }
        if self.number("expert_count")?.unwrap_or(0) > 0 {
            return unsupported("mixture of experts (`llama.expert_count`)".into());
        }
        if self.number("attention.sliding_window")?.unwrap_or(0) > 0 {
            return unsupported(
                "sliding window attention (`llama.attention.sliding_window`)".into(),
            );
        }
        let dim = self.need("embedding_length")?;
        let n_heads = self.need("attention.head_count")?;
        let head_dim = match self.number("attention.key_length")? {
            Some(d) => d,
            None if n_heads > 0 && dim.is_multiple_of(n_heads) => dim / n_heads,
            None => {
                let what = format!("an embedding length of {dim} for {n_heads} heads");
                return Err(ModelError::Config(what));
            }
        };
        if let Some(d) = self.number("attention.value_length")?.filter(|&d| d != head_dim) {
            return unsupported(format!("value heads of {d} beside key heads of {head_dim}"));
        }
        if let Some(d) = self.number("rope.dimension_count")?.filter(|&d| d != head_dim) {
            return unsupported(format!("RoPE over {d} of {head_dim} dimensions of a head"));
        }
        let embedding = self.file.tensors().get("token_embd.weight");
        let vocab = match embedding {
            Some(info) if info.shape.len() == 2 => info.shape[0],
            _ => return Err(ModelError::MissingTensor("token_embd.weight".into())),
        };
        let eps = self.float("attention.layer_norm_rms_epsilon")?;
        let config = ModelConfig {
            vocab,
            dim,
            hidden: self.need("feed_forward_length")?,
            n_layers: self.need("block_count")?,
            n_heads,
            n_kv_heads: self.number("attention.head_count_kv")?.unwrap_or(n_heads),
            head_dim,
            max_positions: self.need("context_length")?,
            norm_eps: eps.ok_or_else(|| {
                self.fail(Gguf::missing("llama.attention.layer_norm_rms_epsilon"))
            })?,
            rope_theta: f64::from(self.float("rope.freq_base")?.unwrap_or(10_000.0)),
            rope_scaling: self.rope_scaling()?,
            tied_head: !self.file.tensors().contains_key("output.weight"),
        };
        config.check()?;
        self.check_tensors(&config)?;
        Ok(config)
    }

    fn rope_scaling(&self) -> Result<RopeScaling, ModelError> {
        let name = "rope_freqs.weight";
        let kind = self.file.str("llama.rope.scaling.type").map_err(|e| self.fail(e))?;
        let factor = self.float("rope.scaling.factor")?.or(self.float("rope.scale_linear")?);
        match (kind.unwrap_or("none"), factor) {
            ("none", None) => {}
            ("linear" | "none", Some(factor)) => {
                return Ok(RopeScaling::Linear(f64::from(factor)));
            }
            (other, _) => {
                return Err(ModelError::Unsupported(format!("RoPE scaling `{other}`")));
            }
        }
        let Some(info) = self.file.tensors().get(name) else { return Ok(RopeScaling::None) };
        if info.dtype != Dtype::F32 || info.shape.len() != 1 {
            return Err(ModelError::Unsupported(format!("`{name}` that is no vector of f32")));
        }
        let bytes = self.bytes(name)?;
        let factors = bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        Ok(RopeScaling::Factors(factors))
    }

    /// Refuses tensors that a Llama pass would not use (biases, experts, adapters): to ignore one
    /// would be to compute something else.
    fn check_tensors(&self, config: &ModelConfig) -> Result<(), ModelError> {
        for name in self.file.tensors().keys() {
            if !is_llama_tensor(name, config.n_layers) {
                return Err(ModelError::Unsupported(format!("tensor `{name}` in a llama model")));
            }
        }
        Ok(())
    }
}

/// Whether a Llama pass uses the tensor of that name.
pub(crate) fn is_llama_tensor(name: &str, n_layers: usize) -> bool {
    const TOP: [&str; 4] =
        ["token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight"];
    let in_layer = || {
        let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
        let layer: usize = layer.parse().ok()?;
        let part = part.strip_suffix(".weight")?;
        Some(layer < n_layers && LAYER_PARTS.contains(&part))
    };
    TOP.contains(&name) || in_layer().unwrap_or(false)
}

/// The tensors of one layer.
pub(crate) const LAYER_PARTS: [&str; 9] = [
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
];

impl Checkpoint for GgufModel {
    fn shape(&self, name: &str) -> Option<(Dtype, Vec<usize>)> {
        self.file.tensors().get(name).map(|info| (info.dtype, info.shape.clone()))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, ModelError> {
        let info = self.file.tensors().get(name);
        let info = info.ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        self.file.data(name, info).map_err(|e| self.fail(e))
    }

    fn half_split_rope(&self) -> bool {
        false
    }
}
