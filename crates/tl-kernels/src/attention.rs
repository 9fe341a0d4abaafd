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
//! that is read. A few queries (decode) read the blocks in place, all heads of a block
//! before the next block, since memory likes runs longer than one head's; for many
//! (prefill) a span of positions is gathered in the first-level cache and used from there.

use std::fmt;
use std::ops::Range;

use crate::isa::Token;
use crate::rows::exp_scores;
use crate::simd::{LANES, prefetch};
use crate::threads::Threads;
use crate::tiles::{Mat, MatMut, Stored};
use crate::weights::{Lines, spread};

/// Positions whose keys or values are gathered at a time: 8 KiB at a head dimension of 64.
const SPAN: usize = 64;
/// Queries per KV head from which on gathering pays.
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

    /// Elements of a row of queries or outputs.
    fn row_len(&self) -> usize {
        self.n_heads * self.head_dim
    }

    fn block_len(&self) -> usize {
        self.n_kv_heads * self.block_tokens * self.head_dim
    }
}

/// One sequence's part of a call; see [`crate::Kernels::attention_batch`].
#[derive(Debug)]
pub struct AttnJob<'a, E> {
    /// `[rows][n_heads][head_dim]`
    pub out: &'a mut [f32],
    /// `[rows][n_heads][head_dim]`
    pub q: &'a [f32],
    /// Blocks of `[n_kv_heads][block_tokens][head_dim]`, for the positions `0..start + rows`.
    pub k_blocks: &'a [&'a [E]],
    pub v_blocks: &'a [&'a [E]],
    /// The position of the first row.
    pub start: usize,
    pub rows: usize,
}

/// Memory that attention reuses from call to call; it grows to what is needed.
#[derive(Default)]
pub struct AttnScratch {
    slots: Vec<Slot>,
    parts: Vec<Part>,
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
struct Slot {
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

/// What one thread does at a time: some rows and some KV heads of a job.
#[derive(Clone, Debug)]
struct Part {
    job: usize,
    rows: Range<usize>,
    kv_heads: Range<usize>,
}

/// The blocks of a sequence.
#[derive(Clone, Copy)]
struct Paged<'a, E> {
    blocks: &'a [&'a [E]],
    shape: AttnShape,
}

impl<E: Copy + Default> Paged<'_, E> {
    /// Positions of the block of position `p`, from `p` on and before `end`.
    fn run(&self, p: usize, end: usize) -> usize {
        (self.shape.block_tokens - p % self.shape.block_tokens).min(end - p)
    }

    /// The rows of a run.
    fn rows(&self, kv_head: usize, p: usize, count: usize) -> &[E] {
        let AttnShape { head_dim, block_tokens, .. } = self.shape;
        let (block, t) = (p / block_tokens, p % block_tokens);
        let at = (kv_head * block_tokens + t) * head_dim;
        &self.blocks[block][at..][..count * head_dim]
    }

    /// Copies the positions `p..p + count` to rows of `stride`, zeros behind the head.
    fn gather(
        &self,
        kv_head: usize,
        p: usize,
        count: usize,
        span: &mut [E],
        stride: usize,
    ) -> Mat<E> {
        let dim = self.shape.head_dim;
        let mut done = 0;
        while done < count {
            let run = self.run(p + done, p + count);
            let rows = self.rows(kv_head, p + done, run);
            let to = &mut span[done * stride..][..run * stride];
            if stride == dim {
                to.copy_from_slice(rows);
            } else {
                for (to, row) in to.chunks_exact_mut(stride).zip(rows.chunks_exact(dim)) {
                    to[..dim].copy_from_slice(row);
                    to[dim..].fill(E::default());
                }
            }
            done += run;
        }
        Mat { at: span.as_ptr(), stride }
    }

    /// Asks for the rows of some heads in the block of position `p`, if there is one.
    fn prefetch(&self, kv_heads: &Range<usize>, p: usize) {
        let AttnShape { head_dim, block_tokens, .. } = self.shape;
        if let Some(block) = self.blocks.get(p / block_tokens) {
            let head = block_tokens * head_dim;
            for i in (kv_heads.start * head..kv_heads.end * head).step_by(64 / size_of::<E>()) {
                prefetch(block.as_ptr().wrapping_add(i));
            }
        }
    }
}

/// One part with its addresses.
struct Tile<'a, E> {
    k: Paged<'a, E>,
    v: Paged<'a, E>,
    kv_heads: Range<usize>,
    /// The position of the first row.
    start: usize,
    rows: usize,
    scale: f32,
    /// The first row's first query head of `kv_heads`, in the queries and in the outputs.
    q: Mat<f32>,
    out: MatMut,
}

