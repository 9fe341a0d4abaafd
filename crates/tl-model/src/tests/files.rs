//! The same random model as a GGUF file, as a Hugging Face folder and in memory is one model.

use std::path::Path;

use serde_json::{Value, json};

use super::Runner;
use super::write::{GgufFile, Words, folder, gguf, small, tokenizer_json, write_json};
use crate::{Loaded, ModelError, RandomLlama, WeightKind, load};

const SEED: u64 = 11;

fn logits(loaded: &Loaded) -> Vec<f32> {
    Runner::pool(&loaded.model, 32).step(&[5, 200, 17, 3, 3, 90, 41], 0)
}

fn load_gguf(file: &GgufFile, kind: WeightKind) -> Result<Loaded, ModelError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small-f32.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    load(&path, kind)
}

fn load_folder(shape: &RandomLlama, shards: usize, config: Value) -> Result<Loaded, ModelError> {
    let dir = tempfile::tempdir().unwrap();
    folder(dir.path(), shape, SEED, &Words::new(), shards, &config);
    load(dir.path(), WeightKind::F16)
}

#[test]
fn all_sources_give_one_model() {
    for tied_head in [false, true] {
        let shape = RandomLlama { tied_head, ..small() };
        let words = Words::new();
        let memory = shape.build(SEED).unwrap();
        let file = load_gguf(&gguf(&shape, SEED, &words), WeightKind::F16).unwrap();
        let one = load_folder(&shape, 1, json!({})).unwrap();
        let many = load_folder(&shape, 3, json!({})).unwrap();
        for loaded in [&file, &one, &many] {
            assert_eq!(loaded.model.config(), memory.config());
            assert_eq!(loaded.model.fingerprint(), memory.fingerprint());
            assert_eq!(logits(loaded), logits(&file));
        }
        assert_eq!(file.name, "small");
        assert_eq!(file.stop_ids, [words.id("<|endoftext|>"), words.id("<|im_end|>")]);
        assert_eq!(one.stop_ids, file.stop_ids);
        for text in ["the 1212 then", " the on<|im_end|>[word]\n", "ünï<|im_start|>", ""] {
            let ids = file.tokenizer.encode(text, true).unwrap();
            assert_eq!(one.tokenizer.encode(text, false).unwrap(), ids, "{text:?}");
            for &id in &ids {
                assert_eq!(one.tokenizer.token_bytes(id), file.tokenizer.token_bytes(id));
                assert_eq!(one.tokenizer.is_special(id), file.tokenizer.is_special(id));
            }
            let bytes = String::from_utf8(file.tokenizer.decode(&ids)).unwrap();
            assert_eq!(bytes, text.replace("<|im_end|>", "").replace("<|im_start|>", ""));
        }
        let ids = file.tokenizer.encode("12 the[word]", false).unwrap();
        let expected = ["1", "2", "Ġthe", "[word]"].map(|t| words.id(t));
        assert_eq!(ids, expected, "digits are single");
    }
}

#[test]
fn the_fingerprint_tells_models_apart() {
    let base = small();
    let mut seen = std::collections::HashSet::new();
    let mut add = |what: &str, model: crate::Model| {
        assert!(seen.insert(model.fingerprint()), "{what} has the fingerprint of another");
    };
    add("base", base.build(1).unwrap());
    add("weights", base.build(2).unwrap());
    add("weight kind", base.build_as(1, WeightKind::F32).unwrap());
    add("positions", RandomLlama { max_positions: 99, ..base.clone() }.build(1).unwrap());
    add("layers", RandomLlama { n_layers: 1, ..base.clone() }.build(1).unwrap());
    add("head", RandomLlama { tied_head: true, ..base.clone() }.build(1).unwrap());
    let words = Words::new();
    let file = |edit: &dyn Fn(&mut GgufFile) -> &mut GgufFile| {
        let mut f = gguf(&base, 1, &words);
        edit(&mut f);
        load_gguf(&f, WeightKind::F16).unwrap().model
    };
    add("base of RoPE", file(&|f| f.f32("llama.rope.freq_base", 5e5)));
    add("linear scaling", file(&|f| f.f32("llama.rope.scaling.factor", 2.0)));
    add(
        "factors",
        file(&|f| {
            let factors: Vec<u8> =
                [1f32, 1.0, 2.0, 8.0].iter().flat_map(|v| v.to_le_bytes()).collect();
            f.tensor("rope_freqs.weight", &[4], 0, &factors)
        }),
    );
    assert_eq!(base.build(1).unwrap().fingerprint(), file(&|f| f).fingerprint());
}

