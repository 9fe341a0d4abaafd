//! One forward pass of a Llama model: weights, tokenizer, chat template.
//!
//! A model comes from a GGUF file, from a Hugging Face folder, or from random numbers, and is then
//! one value that computes steps over the blocks of a KV pool. The crate knows the pool's storage
//! and nothing of requests, sockets or clocks.
//!
//! - **What is not understood is refused by name** (a tensor, a RoPE scaling, a tokenizer's rules):
//!   to ignore it would be to compute another model.
//! - **A result depends on the tokens alone.** Batch, chunks, threads and instruction set leave no
//!   trace in a logit or in a stored key or value, see [`Model::forward`].
//! - **A file is hostile until it is read**: lengths are checked before memory is asked for, and no
//!   input makes the crate panic.

#![forbid(unsafe_code)]

mod checkpoint;
mod config;
mod convert;
mod error;
mod fingerprint;
mod forward;
pub mod gguf;
mod gguf_model;
mod hf;
mod kv;
mod model;
mod random;
mod rows;
mod source;
mod template;
pub mod tokenizer;

use std::path::Path;

pub use config::{ModelConfig, RopeScaling, WeightKind};
pub use error::{ForwardError, ModelError};
pub use forward::{Span, Workspace};
pub use model::Model;
pub use random::RandomLlama;
pub use source::{FileSource, ReadAt};
pub use template::{ChatMessage, ChatTemplate};
pub use tl_kernels::{Isa, Kernels, Threads};
pub use tokenizer::Tokenizer;

/// A model with all that it takes to talk to it.
#[derive(Debug)]
pub struct Loaded {
    pub model: Model,
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
    /// Tokens at which generation ends, ascending.
    pub stop_ids: Vec<u32>,
    /// What the model is called: the file's or folder's name, without the quantisation.
    pub name: String,
}

/// Loads a `.gguf` file or a Hugging Face folder, with all cores.
pub fn load(path: &Path, weights: WeightKind) -> Result<Loaded, ModelError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let meta = std::fs::metadata(path)
        .map_err(|source| ModelError::Io { path: path.to_owned(), source })?;
    if meta.is_dir() {
        return hf::load(path, weights, threads);
    }
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) {
        return load_gguf(path, weights, threads);
    }
    Err(ModelError::NotAModel { path: path.to_owned() })
}

fn load_gguf(path: &Path, weights: WeightKind, threads: usize) -> Result<Loaded, ModelError> {
    let source = gguf_model::GgufModel::open(path)?;
    let config = source.config()?;
    // The tokenizer takes about as long as the weights and shares nothing with them.
    let (model, text) = std::thread::scope(|scope| {
        let text = scope.spawn(|| tokenizer::read_gguf(&source.file, path));
        let model = Model::load(&source, config, weights, threads);
        let text = text.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, ModelError>((model?, text?))
    })?;
    check_vocabulary(&text.tokenizer, &model)?;
    let template = match &text.template {
        Some(source) => ChatTemplate::new(source, text.bos.as_deref(), text.eos.as_deref())?,
        None => ChatTemplate::default_template(),
    };
    Ok(Loaded {
        model,
        tokenizer: text.tokenizer,
        template,
        stop_ids: text.stop_ids,
        name: name_of(path),
    })
}

/// A random model of a few layers over single bytes: the same for the same seed, on every machine.
pub fn tiny(seed: u64) -> Loaded {
    RandomLlama::default().loaded(seed).expect("the default shape is valid, a test builds it")
}

/// The tokenizer must not give tokens that the model has no embedding for.
fn check_vocabulary(tokenizer: &Tokenizer, model: &Model) -> Result<(), ModelError> {
    let (have, need) = (model.config().vocab, tokenizer.vocab_size());
    if need > have {
        return Err(ModelError::Config(format!(
            "the tokenizer has {need} tokens, the model's vocabulary only {have}"
        )));
    }
    Ok(())
}

/// `SmolLM2-135M-Instruct.Q4_1.gguf` is called `SmolLM2-135M-Instruct`.
fn name_of(path: &Path) -> String {
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let name = stem.map_or_else(|| "model".to_owned(), |s| s.to_string_lossy().into_owned());
    let cut = name.rfind(['.', '-']).filter(|&i| i > 0 && is_quantisation(&name[i + 1..]));
    cut.map_or(name.clone(), |i| name[..i].to_owned())
}

/// Whether a part of a file name says how the weights are stored.
fn is_quantisation(part: &str) -> bool {
    let part = part.to_ascii_lowercase();
    let quantised = part
        .strip_prefix('q')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains('_'));
    quantised || ["f32", "f16", "fp16", "bf16"].contains(&part.as_str())
}

#[cfg(test)]
mod tests;
