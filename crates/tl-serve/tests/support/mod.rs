//! A prefill engine and a decode engine around the fake model: real servers, real
//! pools, real transfer.
#![allow(dead_code, reason = "each test target uses its part")]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tl_engine::kv_transfer::tl_proto::engine::v1::engine_control_client::EngineControlClient;
use tl_engine::kv_transfer::tl_proto::engine::v1::{
    InfoResponse, PrefillRequest, PrefillResponse, SamplingParams as ProtoSampling,
};
use tl_engine::kv_transfer::{
    Claimed, GrpcServer, GrpcTransport, HandleCfg, KvReceiver, KvTransport, SharedKv, build_chunks,
    lock, prompt_hashes, resume_rng, serve_kv,
};
use tl_engine::sample::{History, PURPOSE_SAMPLE, Pcg32, Sampled, SamplingParams, sample, stream};
use tl_kv::KvStats;
use tl_proto::kv::v1::KvChunk;
use tl_serve::control::{
    ControlService, PrefillBackend, PrefillJob, PrefillOutcome, serve_control,
};
use tl_testkit::fake::{self, Sequence};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Blocks of each engine's pool.
pub const BLOCKS: u32 = 64;

pub fn stats(pool: &SharedKv) -> KvStats {
    lock(pool).stats()
}

pub fn used(pool: &SharedKv) -> u32 {
    stats(pool).used
}

pub fn loopback() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).expect("a free port")
}

/// Parameters as the tests name them: top-k 8 whenever tokens are drawn.
pub fn params(temperature: f32) -> SamplingParams {
    let top_k = if temperature > 0.0 { 8 } else { 0 };
    SamplingParams { temperature: f64::from(temperature), top_k, ..SamplingParams::default() }
}

fn next(seq: &Sequence, params: &SamplingParams, rng: &mut Pcg32) -> Sampled {
    let logits = fake::logits(seq).expect("blocks in hand");
    sample(&logits, params, &History::new(&[]), rng).expect("finite logits")
}

/// `n` tokens after the sequence, whose next input is `first` if there is one.
pub fn decode(
    seq: &mut Sequence,
    first: Option<u32>,
    params: &SamplingParams,
    rng: &mut Pcg32,
    n: usize,
) -> Vec<u32> {
    let mut tokens: Vec<u32> = first.into_iter().collect();
    while tokens.len() < n {
        if let Some(&previous) = tokens.last() {
            fake::append(seq, previous).expect("room for the next position");
        }
        tokens.push(next(seq, params, rng).token);
    }
    tokens
}

/// What one engine answers when it does both halves.
pub fn colocated(prompt: &[u32], temperature: f32, seed: u64, n: usize) -> Vec<u32> {
    let pool = fake::pool(BLOCKS);
    let mut seq = fake::prefill(&pool, prompt).expect("room for the prompt");
    let mut rng = stream(seed, PURPOSE_SAMPLE);
    decode(&mut seq, None, &params(temperature), &mut rng, n)
}

/// The rest of an answer on the decode engine.
pub fn resume(
    claimed: Claimed,
    answer: &PrefillResponse,
    temperature: f32,
    seed: u64,
    n: usize,
) -> Vec<u32> {
    let handle = answer.handle.as_ref().expect("a handle");
    let mut seq = Sequence::resume(claimed.held, handle.n_tokens as usize);
    let mut rng = resume_rng(seed, handle.rng_draws_consumed);
    decode(&mut seq, Some(answer.first_token), &params(temperature), &mut rng, n)
}

/// The fake model as an engine.
pub struct FakeBackend {
    pub pool: SharedKv,
    /// What the first token ends with, if the test says so.
    pub finish: Option<tl_serve::control::FirstFinish>,
}

#[tonic::async_trait]
impl PrefillBackend for FakeBackend {
    async fn prefill(&self, job: PrefillJob) -> Result<PrefillOutcome, Status> {
        let seq = fake::prefill(&self.pool, &job.prompt_ids)
            .map_err(|e| Status::new(Code::from_i32(e.code() as i32), e.to_string()))?;
        let mut rng = stream(job.seed, PURPOSE_SAMPLE);
        let first = next(&seq, &job.sampling, &mut rng);
        Ok(PrefillOutcome {
            first_token: first.token,
            first_logprob: first.logprob,
            block_hashes: seq.hashes,
            cached_prompt_tokens: seq.cached,
            rng_draws: first.draws,
            finish: self.finish,
            block_ids: seq.held.into_raw(),
            ..PrefillOutcome::default()
        })
    }

