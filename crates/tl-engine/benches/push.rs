//! A push over loopback, next to what the same bytes cost as a plain TCP stream and as
//! a copy in memory, in the same run: the machine's share is in all three.
//!
//! `cargo bench -p tl-engine --bench push [-- MEGABYTES ROUNDS]`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tl_engine::kv_transfer::{
    KvReceiver, PooledOptions, PooledTransport, SharedKv, lock, serve_kv, transfer_held,
};
use tl_kv::{Held, KvCfg, TL_F16};

/// Blocks of a model with 30 layers, 3 KV heads of 64, 16 tokens: 368 640 bytes.
fn cfg(n_blocks: u32) -> KvCfg {
    KvCfg {
        n_blocks,
        block_tokens: 16,
        n_layers: 30,
        n_kv_heads: 3,
        head_dim: 64,
        dtype: TL_F16,
        format: tl_kv::KV_FORMAT_V1,
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let megabytes: usize = args.next().and_then(|a| a.parse().ok()).unwrap_or(96);
    let rounds: usize = args.next().and_then(|a| a.parse().ok()).unwrap_or(9);
    let block = cfg(1).block_bytes();
    let n = (megabytes * 1_000_000 / block).max(1);
    let bytes = n * block;
    println!("{n} blocks of {block} bytes, {rounds} rounds; GB/s, best and median");

    report("copy in memory", bytes, rounds, &mut memory(bytes));
    report("plain tcp", bytes, rounds, &mut tcp(bytes, block));
    for workers in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build()
            .expect("a runtime");
        let name = format!("push, {workers} worker(s)");
        report(&name, bytes, rounds, &mut push(&runtime, n as u32));
        let mut ask = push_named(&runtime, n as u32);
        report(&format!("push of held blocks, {workers} worker(s)"), bytes, rounds, &mut ask);
    }
}

fn report(name: &str, bytes: usize, rounds: usize, once: &mut dyn FnMut()) {
    once();
    let mut taken: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            once();
            start.elapsed()
        })
        .collect();
    taken.sort();
    let rate = |t: Duration| bytes as f64 / t.as_secs_f64() / 1e9;
    println!("{name:36} {:7.2} {:7.2}", rate(taken[0]), rate(taken[rounds / 2]));
}

fn memory(bytes: usize) -> impl FnMut() {
    let from = vec![0x3Cu8; bytes];
    let mut to = vec![0u8; bytes];
    move || {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    }
}

fn tcp(bytes: usize, piece: usize) -> impl FnMut() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let mut out = TcpStream::connect(listener.local_addr().expect("an address")).expect("loopback");
    let (mut arriving, _) = listener.accept().expect("loopback");
    let (done, all_read) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buf = vec![0u8; piece];
        let mut read = 0;
        while let Ok(n @ 1..) = arriving.read(&mut buf) {
            read += n;
            if read == bytes {
                read = 0;
                if done.send(()).is_err() {
                    return;
                }
            }
        }
    });
    let block = vec![0x3Cu8; piece];
    move || {
        for _ in 0..bytes / piece {
            out.write_all(&block).expect("loopback");
        }
        all_read.recv().expect("the reader reads");
    }
}

fn filled(pool: &SharedKv, n: u32) -> Held {
    let held = Held::alloc(pool, n as usize).expect("an empty pool");
    let slabs = lock(pool).slabs();
    for &id in held.ids() {
        slabs.write(id).expect("mine alone").all_mut().fill(0x3C00 + id as u16);
        lock(pool).set_fill(id, 16).expect("within the block");
    }
    held
}

fn push(runtime: &tokio::runtime::Runtime, n: u32) -> impl FnMut() {
    push_with(runtime, n, Vec::new())
}

/// A push of blocks that the receiver has: only their names travel.
fn push_named(runtime: &tokio::runtime::Runtime, n: u32) -> impl FnMut() {
    push_with(runtime, n, (1..=u64::from(n)).collect())
}

fn push_with(runtime: &tokio::runtime::Runtime, n: u32, hashes: Vec<u64>) -> impl FnMut() {
    let p = tl_kv::pool::shared(cfg(n)).expect("memory");
    let d = tl_kv::pool::shared(cfg(n)).expect("memory");
    let receiver = Arc::new(KvReceiver::new(d));
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let server = {
        let _in_runtime = runtime.enter();
        serve_kv(listener, receiver.clone()).expect("a server")
    };
    let held = filled(&p, n);
    let transport = PooledTransport::new(PooledOptions::default());
    let handle = runtime.handle().clone();
    move || {
        // The whole of it, so that it serves as long as this is called.
        let server = &server;
        let target = server.addr.to_string();
        let moved = transfer_held(transport.as_ref(), &target, &held, "h", &hashes);
        handle.block_on(moved).expect("loopback");
        drop(receiver.claim_held("h").expect("it landed"));
    }
}
