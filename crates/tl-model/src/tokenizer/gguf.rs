//! A tokenizer from the arrays of a GGUF file.
//!
//! The file names its pre-tokenizer (`tokenizer.ggml.pre`) but does not hold it, so only names
//! whose rules are known are accepted: a guess would give other ids than the model was trained with.

use std::path::Path;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior};

use super::bytes::{Spelling, byte_to_char};
use super::{Ends, Kind, Table, Tokenizer};
use crate::error::ModelError;
use crate::gguf::{Gguf, GgufError};

/// Kinds of `tokenizer.ggml.token_type`.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// Special tokens that end a turn or a text in the known chat formats; a model may emit another
/// of them than the one its file calls end of text.
pub(crate) const TURN_ENDS: [&str; 6] =
    ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "</s>"];

/// What a GGUF file says about text beside the tokenizer itself.
#[derive(Debug)]
pub(crate) struct TextInfo {
    pub(crate) tokenizer: Tokenizer,
    /// Tokens at which generation ends.
    pub(crate) stop_ids: Vec<u32>,
    pub(crate) bos: Option<String>,
    pub(crate) eos: Option<String>,
    pub(crate) template: Option<String>,
}

struct Pre {
    rules: PreTokenizerWrapper,
    /// A piece that is in the vocabulary as a whole is not merged anew.
    ignore_merges: bool,
    add_bos: bool,
}

pub(crate) fn read(file: &Gguf, path: &Path) -> Result<TextInfo, ModelError> {
    let fail = |source: GgufError| ModelError::Gguf { path: path.to_owned(), source };
    let need = |key: &str| fail(Gguf::missing(key));

    let model = file.str("tokenizer.ggml.model").map_err(fail)?.unwrap_or("none");
    if model != "gpt2" {
        return Err(ModelError::Unsupported(format!(
            "tokenizer kind `{model}` in a GGUF file, only `gpt2` (byte-level BPE) is; \
             use the model's Hugging Face folder with its tokenizer.json instead"
        )));
    }
    let pre = pre_tokenizer(file.str("tokenizer.ggml.pre").map_err(fail)?.unwrap_or("default"))?;
    let tokens = file
        .strings("tokenizer.ggml.tokens")
        .map_err(fail)?
        .ok_or_else(|| need("tokenizer.ggml.tokens"))?;
    let merges = file
        .strings("tokenizer.ggml.merges")
        .map_err(fail)?
        .ok_or_else(|| need("tokenizer.ggml.merges"))?;
    let types = file.i32s("tokenizer.ggml.token_type").map_err(fail)?.unwrap_or(&[]);
    if !types.is_empty() && types.len() != tokens.len() {
        return Err(ModelError::Tokenizer(format!(
            "{} token types for {} tokens",
            types.len(),
            tokens.len()
        )));
    }
    let id = |key: &str| -> Result<Option<u32>, ModelError> {
        match file.u64(key).map_err(fail)? {
            Some(id) if id < tokens.len() as u64 => Ok(Some(id as u32)),
            Some(id) => Err(ModelError::Tokenizer(format!(
                "`{key}` is {id}, outside the vocabulary of {}",
                tokens.len()
            ))),
            None => Ok(None),
        }
    };
    let flag = |key: &str, default: bool| Ok(file.bool(key).map_err(fail)?.unwrap_or(default));

    let bos = id("tokenizer.ggml.bos_token_id")?;
    let eos = id("tokenizer.ggml.eos_token_id")?;
    let add_bos = flag("tokenizer.ggml.add_bos_token", pre.add_bos)?;
    let add_eos = flag("tokenizer.ggml.add_eos_token", false)?;
    let ends = Ends { bos: bos.filter(|_| add_bos), eos: eos.filter(|_| add_eos) };

    let kind_of = |i: usize| types.get(i).copied().unwrap_or(1);
    let mut stop_ids: Vec<u32> = [eos, id("tokenizer.ggml.eot_token_id")?]
        .into_iter()
        .chain([id("tokenizer.ggml.eom_token_id")?])
        .flatten()
        .collect();
    for (i, token) in tokens.iter().enumerate() {
        if kind_of(i) == CONTROL && TURN_ENDS.contains(&token.as_str()) {
            stop_ids.push(i as u32);
        }
    }
    stop_ids.sort_unstable();
    stop_ids.dedup();

    let text = |id: Option<u32>| id.map(|id| tokens[id as usize].clone());
    Ok(TextInfo {
        stop_ids,
        bos: text(bos),
        eos: text(eos),
        template: file.str("tokenizer.chat_template").map_err(fail)?.map(str::to_owned),
        tokenizer: build(tokens, merges, kind_of, pre, ends)?,
    })
}

