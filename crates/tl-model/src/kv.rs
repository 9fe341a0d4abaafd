//! Where a forward pass keeps keys and values.

use tl_kernels::{AttnJob, AttnScratch, AttnShape, Kernels, Threads};
use tl_kv::{BlockRead, BlockWrite, Slabs};

use crate::error::ForwardError;
use crate::forward::Span;

/// Storage of keys and values for the spans of one step.
pub(crate) trait KvStore {
    type Elem: Sync + 'static;

    /// Stores one row's keys and values, `[n_kv_heads][head_dim]` each.
    fn write(&mut self, kernels: Kernels, at: Place, k: &[f32], v: &[f32]);

    /// Appends the key and value slabs of a span's blocks in one layer, in the order of positions.
    fn blocks<'s>(
        &'s self,
        span: usize,
        layer: usize,
        k: &mut Vec<&'s [Self::Elem]>,
        v: &mut Vec<&'s [Self::Elem]>,
    );

    /// The attention kernel for this element type, over the jobs of all spans together.
    fn attention(
        jobs: &mut [AttnJob<'_, Self::Elem>],
        kernels: Kernels,
        threads: &Threads,
        shape: AttnShape,
        scale: f32,
        scratch: &mut AttnScratch,
    );
}

/// One position of one span in one layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) span: usize,
    pub(crate) layer: usize,
    pub(crate) position: usize,
}

/// The pool's blocks, open for the length of a step: the blocks that a span's own tokens fall into
/// for writing, the earlier ones for reading. Everything is opened before anything is written, so
/// that a block that is shared, unheld or open elsewhere is refused with the pool untouched.
pub(crate) struct SlabKv<'a> {
    open: Vec<Open<'a>>,
    /// Where each span's blocks begin in `open`.
    first: Vec<usize>,
    block_tokens: usize,
    head_dim: usize,
}

enum Open<'a> {
    Read(BlockRead<'a>),
    Write(BlockWrite<'a>),
}

impl<'a> SlabKv<'a> {
    /// Opens the blocks of `spans`, whose tables have been checked to be long enough.
    pub(crate) fn open(slabs: &'a Slabs, spans: &[Span<'_>]) -> Result<Self, ForwardError> {
        let block_tokens = slabs.cfg().block_tokens as usize;
        let needed = |s: &Span<'_>| (s.start + s.tokens.len()).div_ceil(block_tokens);
        let mut open = Vec::with_capacity(spans.iter().map(needed).sum());
        let mut first = Vec::with_capacity(spans.len());
        for (span, s) in spans.iter().enumerate() {
            first.push(open.len());
            let written = s.start / block_tokens;
            for (i, &block) in s.table[..needed(s)].iter().enumerate() {
                let opened = if i < written {
                    slabs.read(block).map(Open::Read)
                } else {
                    slabs.write(block).map(Open::Write)
                };
                let why =
                    |e: tl_kv::KvError| ForwardError::Block { span, block, why: e.to_string() };
                open.push(opened.map_err(why)?);
            }
        }
        first.push(open.len());
        Ok(Self { open, first, block_tokens, head_dim: slabs.cfg().head_dim as usize })
    }
}

impl KvStore for SlabKv<'_> {
    type Elem = u16;

    fn write(&mut self, kernels: Kernels, at: Place, k: &[f32], v: &[f32]) {
        let block = self.first[at.span] + at.position / self.block_tokens;
        let slot = at.position % self.block_tokens;
        let Open::Write(block) = &mut self.open[block] else {
            unreachable!("blocks from a span's first token on are opened for writing");
        };
        scatter(block.k_mut(at.layer), slot, self.block_tokens, k, self.head_dim, |from, to| {
            kernels.f32_to_f16(from, to);
        });
        scatter(block.v_mut(at.layer), slot, self.block_tokens, v, self.head_dim, |from, to| {
            kernels.f32_to_f16(from, to);
        });
    }

    fn blocks<'s>(
        &'s self,
        span: usize,
        layer: usize,
        k: &mut Vec<&'s [u16]>,
        v: &mut Vec<&'s [u16]>,
    ) {
        for block in &self.open[self.first[span]..self.first[span + 1]] {
            let (key, value) = match block {
                Open::Read(b) => (b.k(layer), b.v(layer)),
                Open::Write(b) => (b.k(layer), b.v(layer)),
            };
            k.push(key);
            v.push(value);
        }
    }

    fn attention(
        jobs: &mut [AttnJob<'_, u16>],
        kernels: Kernels,
        threads: &Threads,
        shape: AttnShape,
        scale: f32,
        scratch: &mut AttnScratch,
    ) {
        kernels.attention_batch(threads, jobs, shape, scale, scratch);
    }
}

/// Writes a row `[heads][head_dim]` to slot `slot` of a slab `[heads][block_tokens][head_dim]`.
pub(crate) fn scatter<E>(
    slab: &mut [E],
    slot: usize,
    block_tokens: usize,
    row: &[f32],
    head_dim: usize,
    convert: impl Fn(&[f32], &mut [E]),
) {
    for (head, from) in row.chunks_exact(head_dim).enumerate() {
        let at = (head * block_tokens + slot) * head_dim;
        convert(from, &mut slab[at..][..head_dim]);
    }
}
