//! The choices of one request as one stream of pieces.
//!
//! Each choice is one generation of the engine and one [`Choice`] machine. Whoever consumes the
//! stream decides the shape of the answer; whoever drops it cancels every generation that still
//! runs, since the stream owns them. A stop string ends its choice here: the generation is dropped
//! at that token.

use crate::choice::{Choice, Out, finish_reason};
use crate::lang::Language;
use futures::StreamExt;
use futures::stream::{self, BoxStream, SelectAll};
use std::sync::Arc;
use tl_api::openai::FinishReason;
use tl_engine::engine::{EngineError, Event, Generation};

/// What happened to one choice. `End` and `Failed` are its last.
#[derive(Debug)]
pub(crate) enum Piece {
    /// It has blocks and takes part in steps; so much of the prompt was cached.
    Admitted {
        cached: u64,
    },
    /// A token. The output may be empty while text is held back.
    Token(Out),
    End {
        out: Out,
        finish: FinishReason,
        /// Tokens of the choice, those of a stop string and a first token from elsewhere included.
        tokens: u64,
        /// A token came with the end.
        token: bool,
    },
    Failed(EngineError),
}

/// Pieces of all choices, in the order in which they happen; the number is the choice's index.
pub(crate) type Pieces = SelectAll<BoxStream<'static, (u32, Piece)>>;

/// One choice under way.
pub(crate) struct Sequence {
    pub index: u32,
    pub generation: Generation,
    pub choice: Choice,
}

pub(crate) fn pieces(sequences: Vec<Sequence>, language: &Arc<Language>) -> Pieces {
    stream::select_all(sequences.into_iter().map(|sequence| {
        let language = Arc::clone(language);
        stream::unfold(Some(sequence), move |sequence| {
            let language = Arc::clone(&language);
            async move {
                let mut sequence = sequence?;
                let piece = advance(&mut sequence, &language).await;
                let index = sequence.index;
                let over = matches!(piece, Piece::End { .. } | Piece::Failed(_));
                Some(((index, piece), (!over).then_some(sequence)))
            }
        })
        .boxed()
    }))
}

async fn advance(sequence: &mut Sequence, language: &Language) -> Piece {
    let choice = &mut sequence.choice;
    match sequence.generation.next().await {
        Some(Event::Admitted { cached_tokens }) => Piece::Admitted { cached: cached_tokens as u64 },
        Some(Event::Token(token)) => {
            let out = choice.token(&token, &language.tokenizer);
            if choice.stopped() {
                Piece::End { out, finish: FinishReason::Stop, tokens: choice.tokens(), token: true }
            } else {
                Piece::Token(out)
            }
        }
        Some(Event::Finished { reason, .. }) => {
            let out = choice.finish();
            // The flush may complete a stop string that ends in a replacement character.
            let finish = if choice.stopped() { FinishReason::Stop } else { finish_reason(reason) };
            Piece::End { out, finish, tokens: choice.tokens(), token: false }
        }
        Some(Event::Failed(error)) => Piece::Failed(error),
        // Only a request that ends at its first token is given its blocks back.
        Some(Event::Prefilled { .. }) | None => Piece::Failed(EngineError::Stopped),
    }
}
