//! Causal attention of one sequence straight over the blocks of a KV pool.
//!
//! Gathering the blocks into one tensor first would cost a pass over the KV at every
//! step. Here keys and values are read where they lie, and the result is defined by
//! positions alone:
//!
//! - `s[j] = dot(q, k[j]) * scale`, the dot product of every other kernel;
//! - `p[j] = exp(s[j] - max s)`, summed over `j` in sixteen lanes (`j mod 16`) and one tree;
//! - `acc[d] = fma(p[j], v[j][d], acc[d])` for `j` ascending, then `acc[d] / sum p`.
//!
//! The two passes need the scores of a query in memory, and in return nothing is ever
//! rescaled: how a prompt was cut into chunks, how many rows share a call and how long a
//! block is cannot be seen in a single bit.
//!
//! The query heads of one KV head, times the rows of a tile, share each key and value
//! that is read. A few queries (decode) read the blocks in place; for many (prefill) a
//! span of positions is gathered in the first-level cache and used from there.

use std::fmt;

use crate::isa::Token;
use crate::rows::exp_scores;
use crate::simd::{Elem, LANES, prefetch};
use crate::threads::Threads;
use crate::tiles::{Mat, MatMut, Stored};
use crate::weights::{Lines, spread};

/// Positions whose keys or values are gathered at a time: 8 KiB at a head dimension of 64.
const SPAN: usize = 64;
/// Queries from which on gathering pays.
const GATHER_QUERIES: usize = 12;
/// Queries of a tile, so that a gathered span is used often.
const TILE_QUERIES: usize = 48;
/// Bytes of scores of a tile, so that they stay in a second-level cache.
const SCORE_BYTES: usize = 256 * 1024;

/// The shape of the heads and of a block `[n_kv_heads][block_tokens][head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttnShape {
    /// Query heads; a multiple of `n_kv_heads`.
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    /// Positions in a block.
    pub block_tokens: usize,
}

impl AttnShape {
    fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    fn block_len(&self) -> usize {
        self.n_kv_heads * self.block_tokens * self.head_dim
    }
}

/// Memory that attention reuses from call to call; it grows to what is needed.
#[derive(Default)]
pub struct AttnScratch {
    slots: Vec<Slot>,
}

impl AttnScratch {
    pub fn new() -> Self {
        Self::default()
    }
}

impl fmt::Debug for AttnScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttnScratch").field("threads", &self.slots.len()).finish_non_exhaustive()
    }
}

/// One thread's share; rows are spread as those of a matrix product.
#[derive(Default)]
pub(crate) struct Slot {
    /// The tile's queries, padded to whole vectors.
    q: Lines,
    /// Scores, then probabilities: a row per query.
    scores: Lines,
    sums: Vec<f32>,
    /// Weighted sums of values, padded to whole vectors.
    acc: Lines,
    /// A gathered span of keys or values, padded likewise.
    span: Lines,
}

/// The rows of one KV head: `block_tokens` rows of `head_dim` from `off` in each block.
#[derive(Clone, Copy)]
pub(crate) struct Paged<'a, E> {
    blocks: &'a [&'a [E]],
    off: usize,
    block_tokens: usize,
    head_dim: usize,
}

impl<E: Copy> Paged<'_, E> {
    /// The run of rows of one block that starts at position `p` and ends before `end`.
    #[inline(always)]
    fn run(&self, p: usize, end: usize) -> (Mat<E>, usize) {
        let (block, t) = (p / self.block_tokens, p % self.block_tokens);
        let count = (self.block_tokens - t).min(end - p);
        let rows = &self.blocks[block][self.off + t * self.head_dim..][..count * self.head_dim];
        (Mat { at: rows.as_ptr(), stride: self.head_dim }, count)
    }

    /// Copies the positions `p..p + count` to rows of `stride`, zeros behind the head.
    fn gather(&self, p: usize, count: usize, span: &mut [E], stride: usize) -> Mat<E>
    where
        E: Copy + Default,
    {
        let rows = span.chunks_exact_mut(stride).take(count);
        for (position, row) in (p..).zip(rows) {
            let (block, t) = (position / self.block_tokens, position % self.block_tokens);
            let from = &self.blocks[block][self.off + t * self.head_dim..][..self.head_dim];
            row[..self.head_dim].copy_from_slice(from);
            row[self.head_dim..].fill(E::default());
        }
        Mat { at: span.as_ptr(), stride }
    }
}

