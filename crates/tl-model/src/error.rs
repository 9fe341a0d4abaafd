//! Errors of loading and of a forward pass.

use std::io;
use std::path::PathBuf;

use crate::gguf::GgufError;

/// Why a model, a tokenizer or a template could not be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be opened or read.
    #[error("cannot read {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// Not a path that this loader knows how to read.
    #[error("{path} is neither a .gguf file nor a folder with config.json")]
    NotAModel { path: PathBuf },
    /// A GGUF file is malformed or uses something that is not supported.
    #[error("{path}: {source}")]
    Gguf { path: PathBuf, source: GgufError },
    /// A safetensors file is malformed.
    #[error("{path}: {problem}")]
    Safetensors { path: PathBuf, problem: String },
    /// A JSON file is malformed or lacks something.
    #[error("{path}: {problem}")]
    Json { path: PathBuf, problem: String },
    /// The file is sound, but the model in it needs something that is not there.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The configuration contradicts itself.
    #[error("model configuration: {0}")]
    Config(String),
    /// A tensor is missing.
    #[error("tensor `{0}` is missing")]
    MissingTensor(String),
    /// A tensor has another shape than the configuration says.
    #[error("tensor `{name}` has shape {found:?}, expected {expected:?}")]
    Shape { name: String, found: Vec<usize>, expected: Vec<usize> },
    /// A weight is infinite, not a number, or too large for f16.
    #[error("tensor `{name}` holds a value that is not finite as {kind}{hint}")]
    NotFinite { name: String, kind: &'static str, hint: &'static str },
    /// The tokenizer could not be built, or refused a text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The chat template is no valid template.
    #[error("chat template: {0}")]
    Template(String),
    /// The chat template refused these messages: the request's fault, not the model's.
    #[error("the chat template cannot render these messages: {0}")]
    Render(String),
}

/// Why a forward pass was refused. Nothing has been written when one of these is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    #[error("span {span} has no tokens")]
    EmptySpan { span: usize },
    #[error("span {span}: token {token} is outside the vocabulary of {vocab}")]
    Token { span: usize, token: u32, vocab: usize },
    #[error("span {span}: position {position} is past the model's {max_positions} positions")]
    Position { span: usize, position: usize, max_positions: usize },
    #[error("span {span}: {needed} blocks are needed, the table has {found}")]
    TableTooShort { span: usize, needed: usize, found: usize },
    /// A block of the table is no block of the pool, held by nobody, or not this span's to write.
    #[error("span {span}: block {block} cannot be used: {why}")]
    Block { span: usize, block: u32, why: String },
    #[error(
        "the model needs [layers, kv heads, head dimension] {needed:?}, the pool has {found:?}"
    )]
    PoolShape { needed: [u32; 3], found: [u32; 3] },
}