#[test]
fn llama3_scaling_is_the_same_from_both_formats() {
    // Wavelengths below original/high are kept, above original/low divided, blended between.
    let scaling = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64 });
    let folder = load_folder(&small(), 1, json!({ "rope_scaling": scaling.clone() })).unwrap();
    let frequencies = &folder.model.frequencies;
    let plain = small().build(SEED).unwrap().frequencies;
    assert_eq!(frequencies[0], plain[0], "64 positions are ten turns: kept");
    assert!(frequencies[1] < plain[1] && frequencies[1] > plain[1] / 8.0, "one turn: blended");
    assert_eq!(frequencies[3], plain[3] / 8.0, "a fraction of a turn: divided");
    let newer = json!({ "rope_type": "default", "rope_theta": 10000.0 });
    let newer = load_folder(&small(), 1, json!({ "rope_theta": null, "rope_parameters": newer }));
    assert_eq!(newer.unwrap().model.frequencies, plain);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let check = |config: Value, expected: &str| {
        let error = load_folder(&small(), 1, config.clone()).unwrap_err().to_string();
        assert!(error.contains(expected), "{config}: {error}");
    };
    check(json!({ "architectures": ["GemmaForCausalLM"] }), "GemmaForCausalLM");
    check(json!({ "attention_bias": true }), "attention_bias");
    check(json!({ "mlp_bias": true }), "mlp_bias");
    check(json!({ "sliding_window": 4096 }), "sliding_window");
    check(json!({ "quantization_config": { "bits": 4 } }), "quantization_config");
    check(json!({ "hidden_act": "gelu" }), "gelu");
    check(json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4 } }), "yarn");
    check(json!({ "rope_scaling": { "type": "linear" } }), "factor");
    check(json!({ "num_hidden_layers": 3 }), "blk.2");
    check(json!({ "num_hidden_layers": 1 }), "model.layers.1");
    check(json!({ "hidden_size": 33 }), "shape");
    check(json!({ "head_dim": 7 }), "odd");
    check(json!({ "vocab_size": -1 }), "vocab_size");
    check(json!({ "num_attention_heads": 0 }), "head count");
    check(json!({ "max_position_embeddings": 1e30 }), "max_position_embeddings");

    let words = Words::new();
    let check = |edit: &dyn Fn(&mut GgufFile) -> &mut GgufFile, expected: &str| {
        let mut whole = gguf(&small(), SEED, &words);
        edit(&mut whole);
        let error = load_gguf(&whole, WeightKind::F16).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, expected {expected}");
    };
    check(&|f| f.u32("llama.expert_count", 8), "expert");
    check(&|f| f.u32("llama.attention.sliding_window", 8), "sliding window");
    check(&|f| f.u32("llama.rope.dimension_count", 4), "RoPE over 4");
    check(&|f| f.str("llama.rope.scaling.type", "yarn"), "yarn");
    check(&|f| f.tensor("blk.0.attn_q.bias", &[32], 0, &[0; 128]), "attn_q.bias");
    check(&|f| f.tensor("blk.7.attn_q.weight", &[1], 0, &[0; 4]), "blk.7");
    check(&|f| f.str("tokenizer.chat_template", "{% if %}"), "template");
    check(&|f| f.u32("tokenizer.ggml.bos_token_id", 999), "bos_token_id");
    check(&|f| f.f32("tokenizer.ggml.add_bos_token", 1.0), "add_bos_token");

    let error =
        load_gguf(GgufFile::default().str("general.architecture", "gemma3"), WeightKind::F16);
    assert!(error.unwrap_err().to_string().contains("gemma3"));
    for (words, expected) in [
        (Words { merges: vec!["th nothing".into()], ..Words::new() }, "nothing"),
        (Words { merges: vec!["th".into()], ..Words::new() }, "merge 0"),
        (
            Words { tokens: vec!["a".into(), "b".into()], types: vec![1, 1], merges: vec![] },
            "byte 32",
        ),
        (
            Words { tokens: vec!["a".into(), "a".into()], types: vec![1, 1], merges: vec![] },
            "twice",
        ),
        (Words { types: vec![1], ..Words::new() }, "1 token types"),
    ] {
        let error = load_gguf(&gguf(&small(), SEED, &with_end(words)), WeightKind::F16)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}, expected {expected}");
    }
}

/// The words with the end-of-text token that the written file names.
fn with_end(mut words: Words) -> Words {
    if !words.tokens.iter().any(|t| t == "<|im_end|>") {
        words.tokens.push("<|im_end|>".into());
        words.types.push(3);
    }
    words
}

