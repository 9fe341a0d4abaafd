//! What a request's choices share, and a prefill's answer as the two parts of the hand-off.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tl_api::config::Target;
use tl_api::error::ApiError;
use tl_api::handoff::{Context, FirstOutput, FirstToken, HandoffRecord, Resume};
use tl_api::openai::{
    ChunkPart, FinishReason, Generate, Sampling, TokenLogprob, TopLogprob, Usage, choice_seed,
};
use tl_proto::engine::v1::{KvHandle, PrefillRequest, PrefillResponse, SamplingParams};
use tokio::time::Instant;

use super::shared::Load;
use super::story::Story;
use crate::route::{Demand, Pick};

/// What all choices of one request share.
#[derive(Debug)]
pub(crate) struct Job {
    /// As served, one choice, streamed with usage, without seed; see [`Job::request_of`].
    pub(crate) request: Generate,
    pub(crate) context: Context,
    /// Of choice 0.
    pub(crate) seed: u64,
    pub(crate) prompt_ids: Vec<u32>,
    pub(crate) key: Vec<u8>,
    pub(crate) demand: Demand,
    pub(crate) targets: Vec<Target>,
    /// When waiting for room ends.
    pub(crate) admit_by: Instant,
    /// What is handed over leaves at once.
    pub(crate) streamed: bool,
    pub(crate) story: Arc<Story>,
}

impl Job {
    /// What choice `index` asks of an engine.
    pub(crate) fn request_of(&self, index: u32, with_ids: bool) -> Generate {
        Generate {
            seed: Some(choice_seed(self.seed, index)),
            tl_prompt_ids: with_ids.then(|| self.prompt_ids.clone()),
            ..self.request.clone()
        }
    }

    /// The prefill of choice `index`, whose blocks `decode` will hold under `handle`.
    pub(crate) fn prefill_request(
        &self,
        index: u32,
        handle: String,
        prefill: &Pick,
        decode: &Pick,
        timeout: Duration,
    ) -> PrefillRequest {
        let rest =
            prefill.max_context.map(|max| u64::from(max).saturating_sub(self.demand.prompt_tokens));
        let max_tokens = self.request.max_tokens.or(rest).unwrap_or(u64::MAX).max(1);
        let Sampling {
            temperature,
            top_p,
            top_k,
            min_p,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
        } = self.request.sampling;
        PrefillRequest {
            request_id: handle,
            model: self.request.model.clone(),
            prompt_ids: self.prompt_ids.clone(),
            sampling: Some(SamplingParams {
                temperature: temperature as f32,
                top_p: top_p as f32,
                top_k: i32::try_from(top_k).unwrap_or(i32::MAX),
                min_p: min_p as f32,
                repetition_penalty: repetition_penalty as f32,
                presence_penalty: presence_penalty as f32,
                frequency_penalty: frequency_penalty as f32,
                seed: choice_seed(self.seed, index),
                max_new_tokens: i32::try_from(max_tokens).unwrap_or(i32::MAX),
                stop: self.request.stop.clone(),
                logprobs: self.request.logprobs.unwrap_or(0) as i32,
            }),
            decode_target: decode.kv_address.clone(),
            deadline_unix_ms: unix_ms(timeout),
            priority: self.context.priority,
        }
    }

    /// The hand-off record, or `None` when the answer is not one to this request and handle.
    /// `extended`: the prefill engine speaks the extensions.
    pub(crate) fn record(
        &self,
        index: u32,
        handle_id: &str,
        extended: bool,
        response: &PrefillResponse,
    ) -> Option<HandoffRecord> {
        let prompt_tokens = u32::try_from(response.prompt_tokens).ok()?;
        if prompt_tokens as usize != self.prompt_ids.len() {
            return None;
        }
        let finish = match response.finish_reason.as_str() {
            "" => None,
            reason => Some(FinishReason::parse(reason)?),
        };
        let handle = response.handle.as_ref();
        let fits = |h: &KvHandle| h.n_tokens == prompt_tokens && h.handle_id == handle_id;
        if finish.is_none() && !handle.is_some_and(fits) {
            return None;
        }
        // A peer that does not say the text of its first token: the decode engine samples
        // it again from the same draw, and its stream has the text.
        let first = extended.then(|| FirstToken {
            id: response.first_token,
            draws: handle.map_or(0, |h| h.rng_draws_consumed),
        });
        // No entry for an end of text, nor for a token that a stop string swallowed whole.
        let shown = finish != Some(FinishReason::Stop) || !response.first_text.is_empty();
        let wants_logprob = self.request.logprobs.is_some() && first.is_some() && shown;
        Some(HandoffRecord {
            resume: Resume {
                handle_id: handle_id.to_owned(),
                first,
                request: self.request_of(index, true),
                context: self.context.clone(),
            },
            first_output: FirstOutput {
                text: if first.is_some() { response.first_text.clone() } else { String::new() },
                finish,
                logprob: wants_logprob.then(|| first_logprob(response)),
                prompt_tokens,
                cached_prompt_tokens: u32::try_from(response.cached_prompt_tokens)
                    .unwrap_or(0)
                    .min(prompt_tokens),
            },
        })
    }
}

