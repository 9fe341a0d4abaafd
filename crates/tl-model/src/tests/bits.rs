//! A result depends on the tokens alone: batch, chunks, threads and instruction set leave no bit.

use tl_kernels::{Isa, Kernels, Threads};
use tl_kv::KvPool;

use super::stored;
use crate::forward::{Span, Workspace};
use crate::model::Model;
use crate::{RandomLlama, WeightKind};

const TOKENS: usize = 45;

/// How one sequence is computed.
#[derive(Debug, Clone)]
struct Way {
    isa: Isa,
    threads: usize,
    /// Lengths of the chunks, the last repeated.
    chunks: Vec<usize>,
    /// Other sequences in each step: their lengths, each a single chunk at its own position.
    mates: Vec<usize>,
    block_tokens: u32,
}

fn shapes() -> Vec<RandomLlama> {
    let tiny = RandomLlama::default();
    vec![
        tiny.clone(),
        RandomLlama { tied_head: true, n_layers: 1, ..tiny.clone() },
        // Nothing is a multiple of a vector.
        RandomLlama {
            vocab: 301,
            dim: 36,
            hidden: 50,
            n_layers: 2,
            n_heads: 3,
            n_kv_heads: 1,
            head_dim: 10,
            ..tiny.clone()
        },
        RandomLlama { n_heads: 6, n_kv_heads: 6, head_dim: 6, dim: 40, n_layers: 2, ..tiny },
    ]
}

fn text(seed: u32, n: usize, vocab: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * i * 7 + i * 31 + seed * 101) % vocab as u32).collect()
}

/// Logit bits after every chunk's last token, by position, and the bits of all keys and values.
fn compute(model: &Model, way: &Way) -> (Vec<(usize, Vec<u32>)>, Vec<u16>) {
    let vocab = model.config().vocab;
    let tokens = text(1, TOKENS, vocab);
    let kernels = Kernels::new(way.isa).unwrap();
    let threads = Threads::new(way.threads);
    let per_sequence = TOKENS.div_ceil(way.block_tokens as usize) + 1;
    let n = per_sequence * (1 + way.mates.len());
    let mut pool = KvPool::new(model.kv_cfg(n as u32, way.block_tokens)).unwrap();
    // Tables whose blocks are neither in order nor side by side.
    let mut ids = pool.alloc(n).unwrap();
    ids.reverse();
    let tables: Vec<Vec<u32>> = (0..=way.mates.len())
        .map(|s| ids.iter().copied().skip(s).step_by(1 + way.mates.len()).collect())
        .collect();
    let mates: Vec<Vec<u32>> = way.mates.iter().map(|&n| text(n as u32, n, vocab)).collect();
    let slabs = pool.slabs();
    let mut ws = Workspace::new();
    let (mut start, mut out) = (0, Vec::new());
    let mut chunks = way.chunks.iter().copied();
    let mut chunk = 1;
    while start < TOKENS {
        chunk = chunks.next().unwrap_or(chunk).min(TOKENS - start);
        let own =
            Span { tokens: &tokens[start..start + chunk], start, table: &tables[0], logits: true };
        let mut spans: Vec<Span<'_>> = mates
            .iter()
            .zip(&tables[1..])
            .enumerate()
            .map(|(i, (tokens, table))| Span { tokens, start: 0, table, logits: i % 2 == 0 })
            .collect();
        let at = spans.len() / 2;
        spans.insert(at, own);
        model.forward(&mut ws, kernels, &threads, &slabs, &spans, &mut |_| true).unwrap();
        start += chunk;
        let logits = ws.logits(at).unwrap();
        assert!(logits.iter().all(|l| l.is_finite()));
        out.push((start - 1, logits.iter().map(|l| l.to_bits()).collect()));
    }
    (out, stored(&slabs, &tables[0], 0..TOKENS))
}

#[test]
fn every_way_gives_the_same_bits() {
    let single =
        Way { isa: Isa::Portable, threads: 1, chunks: vec![1], mates: vec![], block_tokens: 16 };
    let mut ways = Vec::new();
    for isa in Isa::available() {
        ways.push(Way { isa, ..single.clone() });
        ways.push(Way { isa, threads: 2, chunks: vec![TOKENS], ..single.clone() });
        ways.push(Way { isa, threads: 3, chunks: vec![7, 16, 1, 1, 13], ..single.clone() });
        let mates = vec![1, 20, 1, 1, 3, 1, 1];
        ways.push(Way { isa, threads: 2, mates: mates.clone(), ..single.clone() });
        ways.push(Way {
            isa,
            threads: 3,
            chunks: vec![20],
            mates,
            block_tokens: 4,
            ..single.clone()
        });
        ways.push(Way {
            isa,
            chunks: vec![17],
            mates: vec![1; 9],
            block_tokens: 1,
            ..single.clone()
        });
    }
    for (i, shape) in shapes().iter().enumerate() {
        for kind in [WeightKind::F16, WeightKind::F32] {
            let model = shape.build_as(i as u64, kind).unwrap();
            let (reference, kv) = compute(&model, &single);
            assert_eq!(reference.len(), TOKENS);
            for way in &ways {
                let (logits, other_kv) = compute(&model, way);
                for (position, bits) in logits {
                    assert_eq!(
                        bits, reference[position].1,
                        "{shape:?} {kind:?} {way:?} at {position}"
                    );
                }
                assert!(other_kv == kv, "keys and values of {shape:?} {kind:?} {way:?}");
            }
        }
    }
}

#[test]
fn values_cross_threads() {
    fn check<T: Send + Sync>() {}
    check::<crate::Loaded>();
    check::<Workspace>();
}

#[test]
fn the_test_can_fail() {
    // Another token somewhere, and another seed, give other bits.
    let model = RandomLlama::default().build(1).unwrap();
    let mut runner = super::Runner::pool(&model, TOKENS);
    let mut tokens = text(1, TOKENS, model.config().vocab);
    let before = runner.step(&tokens, 0);
    tokens[3] ^= 1;
    assert_ne!(runner.step(&tokens, 0), before);
    let other = RandomLlama::default().build(2).unwrap();
    tokens[3] ^= 1;
    assert_ne!(super::Runner::pool(&other, TOKENS).step(&tokens, 0), before);
}

#[test]
fn the_tiny_model_talks() {
    let loaded = crate::tiny(0);
    let mut distinct = std::collections::HashSet::new();
    let (mut stops, mut printable, n) = (0, 0, 96);
    for prompt in ["Hello", "What is the capital of France?", "0123456789", "a", "tell me more"] {
        let ids = loaded.tokenizer.encode(prompt, false).unwrap();
        let out = super::Runner::pool(&loaded.model, ids.len() + n).greedy(&ids, n);
        let kinds: std::collections::HashSet<u32> = out.iter().copied().collect();
        assert!(kinds.len() > 8, "{prompt}: {out:?}");
        stops += out.iter().filter(|t| loaded.stop_ids.contains(t)).count();
        printable += out.iter().filter(|&&t| (0x20..0x7f).contains(&t)).count();
        distinct.insert(out);
    }
    assert_eq!(distinct.len(), 5, "each prompt has its own answer");
    assert!(printable > 5 * n / 2, "{printable} of {} bytes are printable", 5 * n);
    println!("{stops} ends and {printable} printable bytes in {} tokens", 5 * n);
}
