//! A real (random) model: its tokens depend on nothing but the request.

use std::sync::Arc;

use parking_lot::Mutex;
use tl_kv::Slabs;
use tl_model::{Model, Threads};

use super::*;
use crate::backend::{Backend, BackendShape, ModelBackend, Span, StepError, pick_prefill_chunk};

/// An engine's configuration as far as these tests vary it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) kv_blocks: u32,
    pub(super) chunk: usize,
    pub(super) threads: usize,
    pub(super) prefix_cache: bool,
    pub(super) max_seqs: usize,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { kv_blocks: 256, chunk: 32, threads: 2, prefix_cache: true, max_seqs: 8 }
    }
}

fn model() -> Arc<Model> {
    Arc::new(tl_model::tiny(42).model)
}

impl Setup {
    pub(super) fn spawn(self) -> Engine {
        self.spawn_in_turns().0
    }

    /// With what keeps it from stepping.
    pub(super) fn spawn_in_turns(self) -> (Engine, Turn) {
        let cfg = EngineConfig {
            kv_blocks: self.kv_blocks,
            prefill_chunk: self.chunk,
            prefix_cache: self.prefix_cache,
            max_seqs: self.max_seqs,
            ..EngineConfig::default()
        };
        let model = ModelBackend::new(model(), Threads::new(self.threads));
        let turn = Turn::default();
        let backend = Turns { model, turn: Arc::clone(&turn) };
        (Engine::spawn(Box::new(backend), cfg).unwrap(), turn)
    }
}

/// Whoever has it keeps the engine from its next step: requests that are to run together are submitted
/// meanwhile, however slow the machine is about it.
pub(super) type Turn = Arc<Mutex<()>>;

struct Turns {
    model: ModelBackend,
    turn: Turn,
}

impl Backend for Turns {
    fn shape(&self) -> BackendShape {
        self.model.shape()
    }

    fn step(
        &mut self,
        slabs: &Slabs,
        spans: &[Span<'_>],
        keep: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), StepError> {
        drop(self.turn.lock());
        self.model.step(slabs, spans, keep)
    }

    fn logits(&self, span: usize) -> Option<&[f32]> {
        self.model.logits(span)
    }
}

/// A prompt of `len` printable bytes; those of one `kind` share their beginnings.
pub(super) fn prompt(kind: u64, len: usize) -> Vec<u32> {
    let mut state = kind.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        32 + (state >> 33) as u32 % 95
    };
    (0..len).map(|_| byte()).collect()
}

/// Greedy without a seed, else at temperature 0.9.
pub(super) fn sampled(prompt: &[u32], max_new: usize, seed: Option<u64>) -> Request {
    let temperature = if seed.is_some() { 0.9 } else { 0.0 };
    Request {
        sampling: SamplingParams {
            temperature,
            top_k: 40,
            top_p: 0.95,
            ..SamplingParams::default()
        },
        seed: seed.unwrap_or(0),
        ..request(prompt, max_new)
    }
}

/// Requests whose prompts have every relation to a block boundary and partly the same beginning.
fn workload() -> Vec<Request> {
    let shapes = [(1, 1), (1, 16), (2, 17), (1, 33), (2, 64), (3, 90), (3, 47), (1, 100)];
    let with = |(n, (kind, len)): (usize, (u64, usize))| {
        sampled(&prompt(kind, len), 24, (n % 3 > 0).then_some(n as u64))
    };
    shapes.into_iter().enumerate().map(with).collect()
}

/// Each request on its own, on an engine with nothing in its cache.
async fn alone() -> Vec<Vec<TokenOut>> {
    let engine = Setup { prefix_cache: false, ..Setup::default() }.spawn();
    let mut out = Vec::new();
    for r in workload() {
        out.push(run(&engine, r).await.tokens);
    }
    out
}

/// Submits all before the engine has made more than one step.
pub(super) fn submit_together(engine: &Engine, turn: &Turn, all: Vec<Request>) -> Vec<Generation> {
    let _kept = turn.lock();
    all.into_iter().map(|r| engine.submit(r).unwrap()).collect()
}

async fn together((engine, turn): &(Engine, Turn)) -> Vec<Vec<TokenOut>> {
    let all = submit_together(engine, turn, workload());
    let mut out = Vec::new();
    for g in all {
        out.push(answer(g).await.tokens);
    }
    out
}

