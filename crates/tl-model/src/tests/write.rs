//! Writers of the file formats, independent of the readers, and small models to write.

use std::path::Path;

use serde_json::{Value, json};

use crate::RandomLlama;
use crate::checkpoint::Checkpoint;
use crate::random::Numbers;

/// Builds a GGUF file field by field.
#[derive(Default)]
pub(crate) struct GgufFile {
    keys: Vec<u8>,
    n_keys: u64,
    infos: Vec<u8>,
    n_tensors: u64,
    data: Vec<u8>,
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

impl GgufFile {
    pub(crate) fn raw(&mut self, key: &str, type_id: u32, value: &[u8]) -> &mut Self {
        self.keys.extend(text(key));
        self.keys.extend(type_id.to_le_bytes());
        self.keys.extend(value);
        self.n_keys += 1;
        self
    }

    pub(crate) fn u32(&mut self, key: &str, v: u32) -> &mut Self {
        self.raw(key, 4, &v.to_le_bytes())
    }

    pub(crate) fn f32(&mut self, key: &str, v: f32) -> &mut Self {
        self.raw(key, 6, &v.to_le_bytes())
    }

    pub(crate) fn str(&mut self, key: &str, v: &str) -> &mut Self {
        self.raw(key, 8, &text(v))
    }

    pub(crate) fn strings<S: AsRef<str>>(&mut self, key: &str, v: &[S]) -> &mut Self {
        let mut bytes = [&8u32.to_le_bytes()[..], &(v.len() as u64).to_le_bytes()].concat();
        v.iter().for_each(|s| bytes.extend(text(s.as_ref())));
        self.raw(key, 9, &bytes)
    }

    pub(crate) fn i32s(&mut self, key: &str, v: &[i32]) -> &mut Self {
        let mut bytes = [&5u32.to_le_bytes()[..], &(v.len() as u64).to_le_bytes()].concat();
        v.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        self.raw(key, 9, &bytes)
    }

    /// A tensor of `shape`, slowest dimension first.
    pub(crate) fn tensor(
        &mut self,
        name: &str,
        shape: &[usize],
        type_id: u32,
        data: &[u8],
    ) -> &mut Self {
        self.infos.extend(text(name));
        self.infos.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&d| self.infos.extend((d as u64).to_le_bytes()));
        self.infos.extend(type_id.to_le_bytes());
        self.infos.extend((self.data.len() as u64).to_le_bytes());
        self.data.extend(data);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        self.n_tensors += 1;
        self
    }

    pub(crate) fn data_len(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend(self.n_tensors.to_le_bytes());
        out.extend(self.n_keys.to_le_bytes());
        out.extend(&self.keys);
        out.extend(&self.infos);
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&self.data);
        out
    }
}

/// The vocabulary of the written models: GPT-2's byte characters, merged words, specials.
pub(crate) struct Words {
    pub(crate) tokens: Vec<String>,
    pub(crate) types: Vec<i32>,
    pub(crate) merges: Vec<String>,
}

impl Words {
    pub(crate) fn new() -> Self {
        let mut tokens: Vec<String> =
            (0..=255).map(|b| crate::tokenizer::byte_to_char(b).to_string()).collect();
        let merges = ["t h", "th e", "Ġ the", "1 2", "o n"].map(str::to_owned).to_vec();
        tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
        let mut types = vec![1; tokens.len()];
        for (token, kind) in
            [("<|endoftext|>", 3), ("<|im_start|>", 3), ("<|im_end|>", 3), ("[word]", 4)]
        {
            tokens.push(token.into());
            types.push(kind);
        }
        Self { tokens, types, merges }
    }

    pub(crate) fn id(&self, token: &str) -> u32 {
        self.tokens.iter().position(|t| t == token).unwrap() as u32
    }
}

/// A small model whose vocabulary is that of [`Words`], padded.
pub(crate) fn small() -> RandomLlama {
    RandomLlama { vocab: 272, dim: 32, hidden: 48, n_layers: 2, head_dim: 8, ..Default::default() }
}

fn tensor_names(shape: &RandomLlama) -> Vec<String> {
    let mut names = vec!["token_embd.weight".to_owned(), "output_norm.weight".to_owned()];
    if !shape.tied_head {
        names.push("output.weight".to_owned());
    }
    for i in 0..shape.n_layers {
        names.extend(crate::gguf_model::LAYER_PARTS.map(|p| format!("blk.{i}.{p}.weight")));
    }
    names
}

/// The random model as a GGUF file, all of it f32.
pub(crate) fn gguf(shape: &RandomLlama, seed: u64, words: &Words) -> GgufFile {
    gguf_with(shape, seed, words, |_, _, bytes| (0, bytes))
}