/// One tile: `rows` query rows from position `start`, all heads of one KV head.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a, E> {
    k: Paged<'a, E>,
    v: Paged<'a, E>,
    start: usize,
    rows: usize,
    group: usize,
    head_dim: usize,
    scale: f32,
    /// The first row's first head of this group, in the queries and in the outputs.
    q: Mat<f32>,
    out: MatMut,
}

/// # Safety
/// `q` and `out` hold `rows` rows of `group * head_dim` elements; nobody else touches the
/// outputs.
unsafe fn tile<E: Stored>(token: Token, t: Tile<'_, E>, slot: &mut Slot) {
    let dim = t.head_dim;
    let padded = dim.next_multiple_of(LANES);
    let queries = t.rows * t.group;
    let len = t.start + t.rows;
    let gathered = dim != padded || queries >= GATHER_QUERIES;

    let (stride, score_stride) = (spread::<f32>(dim), spread::<f32>(len));
    let q = MatMut { at: slot.q.at_least::<f32>(queries * stride).as_mut_ptr(), stride };
    let acc = slot.acc.at_least::<f32>(queries * stride);
    acc[..queries * stride].fill(0.0);
    let acc = MatMut { at: acc.as_mut_ptr(), stride };
    let span_stride = spread::<E>(dim);
    let span = slot.span.at_least::<E>(SPAN * span_stride);
    let scores = slot.scores.at_least::<f32>(queries * score_stride).as_mut_ptr();
    let scores = MatMut { at: scores, stride: score_stride };
    slot.sums.resize(queries, 0.0);

    for query in 0..queries {
        let (row, head) = (query / t.group, query % t.group);
        // SAFETY: the caller vouches for the queries; `q` has a row for each.
        unsafe {
            let to = std::slice::from_raw_parts_mut(q.from_row(query).at, stride);
            to[dim..].fill(0.0);
            to[..dim].copy_from_slice(std::slice::from_raw_parts(t.q.row(row).add(head * dim), dim));
        }
    }
    let mut p = 0;
    while p < len {
        // SAFETY: the columns of the scores are the positions, `p + count <= len`.
        unsafe {
            let out = MatMut { at: scores.at.add(p), ..scores };
            if gathered {
                let count = SPAN.min(len - p);
                let keys = t.k.gather(p, count, span, span_stride);
                E::product(token, out, q.read(), keys, dim, queries, count);
                p += count;
            } else {
                let (keys, count) = t.k.run(p, len);
                prefetch_run(t.k, p + count, len);
                E::product(token, out, q.read(), keys, dim, queries, count);
                p += count;
            }
        }
    }

    for query in 0..queries {
        let seen = t.start + query / t.group + 1;
        // SAFETY: the scores have a row of `len` for each query.
        let row = unsafe { std::slice::from_raw_parts_mut(scores.from_row(query).at, seen) };
        slot.sums[query] = exp_scores(token, row, t.scale);
    }

    // Positions that every row sees, then for each row those that are left.
    let common = t.start + 1;
    let mut p = 0;
    while p < common {
        // SAFETY: as above; `acc` has a row for each query.
        unsafe {
            let probs = Mat { at: scores.at.add(p).cast_const(), stride: score_stride };
            if gathered {
                let count = SPAN.min(common - p);
                let values = t.v.gather(p, count, span, span_stride);
                E::weigh(token, acc, probs, values, padded, queries, count);
                p += count;
            } else {
                let (values, count) = t.v.run(p, common);
                prefetch_run(t.v, p + count, len);
                E::weigh(token, acc, probs, values, padded, queries, count);
                p += count;
            }
        }
    }
    while p < len {
        let count = SPAN.min(len - p);
        // SAFETY: as above; row `row` sees the positions below `start + row + 1`.
        unsafe {
            let values = t.v.gather(p, count, span, span_stride);
            for row in 1..t.rows {
                let end = (t.start + row + 1).min(p + count);
                let first = row * t.group;
                let probs = Mat { at: scores.from_row(first).at.add(p), stride: score_stride };
                let count = end.saturating_sub(p);
                E::weigh(token, acc.from_row(first), probs, values, padded, t.group, count);
            }
        }
        p += count;
    }

    for query in 0..queries {
        let (row, head) = (query / t.group, query % t.group);
        let sum = slot.sums[query];
        // SAFETY: the caller vouches for the outputs; `acc` has a row for each query.
        let (out, acc) = unsafe {
            let out = t.out.from_row(row).at.add(head * dim);
            let acc = acc.from_row(query).at;
            (std::slice::from_raw_parts_mut(out, dim), std::slice::from_raw_parts(acc, dim))
        };
        for (out, acc) in out.iter_mut().zip(acc) {
            *out = acc / sum;
        }
    }
}

