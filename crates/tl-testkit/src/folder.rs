//! A small random Llama model as a folder: `config.json`, `model.safetensors`, `tokenizer.json` and a
//! chat template, as model hubs have them.
//!
//! Written from the format's descriptions and not with the readers' help, so that a mistake made in
//! both places at once is unlikely. The tokens are the 256 bytes and three markers, so that the ids
//! of any text are known without a tokenizer.

use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

const DIM: usize = 32;
const HIDDEN: usize = 48;
const LAYERS: usize = 2;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 8;
const VOCAB: usize = 272;
/// Longest sequence.
pub const CONTEXT: usize = 512;

/// Ids of the markers, behind the 256 bytes.
pub const END_OF_TEXT: u32 = 256;
pub const BEGIN: u32 = 257;
pub const END: u32 = 258;
const MARKERS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The prompt that the template makes of messages `(role, content)`, as ids.
pub fn chat_ids(messages: &[(&str, &str)]) -> Vec<u32> {
    let mut ids = Vec::new();
    for (role, content) in messages {
        ids.push(BEGIN);
        ids.extend(format!("{role}\n{content}").bytes().map(u32::from));
        ids.extend([END, u32::from(b'\n')]);
    }
    ids.push(BEGIN);
    ids.extend(b"assistant\n".iter().map(|&b| u32::from(b)));
    ids
}

/// Writes the model of this seed into an existing folder.
pub fn write(dir: &Path, seed: u64) -> io::Result<()> {
    let json = |name: &str, value: &Value| std::fs::write(dir.join(name), value.to_string());
    json(
        "config.json",
        &json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
            "vocab_size": VOCAB, "hidden_size": DIM, "intermediate_size": HIDDEN,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
            "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": true, "hidden_act": "silu", "eos_token_id": END,
        }),
    )?;
    json("tokenizer.json", &tokenizer())?;
    json(
        "tokenizer_config.json",
        &json!({"chat_template": TEMPLATE, "bos_token": null, "eos_token": MARKERS[2]}),
    )?;
    std::fs::write(dir.join("model.safetensors"), weights(seed))
}

/// The character that stands for a byte in byte-level vocabularies.
fn character(byte: u8) -> char {
    let printable = |b: u32| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let code = u32::from(byte);
    if printable(code) {
        return char::from(byte);
    }
    let rank = (0..code).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn tokenizer() -> Value {
    let vocab: Map<String, Value> =
        (0..=255_u8).map(|b| (character(b).to_string(), json!(b))).collect();
    let added: Value = (END_OF_TEXT..)
        .zip(MARKERS)
        .map(|(id, content)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []},
    })
}

/// A safetensors file: the length of a directory, the directory, the numbers.
fn weights(seed: u64) -> Vec<u8> {
    let (kv, all) = (KV_HEADS * HEAD_DIM, HEADS * HEAD_DIM);
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![VOCAB, DIM])];
    for layer in 0..LAYERS {
        let mut add = |part: &str, shape: Vec<usize>| {
            tensors.push((format!("model.layers.{layer}.{part}.weight"), shape));
        };
        add("input_layernorm", vec![DIM]);
        add("self_attn.q_proj", vec![all, DIM]);
        add("self_attn.k_proj", vec![kv, DIM]);
        add("self_attn.v_proj", vec![kv, DIM]);
        add("self_attn.o_proj", vec![DIM, all]);
        add("post_attention_layernorm", vec![DIM]);
        add("mlp.gate_proj", vec![HIDDEN, DIM]);
        add("mlp.up_proj", vec![HIDDEN, DIM]);
        add("mlp.down_proj", vec![DIM, HIDDEN]);
    }
    tensors.push(("model.norm.weight".to_owned(), vec![DIM]));

    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Evenly from -1 to 1.
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let mut directory = Map::new();
    let mut data = Vec::new();
    for (name, shape) in &tensors {
        let begin = data.len();
        let is_norm = shape.len() == 1;
        let spread = if name.contains("embed") { 1.0 } else { 0.35 };
        for _ in 0..shape.iter().product() {
            let value = if is_norm { 1.0 + 0.1 * random() } else { spread * random() };
            data.extend(value.to_le_bytes());
        }
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
        directory.insert(name.clone(), entry);
    }
    let mut head = Value::Object(directory).to_string().into_bytes();
    head.resize(head.len().next_multiple_of(8), b' ');
    [&(head.len() as u64).to_le_bytes()[..], &head, &data].concat()
}