impl<E: Stored> Tile<'_, E> {
    /// # Safety
    /// `q` and `out` hold `rows` rows of the heads; nobody else touches the outputs.
    unsafe fn run(&self, token: Token, slot: &mut Slot) {
        let shape = self.k.shape;
        let (dim, group) = (shape.head_dim, shape.group());
        let padded = dim.next_multiple_of(LANES);
        let heads = self.kv_heads.len();
        let queries = self.rows * group;
        let len = self.start + self.rows;
        let in_place = dim == padded && queries < GATHER_QUERIES;

        // Queries are ordered by KV head, row, head of the group.
        let (stride, score_stride) = (spread::<f32>(dim), spread::<f32>(len));
        let all = heads * queries;
        let q = MatMut { at: slot.q.at_least::<f32>(all * stride).as_mut_ptr(), stride };
        let acc = slot.acc.at_least::<f32>(all * stride);
        acc[..all * stride].fill(0.0);
        let acc = MatMut { at: acc.as_mut_ptr(), stride };
        let scores = slot.scores.at_least::<f32>(all * score_stride).as_mut_ptr();
        let scores = MatMut { at: scores, stride: score_stride };
        let span_stride = if dim == padded { dim } else { spread::<E>(dim) };
        let span = slot.span.at_least::<E>(SPAN * span_stride);
        slot.sums.resize(all, 0.0);
        let place = |query: usize| {
            let (head, row) = (query / queries, query % queries / group);
            (row, (head * group + query % group) * dim)
        };

        for query in 0..all {
            let (row, column) = place(query);
            // SAFETY: the caller vouches for the queries; `q` has a row for each.
            unsafe {
                let to = std::slice::from_raw_parts_mut(q.from_row(query).at, stride);
                let from = std::slice::from_raw_parts(self.q.row(row).add(column), dim);
                to[..dim].copy_from_slice(from);
                to[dim..].fill(0.0);
            }
        }

        let mut p = 0;
        while p < len {
            let count = if in_place { self.k.run(p, len) } else { SPAN.min(len - p) };
            if in_place {
                self.k.prefetch(&self.kv_heads, p + count);
            }
            for (i, kv_head) in self.kv_heads.clone().enumerate() {
                let keys = if in_place {
                    Mat { at: self.k.rows(kv_head, p, count).as_ptr(), stride: dim }
                } else {
                    self.k.gather(kv_head, p, count, span, span_stride)
                };
                // SAFETY: `q` and the scores have a row for each query; the columns of the
                // scores are the positions, `p + count <= len`.
                unsafe {
                    let to = scores.from_row(i * queries);
                    let to = MatMut { at: to.at.add(p), ..to };
                    let q = q.from_row(i * queries).read();
                    E::product(token, to, q, keys, dim, queries, count, 0);
                }
            }
            p += count;
        }
        if in_place {
            self.v.prefetch(&self.kv_heads, 0);
        }
        for query in 0..all {
            let seen = self.start + query % queries / group + 1;
            // SAFETY: the scores have a row of `score_stride` for each query.
            let row =
                unsafe { std::slice::from_raw_parts_mut(scores.from_row(query).at, score_stride) };
            slot.sums[query] = exp_scores(token, row, seen, self.scale);
        }

        // Positions that every row sees, then for each row those that are left.
        let common = self.start + 1;
        let mut p = 0;
        while p < len {
            let end = if p < common { common } else { len };
            let count = if in_place { self.v.run(p, end) } else { SPAN.min(end - p) };
            if in_place {
                self.v.prefetch(&self.kv_heads, p + count);
            }
            for (i, kv_head) in self.kv_heads.clone().enumerate() {
                let values = if in_place {
                    Mat { at: self.v.rows(kv_head, p, count).as_ptr(), stride: dim }
                } else {
                    self.v.gather(kv_head, p, count, span, span_stride)
                };
                let weigh = |row: usize, queries: usize, count: usize| {
                    let first = i * self.rows * group + row * group;
                    // SAFETY: `acc` and the scores have a row for each query, and the columns
                    // of the scores are the positions.
                    unsafe {
                        let probs = scores.from_row(first).read();
                        let probs = Mat { at: probs.at.add(p), ..probs };
                        let acc = acc.from_row(first);
                        E::weigh(token, acc, probs, values, padded, queries, count);
                    }
                };
                if p < common {
                    weigh(0, queries, count);
                } else {
                    for row in 1..self.rows {
                        let seen = (self.start + row + 1).saturating_sub(p);
                        weigh(row, group, count.min(seen));
                    }
                }
            }
            p += count;
        }

        for query in 0..all {
            let (row, column) = place(query);
            let sum = slot.sums[query];
            // SAFETY: the caller vouches for the outputs; `acc` has a row for each query.
            let (out, acc) = unsafe {
                let out = self.out.from_row(row).at.add(column);
                let acc = acc.from_row(query).at;
                (std::slice::from_raw_parts_mut(out, dim), std::slice::from_raw_parts(acc, dim))
            };
            for (out, acc) in out.iter_mut().zip(acc) {
                *out = acc / sum;
            }
        }
    }
}