#[test]
fn weights_too_large_for_halves_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = gguf(&small(), SEED, &Words::new());
    let mut bytes = file.bytes();
    // The embedding is the first tensor: change one of its elements.
    let embedding = bytes.len() - file.data_len() + 4 * 100;
    bytes[embedding..embedding + 4].copy_from_slice(&1e6f32.to_le_bytes());
    let path = dir.path().join("large.gguf");
    std::fs::write(&path, &bytes).unwrap();
    let error = load(&path, WeightKind::F16).unwrap_err();
    assert!(matches!(&error, ModelError::NotFinite { name, .. } if name == "token_embd.weight"));
    assert!(error.to_string().contains("load the weights as f32"), "{error}");
    load(&path, WeightKind::F32).unwrap();
    bytes[embedding..embedding + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(load(&path, WeightKind::F32), Err(ModelError::NotFinite { .. })));
}

#[test]
fn malformed_folders_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let check = |what: &str, expected: &str| {
        let error = load(path, WeightKind::F16).unwrap_err().to_string();
        assert!(error.contains(expected), "{what}: {error}");
    };
    check("empty folder", "neither");
    folder(path, &small(), SEED, &Words::new(), 1, &json!({}));
    load(path, WeightKind::F16).unwrap();

    let tensors = path.join("model.safetensors");
    let good = std::fs::read(&tensors).unwrap();
    let write = |bytes: &[u8]| std::fs::write(&tensors, bytes).unwrap();
    write(&good[..good.len() - 1]);
    check("a byte short", "model.safetensors");
    write(&good[..4]);
    check("no header", "too few");
    write(&[&u64::MAX.to_le_bytes()[..], &good[8..]].concat());
    check("a header of 2^64 bytes", "does not fit");
    write(&[&5u64.to_le_bytes()[..], &good[8..]].concat());
    check("half a header", "header");
    std::fs::remove_file(&tensors).unwrap();
    check("no weights", "model.safetensors");
    for name in ["../model.safetensors", "/etc/passwd", ""] {
        write_json(
            &path.join("model.safetensors.index.json"),
            &json!({ "weight_map": { "x": name } }),
        );
        check(name, "weight_map");
    }
    std::fs::remove_file(path.join("model.safetensors.index.json")).unwrap();
    write(&good);

    let mut unknown = tokenizer_json(&Words::new());
    unknown["model"]["type"] = json!("WordPiece");
    write_json(&path.join("tokenizer.json"), &unknown);
    check("another kind of tokenizer", "byte-level");
    let mut long = tokenizer_json(&Words::new());
    long["model"]["merges"] = json!(["Ġthe the"]);
    write_json(&path.join("tokenizer.json"), &long);
    check("a merge to no token", "merge 0");
    std::fs::remove_file(path.join("tokenizer.json")).unwrap();
    check("no tokenizer", "tokenizer.json");
    std::fs::write(path.join("config.json"), "{").unwrap();
    check("no JSON", "config.json");
}

#[test]
fn templates_and_ends_of_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let words = Words::new();
    folder(path, &small(), SEED, &words, 1, &json!({ "eos_token_id": [256, 9999] }));
    let render = |path: &Path| {
        let loaded = load(path, WeightKind::F16).unwrap();
        let text = loaded.template.render(&[crate::ChatMessage::new("user", "x")], true).unwrap();
        (text, loaded.stop_ids)
    };
    let (start, end) = (words.id("<|endoftext|>"), words.id("<|im_end|>"));
    assert_eq!(render(path), ("<|user|>\nx\n<|assistant|>\n".into(), vec![256, start, end]));
    std::fs::write(path.join("chat_template.jinja"), "file").unwrap();
    assert_eq!(render(path).0, "file");
    let named = json!([{ "name": "tool", "template": "no" }, { "name": "default", "template": "{{ eos_token }}" }]);
    write_json(
        &path.join("tokenizer_config.json"),
        &json!({ "chat_template": named, "eos_token": { "content": "<|im_start|>" } }),
    );
    let expected = vec![256, start, words.id("<|im_start|>"), end];
    assert_eq!(render(path), ("<|im_start|>".into(), expected));
    write_json(
        &path.join("generation_config.json"),
        &json!({ "chat_template": "g", "eos_token_id": 7 }),
    );
    let (text, ids) = render(path);
    assert_eq!((text.as_str(), ids.contains(&7)), ("g", true));
}

#[test]
fn names_are_without_the_quantisation() {
    for (path, expected) in [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("a/b/llama-3.2-1b-f16.gguf", "llama-3.2-1b"),
        ("model-Q8_0.gguf", "model"),
        ("v1.5.gguf", "v1.5"),
        ("f16.gguf", "f16"),
    ] {
        assert_eq!(crate::name_of(Path::new(path)), expected);
    }
}
