//! `config.json` to a [`ModelConfig`], refusing what a Llama pass would not compute.

use std::path::Path;

use serde_json::Value;

use crate::config::{ModelConfig, RopeScaling};
use crate::error::ModelError;

/// Architectures whose pass is Llama's. Mistral's is, as long as it has no sliding window.
const ARCHITECTURES: [&str; 2] = ["LlamaForCausalLM", "MistralForCausalLM"];

/// Reads the parsed `json` of the file at `path`.
pub(crate) fn read(path: &Path, json: &Value) -> Result<ModelConfig, ModelError> {
    let reader = Reader { path, json };
    reader.refuse_unsupported()?;
    let dim = reader.need("hidden_size")?;
    let n_heads = reader.need("num_attention_heads")?;
    let head_dim = match reader.number("head_dim")? {
        Some(d) => d,
        None if n_heads > 0 && dim.is_multiple_of(n_heads) => dim / n_heads,
        None => return Err(reader.bad(format!("`hidden_size` {dim} for {n_heads} heads"))),
    };
    let (rope_theta, rope_scaling) = reader.rope()?;
    let config = ModelConfig {
        vocab: reader.need("vocab_size")?,
        dim,
        hidden: reader.need("intermediate_size")?,
        n_layers: reader.need("num_hidden_layers")?,
        n_heads,
        n_kv_heads: reader.number("num_key_value_heads")?.unwrap_or(n_heads),
        head_dim,
        max_positions: reader.need("max_position_embeddings")?,
        norm_eps: reader.float(json, "rms_norm_eps")?.unwrap_or(1e-6) as f32,
        rope_theta,
        rope_scaling,
        tied_head: reader.flag("tie_word_embeddings")?,
    };
    config.check()?;
    Ok(config)
}

struct Reader<'a> {
    path: &'a Path,
    json: &'a Value,
}

impl Reader<'_> {
    fn bad(&self, problem: String) -> ModelError {
        ModelError::Json { path: self.path.to_owned(), problem }
    }

    fn number(&self, key: &str) -> Result<Option<usize>, ModelError> {
        match &self.json[key] {
            Value::Null => Ok(None),
            value => value
                .as_u64()
                .and_then(|v| usize::try_from(v).ok())
                .map(Some)
                .ok_or_else(|| self.bad(format!("`{key}` is {value}, expected a count"))),
        }
    }

    fn need(&self, key: &str) -> Result<usize, ModelError> {
        self.number(key)?.ok_or_else(|| self.bad(format!("`{key}` is missing")))
    }

    fn float(&self, object: &Value, key: &str) -> Result<Option<f64>, ModelError> {
        match &object[key] {
            Value::Null => Ok(None),
            value => value
                .as_f64()
                .map(Some)
                .ok_or_else(|| self.bad(format!("`{key}` is {value}, expected a number"))),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, ModelError> {
        match &self.json[key] {
            Value::Null => Ok(false),
            Value::Bool(b) => Ok(*b),
            value => Err(self.bad(format!("`{key}` is {value}, expected true or false"))),
        }
    }

    fn refuse_unsupported(&self) -> Result<(), ModelError> {
        let refuse = |what: String| Err(ModelError::Unsupported(what));
        let listed: Vec<&str> = self.json["architectures"]
            .as_array()
            .map(|a| a.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        if !listed.iter().any(|a| ARCHITECTURES.contains(a)) {
            let names = listed.join(", ");
            return refuse(format!("architecture `{names}`, only {}", ARCHITECTURES.join(" and ")));
        }
        for key in ["attention_bias", "mlp_bias"] {
            if self.flag(key)? {
                return refuse(format!("`{key}` in config.json"));
            }
        }
        if self.number("sliding_window")?.is_some() {
            return refuse("sliding window attention (`sliding_window` in config.json)".into());
        }
        if !self.json["quantization_config"].is_null() {
            return refuse("quantised safetensors (`quantization_config` in config.json)".into());
        }
        match self.json["hidden_act"].as_str() {
            None | Some("silu" | "swish") => Ok(()),
            Some(other) => refuse(format!("activation `{other}`, only silu is")),
        }
    }

    /// Base and scaling: older files keep them apart, newer ones in `rope_parameters`.
    fn rope(&self) -> Result<(f64, RopeScaling), ModelError> {
        let newer = &self.json["rope_parameters"];
        let scaling = if newer.is_null() { &self.json["rope_scaling"] } else { newer };
        let theta = match self.float(newer, "rope_theta")? {
            Some(theta) => theta,
            None => self.float(self.json, "rope_theta")?.unwrap_or(10_000.0),
        };
        let kind = scaling["rope_type"].as_str().or_else(|| scaling["type"].as_str());
        let need = |key: &str| {
            self.float(scaling, key)?
                .ok_or_else(|| self.bad(format!("`{key}` of the RoPE scaling is missing")))
        };
        let scaling = match kind {
            _ if scaling.is_null() => RopeScaling::None,
            Some("default") => RopeScaling::None,
            Some("linear") => RopeScaling::Linear(need("factor")?),
            Some("llama3") => RopeScaling::Llama3 {
                factor: need("factor")?,
                low: need("low_freq_factor")?,
                high: need("high_freq_factor")?,
                original: need("original_max_position_embeddings")?,
            },
            other => {
                let other = other.unwrap_or("without a type");
                return Err(ModelError::Unsupported(format!("RoPE scaling `{other}`")));
            }
        };
        Ok((theta, scaling))
    }
}
