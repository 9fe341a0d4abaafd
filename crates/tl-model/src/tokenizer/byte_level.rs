//! The tokenizer of models that our own code makes: every byte is a token, so that any text can be
//! encoded without a vocabulary.

/// Special tokens, from id 256 on.
pub const SPECIALS: [&str; 8] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<|pad|>",
];

/// Size of the vocabulary: bytes and specials.
pub const VOCAB: usize = 256 + SPECIALS.len();

/// Id of a special token.
pub(crate) const END_OF_TEXT: u32 = 256;
pub(crate) const IM_END: u32 = 258;

pub(super) fn encode(text: &str) -> Vec<u32> {
    let mut ids = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        // All specials begin with `<`, which is rare: look for one only there.
        let special = rest
            .starts_with('<')
            .then(|| SPECIALS.iter().position(|s| rest.starts_with(s)))
            .flatten();
        if let Some(i) = special {
            ids.push(256 + i as u32);
            rest = &rest[SPECIALS[i].len()..];
        } else {
            let next = rest.char_indices().skip(1).find(|&(_, c)| c == '<');
            let (plain, after) = rest.split_at(next.map_or(rest.len(), |(i, _)| i));
            ids.extend(plain.bytes().map(u32::from));
            rest = after;
        }
    }
    ids
}
