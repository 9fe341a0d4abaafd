//! Text to token ids, and each id to the bytes it stands for.
//!
//! Decoding is a table of bytes per id rather than a decoder over sequences: a stream of tokens
//! then becomes text by appending, and a character cut between two tokens is the reader's to join.
//!
//! # Special tokens in text
//!
//! [`Tokenizer::encode`] turns the text of a special token (`<|im_end|>`) into its id wherever it
//! stands, since that is how a rendered chat template carries its structure. A user who writes such
//! a text into a message therefore writes the token, here as in most servers: role boundaries are a
//! convention of the prompt and no trust boundary. Whoever needs one refuses or rewrites messages
//! for which [`Tokenizer::contains_special`] is true, before they are rendered.

mod byte_level;
mod bytes;
mod gguf;
mod json;

use std::fmt;

use crate::error::ModelError;

pub(crate) use byte_level::{END_OF_TEXT, IM_END};
pub use byte_level::{SPECIALS as BYTE_SPECIALS, VOCAB as BYTE_VOCAB};
#[cfg(test)]
pub(crate) use bytes::byte_to_char;
pub(crate) use gguf::{TURN_ENDS, read as read_gguf};
pub(crate) use json::read as read_json;

/// A tokenizer and its table of bytes per token.
pub struct Tokenizer {
    kind: Kind,
    /// Bytes of each id, empty for a special token.
    bytes: ByteTable,
    special: Vec<bool>,
    /// The texts of the special tokens and their ids.
    special_texts: Vec<(String, u32)>,
}

enum Kind {
    /// One token per byte, for models made by our own code.
    Bytes,
    Bpe {
        inner: Box<tokenizers::Tokenizer>,
        /// What `add_special` puts before and after; `None` when the tokenizer's own
        /// post-processor knows.
        ends: Option<Ends>,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    bos: Option<u32>,
    eos: Option<u32>,
}

impl Tokenizer {
    /// Tokenizes `text`; the text of a special token becomes that token. `add_special` adds what
    /// the model wants around a bare text (a begin-of-text token for many, nothing for some); a
    /// rendered chat template brings its own and is encoded without.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, ModelError> {
        match &self.kind {
            Kind::Bytes => Ok(byte_level::encode(text)),
            Kind::Bpe { inner, ends } => {
                let own = add_special && ends.is_none();
                let encoding = inner
                    .encode_fast(text, own)
                    .map_err(|e| ModelError::Tokenizer(e.to_string()))?;
                let Some(ends) = ends.filter(|_| add_special) else {
                    return Ok(encoding.get_ids().to_vec());
                };
                let ids = encoding.get_ids().iter().copied();
                Ok(ends.bos.into_iter().chain(ids).chain(ends.eos).collect())
            }
        }
    }

    /// The bytes that token `id` adds to the text: empty for a special token and for an id outside
    /// the vocabulary. A token may end in the middle of a character.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize)
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// One more than the largest id. The model's vocabulary may be padded beyond it.
    pub fn vocab_size(&self) -> usize {
        self.special.len()
    }

    /// Whether `text` holds the text of a special token, which [`Self::encode`] would make a token.
    pub fn contains_special(&self, text: &str) -> bool {
        self.special_texts.iter().any(|(s, _)| text.contains(s.as_str()))
    }

    /// The special token of that text.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        self.special_texts.iter().find(|(s, _)| s == text).map(|&(_, id)| id)
    }

    /// The bytes of all `ids` together.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.token_bytes(id)).copied().collect()
    }

    /// One token per byte and the specials of [`BYTE_SPECIALS`].
    pub fn byte_level() -> Self {
        let mut table = Table::default();
        for byte in 0..=255 {
            table.push(vec![byte], None);
        }
        for text in BYTE_SPECIALS {
            table.push(Vec::new(), Some(text));
        }
        table.finish(Kind::Bytes)
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab", &self.vocab_size()).finish_non_exhaustive()
    }
}

/// Byte strings end to end: fifty thousand small vectors would be slow to make and scattered.
#[derive(Default)]
struct ByteTable {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl ByteTable {
    fn get(&self, i: usize) -> &[u8] {
        let Some(&end) = self.ends.get(i) else { return &[] };
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.data[start..end]
    }
}

/// The parts of a [`Tokenizer`] that are filled id by id.
#[derive(Default)]
struct Table {
    bytes: ByteTable,
    special: Vec<bool>,
    special_texts: Vec<(String, u32)>,
}

impl Table {
    /// Adds the next id: its bytes, and its text when it is special.
    fn push(&mut self, bytes: impl AsRef<[u8]>, special: Option<&str>) {
        if special.is_none() {
            self.bytes.data.extend_from_slice(bytes.as_ref());
        }
        self.bytes.ends.push(self.bytes.data.len());
        let id = self.special.len() as u32;
        self.special.push(special.is_some());
        self.special_texts.extend(special.filter(|s| !s.is_empty()).map(|s| (s.to_owned(), id)));
    }

    fn finish(self, kind: Kind) -> Tokenizer {
        let Self { bytes, special, special_texts } = self;
        Tokenizer { kind, bytes, special, special_texts }
    }
}

#[cfg(test)]
mod tests;
