//! The OpenAI shapes both servers speak, written and read in one place.
//!
//! A request is checked by hand rather than derived: a wrong type, a value out of range and
//! a parameter that exists but is not implemented are three different answers (400 with the
//! field's path, 400 with the range, 422 with the name), and an unknown field is none. The
//! result is one normalized [`Generate`] for chat and text completions.
//!
//! Whether a `null` is sent or a field left out is never a difference.

mod chunk;
mod fields;
mod request;
mod response;
mod tokenize;
mod unsupported;

pub use chunk::{ChunkPart, ParsedChunk, parse_chunk};
pub use request::{
    ChatMessage, DEFAULT_COMPLETION_TOKENS, Generate, Input, Internal, Kind, MAX_BODY_BYTES,
    MAX_CHOICES, MAX_INTERNAL_BODY_BYTES, MAX_TOP_LOGPROBS, Role, Sampling, choice_seed,
};
pub use response::{
    Choice, Delta, FinishReason, Head, TokenLogprob, TopLogprob, Usage, draw_seed, model_list,
    model_object,
};
pub use tokenize::{Tokenize, TokenizeInput, parse_tokenize_response, tokenize_response};

#[cfg(test)]
pub(crate) mod tests;