/// As [`gguf`]; `store` turns each tensor's name, shape and f32 bytes into a type and its bytes.
pub(crate) fn gguf_with(
    shape: &RandomLlama,
    seed: u64,
    words: &Words,
    store: impl Fn(&str, &[usize], Vec<u8>) -> (u32, Vec<u8>),
) -> GgufFile {
    let mut f = GgufFile::default();
    f.str("general.architecture", "llama");
    f.u32("llama.block_count", shape.n_layers as u32);
    f.u32("llama.context_length", shape.max_positions as u32);
    f.u32("llama.embedding_length", shape.dim as u32);
    f.u32("llama.feed_forward_length", shape.hidden as u32);
    f.u32("llama.attention.head_count", shape.n_heads as u32);
    f.u32("llama.attention.head_count_kv", shape.n_kv_heads as u32);
    f.u32("llama.attention.key_length", shape.head_dim as u32);
    f.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    f.str("tokenizer.ggml.model", "gpt2");
    f.str("tokenizer.ggml.pre", "smollm");
    f.strings("tokenizer.ggml.tokens", &words.tokens);
    f.i32s("tokenizer.ggml.token_type", &words.types);
    f.strings("tokenizer.ggml.merges", &words.merges);
    f.u32("tokenizer.ggml.eos_token_id", words.id("<|im_end|>"));
    let numbers = Numbers { config: shape.config(), seed };
    for name in tensor_names(shape) {
        let (_, dims) = numbers.shape(&name).unwrap();
        let (type_id, bytes) = store(&name, &dims, numbers.bytes(&name).unwrap());
        f.tensor(&name, &dims, type_id, &bytes);
    }
    f
}

/// The rows of a head from the interleaved to the half-split order.
fn half_split(bytes: &[u8], row_bytes: usize, head_dim: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for head in bytes.chunks(row_bytes * head_dim) {
        for parity in [0, 1] {
            for pair in 0..head_dim / 2 {
                out.extend(&head[(2 * pair + parity) * row_bytes..][..row_bytes]);
            }
        }
    }
    out
}

/// The random model as a Hugging Face folder of `shards` files; `config` is merged into its
/// `config.json`.
pub(crate) fn folder(
    dir: &Path,
    shape: &RandomLlama,
    seed: u64,
    words: &Words,
    shards: usize,
    config: &Value,
) {
    let numbers = Numbers { config: shape.config(), seed };
    let mut tensors = Vec::new();
    for name in tensor_names(shape) {
        let (_, dims) = numbers.shape(&name).unwrap();
        let mut bytes = numbers.bytes(&name).unwrap();
        if name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight") {
            bytes = half_split(&bytes, dims[1] * 4, shape.head_dim);
        }
        tensors.push((hugging_face_name(&name), dims, bytes));
    }
    let mut map = serde_json::Map::new();
    for shard in 0..shards {
        let file = match shards {
            1 => "model.safetensors".to_owned(),
            n => format!("model-{:05}-of-{n:05}.safetensors", shard + 1),
        };
        let mine: Vec<_> = tensors.iter().skip(shard).step_by(shards).collect();
        mine.iter().for_each(|t| drop(map.insert(t.0.clone(), json!(file))));
        let views = mine.iter().map(|(name, dims, bytes)| {
            let view =
                safetensors::tensor::TensorView::new(safetensors::Dtype::F32, dims.clone(), bytes);
            (name.clone(), view.unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(dir.join(file), bytes).unwrap();
    }
    if shards > 1 {
        write_json(&dir.join("model.safetensors.index.json"), &json!({ "weight_map": map }));
    }
    let mut json = json!({
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": shape.vocab, "hidden_size": shape.dim, "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.n_layers, "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_kv_heads, "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_positions, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": shape.tied_head, "hidden_act": "silu",
        "eos_token_id": words.id("<|endoftext|>"),
    });
    for (key, value) in config.as_object().unwrap() {
        json[key] = value.clone();
    }
    write_json(&dir.join("config.json"), &json);
    write_json(&dir.join("tokenizer.json"), &tokenizer_json(words));
}

pub(crate) fn write_json(path: &Path, value: &Value) {
    std::fs::write(path, serde_json::to_vec(value).unwrap()).unwrap();
}

fn hugging_face_name(name: &str) -> String {
    let Some((layer, part)) = name.strip_prefix("blk.").and_then(|n| n.split_once('.')) else {
        return match name {
            "token_embd.weight" => "model.embed_tokens.weight",
            "output_norm.weight" => "model.norm.weight",
            _ => "lm_head.weight",
        }
        .to_owned();
    };
    let part = match part.trim_end_matches(".weight") {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_norm" => "post_attention_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        _ => "mlp.down_proj",
    };
    format!("model.layers.{layer}.{part}.weight")
}

/// The same tokenizer as the GGUF arrays with `pre = smollm`.
pub(crate) fn tokenizer_json(words: &Words) -> Value {
    let plain = words.types.iter().filter(|&&t| t == 1).count();
    let vocab: serde_json::Map<_, _> =
        words.tokens[..plain].iter().enumerate().map(|(i, t)| (t.clone(), json!(i))).collect();
    let added: Vec<_> = (plain..words.tokens.len())
        .map(|i| {
            json!({ "id": i, "content": words.tokens[i], "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": words.types[i] == 3 })
        })
        .collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "truncation": { "direction": "Right", "max_length": 4,
            "strategy": "LongestFirst", "stride": 0 }, "padding": null, "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Digits", "individual_digits": true }, byte_level ] },
        "post_processor": null, "decoder": byte_level,
        "model": { "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": words.merges },
    })
}
