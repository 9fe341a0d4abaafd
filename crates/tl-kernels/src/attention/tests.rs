use super::*;
use crate::kernels::tests::{Stream, all_kernels, bits};
use crate::{Isa, Kernels, f16_to_f32};

/// A sequence whose keys and values, `[position][kv head][dim]`, do not depend on the block size.
struct Sequence {
    shape: AttnShape,
    len: usize,
    q: Vec<f32>,
    k: Vec<u16>,
    v: Vec<u16>,
}

impl Sequence {
    fn new(n_heads: usize, n_kv_heads: usize, head_dim: usize, len: usize) -> Self {
        let mut stream = Stream::new((len * 31 + head_dim * 7 + n_heads) as u64);
        let shape = AttnShape { n_heads, n_kv_heads, head_dim, block_tokens: 16 };
        Self {
            shape,
            len,
            q: stream.f32s(len * n_heads * head_dim).iter().map(|x| x * 4.0).collect(),
            k: stream.f16s(len * n_kv_heads * head_dim),
            v: stream.f16s(len * n_kv_heads * head_dim),
        }
    }

    /// Blocks of `block_tokens`; what lies past the last position is NaN.
    fn blocks(&self, rows: &[u16], block_tokens: usize) -> Vec<Vec<u16>> {
        let AttnShape { n_kv_heads, head_dim, .. } = self.shape;
        let n = self.len.div_ceil(block_tokens);
        let mut blocks = vec![vec![0x7e00; n_kv_heads * block_tokens * head_dim]; n];
        for p in 0..self.len {
            for h in 0..n_kv_heads {
                let from = &rows[(p * n_kv_heads + h) * head_dim..][..head_dim];
                let at = (h * block_tokens + p % block_tokens) * head_dim;
                blocks[p / block_tokens][at..][..head_dim].copy_from_slice(from);
            }
        }
        blocks
    }

    /// The outputs of all positions, computed in calls of at most `chunk` rows.
    fn run(&self, kernels: Kernels, team: &Threads, block_tokens: usize, chunk: usize) -> Vec<f32> {
        let (k, v) = (self.blocks(&self.k, block_tokens), self.blocks(&self.v, block_tokens));
        let k: Vec<&[u16]> = k.iter().map(Vec::as_slice).collect();
        let v: Vec<&[u16]> = v.iter().map(Vec::as_slice).collect();
        let shape = AttnShape { block_tokens, ..self.shape };
        let row = shape.n_heads * shape.head_dim;
        let mut out = vec![f32::NAN; self.len * row];
        let mut scratch = AttnScratch::new();
        let mut start = 0;
        while start < self.len {
            let rows = chunk.min(self.len - start);
            let part = start * row..(start + rows) * row;
            kernels.attention(
                team,
                &mut out[part.clone()],
                &self.q[part],
                &k,
                &v,
                start,
                rows,
                shape,
                SCALE,
                &mut scratch,
            );
            start += rows;
        }
        out
    }

    /// Attention by its definition, in f64.
    fn check_exact(&self, got: &[f32]) {
        let AttnShape { n_heads, n_kv_heads, head_dim, .. } = self.shape;
        for p in 0..self.len {
            for h in 0..n_heads {
                let at = (p * n_heads + h) * head_dim;
                let kv = h / (n_heads / n_kv_heads);
                let value = |rows: &[u16], j: usize, d: usize| {
                    f64::from(f16_to_f32(rows[(j * n_kv_heads + kv) * head_dim + d]))
                };
                let scores: Vec<f64> = (0..=p)
                    .map(|j| {
                        let dot = |d| f64::from(self.q[at + d]) * value(&self.k, j, d);
                        (0..head_dim).map(dot).sum::<f64>() * f64::from(SCALE)
                    })
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                for d in 0..head_dim {
                    let want = (0..=p)
                        .map(|j| (scores[j] - max).exp() / sum * value(&self.v, j, d))
                        .sum::<f64>();
                    let error = (f64::from(got[at + d]) - want).abs();
                    assert!(error < 3e-6, "position {p}, head {h}, dim {d}: off by {error}");
                }
            }
        }
    }
}

const SCALE: f32 = 0.125;

fn check(n_heads: usize, n_kv_heads: usize, head_dim: usize, len: usize) {
    let sequence = Sequence::new(n_heads, n_kv_heads, head_dim, len);
    let one = Threads::new(1);
    let portable = Kernels::new(Isa::Portable).expect("always there");
    let reference = sequence.run(portable, &one, 16, len);
    sequence.check_exact(&reference);
    let teams: Vec<_> = (1..=3).map(Threads::new).collect();
    for kernels in all_kernels() {
        for (i, &(block_tokens, chunk)) in
            [(16, len), (16, 1), (16, 7), (1, 5), (5, 33), (32, 3), (64, len), (128, 19)]
                .iter()
                .enumerate()
        {
            let team = &teams[i % teams.len()];
            let got = sequence.run(kernels, team, block_tokens, chunk);
            assert!(
                bits(&got) == bits(&reference),
                "{:?}, {len} positions, blocks of {block_tokens}, chunks of {chunk}, {} with {team:?}",
                sequence.shape,
                kernels.isa(),
            );
        }
    }
}

