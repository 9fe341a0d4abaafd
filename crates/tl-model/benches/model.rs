//! Speed of loading, prefill and decode. Run with `cargo bench -p tl-model`; SmolLM2-135M is used when
//! it is in the cache (or `TL_SMOLLM2_GGUF` names it), else the tiny model, which only shows that
//! the bench runs.
//!
//! Decode is bound by memory: each step reads all weights once, whatever the batch. The column
//! "bound" is the rate at which a step would run if reading the weights were all it did. On a busy
//! machine the processor time tells more than the clock, so both are printed.
//!
//! Arguments after `--` are thread counts, by default 1, 2, 4 and 8 as far as there are cores.

#![allow(clippy::print_stdout, reason = "a bench prints its results")]

use std::path::PathBuf;
use std::time::Instant;

use tl_kv::KvPool;
use tl_model::{Kernels, Loaded, Model, Span, Threads, WeightKind, Workspace, load, tiny};

const PROMPT: usize = 512;
const DECODED: usize = 24;
const BLOCK: u32 = 16;
const RUNS: usize = 3;

fn main() {
    // `cargo test` builds benches too and runs them with `--test`: nothing to measure then.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let loaded = open();
    let model = &loaded.model;
    let mib = model.bytes_per_step() as f64 / (1 << 20) as f64;
    println!("{}: {mib:.0} MiB of weights per step, {}", loaded.name, Kernels::detect().isa());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    if counts.is_empty() {
        counts = [1, 2, 4, 8].into_iter().filter(|&n| n <= cores.max(2)).collect();
    }
    for n in counts {
        let threads = Threads::new(n);
        let bandwidth = bandwidth(&threads);
        println!("\n{n} thread{}, {:.1} GB/s read", if n == 1 { "" } else { "s" }, bandwidth / 1e9);
        println!("                       tok/s   tok/s of processor time     bound");
        let t = best(|| prefill(model, &threads));
        let rate = |tokens: usize, seconds: f64| tokens as f64 / seconds;
        println!(
            "  prefill of {PROMPT}   {:8.1}   {:8.1}",
            rate(PROMPT, t.wall),
            rate(PROMPT, t.cpu)
        );
        for batch in [1, 4, 16] {
            let t = best(|| decode(model, &threads, batch));
            let bound = bandwidth / model.bytes_per_step() as f64 * batch as f64;
            let tokens = batch * DECODED;
            let (wall, cpu) = (rate(tokens, t.wall), rate(tokens, t.cpu));
            println!("  decode, batch {batch:2}  {wall:8.1}   {cpu:8.1}          {bound:20.1}");
        }
    }
}

fn open() -> Loaded {
    let cached = std::env::var_os("TL_SMOLLM2_GGUF").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
        Some(cache.join("tl/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    });
    let Some(path) = cached.filter(|p| p.exists()) else {
        println!("no SmolLM2 in the cache: the tiny model instead");
        return tiny(0);
    };
    let mut times = Vec::new();
    let mut loaded = None;
    for _ in 0..RUNS {
        drop(loaded.take());
        let clock = Clock::start();
        loaded = Some(load(&path, WeightKind::F16).expect("the model loads"));
        times.push(clock.stop());
    }
    let t = least(times.into_iter());
    println!("load: {:.2} s, {:.2} s of processor time", t.wall, t.cpu);
    loaded.expect("loaded at least once")
}

/// Seconds that something took.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    /// Of all threads together.
    cpu: f64,
}

struct Clock {
    start: Instant,
    cpu: f64,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu_seconds() }
    }

    fn stop(self) -> Took {
        Took { wall: self.start.elapsed().as_secs_f64(), cpu: cpu_seconds() - self.cpu }
    }
}

/// User and system time of this process so far, in steps of a hundredth of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in brackets that may hold spaces.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn best(mut f: impl FnMut() -> Took) -> Took {
    least((0..RUNS).map(|_| f()))
}

fn least(times: impl Iterator<Item = Took>) -> Took {
    times.fold(Took { wall: f64::INFINITY, cpu: f64::INFINITY }, |a, b| Took {
        wall: a.wall.min(b.wall),
        cpu: a.cpu.min(b.cpu),
    })
}

fn prefill(model: &Model, threads: &Threads) -> Took {
    let n = PROMPT.div_ceil(BLOCK as usize);
    let mut pool = KvPool::new(model.kv_cfg(n as u32, BLOCK)).expect("a small pool");
    let table = pool.alloc(n).expect("an empty pool");
    let slabs = pool.slabs();
    let tokens: Vec<u32> = (0..PROMPT as u32).map(|i| i * 7 % 250).collect();
    let mut ws = Workspace::new();
    let spans = [Span { tokens: &tokens, start: 0, table: &table, logits: true }];
    let mut step = || {
        let clock = Clock::start();
        model
            .forward(&mut ws, Kernels::detect(), threads, &slabs, &spans, &mut |_| true)
            .expect("the spans are valid");
        clock.stop()
    };
    step();
    step()
}

fn decode(model: &Model, threads: &Threads, batch: usize) -> Took {
    let per = (64 + DECODED).div_ceil(BLOCK as usize);
    let mut pool = KvPool::new(model.kv_cfg((per * batch) as u32, BLOCK)).expect("a small pool");
    let tables: Vec<Vec<u32>> =
        (0..batch).map(|_| pool.alloc(per).expect("an empty pool")).collect();
    let slabs = pool.slabs();
    let mut ws = Workspace::new();
    let mut step = |position: usize| {
        let spans: Vec<Span<'_>> = tables
            .iter()
            .map(|table| Span { tokens: &[65], start: position, table, logits: true })
            .collect();
        model
            .forward(&mut ws, Kernels::detect(), threads, &slabs, &spans, &mut |_| true)
            .expect("the spans are valid");
    };
    step(64);
    let clock = Clock::start();
    (64..64 + DECODED).for_each(&mut step);
    clock.stop()
}

/// Bytes per second at which all threads together read memory that no cache holds.
fn bandwidth(threads: &Threads) -> f64 {
    const PART: usize = 1 << 20;
    let data = vec![1u64; 256 * PART / 8];
    let parts = data.len() * 8 / PART;
    let sums: Vec<std::sync::atomic::AtomicU64> =
        (0..parts).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let seconds = best(|| {
        let clock = Clock::start();
        threads.run(parts, |i| {
            let part = &data[i * PART / 8..][..PART / 8];
            let sum = part.iter().fold(0u64, |a, &v| a.wrapping_add(v));
            sums[i].store(sum, std::sync::atomic::Ordering::Relaxed);
        });
        clock.stop()
    })
    .wall;
    assert!(sums.iter().all(|s| s.load(std::sync::atomic::Ordering::Relaxed) == PART as u64 / 8));
    (data.len() * 8) as f64 / seconds
}