fn build(
    tokens: &[String],
    merges: &[String],
    kind_of: impl Fn(usize) -> i32,
    pre: Pre,
    ends: Ends,
) -> Result<Tokenizer, ModelError> {
    let fail = |e: tokenizers::Error| ModelError::Tokenizer(e.to_string());
    let mut vocab = Vocab::with_capacity(tokens.len());
    let mut added = Vec::new();
    let mut table = Table::default();
    for (i, token) in tokens.iter().enumerate() {
        if vocab.insert(token.clone(), i as u32).is_some() {
            return Err(ModelError::Tokenizer(format!("token {token:?} appears twice")));
        }
        match kind_of(i) {
            CONTROL => {
                added.push(AddedToken::from(token.as_str(), true));
                table.push([], Some(token));
            }
            USER_DEFINED => {
                added.push(AddedToken::from(token.as_str(), false).normalized(false));
                table.push(token, None);
            }
            _ => table.push(Spelling::ByteLevel.bytes(token), None),
        }
    }
    // A trained vocabulary may lack bytes that its texts never held, and text with one loses it;
    // without the plain ones it is no byte-level vocabulary.
    let known = |byte: u8| vocab.contains_key(byte_to_char(byte).encode_utf8(&mut [0; 4]));
    if let Some(byte) = (b' '..=b'~').chain([b'\n']).find(|&byte| !known(byte)) {
        return Err(ModelError::Tokenizer(format!("the vocabulary has no token for byte {byte}")));
    }
    let mut pairs = Vec::with_capacity(merges.len());
    let mut product = String::new();
    for (i, merge) in merges.iter().enumerate() {
        // The second part may begin with a space only in vocabularies that are not byte-level.
        let pair = merge.split_once(' ').filter(|(a, b)| !a.is_empty() && !b.is_empty());
        let Some((a, b)) = pair else {
            return Err(ModelError::Tokenizer(format!(
                "merge {i} is {merge:?}, expected two parts"
            )));
        };
        product.clear();
        product.push_str(a);
        product.push_str(b);
        if let Some(part) = [a, b, &product].into_iter().find(|p| !vocab.contains_key(*p)) {
            return Err(ModelError::Tokenizer(format!("merge {i} needs token {part:?}")));
        }
        pairs.push((a.to_owned(), b.to_owned()));
    }
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, pairs)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(fail)?;
    let mut inner = tokenizers::Tokenizer::new(bpe);
    inner.with_pre_tokenizer(Some(pre.rules));
    inner.add_tokens(added).map_err(fail)?;
    Ok(table.finish(Kind::Bpe { inner: Box::new(inner), ends: Some(ends) }))
}

fn pre_tokenizer(name: &str) -> Result<Pre, ModelError> {
    // Llama 3 splits by a rule of its own and maps bytes without GPT-2's.
    const LLAMA3: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}\
                          | ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    let gpt2 = ByteLevel::new(false, true, true);
    Ok(match name {
        "default" | "gpt-2" => Pre { rules: gpt2.into(), ignore_merges: false, add_bos: false },
        "smollm" => {
            let rules = Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into();
            Pre { rules, ignore_merges: false, add_bos: false }
        }
        "llama-bpe" | "llama3" | "llama-v3" => {
            let pattern = SplitPattern::Regex(LLAMA3.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|e| ModelError::Tokenizer(e.to_string()))?;
            let bytes = ByteLevel::new(false, true, false);
            let rules = Sequence::new(vec![split.into(), bytes.into()]).into();
            Pre { rules, ignore_merges: true, add_bos: true }
        }
        other => {
            return Err(ModelError::Unsupported(format!(
                "pre-tokenizer `{other}` of a GGUF file, only gpt-2, smollm and llama-bpe are; \
                 use the model's Hugging Face folder with its tokenizer.json instead"
            )));
        }
    })
}
