//! The whole pass: against other implementations, and against itself cut up in every way.

mod bits;
mod files;
mod golden;
mod quantised;
mod spans;
mod stories;
pub(crate) mod write;

use std::ops::Range;

use tl_kernels::{AttnJob, AttnScratch, AttnShape, Kernels, Threads};
use tl_kv::{KvPool, Slabs};

use crate::forward::{Span, Workspace};
use crate::kv::{KvStore, Place, scatter};
use crate::model::Model;

/// Keys and values that are not rounded to halves: what other f32 implementations keep.
pub(crate) struct ExactKv {
    /// `[layer][block][k | v]` slabs of `[heads][block_tokens][head_dim]`.
    slabs: Vec<Vec<[Vec<f32>; 2]>>,
    block_tokens: usize,
    head_dim: usize,
}

impl ExactKv {
    /// Storage for one span of up to `positions` positions.
    pub(crate) fn new(model: &Model, positions: usize, block_tokens: usize) -> Self {
        let c = model.config();
        let slab = vec![0.0; c.kv_dim() * block_tokens];
        let blocks = vec![[slab.clone(), slab]; positions.div_ceil(block_tokens)];
        Self { slabs: vec![blocks; c.n_layers], block_tokens, head_dim: c.head_dim }
    }
}

impl KvStore for ExactKv {
    type Elem = f32;

    fn write(&mut self, _: Kernels, at: Place, k: &[f32], v: &[f32]) {
        let slabs = &mut self.slabs[at.layer][at.position / self.block_tokens];
        let slot = at.position % self.block_tokens;
        for (slab, row) in slabs.iter_mut().zip([k, v]) {
            scatter(slab, slot, self.block_tokens, row, self.head_dim, |from, to| {
                to.copy_from_slice(from);
            });
        }
    }

    fn blocks<'s>(
        &'s self,
        _: usize,
        layer: usize,
        k: &mut Vec<&'s [f32]>,
        v: &mut Vec<&'s [f32]>,
    ) {
        for [key, value] in &self.slabs[layer] {
            k.push(key);
            v.push(value);
        }
    }

    fn attention(
        jobs: &mut [AttnJob<'_, f32>],
        kernels: Kernels,
        threads: &Threads,
        shape: AttnShape,
        scale: f32,
        scratch: &mut AttnScratch,
    ) {
        for job in jobs {
            let AttnJob { out, q, k_blocks, v_blocks, start, rows } = job;
            kernels.attention_f32(
                threads, out, q, k_blocks, v_blocks, *start, *rows, shape, scale, scratch,
            );
        }
    }
}

/// One sequence at a time over a store of its own.
pub(crate) enum Runner<'a> {
    Pool { model: &'a Model, ws: Workspace, pool: KvPool, table: Vec<u32>, threads: Threads },
    Exact { model: &'a Model, ws: Workspace, kv: ExactKv, threads: Threads },
}

const BLOCK: usize = 16;

impl<'a> Runner<'a> {
    pub(crate) fn pool(model: &'a Model, positions: usize) -> Self {
        let n = positions.div_ceil(BLOCK);
        let mut pool = KvPool::new(model.kv_cfg(n as u32, BLOCK as u32)).unwrap();
        let table = pool.alloc(n).unwrap();
        Self::Pool { model, ws: Workspace::new(), pool, table, threads: Threads::new(1) }
    }

    pub(crate) fn exact(model: &'a Model, positions: usize) -> Self {
        let kv = ExactKv::new(model, positions, BLOCK);
        Self::Exact { model, ws: Workspace::new(), kv, threads: Threads::new(1) }
    }

    /// The logits after `tokens` from position `start` on.
    pub(crate) fn step(&mut self, tokens: &[u32], start: usize) -> Vec<f32> {
        let kernels = Kernels::detect();
        match self {
            Self::Pool { model, ws, pool, table, threads } => {
                let span = Span { tokens, start, table, logits: true };
                let slabs = pool.slabs();
                model.forward(ws, kernels, threads, &slabs, &[span], &mut |_| true).unwrap();
                ws.logits(0).unwrap().to_vec()
            }
            Self::Exact { model, ws, kv, threads } => {
                let span = Span { tokens, start, table: &[], logits: true };
                let mut refs = (Vec::new(), Vec::new());
                let spans = [span];
                model.run(ws, kernels, threads, kv, &mut refs, BLOCK, &spans, &mut |_| true);
                ws.logits(0).unwrap().to_vec()
            }
        }
    }

    /// Greedy tokens after `prompt`.
    pub(crate) fn greedy(&mut self, prompt: &[u32], n: usize) -> Vec<u32> {
        let mut next = argmax(&self.step(prompt, 0));
        let mut out = vec![next];
        while out.len() < n {
            next = argmax(&self.step(&[next], prompt.len() + out.len() - 1));
            out.push(next);
        }
        out
    }
}

pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(i, _)| i as u32)
}

/// The bits of a sequence's keys and values in the pool at `positions`, `[position][layer][k | v]`.
pub(crate) fn stored(slabs: &Slabs, table: &[u32], positions: Range<usize>) -> Vec<u16> {
    let c = *slabs.cfg();
    let (b, d) = (c.block_tokens as usize, c.head_dim as usize);
    let mut out = Vec::new();
    for p in positions {
        let block = slabs.read(table[p / b]).unwrap();
        for layer in 0..c.n_layers as usize {
            for slab in [block.k(layer), block.v(layer)] {
                for head in 0..c.n_kv_heads as usize {
                    out.extend_from_slice(&slab[(head * b + p % b) * d..][..d]);
                }
            }
        }
    }
    out
}