/// Cuts a job into parts: tiles of rows with enough queries to use a gathered span often
/// and few enough that their scores stay in cache, one KV head each; or few rows with
/// as many heads as leave something for every thread.
fn cut(parts: &mut Vec<Part>, job: usize, rows: usize, len: usize, shape: AttnShape, share: usize) {
    let group = shape.group();
    let queries = (SCORE_BYTES / (len * size_of::<f32>())).clamp(GATHER_QUERIES, TILE_QUERIES);
    let tile = queries.div_ceil(group).min(rows);
    let heads = if tile * group < GATHER_QUERIES { shape.n_kv_heads.div_ceil(share) } else { 1 };
    for row in (0..rows).step_by(tile) {
        for head in (0..shape.n_kv_heads).step_by(heads) {
            parts.push(Part {
                job,
                rows: row..(row + tile).min(rows),
                kv_heads: head..(head + heads).min(shape.n_kv_heads),
            });
        }
    }
}

fn check<E>(job: &AttnJob<'_, E>, shape: AttnShape) {
    let AttnJob { rows, start, .. } = *job;
    assert_eq!(job.q.len(), rows * shape.row_len(), "queries of {rows} rows in {shape:?}");
    assert_eq!(job.out.len(), rows * shape.row_len(), "outputs of {rows} rows in {shape:?}");
    let needed = (start + rows).div_ceil(shape.block_tokens);
    for blocks in [job.k_blocks, job.v_blocks] {
        let given = blocks.len();
        assert!(given >= needed, "{given} blocks for {} positions in {shape:?}", start + rows);
        for block in &blocks[..needed] {
            assert!(block.len() >= shape.block_len(), "a block of {} in {shape:?}", block.len());
        }
    }
}

/// Attention of several sequences; see [`crate::Kernels::attention_batch`].
pub(crate) fn attention<E: Stored>(
    token: Token,
    pool: &Threads,
    jobs: &mut [AttnJob<'_, E>],
    shape: AttnShape,
    scale: f32,
    scratch: &mut AttnScratch,
) {
    let AttnShape { n_heads, n_kv_heads, head_dim, block_tokens } = shape;
    assert!(n_kv_heads > 0 && n_heads % n_kv_heads == 0, "query heads per KV head in {shape:?}");
    assert!(head_dim > 0 && block_tokens > 0, "an empty block in {shape:?}");
    let AttnScratch { slots, parts } = scratch;
    parts.clear();
    let share = pool.count().div_ceil(jobs.len().max(1));
    for (i, job) in jobs.iter().enumerate().filter(|(_, job)| job.rows > 0) {
        check(job, shape);
        cut(parts, i, job.rows, job.start + job.rows, shape, share);
    }
    // The longest first: the short ones fill the gaps at the end.
    parts.sort_by_key(|part| {
        let len = jobs[part.job].start + part.rows.end;
        std::cmp::Reverse(len * part.rows.len() * part.kv_heads.len())
    });
    if slots.len() < pool.count() {
        slots.resize_with(pool.count(), Slot::default);
    }
    let slots = Slots(slots.as_mut_ptr());
    let stride = shape.row_len();
    let outs: Vec<MatMut> =
        jobs.iter_mut().map(|job| MatMut { at: job.out.as_mut_ptr(), stride }).collect();
    let jobs = &*jobs;
    pool.run_slots(parts.len(), |part, slot| {
        let slots = &slots;
        let Part { job, rows, kv_heads } = parts[part].clone();
        let (out, job) = (outs[job], &jobs[job]);
        let at = rows.start * stride + kv_heads.start * shape.group() * head_dim;
        // SAFETY: rows and heads of a part are its own and inside the slices (`check`); parts
        // that run together have different slots, below the team's count.
        unsafe {
            let tile = Tile {
                k: Paged { blocks: job.k_blocks, shape },
                v: Paged { blocks: job.v_blocks, shape },
                kv_heads,
                start: job.start + rows.start,
                rows: rows.len(),
                scale,
                q: Mat { at: job.q.as_ptr().add(at), stride },
                out: MatMut { at: out.at.add(at), stride },
            };
            tile.run(token, &mut *slots.0.add(slot));
        }
    });
}

/// The slots' address, for parts that each use one of their own.
struct Slots(*mut Slot);

// SAFETY: a plain address; parts that run together use different slots.
unsafe impl Sync for Slots {}

#[cfg(test)]
mod tests;
