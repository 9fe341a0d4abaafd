//! Text to prompt: the model's tokenizer and chat template, shared by all handlers.

use std::sync::Arc;
use tl_api::error::ApiError;
use tl_api::openai::TokenizeInput;
use tl_model::{ChatMessage, ChatTemplate, Loaded, Model, Tokenizer};

/// Above so many bytes of text, tokenizing would hold up the connections of its thread.
const INLINE_BYTES: usize = 16 * 1024;

/// A loaded model that several engines of one process may serve: the weights are there once.
#[derive(Debug, Clone)]
pub struct SharedModel {
    pub(crate) model: Arc<Model>,
    pub(crate) language: Arc<Language>,
    pub(crate) name: String,
}

impl From<Loaded> for SharedModel {
    fn from(loaded: Loaded) -> SharedModel {
        let Loaded { model, tokenizer, template, stop_ids, name } = loaded;
        let language = Arc::new(Language { tokenizer, template, stop_ids });
        SharedModel { model: Arc::new(model), language, name }
    }
}

impl SharedModel {
    /// What the model calls itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }
}

/// What the HTTP side needs of a model.
#[derive(Debug)]
pub(crate) struct Language {
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
    /// Tokens that end an answer.
    pub stop_ids: Vec<u32>,
}

impl Language {
    /// The prompt's token ids. Long texts are tokenized on a thread for blocking work.
    pub(crate) async fn prompt(
        self: &Arc<Self>,
        input: TokenizeInput,
    ) -> Result<Vec<u32>, ApiError> {
        let bytes = match &input {
            TokenizeInput::Text { text, .. } => text.len(),
            TokenizeInput::Messages(messages) => messages.iter().map(|m| m.content.len()).sum(),
        };
        if bytes <= INLINE_BYTES {
            return self.prompt_now(&input);
        }
        let language = Arc::clone(self);
        let job = tokio::task::spawn_blocking(move || language.prompt_now(&input));
        job.await.unwrap_or_else(|error| {
            tracing::error!(%error, "tokenizing did not end");
            Err(ApiError::internal("the prompt could not be tokenized"))
        })
    }

    fn prompt_now(&self, input: &TokenizeInput) -> Result<Vec<u32>, ApiError> {
        let (ids, param) = match input {
            TokenizeInput::Text { text, add_special } => {
                (self.tokenizer.encode(text, *add_special), "prompt")
            }
            TokenizeInput::Messages(messages) => {
                let messages: Vec<ChatMessage> = messages
                    .iter()
                    .map(|m| ChatMessage {
                        role: m.role.as_str().to_owned(),
                        content: m.content.clone(),
                    })
                    .collect();
                let text = self.template.render(&messages, true).map_err(|error| {
                    // A template refuses what its model was not trained on, such as two user turns
                    // in a row.
                    tracing::debug!(%error, "the chat template refused a conversation");
                    ApiError::bad_request(
                        format!("the model's chat template refused these messages: {error}"),
                        "messages",
                    )
                })?;
                // The template writes the begin mark itself where the model wants one.
                (self.tokenizer.encode(&text, false), "messages")
            }
        };
        let ids = ids.map_err(|error| {
            tracing::debug!(%error, "a text could not be tokenized");
            ApiError::bad_request(format!("the text could not be tokenized: {error}"), param)
        })?;
        Ok(ids)
    }
}
