//! `POST /v1/chat/completions` and `/v1/completions`, whole or resumed.
//!
//! The order is: validate, then touch anything. A resume whose request is refused, for whatever
//! reason, gives the handed-over blocks back at once: the guard is made from the header alone,
//! before the body is even read, and releases the handle unless the engine has taken the blocks
//! over.

use crate::answer::{self, Counts, Events};
use crate::app::{App, RequestId, error_response, events_response, json_response, parse};
use crate::body;
use crate::choice::Choice;
use crate::errors::{self, of_refusal};
use crate::meter::RequestMeter;
use crate::sequence::{Sequence, pieces};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tl_api::error::ApiError;
use tl_api::handoff::{Context, FirstToken, Resume};
use tl_api::headers::{KV_HANDLE, SEED, is_well_formed_id};
use tl_api::openai::{
    Generate, Head, Input, Internal, Kind, Sampling, Tokenize, choice_seed, draw_seed,
};
use tl_engine::engine::{self, Start, Until};
use tl_engine::kv_transfer::{Claimed, KvReceiver};
use tl_engine::sample::SamplingParams;
use tl_kv::{Held, prompt_hashes};

pub(crate) async fn generate(app: Arc<App>, kind: Kind, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let handle = HandleGuard::of(&app, &parts.headers);
    let request_id = parts.extensions.get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let result = async {
        let limits = &app.limits;
        let body = body::read(body, limits.body_bytes, limits.body_time).await?;
        let request = parse(&body, move |b| Generate::parse(kind, b, Internal::Honoured)).await?;
        drop(body);
        app.check_model(&request.model)?;
        let resume = Resume::read(&parts.headers, &request)?;
        let context = Context { request_id, ..Context::read(&parts.headers)? };
        Ok((request, resume, context))
    };
    let (request, resume, context) = match result.await {
        Ok(read) => read,
        Err(error) => return error_response(&error),
    };
    let meter = RequestMeter::new(&app.metrics, kind, &app.model);
    answer(&app, request, resume, context, handle, meter)
        .await
        .unwrap_or_else(|e| error_response(&e))
}

/// Everything after validation.
async fn answer(
    app: &Arc<App>,
    request: Generate,
    resume: Option<Resume>,
    context: Context,
    handle: HandleGuard,
    mut meter: RequestMeter,
) -> Result<Response, ApiError> {
    let started = start(app, &request, resume, &context, handle).await;
    let started = started.inspect_err(|error| meter.failed(errors::code(error)))?;
    let Started { head, sequences, seed, prompt_tokens } = started;
    let counts = Counts::new(prompt_tokens);
    let n = request.n;
    let pieces = pieces(sequences, &app.language);
    let mut response = if request.stream {
        let ping = app.limits.ping;
        events_response(
            Events::open(head, pieces, counts, request.include_usage, ping, meter).await?,
        )
    } else {
        let whole = answer::whole(pieces, n, counts, &mut meter).await;
        let (choices, usage) = whole.inspect_err(|error| meter.failed(errors::code(error)))?;
        meter.done(usage);
        json_response(&head.answer(&choices, usage, seed))
    };
    response.headers_mut().insert(SEED, HeaderValue::from(seed));
    Ok(response)
}

struct Started {
    head: Head,
    sequences: Vec<Sequence>,
    seed: u64,
    prompt_tokens: usize,
}