#[test]
fn head_dimensions() {
    for head_dim in [8, 64, 80, 128] {
        check(6, 2, head_dim, 70);
    }
    check(2, 1, 1, 20);
    check(2, 1, 17, 20);
}

#[test]
fn ratios_of_query_to_kv_heads() {
    for (n_heads, n_kv_heads) in [(1, 1), (4, 4), (9, 3), (4, 1), (15, 3), (16, 2)] {
        check(n_heads, n_kv_heads, 32, 37);
    }
}

#[test]
fn lengths_around_spans_and_tiles() {
    for len in [1, 2, 15, 16, 17, 63, 64, 65, 129] {
        check(3, 1, 16, len);
    }
}

#[test]
fn a_long_context() {
    let sequence = Sequence::new(3, 1, 64, 700);
    let (one, two) = (Threads::new(1), Threads::new(2));
    let kernels = Kernels::detect();
    let whole = sequence.run(kernels, &one, 16, 700);
    sequence.check_exact(&whole);
    for (block_tokens, chunk) in [(16, 1), (32, 255), (256, 100)] {
        assert!(bits(&sequence.run(kernels, &two, block_tokens, chunk)) == bits(&whole));
    }
}

#[test]
fn single_precision_blocks_have_the_order_of_halves() {
    for head_dim in [8, 64] {
        let sequence = Sequence::new(6, 2, head_dim, 50);
        let wide = |rows: &[u16]| -> Vec<Vec<f32>> {
            let blocks = sequence.blocks(rows, 16);
            blocks.iter().map(|b| b.iter().map(|&h| f16_to_f32(h)).collect()).collect()
        };
        let (k, v) = (wide(&sequence.k), wide(&sequence.v));
        let k: Vec<&[f32]> = k.iter().map(Vec::as_slice).collect();
        let v: Vec<&[f32]> = v.iter().map(Vec::as_slice).collect();
        for kernels in all_kernels() {
            let team = Threads::new(2);
            let want = sequence.run(kernels, &team, 16, 50);
            for chunk in [50, 1] {
                let row = sequence.shape.n_heads * head_dim;
                let mut out = vec![0.0; want.len()];
                for start in (0..50).step_by(chunk) {
                    let part = start * row..(start + chunk) * row;
                    kernels.attention_f32(
                        &team,
                        &mut out[part.clone()],
                        &sequence.q[part],
                        &k,
                        &v,
                        start,
                        chunk,
                        sequence.shape,
                        SCALE,
                        &mut AttnScratch::new(),
                    );
                }
                assert!(bits(&out) == bits(&want), "{} rows a call", chunk);
            }
        }
    }
}

#[test]
fn a_poisoned_position_reaches_only_those_who_see_it() {
    let mut sequence = Sequence::new(3, 1, 64, 40);
    let one = Threads::new(1);
    let clean = sequence.run(Kernels::detect(), &one, 16, 40);
    sequence.v[25 * 64 + 3] = 0x7c00;
    sequence.k[25 * 64] = 0x7e00;
    for kernels in all_kernels() {
        for chunk in [1, 40] {
            let got = sequence.run(kernels, &one, 16, chunk);
            let row = 3 * 64;
            assert!(bits(&got[..25 * row]) == bits(&clean[..25 * row]), "chunks of {chunk}");
            assert!(got[25 * row..].iter().all(|x| x.is_nan()), "chunks of {chunk}");
        }
    }
}

#[test]
fn a_batch_has_the_bits_of_its_sequences() {
    let sequences: Vec<_> = [1, 70, 17, 33, 200].map(|len| Sequence::new(9, 3, 64, len)).into();
    let shape = sequences[0].shape;
    let row = shape.n_heads * shape.head_dim;
    // Single rows, chunks and nothing at all beside each other.
    let rows = [1, 1, 17, 0, 190];
    let kernels = Kernels::detect();
    let one = Threads::new(1);
    let want: Vec<_> = sequences.iter().map(|s| s.run(kernels, &one, 16, s.len)).collect();
    let blocks: Vec<_> =
        sequences.iter().map(|s| (s.blocks(&s.k, 16), s.blocks(&s.v, 16))).collect();
    let slices: Vec<(Vec<&[u16]>, Vec<&[u16]>)> = blocks
        .iter()
        .map(|(k, v)| {
            (k.iter().map(Vec::as_slice).collect(), v.iter().map(Vec::as_slice).collect())
        })
        .collect();
    for threads in 1..5 {
        let team = Threads::new(threads);
        let mut outs: Vec<_> = rows.iter().map(|rows| vec![f32::NAN; rows * row]).collect();
        let mut jobs: Vec<_> = outs
            .iter_mut()
            .enumerate()
            .map(|(i, out)| AttnJob {
                out,
                q: &sequences[i].q[(sequences[i].len - rows[i]) * row..],
                k_blocks: &slices[i].0,
                v_blocks: &slices[i].1,
                start: sequences[i].len - rows[i],
                rows: rows[i],
            })
            .collect();
        kernels.attention_batch(&team, &mut jobs, shape, SCALE, &mut AttnScratch::new());
        for (i, out) in outs.iter().enumerate() {
            let want = &want[i][(sequences[i].len - rows[i]) * row..];
            assert!(bits(out) == bits(want), "sequence {i} with {team:?}");
        }
    }
}
