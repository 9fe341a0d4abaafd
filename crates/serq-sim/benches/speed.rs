//! How fast programs run: `cargo bench -p serq-sim [--bench speed] [-- PATH]`.
//!
//! An M/M/1 queue stands beside the same queue written by hand over the standard library's heap,
//! which is the limit for anything that pops and pushes events. Four vLLM engines replay recorded
//! lengths from PATH, a CSV with the columns `TIMESTAMP,ContextTokens,GeneratedTokens` (also taken
//! from the variable `SERQ_AZURE`); without it, lengths drawn to look alike. Times are CPU time of
//! this thread where the system tells it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::Instant;

use serq_lang::ir::{Program, Trace, TraceTurn};
use serq_sim::{NoObserver, Options, Report, run};

const MM1: &str = "
    stage server : fifo (1);
    workload { arrive poisson (0.8); }
    session {
      set sent = now;
      run server (~exp(1));
      observe sojourn = now - sent;
    }
    run { horizon 2000000; }
";

fn main() {
    // `mm1` or `vllm` among the arguments runs that part alone.
    let only = |name: &str| std::env::args().skip(1).any(|a| a == name);
    if !only("vllm") {
        mm1();
    }
    if !only("mm1") {
        vllm();
    }
}

fn compile(name: &str, text: &str) -> Program {
    let compiled = serq_lang::compile(name, text.as_bytes(), &[]);
    match compiled.program {
        Some(program) => program,
        None => panic!("{:#?}", compiled.diagnostics),
    }
}

/// Seconds this thread has computed, or of the clock where nobody counts.
fn cpu(since: Instant) -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|s| s.split(' ').next()?.parse::<f64>().ok())
        .map_or_else(|| since.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

/// The shortest of some rounds, and what the last one gave.
fn best<T>(rounds: usize, mut one: impl FnMut() -> T) -> (f64, T) {
    let clock = Instant::now();
    let mut timed = || {
        let start = cpu(clock);
        let result = black_box(one());
        (cpu(clock) - start, result)
    };
    let mut least = timed();
    for _ in 1..rounds {
        let next = timed();
        least = (least.0.min(next.0), next.1);
    }
    least
}

fn simulate(program: &Program, options: &Options) -> Report {
    match run(program, options, &mut NoObserver) {
        Ok(report) => report,
        Err(e) => panic!("{e}"),
    }
}

fn mm1() {
    let program = compile("mm1.sq", MM1);
    let (seconds, report) = best(5, || simulate(&program, &Options::default()));
    let events = report.run.events as f64;
    let sojourn = report.observe("sojourn").map_or(f64::NAN, |o| o.mean);
    let (limit, by_hand) = best(5, || by_hand(0.8, 1.0, program.horizon));
    let rate = events / seconds / 1e6;
    let most = by_hand.0 as f64 / limit / 1e6;
    println!("M/M/1, load 0.8: mean sojourn {sojourn:.3} (by hand {:.3}, theory 5)", by_hand.1);
    println!("  serq    {rate:6.2} million events per CPU second");
    println!("  by hand {most:6.2} million events per CPU second, {:.2} times serq", most / rate);
}

/// The queue with a heap of (time, sequence, kind) and nothing else: events and mean sojourn.
fn by_hand(lambda: f64, mean: f64, horizon: f64) -> (u64, f64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut exponential = |mean: f64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let uniform = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        -mean * (1.0 - uniform).ln()
    };
    let mut events = BinaryHeap::new();
    let mut queue = VecDeque::new();
    let (mut sequence, mut handled, mut count, mut sum) = (0u64, 0u64, 0u64, 0.0);
    events.push(Reverse((0.0f64.to_bits(), sequence, true)));
    while let Some(Reverse((bits, _, arrival))) = events.pop() {
        let now = f64::from_bits(bits);
        if now > horizon {
            break;
        }
        handled += 1;
        let mut schedule = |at: f64, arrival| {
            sequence += 1;
            events.push(Reverse((at.to_bits(), sequence, arrival)));
        };
        if arrival {
            schedule(now + exponential(1.0 / lambda), true);
            queue.push_back(now);
            if queue.len() == 1 {
                schedule(now + exponential(mean), false);
            }
        } else {
            sum += now - queue.pop_front().unwrap_or(now);
            count += 1;
            if !queue.is_empty() {
                schedule(now + exponential(mean), false);
            }
        }
    }
    (handled, sum / count as f64)
}

fn vllm() {
    let mut program = compile("vllm_azure.sq", include_str!("vllm_azure.sq"));
    let path = std::env::args().skip(1).find(|a| a.contains(['/', '.']));
    let path = path.or_else(|| std::env::var("SERQ_AZURE").ok());
    let (what, lengths) = match path {
        Some(path) => match std::fs::read_to_string(&path) {
            Ok(text) => ("recorded lengths".to_owned(), recorded(&text)),
            Err(e) => {
                println!("vLLM replay skipped: {path}: {e}");
                return;
            }
        },
        None => ("drawn lengths, no trace given".to_owned(), drawn(10_000)),
    };
    let turn = |(prompt, output)| vec![TraceTurn(prompt, output, 0.0, 0.0)];
    program.trace = Some(Trace::Inline(lengths.into_iter().map(turn).collect()));
    println!("four vLLM engines, 10000 requests at 16 per second, {what}");
    let mut reports = Vec::new();
    for coalesce in [true, false] {
        let options = Options { coalesce, ..Options::default() };
        let (seconds, report) = best(5, || simulate(&program, &options));
        let observed = |name: &str, get: fn(&serq_sim::ObserveReport) -> f64| {
            report.observe(name).map_or(f64::NAN, get)
        };
        let tokens = observed("tokens", |o| o.mean) * observed("tokens", |o| o.count as f64);
        println!(
            "  {} {:6.2} million output tokens per CPU second ({:.3} s; {tokens:.0} tokens, \
             {} events, mean TTFT {:.4} s, TPOT {:.5} s)",
            if coalesce { "coalesced  " } else { "one by one " },
            tokens / seconds / 1e6,
            seconds,
            report.run.events,
            observed("ttft", |o| o.mean),
            observed("tpot", |o| o.mean),
        );
        reports.push(format!("{report:?}"));
    }
    assert!(reports[0] == reports[1], "coalescing changed the result");
}

fn recorded(text: &str) -> Vec<(f64, f64)> {
    let row = |line: &str| {
        let mut fields = line.trim().split(',').skip(1).map(str::parse);
        match (fields.next(), fields.next()) {
            (Some(Ok(prompt)), Some(Ok(output))) => Some((prompt, output)),
            _ => None,
        }
    };
    text.lines().skip(1).filter_map(row).collect()
}

/// Prompts and outputs spread like a conversation trace's: around 1000 and 200 tokens, skewed.
fn drawn(count: usize) -> Vec<(f64, f64)> {
    let mut state = 1u64;
    let mut exponential = |mean: f64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        (-mean * (1.0 - uniform).ln()).ceil().max(1.0)
    };
    (0..count).map(|_| (exponential(1150.0), exponential(210.0))).collect()
}