#[tokio::test]
async fn tokens_do_not_depend_on_mates_chunks_threads_pool_or_cache() {
    let want = alone().await;
    assert!(want.iter().all(|tokens| tokens.len() == 24));
    let distinct: std::collections::BTreeSet<u32> =
        want.iter().flatten().map(|token| token.id).collect();
    assert!(distinct.len() > 20, "the model says something: {distinct:?}");
    let usual = Setup::default();
    let setups = [
        usual,
        Setup { chunk: 1, ..usual },
        Setup { chunk: 7, threads: 1, ..usual },
        Setup { chunk: 512, threads: 3, ..usual },
        Setup { prefix_cache: false, ..usual },
        Setup { max_seqs: 1, ..usual },
        Setup { kv_blocks: 11, ..usual },
        Setup { kv_blocks: 11, prefix_cache: false, chunk: 16, ..usual },
    ];
    for setup in setups {
        let engine = setup.spawn_in_turns();
        // Twice: the second time the prompts are in the cache, if there is one.
        for round in 0..2 {
            assert_eq!(together(&engine).await, want, "{setup:?}, round {round}");
        }
        let stats = engine.0.stats();
        assert_eq!(stats.preemptions > 0, setup.kv_blocks < 256, "{setup:?}: {stats:?}");
        assert_eq!(stats.prefix_hit_tokens > 0, setup.prefix_cache, "{setup:?}: {stats:?}");
        assert!(at_baseline(&engine.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_over_a_model_leaves_nothing_behind_and_changes_no_token() {
    let want = alone().await;
    let engine = Setup { kv_blocks: 20, ..Setup::default() }.spawn_in_turns();
    let mut storm = Vec::new();
    for n in 0..200u64 {
        let r = sampled(&prompt(n % 5, 1 + n as usize * 7 % 90), 30, Some(n));
        let mut g = engine.0.submit(r).unwrap();
        storm.push(tokio::spawn(async move {
            for _ in 0..n % 11 {
                if next(&mut g).await.is_none() {
                    return;
                }
            }
        }));
    }
    assert_eq!(together(&engine).await, want);
    for task in storm {
        task.await.unwrap();
    }
    eventually("baseline", || at_baseline(&engine.0)).await;
}

/// A lookup takes the pool's lock and a forward pass does not: were it otherwise, the first lookup would wait
/// for the whole chunk. How quick one is belongs into a bench, not here.
#[tokio::test]
async fn blocks_are_looked_up_while_a_chunk_is_computed() {
    let cfg = EngineConfig { prefill_chunk: 512, ..EngineConfig::default() };
    let shape = tl_model::RandomLlama { dim: 256, hidden: 512, n_layers: 6, ..Default::default() };
    let backend = ModelBackend::new(Arc::new(shape.build(1).unwrap()), Threads::new(1));
    let engine = Engine::spawn(Box::new(backend), cfg).unwrap();
    run(&engine, sampled(&prompt(1, 512), 1, None)).await.finish();
    let hashes = tl_kv::prompt_hashes(&prompt(1, 512), 16);
    assert_eq!(hashes.len(), 32);
    let pool = engine.pool();
    let mut lookups = 0;
    let steps = engine.stats().steps;
    let last = answer(engine.submit(sampled(&prompt(2, 513), 1, None)).unwrap());
    let mut last = std::pin::pin!(last);
    while engine.stats().steps == steps {
        // Lets the request be taken in; it does not end before its chunk has.
        let _ = futures::poll!(last.as_mut());
        let found = hashes.iter().filter(|&&hash| lock(&pool).contains(hash)).count();
        assert_eq!(found, 32);
        lookups += 1;
        std::thread::yield_now();
    }
    last.await.finish();
    assert!(lookups > 3, "only {lookups} lookups during the chunk");
}

#[test]
fn the_calibrated_chunk_is_whole_blocks_within_bounds() {
    let mut backend = ModelBackend::new(model(), Threads::new(1));
    for block in [1, 16, 48, 700] {
        let chunk = pick_prefill_chunk(&mut backend, block).unwrap();
        assert!(chunk % block as usize == 0 && chunk >= block.max(16) as usize / 2, "{chunk}");
        assert!(chunk <= 512.max(block as usize), "{chunk}");
    }
    assert_eq!(backend.shape().vocab, model().config().vocab);
}
