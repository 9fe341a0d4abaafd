//! The engine behind `EngineControl`: a prompt in, its KV and its first token out.

use crate::app::App;
use crate::choice::Choice;
use crate::control::{FirstFinish, PrefillBackend, PrefillJob, PrefillOutcome, TopToken};
use crate::lang::Language;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tl_api::metrics::EngineMetrics;
use tl_engine::engine::{
    EngineError, Event, Finish, Generation, Refused, Request, Start, TokenOut, Until,
};
use tl_engine::kv_transfer::{KV_FORMAT, KvTransport, Outgoing, TransferError};
use tl_kv::{KvCfg, SharedKv};
use tl_proto::engine::v1::InfoResponse;
use tl_proto::kv::v1::{KvAck, KvChunk};
use tonic::Status;

/// Revision of the engine protocol, told by `Info`.
const ABI: u32 = 1;

/// An engine as `EngineControl` sees it.
#[derive(Debug)]
pub(crate) struct EngineBackend {
    pub app: Arc<App>,
    pub kv: KvCfg,
    pub incarnation: u64,
    pub fingerprint: u64,
}

#[tonic::async_trait]
impl PrefillBackend for EngineBackend {
    async fn prefill(&self, job: PrefillJob) -> Result<PrefillOutcome, Status> {
        let received = Instant::now();
        let PrefillJob {
            request_id,
            model,
            kind,
            prompt_ids,
            sampling,
            seed,
            max_new_tokens,
            stop,
            logprobs,
            priority,
            deadline,
        } = job;
        if !model.is_empty() && model != self.app.model {
            return Err(Status::failed_precondition(format!(
                "this engine serves {:?}, not {model:?}",
                self.app.model
            )));
        }
        let language = &self.app.language;
        let request = Request {
            id: request_id,
            prompt: prompt_ids.into(),
            sampling,
            seed,
            max_new_tokens,
            stop_ids: language.stop_ids.clone(),
            logprobs: Some(logprobs),
            priority,
            deadline: deadline.map(tokio::time::Instant::into_std),
            start: Start::Fresh,
            until: Until::FirstToken,
        };
        let generation = self.app.engine.submit(request).map_err(|r| refused(&r))?;
        let outcome = run(generation, Choice::new(&stop, false), language).await;
        let outcome = outcome.map_err(|e| failed(&e))?;
        // An end of text is no token, here as in an answer.
        if outcome.finish != Some(FirstFinish::Stop) || !outcome.first_token_bytes.is_empty() {
            let serving = self.app.metrics.serving();
            serving.first_token(kind.into(), &self.app.model, received.elapsed());
        }
        Ok(outcome)
    }

    fn pool(&self) -> SharedKv {
        self.app.engine.pool()
    }

    fn info(&self) -> InfoResponse {
        InfoResponse {
            model: self.app.model.clone(),
            // The service knows its roles.
            roles: Vec::new(),
            kv_format: KV_FORMAT,
            max_context: saturated(self.app.engine.context()),
            block_size: saturated(self.kv.block_tokens as usize),
            abi: ABI,
            kv_formats_read: vec![KV_FORMAT],
            incarnation: self.incarnation,
            model_fingerprint: self.fingerprint,
            layers: self.kv.n_layers,
            kv_heads: self.kv.n_kv_heads,
            head_dim: self.kv.head_dim,
        }
    }

    async fn cancel(&self, request_id: &str) -> bool {
        self.app.engine.cancel(request_id)
    }

    async fn drain(&self, deadline_ms: i64) -> i32 {
        self.app.engine.drain(Duration::from_millis(deadline_ms.max(0).unsigned_abs())).await
    }
}

