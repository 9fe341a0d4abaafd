//! How long a peer's question takes while the engine computes: HasBlocks beside a chunk of 512
//! tokens, as a call in this process and over gRPC on loopback; and the sampler on its own.
//!
//! `cargo bench -p tl-engine --bench lookups [-- SECONDS]`
//!
//! The limit of HasBlocks is 1 ms at the 99th percentile: the pool's lock covers bookkeeping alone,
//! so that a chunk of any length does not hold a lookup up. On a machine with fewer free cores than
//! the engine and the asker need, the system's scheduler is in the figure too; the same question
//! beside an idle engine, in the same run, says how much.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tl_engine::backend::ModelBackend;
use tl_engine::engine::{Engine, EngineConfig, Event, Request, Start, Until};
use tl_engine::kv_transfer::{KvReceiver, KvTransport, PooledOptions, PooledTransport, serve_kv};
use tl_engine::sample::{History, PURPOSE_SAMPLE, Sampler, SamplingParams, stream};
use tl_kv::prompt_hashes;
use tl_model::{RandomLlama, Threads};

const CHUNK: usize = 512;
const BLOCK: usize = 16;

fn main() {
    let mut args = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let seconds: u64 = args.next().and_then(|a| a.parse().ok()).unwrap_or(10);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    lookups(&runtime, Duration::from_secs(seconds));
    sampler();
}

/// A prompt of a chunk's length that shares nothing with another number's.
fn prompt(number: u32) -> Arc<[u32]> {
    let salt = number.wrapping_mul(2_654_435_761);
    (0..CHUNK as u32).map(|i| (i.wrapping_mul(31) ^ salt) % 500 + 1).collect()
}

fn request(number: u32) -> Request {
    Request {
        id: number.to_string(),
        prompt: prompt(number),
        sampling: SamplingParams::greedy(),
        seed: 0,
        max_new_tokens: 1,
        stop_ids: Vec::new(),
        logprobs: None,
        priority: 0,
        deadline: None,
        start: Start::Fresh,
        until: Until::Finished,
    }
}

async fn run(engine: &Engine, number: u32) {
    let mut generation = engine.submit(request(number)).expect("room");
    while let Some(event) = generation.next().await {
        if let Event::Failed(error) = event {
            panic!("{error}");
        }
    }
}

fn lookups(runtime: &tokio::runtime::Runtime, span: Duration) {
    let shape =
        RandomLlama { vocab: 512, dim: 576, hidden: 1536, n_layers: 12, ..RandomLlama::default() };
    let backend = ModelBackend::new(Arc::new(shape.build(1).expect("a model")), Threads::new(1));
    let cfg = EngineConfig {
        kv_blocks: 2048,
        block_tokens: BLOCK as u32,
        prefill_chunk: CHUNK,
        ..EngineConfig::default()
    };
    let engine = Engine::spawn(Box::new(backend), cfg).expect("an engine");
    let receiver = Arc::new(KvReceiver::new(engine.pool()));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let server = {
        let _in_runtime = runtime.enter();
        serve_kv(listener, receiver.clone()).expect("a server")
    };
    let target = server.addr.to_string();
    let transport = PooledTransport::new(PooledOptions::default());
    runtime.block_on(run(&engine, 0));
    let hashes = prompt_hashes(&prompt(0), BLOCK);
    let chunk = {
        let begun = Instant::now();
        runtime.block_on(run(&engine, 1));
        begun.elapsed()
    };
    println!(
        "HasBlocks of {} hashes; a chunk of {CHUNK} tokens takes {:.0} ms; microseconds",
        hashes.len(),
        chunk.as_secs_f64() * 1e3
    );
    let direct = || {
        let found = receiver.has_blocks(&hashes, 1).expect("format 1");
        assert!(found.into_iter().all(|there| there), "blocks of the first prompt");
    };
    let remote = || {
        let asked = transport.has_blocks(&target, &hashes, 1);
        let found = runtime.block_on(asked).expect("loopback");
        assert!(found.into_iter().all(|there| there), "blocks of the first prompt");
    };
    for (name, ask) in
        [("in this process", &direct as &dyn Fn()), ("over gRPC on loopback", &remote)]
    {
        report(&format!("{name}, engine idle"), measure(span / 4, ask));
        let busy = Keep::busy(runtime, engine.clone());
        let taken = measure(span, ask);
        let chunks = busy.stop();
        report(&format!("{name}, beside {chunks} chunks"), taken);
    }
}

/// Chunk after chunk on the engine, until it is stopped.
struct Keep {
    stop: Arc<std::sync::atomic::AtomicBool>,
    task: std::thread::JoinHandle<u32>,
}

impl Keep {
    fn busy(runtime: &tokio::runtime::Runtime, engine: Engine) -> Keep {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (stopped, handle) = (stop.clone(), runtime.handle().clone());
        let task = std::thread::spawn(move || {
            let mut chunks = 0;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                chunks += 1;
                handle.block_on(run(&engine, 1 + chunks));
            }
            chunks
        });
        Keep { stop, task }
    }

    fn stop(self) -> u32 {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        self.task.join().expect("it ends")
    }
}

fn measure(span: Duration, ask: &dyn Fn()) -> Vec<Duration> {
    let until = Instant::now() + span;
    let mut taken = Vec::new();
    while taken.is_empty() || Instant::now() < until {
        let begun = Instant::now();
        ask();
        taken.push(begun.elapsed());
        // A peer asks once a push, not in a loop.
        std::thread::sleep(Duration::from_micros(200));
    }
    taken.sort();
    taken
}

fn report(name: &str, taken: Vec<Duration>) {
    let at = |share: f64| {
        let i = ((taken.len() - 1) as f64 * share) as usize;
        taken[i].as_secs_f64() * 1e6
    };
    println!(
        "{name:44} p50 {:8.1}  p99 {:8.1}  max {:8.1}  of {}",
        at(0.5),
        at(0.99),
        at(1.0),
        taken.len()
    );
}

/// One token of a large vocabulary, by how even the distribution is.
fn sampler() {
    const VOCAB: usize = 49_152;
    let mut rng = stream(1, PURPOSE_SAMPLE);
    let flat: Vec<f32> = (0..VOCAB).map(|_| rng.uniform_f64() as f32 * 0.01).collect();
    let peaked: Vec<f32> = (0..VOCAB).map(|_| rng.uniform_f64() as f32 * 20.0).collect();
    println!("one token of {VOCAB}; microseconds");
    let mut work = Sampler::new();
    let history = History::default();
    for (shape, logits) in [("flat", &flat), ("peaked", &peaked)] {
        for top_p in [1.0, 0.9, 0.999] {
            let params = SamplingParams { top_p, ..SamplingParams::default() };
            let mut taken: Vec<Duration> = (0..200)
                .map(|_| {
                    let begun = Instant::now();
                    let mut scored = work.score(logits, &params, &history).expect("scores");
                    scored.sample(&mut rng).expect("a token");
                    begun.elapsed()
                })
                .collect();
            taken.sort();
            report(&format!("{shape}, top_p {top_p}"), taken);
        }
    }
}
