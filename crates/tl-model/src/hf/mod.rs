//! A Hugging Face folder: `config.json`, safetensors, `tokenizer.json` and their companions.

mod config;
mod safetensors;

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::config::WeightKind;
use crate::error::ModelError;
use crate::model::Model;
use crate::tokenizer::{self, Tokenizer};
use crate::{ChatTemplate, Loaded};

/// JSON files of a model are small; a larger one is something else.
const MAX_JSON: u64 = 256 << 20;

pub(crate) fn load(
    folder: &Path,
    weights: WeightKind,
    threads: usize,
) -> Result<Loaded, ModelError> {
    let Some(json) = read_json(&folder.join("config.json"))? else {
        return Err(ModelError::NotAModel { path: folder.to_owned() });
    };
    let config = config::read(&folder.join("config.json"), &json)?;
    let tensors = safetensors::Folder::open(folder, &config)?;
    let tokenizer_path = folder.join("tokenizer.json");
    let (model, tokenizer) = std::thread::scope(|scope| {
        let tokenizer = scope.spawn(|| {
            let bytes = read_file(&tokenizer_path)?.ok_or_else(|| missing(&tokenizer_path))?;
            tokenizer::read_json(&bytes)
        });
        let model = Model::load(&tensors, config, weights, threads);
        let tokenizer = tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, ModelError>((model?, tokenizer?))
    })?;
    crate::check_vocabulary(&tokenizer, &model)?;

    let generation = read_json(&folder.join("generation_config.json"))?.unwrap_or_default();
    let text = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let template_file = folder.join("chat_template.jinja");
    let template_file = read_file(&template_file)?
        .map(|bytes| {
            String::from_utf8(bytes).map_err(|_| ModelError::Json {
                path: template_file.clone(),
                problem: "not UTF-8".into(),
            })
        })
        .transpose()?;
    let template = template_of(&generation)
        .or_else(|| template_of(&text))
        .or(template_file)
        .map(|source| {
            let (bos, eos) = (token_text(&text["bos_token"]), token_text(&text["eos_token"]));
            ChatTemplate::new(&source, bos, eos)
        })
        .transpose()?
        .unwrap_or_else(ChatTemplate::default_template);
    let stop_ids = stop_ids(&tokenizer, &model, &[&generation, &json], &text);
    Ok(Loaded { model, tokenizer, template, stop_ids, name: crate::name_of(folder) })
}

/// Every end-of-text id that the configurations name (a number or a list), and the special tokens
/// that end a turn in the known chat formats.
fn stop_ids(
    tokenizer: &Tokenizer,
    model: &Model,
    configs: &[&Value],
    tokenizer_config: &Value,
) -> Vec<u32> {
    let mut ids = Vec::new();
    for config in configs {
        let listed = match &config["eos_token_id"] {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        ids.extend(listed.iter().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()));
    }
    let eos = token_text(&tokenizer_config["eos_token"]);
    for text in tokenizer::TURN_ENDS.into_iter().chain(eos) {
        ids.extend(tokenizer.special_id(text));
    }
    ids.retain(|&id| (id as usize) < model.config().vocab);
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// A token is given as text or as an object with its text.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// A template is text, or a list of named ones of which `default` is meant.
fn template_of(config: &Value) -> Option<String> {
    match &config["chat_template"] {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|t| t["name"] == "default")?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// A file's bytes, `None` when there is no such file.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, ModelError> {
    let fail = |source| ModelError::Io { path: path.to_owned(), source };
    match std::fs::metadata(path) {
        Ok(meta) if meta.len() > MAX_JSON => {
            let what = format!("{} bytes are more than {MAX_JSON}", meta.len());
            Err(fail(io::Error::new(io::ErrorKind::FileTooLarge, what)))
        }
        Ok(_) => std::fs::read(path).map(Some).map_err(fail),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(fail(e)),
    }
}

fn read_json(path: &Path) -> Result<Option<Value>, ModelError> {
    let Some(bytes) = read_file(path)? else { return Ok(None) };
    let value = serde_json::from_slice(&bytes)
        .map_err(|e| ModelError::Json { path: path.to_owned(), problem: e.to_string() })?;
    Ok(Some(value))
}

fn missing(path: &Path) -> ModelError {
    ModelError::Io { path: path.to_owned(), source: io::ErrorKind::NotFound.into() }
}
