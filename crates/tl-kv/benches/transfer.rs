//! What a block costs on its way from one pool into another, beside a plain copy of the same
//! bytes measured in the same run: ratios can be compared between machines, rates cannot.
//!
//! `cargo bench -p tl-kv`. Blocks are those of a 135M model: 30 layers, 3 KV heads, head
//! dimension 64, 16 tokens, 368 640 bytes; 64 of them, so that they do not fit into L2.

use std::hint::black_box;
use std::time::Instant;

use tl_kv::{
    EnvelopeView, Held, KV_FORMAT_V1, KvCfg, Proof, SharedKv, TL_F16, block_hash, crc32c,
    export_block, lock, shared, transfer,
};

const BLOCKS: usize = 64;
const CFG: KvCfg = KvCfg {
    n_blocks: BLOCKS as u32 + 1,
    block_tokens: 16,
    n_layers: 30,
    n_kv_heads: 3,
    head_dim: 64,
    dtype: TL_F16,
    format: KV_FORMAT_V1,
};

/// Seconds of one round over all blocks, each block at its best of several rounds: on a busy
/// machine one block fits between two interruptions and a round does not.
fn best(mut one: impl FnMut(usize)) -> f64 {
    let mut fastest = [f64::INFINITY; BLOCKS];
    for _ in 0..30 {
        for (block, fastest) in fastest.iter_mut().enumerate() {
            let start = Instant::now();
            one(block);
            *fastest = fastest.min(start.elapsed().as_secs_f64());
        }
    }
    fastest.iter().sum()
}

struct Report {
    memcpy: f64,
}

impl Report {
    fn line(&self, what: &str, seconds: f64) {
        let bytes = (BLOCKS * CFG.block_bytes()) as f64;
        println!(
            "{what:<44} {:7.1} us/block {:6.1} GB/s {:6.2} x memcpy",
            seconds / BLOCKS as f64 * 1e6,
            bytes / seconds / 1e9,
            seconds / self.memcpy
        );
    }
}

fn filled() -> (SharedKv, Held) {
    let pool = shared(CFG).expect("a pool of 24 MB");
    let held = Held::alloc(&pool, BLOCKS).expect("all blocks are free");
    let slabs = lock(&pool).slabs();
    for &id in held.ids() {
        let mut open = slabs.write(id).expect("one owner");
        for (i, x) in (0u32..).zip(open.all_mut()) {
            *x = i.wrapping_mul(40503).wrapping_add(id) as u16;
        }
        drop(open);
        let mut books = lock(&pool);
        books.set_fill(id, 16).expect("in range");
        books.register(id, block_hash(u64::from(id), &[])).expect("full");
    }
    (pool, held)
}

fn copies(report: &mut Report, pool: &SharedKv, ids: &[u32]) {
    let slabs = lock(pool).slabs();
    let mut buffers = vec![vec![0u16; CFG.block_len()]; BLOCKS];
    report.memcpy = best(|i| {
        buffers[i].copy_from_slice(slabs.read(ids[i]).expect("held").all());
        black_box(&buffers);
    });
    report.line("memcpy, block to buffer", report.memcpy);
    let mut one = vec![0u16; CFG.block_len()];
    let warm = best(|i| {
        one.copy_from_slice(slabs.read(ids[i]).expect("held").all());
        black_box(&one);
    });
    report.line("memcpy, block to the same buffer", warm);
    let bytes: Vec<Vec<u8>> =
        buffers.iter().map(|b| b.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    report.line(
        "crc32c",
        best(|i| {
            black_box(crc32c(&bytes[i]));
        }),
    );
}

fn exports(report: &Report, pool: &SharedKv, ids: &[u32]) {
    let fresh = best(|i| drop(black_box(export_block(pool, ids[i]).expect("held"))));
    report.line("export, fresh buffer", fresh);
    let slabs = lock(pool).slabs();
    let mut out = Vec::new();
    for (what, hash, fill) in
        [("export, same buffer", 1, 16), ("export, same buffer, 9 of 16 positions", 0, 9)]
    {
        let seconds = best(|i| {
            out.clear();
            transfer::write_block(&slabs, ids[i], hash, fill, &mut out).expect("held");
            black_box(&out);
        });
        report.line(what, seconds);
    }
}

fn imports(report: &Report, pool: &SharedKv, ids: &[u32]) {
    let envelopes: Vec<Vec<u8>> =
        ids.iter().map(|&id| export_block(pool, id).expect("held")).collect();
    let parse = best(|i| {
        black_box(EnvelopeView::parse(&envelopes[i], Some(&CFG)).expect("sound"));
    });
    report.line("parse and check", parse);
    let target = shared(CFG).expect("a second pool");
    let take = |i: usize, proof| {
        let view = EnvelopeView::parse(&envelopes[i], Some(&CFG)).expect("sound");
        let hash = view.record(0).expect("one block").hash;
        transfer::import_block_with(&target, &view, hash, proof).expect("there is room")
    };
    for (what, proof) in [
        ("parse, import, read back", Proof::ReadBack),
        ("parse, import, no read back", Proof::Skip),
    ] {
        let mut held: Vec<Held> = Vec::new();
        let seconds = best(|i| {
            if i == 0 {
                held.clear();
                lock(&target).reset_cache();
            }
            let block = take(i, proof);
            assert!(!block.shared);
            held.push(block.held);
        });
        report.line(what, seconds);
    }
    let again = best(|i| assert!(take(i, Proof::ReadBack).shared));
    report.line("parse, find it here already, compare", again);
}

fn bookkeeping() {
    const N: usize = 512;
    let n_blocks = (N * BLOCKS) as u32;
    let cfg = KvCfg { n_blocks, n_layers: 1, n_kv_heads: 1, head_dim: 1, ..CFG };
    let pool = shared(cfg).expect("a small pool");
    let line = |what: &str, seconds: f64| {
        println!("{what:<44} {:7.1} ns/block", seconds / f64::from(n_blocks) * 1e9);
    };
    line("alloc and release", best(|_| drop(Held::alloc(&pool, N).expect("free"))));
    let mut prompts: Vec<Vec<u32>> = Vec::new();
    for prompt in 0..BLOCKS as u32 {
        let tokens: Vec<u32> = (0..N as u32 * 16 + 1).map(|i| i ^ prompt << 16).collect();
        let held = Held::alloc(&pool, N).expect("free");
        let mut parent = 0;
        for (&id, block) in held.ids().iter().zip(tokens.chunks(16)) {
            let mut books = lock(&pool);
            books.set_fill(id, 16).expect("in range");
            books.register_tokens(id, parent, block).expect("full");
            parent = block_hash(parent, block);
        }
        prompts.push(tokens);
    }
    let hit = best(|i| {
        let ids = lock(&pool).match_prefix(&prompts[i]);
        assert_eq!(ids.len(), N);
        drop(Held::adopt(&pool, ids));
    });
    line("prefix hit, tokens compared, and release", hit);
    let hash = best(|i| {
        black_box(tl_kv::prompt_hashes(&prompts[i], 16));
    });
    line("of which the hash", hash);
}

fn main() {
    let (pool, held) = filled();
    let mut report = Report { memcpy: f64::NAN };
    copies(&mut report, &pool, held.ids());
    exports(&report, &pool, held.ids());
    imports(&report, &pool, held.ids());
    bookkeeping();
}
