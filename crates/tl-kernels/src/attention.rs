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
//! that is read. A few queries (decode) widen halves in registers; many (prefill) widen
//! a span of positions once and use it from the cache.

use crate::isa::Token;
use crate::rows::exp_scores;
use crate::simd::{Elem, LANES, prefetch};
use crate::threads::Threads;
use crate::tiles::{Mat, MatMut, Stored};

/// Positions whose keys or values are widened at a time: 16 KiB at a head dimension of 64.
const SPAN: usize = 64;
/// Queries from which on widening once pays.
const WIDE_QUERIES: usize = 12;
/// Queries of a tile, so that a widened span is used often.
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
#[derive(Debug, Default)]
pub struct AttnScratch {
    slots: Vec<Slot>,
}

impl AttnScratch {
    pub fn new() -> Self {
        Self::default()
    }
}

/// One thread's share.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The tile's queries, padded to whole vectors.
    q: Vec<f32>,
    /// Scores, then probabilities: a row per query.
    scores: Vec<f32>,
    sums: Vec<f32>,
    /// Weighted sums of values, padded to whole vectors.
    acc: Vec<f32>,
    /// A widened span of keys or values.
    span: Vec<f32>,
}

/// The rows of one KV head: `block_tokens` rows of `head_dim` from `off` in each block.
#[derive(Clone, Copy)]
pub(crate) struct Paged<'a, E> {
    blocks: &'a [&'a [E]],
    off: usize,
    block_tokens: usize,
    head_dim: usize,
}

impl<E> Paged<'_, E> {
    /// The run of rows of one block that starts at position `p` and ends before `end`.
    #[inline(always)]
    fn run(&self, p: usize, end: usize) -> (*const E, usize) {
        let (block, t) = (p / self.block_tokens, p % self.block_tokens);
        let count = (self.block_tokens - t).min(end - p);
        let rows = &self.blocks[block][self.off + t * self.head_dim..][..count * self.head_dim];
        (rows.as_ptr(), count)
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
    let stride = len.next_multiple_of(LANES);
    let wide = !E::F16 || dim != padded || queries >= WIDE_QUERIES;

    resize(&mut slot.q, queries * padded);
    resize(&mut slot.acc, queries * padded);
    resize(&mut slot.scores, queries * stride);
    resize(&mut slot.sums, queries);
    resize(&mut slot.span, SPAN * padded);
    slot.acc[..queries * padded].fill(0.0);
    for query in 0..queries {
        let (row, head) = (query / t.group, query % t.group);
        let q = &mut slot.q[query * padded..][..padded];
        q[dim..].fill(0.0);
        // SAFETY: the caller vouches for the queries.
        unsafe {
            let from = t.q.row(row).add(head * dim);
            std::ptr::copy_nonoverlapping(from, q.as_mut_ptr(), dim);
        }
    }
    let q = Mat { at: slot.q.as_ptr(), stride: padded };
    let span = slot.span.as_mut_ptr();
    let scores = MatMut { at: slot.scores.as_mut_ptr(), stride };

    let mut p = 0;
    while p < len {
        // SAFETY: the columns of the scores are the positions, `p + count <= len`.
        unsafe {
            let out = MatMut { at: scores.at.add(p), stride };
            if wide {
                let count = SPAN.min(len - p);
                widen_span(token, span, t.k, p, count, padded);
                let keys = Mat { at: span.cast_const(), stride: padded };
                f32::product(token, out, q, keys, padded, queries, count);
                p += count;
            } else {
                let (keys, count) = t.k.run(p, len);
                prefetch_run(t.k, p + count, len);
                let keys = Mat { at: keys, stride: dim };
                E::product(token, out, q, keys, dim, queries, count);
                p += count;
            }
        }
    }

    for query in 0..queries {
        let seen = t.start + query / t.group + 1;
        slot.sums[query] = exp_scores(token, &mut slot.scores[query * stride..][..seen], t.scale);
    }

    // Positions that every row sees, then for each row those that are left.
    let acc = MatMut { at: slot.acc.as_mut_ptr(), stride: padded };
    // SAFETY: positions below `len` are inside every row of the scores.
    let probs = |p, row| unsafe { Mat { at: scores.at.add(row * stride + p).cast_const(), stride } };
    let common = t.start + 1;
    let mut p = 0;
    while p < common {
        // SAFETY: as above; `acc` has a padded row per query.
        unsafe {
            if wide {
                let count = SPAN.min(common - p);
                widen_span(token, span, t.v, p, count, padded);
                let values = Mat { at: span.cast_const(), stride: padded };
                f32::weigh(token, acc, probs(p, 0), values, queries, count);
                p += count;
            } else {
                let (values, count) = t.v.run(p, common);
                prefetch_run(t.v, p + count, len);
                let values = Mat { at: values, stride: dim };
                E::weigh(token, acc, probs(p, 0), values, queries, count);
                p += count;
            }
        }
    }
    while p < len {
        let count = SPAN.min(len - p);
        // SAFETY: as above; row `row` sees the positions below `start + row + 1`.
        unsafe {
            widen_span(token, span, t.v, p, count, padded);
            let values = Mat { at: span.cast_const(), stride: padded };
            for row in 1..t.rows {
                let Some(count) = (t.start + row + 1).min(p + count).checked_sub(p) else {
                    continue;
                };
                let acc = MatMut { at: acc.at.add(row * t.group * padded), stride: padded };
                f32::weigh(token, acc, probs(p, row * t.group), values, t.group, count);
            }
        }
        p += count;
    }

    for query in 0..queries {
        let (row, head) = (query / t.group, query % t.group);
        let sum = slot.sums[query];
        // SAFETY: the caller vouches for the outputs.
        let out = unsafe {
            let at = t.out.at.add(row * t.out.stride + head * dim);
            std::slice::from_raw_parts_mut(at, dim)
        };
        for (out, acc) in out.iter_mut().zip(&slot.acc[query * padded..]) {
            *out = acc / sum;
        }
    }
}

/// Asks for the rows of the block that comes next.
fn prefetch_run<E: Elem>(from: Paged<'_, E>, p: usize, end: usize) {
    if p < end {
        let (rows, count) = from.run(p, end);
        for i in (0..count * from.head_dim).step_by(64 / size_of::<E>()) {
            prefetch(rows.wrapping_add(i));
        }
    }
}

fn resize(v: &mut Vec<f32>, len: usize) {
    if v.len() < len {
        v.resize(len, 0.0);
    }
}

/// Widens positions `p..p + count` to rows of `padded` elements, zeros behind the head.
///
/// # Safety
/// `span` holds `count * padded` elements.
unsafe fn widen_span<E: Stored>(
    token: Token,
    span: *mut f32,
    from: Paged<'_, E>,
    p: usize,
    count: usize,
    padded: usize,
) {
    let dim = from.head_dim;
    let mut done = 0;
    while done < count {
        let (rows, run) = from.run(p + done, p + count);
        // SAFETY: `rows` has `run` rows of `dim`; the span's rows are `padded` long.
        unsafe {
            let to = MatMut { at: span.add(done * padded), stride: padded };
            E::widen(token, to, Mat { at: rows, stride: dim }, dim, run);
        }
        done += run;
    }
}

/// Rows of a tile: enough queries to use a widened span often, few enough that their
/// scores stay in cache.
fn tile_rows(rows: usize, len: usize, group: usize) -> usize {
    let queries = (SCORE_BYTES / (len * size_of::<f32>())).clamp(WIDE_QUERIES, TILE_QUERIES);
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