/// Submits one generation per choice. An error here has cancelled those already submitted, by
/// dropping them.
async fn start(
    app: &Arc<App>,
    request: &Generate,
    resume: Option<Resume>,
    context: &Context,
    handle: HandleGuard,
) -> Result<Started, ApiError> {
    // Every field is named, so that a new one does not compile until it has a place here.
    let Generate {
        kind,
        model,
        input,
        sampling,
        stop,
        max_tokens,
        n,
        seed,
        logprobs,
        stream: _,
        include_usage: _,
        user: _,
        tl_prompt_ids,
    } = request;
    if resume.is_some() && *n != 1 {
        return Err(ApiError::bad_request("a handed-over request has one choice", "n"));
    }
    let prompt: Arc<[u32]> = match (tl_prompt_ids, input) {
        (Some(ids), _) | (None, Input::Ids(ids)) => ids.as_slice().into(),
        (None, Input::Text(_) | Input::Messages(_)) => match Tokenize::of(request) {
            Some(Tokenize { model: _, input }) => app.language.prompt(input).await?.into(),
            None => return Err(ApiError::internal("the prompt could not be read")),
        },
    };
    let seed = match seed {
        Some(seed) => *seed,
        None => draw_seed().map_err(no_randomness)?,
    };
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let head = Head::new(*kind, model, created).map_err(no_randomness)?;
    let mut first = None;
    let mut from = match resume {
        None => From::Nothing,
        Some(Resume { handle_id: _, first: token, request: _, context: _ }) => {
            first = token;
            From::Blocks(blocks_of(handle.claim()?, &prompt, app)?)
        }
    };
    let mut sequences = Vec::with_capacity(*n as usize);
    for index in 0..*n {
        let mut choice = Choice::new(stop, logprobs.is_some());
        let start = match std::mem::replace(&mut from, From::Nothing) {
            From::Nothing => Start::Fresh,
            From::Blocks(held) => {
                if let Some(FirstToken { id, draws: _ }) = first {
                    choice.silently(id, &app.language.tokenizer);
                }
                Start::Resume {
                    held,
                    first: first.map(|FirstToken { id, draws: _ }| engine::FirstToken { id }),
                    draws: first.map_or(0, |FirstToken { id: _, draws }| draws),
                }
            }
        };
        let generation = app
            .engine
            .submit(engine::Request {
                id: context.request_id.clone(),
                prompt: Arc::clone(&prompt),
                sampling: sampling_params(sampling),
                seed: choice_seed(seed, index),
                max_new_tokens: max_tokens
                    .map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX)),
                stop_ids: app.language.stop_ids.clone(),
                logprobs: logprobs.map(|top| top as usize),
                priority: context.priority,
                deadline: None,
                start,
                until: Until::Finished,
            })
            .map_err(|refused| of_refusal(&refused))?;
        sequences.push(Sequence { index, generation, choice });
    }
    Ok(Started { head, sequences, seed, prompt_tokens: prompt.len() })
}

enum From {
    Nothing,
    Blocks(Held),
}

/// The blocks that wait for this request, released when dropped unless claimed.
struct HandleGuard {
    waiting: Option<(Arc<KvReceiver>, String)>,
}

impl HandleGuard {
    fn of(app: &App, headers: &HeaderMap) -> HandleGuard {
        let id =
            headers.get(KV_HANDLE).and_then(|v| v.to_str().ok()).filter(|id| is_well_formed_id(id));
        let waiting = app.receiver.as_ref().zip(id).map(|(r, id)| (Arc::clone(r), id.to_owned()));
        HandleGuard { waiting }
    }

    /// 404 when nothing waits: an unknown handle, or an engine that takes none.
    fn claim(mut self) -> Result<Claimed, ApiError> {
        let (receiver, id) = self.waiting.take().ok_or_else(ApiError::kv_handle_not_found)?;
        receiver.claim_held(&id).ok_or_else(ApiError::kv_handle_not_found)
    }
}

impl Drop for HandleGuard {
    fn drop(&mut self) {
        if let Some((receiver, id)) = self.waiting.take() {
            receiver.release(&id);
        }
    }
}

/// The blocks, if the sender made them of this prompt: its length, and every name it gave. What
/// they hold the engine checks as it takes them over. A mismatch drops them.
fn blocks_of(claimed: Claimed, prompt: &[u32], app: &App) -> Result<Held, ApiError> {
    let Claimed { held, block_hashes, n_tokens, incarnation: _ } = claimed;
    if n_tokens != prompt.len() {
        return Err(ApiError::prompt_mismatch(format!(
            "the handle holds {n_tokens} positions and the prompt has {} tokens",
            prompt.len()
        )));
    }
    let own = prompt_hashes(prompt, app.block_tokens);
    let differs = |(given, own): &(&u64, &u64)| **given != 0 && given != own;
    match block_hashes.iter().zip(&own).position(|pair| differs(&pair)) {
        None => Ok(held),
        Some(block) => Err(ApiError::prompt_mismatch(format!(
            "block {block} of the handle was made of other tokens than this prompt"
        ))),
    }
}

pub(crate) fn sampling_params(sampling: &Sampling) -> SamplingParams {
    let Sampling {
        temperature,
        top_p,
        top_k,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
    } = *sampling;
    SamplingParams {
        temperature,
        top_p,
        top_k: i32::try_from(top_k).unwrap_or(i32::MAX),
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
    }
}

fn no_randomness(error: getrandom::Error) -> ApiError {
    tracing::error!(%error, "the system gives no random bytes");
    ApiError::internal("the server has no source of randomness")
}