/// What a driver reports, with the choice's index.
#[derive(Debug)]
pub(crate) enum Out {
    /// Who serves it, before its first part and again when that changes.
    Routed(RouteInfo),
    /// More of the answer.
    Part(ChunkPart),
    /// Forget the parts so far.
    Restart,
    /// The answer is whole. The load ends when the last byte has left.
    Done {
        usage: Usage,
        load: Option<Load>,
    },
    Failed(ApiError),
}

/// Who served a choice, for `?debug=route`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RouteInfo {
    pub(crate) prefill: Option<String>,
    pub(crate) decode: String,
    pub(crate) reason: String,
    pub(crate) blocks_sent: u32,
    pub(crate) blocks_deduped: u32,
    pub(crate) payload_bytes: u64,
    pub(crate) attempt: u32,
}

/// The prompt's side from the prefill engine, which knows what its cache held; the answer's
/// from the decode engine, whose count has the first token in it. `empty`: there was none.
pub(crate) fn combined_usage(
    first: Option<&FirstOutput>,
    empty: bool,
    decoded: Option<Usage>,
) -> Usage {
    match (first, decoded) {
        (Some(first), decoded) => Usage {
            prompt_tokens: first.prompt_tokens.into(),
            completion_tokens: decoded.map_or(u64::from(!empty), |u| u.completion_tokens),
            cached_tokens: first.cached_prompt_tokens.into(),
        },
        (None, Some(mut usage)) => {
            usage.cached_tokens = usage.cached_tokens.min(usage.prompt_tokens);
            usage
        }
        (None, None) => Usage::default(),
    }
}

/// The decode engine's first output, where that had to be waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstDecoded<'a> {
    pub(crate) part: &'a ChunkPart,
    /// Tokens of the answer, the first one included; known where the answer has ended.
    pub(crate) tokens: Option<u64>,
}

impl FirstDecoded<'_> {
    /// A stop string ended the answer before any of its text was certain. Tokens that show no text
    /// are then in the stop string or before it, and one engine reports none of them. At an end
    /// of text it reports all, and what a first token has withheld comes out, or it had no bytes
    /// and was the only one.
    fn is_a_stop_string(&self, first_bytes: &[u8]) -> bool {
        let ChunkPart { index: _, text, logprobs, finish } = self.part;
        let nothing = text.is_empty() && logprobs.as_ref().is_none_or(Vec::is_empty);
        let only_one = first_bytes.is_empty() && self.tokens.is_none_or(|n| n <= 1);
        nothing && *finish == Some(FinishReason::Stop) && !only_one
    }
}

/// The client's part of a first token, `None` when there is nothing to see.
pub(crate) fn first_part(
    index: u32,
    first: &FirstOutput,
    decoded: Option<FirstDecoded<'_>>,
) -> Option<ChunkPart> {
    let FirstOutput { text, finish, logprob, prompt_tokens: _, cached_prompt_tokens: _ } = first;
    let swallowed = |l: &&TokenLogprob| {
        let bytes = l.bytes.as_deref().unwrap_or_default();
        text.is_empty() && decoded.is_some_and(|d| d.is_a_stop_string(bytes))
    };
    let logprobs = logprob.as_ref().filter(|l| !swallowed(l)).map(|l| vec![l.clone()]);
    if text.is_empty() && finish.is_none() && logprobs.is_none() {
        return None;
    }
    Some(ChunkPart { index, text: text.clone(), logprobs, finish: *finish })
}

/// The answer ended with an end-of-text token and nothing before it.
pub(crate) fn ends_without_token(response: &PrefillResponse) -> bool {
    response.finish_reason == FinishReason::Stop.as_str() && response.first_token_bytes.is_empty()
}

fn first_logprob(response: &PrefillResponse) -> TokenLogprob {
    let logprob = if response.first_logprob_f64 == 0.0 {
        f64::from(response.first_logprob)
    } else {
        response.first_logprob_f64
    };
    let top = response.first_top_logprobs.iter().map(|t| TopLogprob {
        token: TokenLogprob::text_of(&t.token_bytes),
        logprob: t.logprob,
        bytes: Some(t.token_bytes.to_vec()),
    });
    TokenLogprob {
        token: TokenLogprob::text_of(&response.first_token_bytes),
        logprob,
        bytes: Some(response.first_token_bytes.to_vec()),
        top: top.collect(),
        text_offset: 0,
    }
}

fn unix_ms(after: Duration) -> i64 {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + after;
    i64::try_from(at.as_millis()).unwrap_or(0)
}