/// Asks for the rows of the block that comes next.
fn prefetch_run<E: Elem>(from: Paged<'_, E>, p: usize, end: usize) {
    if p < end {
        let (rows, count) = from.run(p, end);
        for i in (0..count * from.head_dim).step_by(64 / size_of::<E>()) {
            prefetch(rows.at.wrapping_add(i));
        }
    }
}

/// Rows of a tile: enough queries to use a gathered span often, few enough that their
/// scores stay in cache.
fn tile_rows(rows: usize, len: usize, group: usize) -> usize {
    let queries = (SCORE_BYTES / (len * size_of::<f32>())).clamp(GATHER_QUERIES, TILE_QUERIES);
    queries.div_ceil(group).min(rows)
}

/// Attention of `rows` query rows; see [`crate::Kernels::attention`].
#[allow(clippy::too_many_arguments, reason = "one call carries a whole layer's attention")]
pub(crate) fn attention<E: Stored>(
    token: Token,
    pool: &Threads,
    out: &mut [f32],
    q: &[f32],
    k_blocks: &[&[E]],
    v_blocks: &[&[E]],
    start: usize,
    rows: usize,
    shape: AttnShape,
    scale: f32,
    scratch: &mut AttnScratch,
) {
    let AttnShape { n_heads, n_kv_heads, head_dim, block_tokens } = shape;
    let row_len = n_heads * head_dim;
    assert!(n_kv_heads > 0 && n_heads % n_kv_heads == 0, "query heads per KV head in {shape:?}");
    assert!(head_dim > 0 && block_tokens > 0, "an empty block in {shape:?}");
    assert_eq!(q.len(), rows * row_len, "queries of {rows} rows in {shape:?}");
    assert_eq!(out.len(), rows * row_len, "outputs of {rows} rows in {shape:?}");
    if rows == 0 {
        return;
    }
    let len = start + rows;
    let needed = len.div_ceil(block_tokens);
    for blocks in [k_blocks, v_blocks] {
        assert!(blocks.len() >= needed, "{} blocks for {len} positions, {shape:?}", blocks.len());
        for block in &blocks[..needed] {
            assert!(block.len() >= shape.block_len(), "a block of {} in {shape:?}", block.len());
        }
    }

    let group = shape.group();
    let tile_rows = tile_rows(rows, len, group);
    let tiles = rows.div_ceil(tile_rows);
    let parts = tiles * n_kv_heads;
    scratch.slots.resize_with(pool.count().max(scratch.slots.len()), Slot::default);
    let slots = Shared(scratch.slots.as_mut_ptr());
    let out = MatMut { at: out.as_mut_ptr(), stride: row_len };
    pool.run_slots(parts, |part, slot| {
        let (slots, out) = (&slots, &out);
        // The longest rows first: the short ones fill the gaps at the end.
        let (tile_index, kv_head) = (tiles - 1 - part / n_kv_heads, part % n_kv_heads);
        let row = tile_index * tile_rows;
        let rows = tile_rows.min(rows - row);
        let column = kv_head * group * head_dim;
        let off = kv_head * block_tokens * head_dim;
        let paged = |blocks| Paged { blocks, off, block_tokens, head_dim };
        // SAFETY: rows and heads of a part are its own and inside `q` and `out` (asserted
        // above); parts that run together have different slots, below the team's count.
        unsafe {
            let t = Tile {
                k: paged(k_blocks),
                v: paged(v_blocks),
                start: start + row,
                rows,
                group,
                head_dim,
                scale,
                q: Mat { at: q.as_ptr().add(row * row_len + column), stride: row_len },
                out: MatMut { at: out.at.add(row * row_len + column), stride: row_len },
            };
            tile(token, t, &mut *slots.0.add(slot));
        }
    });
}

/// The slots' address, for parts that each use one of their own.
struct Shared(*mut Slot);

// SAFETY: a plain address; parts that run together use different slots.
unsafe impl Sync for Shared {}

#[cfg(test)]
mod tests;