/// Runs a generation to its first token. The blocks are in the outcome unless the answer ends here.
async fn run(
    mut generation: Generation,
    mut choice: Choice,
    language: &Language,
) -> Result<PrefillOutcome, EngineError> {
    let mut outcome = PrefillOutcome::default();
    loop {
        match generation.next().await {
            Some(Event::Admitted { cached_tokens }) => outcome.cached_prompt_tokens = cached_tokens,
            Some(Event::Token(token)) => {
                outcome.first_text = choice.token(&token, &language.tokenizer).text;
                let TokenOut { id, logprob, top, draws } = token;
                outcome.first_token = id;
                outcome.first_logprob = logprob;
                let tokenizer = &language.tokenizer;
                outcome.first_token_bytes = tokenizer.token_bytes(id).to_vec();
                let top = top.into_iter();
                let top = top.map(|(id, logprob)| TopToken {
                    id,
                    logprob,
                    bytes: tokenizer.token_bytes(id).to_vec(),
                });
                outcome.first_top_logprobs = top.collect();
                outcome.rng_draws = draws;
            }
            Some(Event::Prefilled { held, hashes, cached_tokens }) => {
                outcome.cached_prompt_tokens = cached_tokens;
                if choice.stopped() {
                    // Nobody will decode: the blocks go back as `held` is dropped.
                    outcome.finish = Some(FirstFinish::Stop);
                } else {
                    outcome.block_ids = held.into_raw();
                    outcome.block_hashes = hashes;
                }
                return Ok(outcome);
            }
            Some(Event::Finished { reason, completion_tokens: _ }) => {
                outcome.first_text.push_str(&choice.finish().text);
                outcome.finish = Some(match reason {
                    Finish::Length if !choice.stopped() => FirstFinish::Length,
                    Finish::Length | Finish::Stop => FirstFinish::Stop,
                });
                return Ok(outcome);
            }
            Some(Event::Failed(error)) => return Err(error),
            None => return Err(EngineError::Stopped),
        }
    }
}

fn refused(refused: &Refused) -> Status {
    let text = refused.to_string();
    match refused {
        Refused::Full { .. } => Status::resource_exhausted(text),
        Refused::Empty
        | Refused::TooLong { .. }
        | Refused::NeverFits { .. }
        | Refused::NoNewTokens
        | Refused::UnknownToken { .. }
        | Refused::Sampling(_) => Status::invalid_argument(text),
        Refused::Draining | Refused::Stopped => Status::unavailable(text),
        Refused::WrongBlocks { .. }
        | Refused::ForeignBlock { .. }
        | Refused::ResumeForFirstToken => Status::internal(text),
    }
}

fn failed(error: &EngineError) -> Status {
    let text = error.to_string();
    match error {
        EngineError::QueueTimeout { .. } => Status::resource_exhausted(text),
        EngineError::DeadlineExceeded => Status::deadline_exceeded(text),
        EngineError::Cancelled => Status::cancelled(text),
        EngineError::Drained | EngineError::Stopped => Status::unavailable(text),
        EngineError::Config(_)
        | EngineError::Spawn(_)
        | EngineError::Step(_)
        | EngineError::Panicked(_)
        | EngineError::BadLogits(_) => {
            tracing::error!(%error, "a prefill failed");
            Status::internal("the model failed on this prompt")
        }
    }
}

fn saturated(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// A transport that counts what it has delivered.
pub(crate) struct MeteredTransport<T> {
    inner: Arc<T>,
    metrics: Arc<EngineMetrics>,
}

impl<T> MeteredTransport<T> {
    pub(crate) fn new(inner: Arc<T>, metrics: Arc<EngineMetrics>) -> MeteredTransport<T> {
        MeteredTransport { inner, metrics }
    }
}

#[tonic::async_trait]
impl<T: KvTransport> KvTransport for MeteredTransport<T> {
    async fn has_blocks(
        &self,
        target: &str,
        hashes: &[u64],
        fmt: u32,
    ) -> Result<Vec<bool>, TransferError> {
        self.inner.has_blocks(target, hashes, fmt).await
    }

    async fn push(&self, target: &str, chunks: Vec<KvChunk>) -> Result<KvAck, TransferError> {
        let bytes: usize = chunks.iter().map(|c| c.payload.len()).sum();
        let sent = chunks.iter().filter(|c| !c.payload.is_empty()).count();
        let deduped = chunks.len() - sent;
        let ack = self.inner.push(target, chunks).await?;
        self.metrics.kv_pushed(bytes as u64, sent as u64, deduped as u64);
        Ok(ack)
    }

    async fn push_blocks(&self, target: &str, push: Outgoing) -> Result<KvAck, TransferError> {
        let (bytes, sent, all) = (push.payload_bytes(), push.sent(), push.len());
        let ack = self.inner.push_blocks(target, push).await?;
        self.metrics.kv_pushed(bytes as u64, sent as u64, (all - sent) as u64);
        Ok(ack)
    }

    async fn release(&self, target: &str, handle_id: &str) -> Result<(), TransferError> {
        self.inner.release(target, handle_id).await
    }
}