    fn pool(&self) -> SharedKv {
        self.pool.clone()
    }

    fn info(&self) -> InfoResponse {
        InfoResponse {
            model: "fake".into(),
            kv_format: 1,
            kv_formats_read: vec![1],
            max_context: 64,
            block_size: 4,
            abi: 1,
            ..InfoResponse::default()
        }
    }

    async fn cancel(&self, request_id: &str) -> bool {
        request_id == "known"
    }

    async fn drain(&self, deadline_ms: i64) -> i32 {
        i32::try_from(deadline_ms / 1000).unwrap_or(i32::MAX)
    }
}

/// A running decode engine.
pub struct Decode {
    pub pool: SharedKv,
    pub receiver: Arc<KvReceiver>,
    pub server: GrpcServer,
}

impl Decode {
    pub fn start() -> Decode {
        Decode::with(BLOCKS, HandleCfg::default())
    }

    pub fn with(blocks: u32, cfg: HandleCfg) -> Decode {
        let pool = fake::pool(blocks);
        let receiver = Arc::new(KvReceiver::with_config(pool.clone(), cfg));
        let server = serve_kv(loopback(), receiver.clone()).expect("a server");
        Decode { pool, receiver, server }
    }

    pub fn target(&self) -> String {
        self.server.addr.to_string()
    }
}

/// A running prefill engine and a client of its control service.
pub struct Prefill {
    pub pool: SharedKv,
    pub server: GrpcServer,
    pub client: EngineControlClient<Channel>,
}

impl Prefill {
    pub async fn start() -> Prefill {
        Prefill::with(
            &["prefill"],
            Arc::new(GrpcTransport { timeout: Duration::from_secs(5) }),
            None,
        )
        .await
    }

    pub async fn with(
        roles: &[&str],
        transport: Arc<dyn KvTransport>,
        finish: Option<tl_serve::control::FirstFinish>,
    ) -> Prefill {
        let pool = fake::pool(BLOCKS);
        let service = ControlService {
            backend: Arc::new(FakeBackend { pool: pool.clone(), finish }),
            transport,
            roles: roles.iter().map(|&r| r.to_owned()).collect(),
        };
        let server = serve_control(loopback(), service).expect("a server");
        let client = EngineControlClient::connect(format!("http://{}", server.addr))
            .await
            .expect("the server listens");
        Prefill { pool, server, client }
    }

    pub async fn run(&self, request: PrefillRequest) -> Result<PrefillResponse, Status> {
        self.client.clone().prefill(request).await.map(tonic::Response::into_inner)
    }
}

/// The request of the tests: greedy unless said otherwise.
pub fn request(id: &str, prompt: &[u32], target: &str) -> PrefillRequest {
    sampled_request(id, prompt, target, 0.0, 0)
}

pub fn sampled_request(
    id: &str,
    prompt: &[u32],
    target: &str,
    temperature: f32,
    seed: u64,
) -> PrefillRequest {
    PrefillRequest {
        request_id: id.into(),
        model: "fake".into(),
        prompt_ids: prompt.to_vec(),
        sampling: Some(ProtoSampling {
            temperature,
            top_p: 1.0,
            top_k: if temperature > 0.0 { 8 } else { 0 },
            repetition_penalty: 1.0,
            seed,
            max_new_tokens: 12,
            ..ProtoSampling::default()
        }),
        decode_target: target.into(),
        deadline_unix_ms: 0,
        priority: 0,
    }
}

pub fn tokens(range: std::ops::RangeInclusive<u32>) -> Vec<u32> {
    range.collect()
}

/// The chunks of a prompt that a prefill pool has run and given back since.
pub fn chunks_of(pool: &SharedKv, id: &str, prompt: &[u32], present: &[bool]) -> Vec<KvChunk> {
    let seq = fake::prefill(pool, prompt).expect("room for the prompt");
    let hashes = prompt_hashes(prompt, 4);
    build_chunks(pool, id, seq.held.ids(), &hashes, present).expect("blocks in hand")
}
