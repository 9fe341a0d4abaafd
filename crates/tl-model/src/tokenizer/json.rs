//! A tokenizer from a `tokenizer.json`.

use serde_json::Value;

use super::bytes::Spelling;
use super::{Kind, Table, Tokenizer};
use crate::error::ModelError;

/// Reads the bytes of a `tokenizer.json`.
pub(crate) fn read(bytes: &[u8]) -> Result<Tokenizer, ModelError> {
    let fail = |e: String| ModelError::Tokenizer(format!("tokenizer.json: {e}"));
    let json: Value = serde_json::from_slice(bytes).map_err(|e| fail(e.to_string()))?;
    let spelling = spelling(&json).ok_or_else(|| {
        ModelError::Unsupported(
            "a tokenizer.json that is neither byte-level nor metaspace BPE".to_owned(),
        )
    })?;
    check_merges(&json).map_err(fail)?;
    let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| fail(e.to_string()))?;
    // A file saved after training may still cut every text at a fixed length.
    inner.with_truncation(None).map_err(|e| fail(e.to_string()))?;
    inner.with_padding(None);

    let vocab = inner.get_vocab(true);
    let added = inner.get_added_tokens_decoder();
    let n = vocab.values().max().map_or(0, |&id| id as usize + 1);
    if n > vocab.len().saturating_mul(2) + 1024 {
        return Err(fail(format!("the largest id is {} for {} tokens", n - 1, vocab.len())));
    }
    let mut texts: Vec<Option<&str>> = vec![None; n];
    for (text, &id) in &vocab {
        texts[id as usize] = Some(text);
    }
    let mut table = Table::default();
    for (id, text) in texts.into_iter().enumerate() {
        let token = added.get(&(id as u32));
        match (token, text) {
            (Some(token), _) if token.special => table.push([], Some(&token.content)),
            (Some(token), _) => table.push(&token.content, None),
            (None, Some(text)) => table.push(spelling.bytes(text), None),
            (None, None) => table.push([], None),
        }
    }
    Ok(table.finish(Kind::Bpe { inner: Box::new(inner), ends: None }))
}

/// How the vocabulary writes bytes, told by the decoder and, failing that, the pre-tokenizer.
fn spelling(json: &Value) -> Option<Spelling> {
    if json["model"]["type"].as_str().is_some_and(|t| t != "BPE") {
        return None;
    }
    for part in ["decoder", "pre_tokenizer"] {
        if has_type(&json[part], "ByteLevel") {
            return Some(Spelling::ByteLevel);
        }
        if ["ByteFallback", "Metaspace"].iter().any(|t| has_type(&json[part], t)) {
            return Some(Spelling::Metaspace);
        }
    }
    None
}

/// Whether `part` is of type `name` or a sequence that holds one.
fn has_type(part: &Value, name: &str) -> bool {
    part["type"] == name
        || ["decoders", "pretokenizers"]
            .iter()
            .filter_map(|key| part[key].as_array())
            .flatten()
            .any(|p| p["type"] == name)
}

/// The library takes for granted that no merge makes a text longer than the longest token.
fn check_merges(json: &Value) -> Result<(), String> {
    let model = &json["model"];
    let Some(vocab) = model["vocab"].as_object() else {
        return Err("model.vocab is missing".to_owned());
    };
    let longest = vocab.keys().map(String::len).max().unwrap_or(0);
    for (i, merge) in model["merges"].as_array().into_iter().flatten().enumerate() {
        let parts = match merge {
            Value::String(s) => s.split_once(' '),
            Value::Array(a) => match a.as_slice() {
                [a, b] => a.as_str().zip(b.as_str()),
                _ => None,
            },
            _ => None,
        };
        let (a, b) = parts.ok_or_else(|| format!("merge {i} has not two parts"))?;
        if a.len() + b.len() > longest {
            return Err(format!("merge {i} makes a text that is no token"));
        }
    }
    Ok(())
}
