//! Activations times weights: `out[i][j] = dot(act[i], w[j])`, nothing but dot products.
//!
//! Lane `l` of a dot product sums the products of the columns `l, l + 16, ..` in that
//! order, and the lanes are added by one tree. No blocking below ever cuts a sum; what is
//! tuned here is only which outputs are computed next to each other.
//!
//! - Activations are copied once to rows that start on a cache line, are padded with
//!   zeros and are never a multiple of 1 KiB apart, where they would fall into few sets
//!   of a cache.
//! - Halves are widened in registers at each use. Widening a panel of them once for many
//!   rows was slower: it doubles what the caches must hold.
//! - Quantised blocks are expanded to f32, some rows at a time, and used from the cache.
//! - With many rows, a panel of weight rows that fits the first-level cache is used for
//!   all rows of a block of activations that fits the second level.

use std::cell::RefCell;

use crate::isa::Token;
use crate::quant::{self, FUSED_ROWS};
use crate::threads::Threads;
use crate::tiles::{Mat, MatMut, Stored};
use crate::weights::{Data, Lines, Weights, spread};

/// Bytes of a panel of weights: most of a 32 KiB first-level cache.
const PANEL_BYTES: usize = 20 * 1024;
/// Bytes of the activations a panel is used for: well inside a second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;
/// How far ahead of their use weights are asked for.
const AHEAD_BYTES: usize = 8 * 1024;
/// Multiply-adds below which waking other threads costs more than it gives.
const WORTH_SHARING: usize = 1 << 15;
/// Elements below which activations are copied by one thread.
const WORTH_COPYING: usize = 1 << 16;

thread_local! {
    /// The copied activations of the calling thread, kept between products.
    static ACT: RefCell<Lines> = RefCell::default();
    /// The expanded panel of a thread, kept between products.
    static PANEL: RefCell<Lines> = RefCell::default();
}

/// How a product is cut: parts are blocks of rows times runs of columns.
#[derive(Debug, PartialEq)]
struct Plan {
    rows: usize,
    cols: usize,
    /// Columns of a panel, for all rows of the block.
    panel: usize,
}

fn plan(m: usize, w: &Weights, threads: usize) -> Plan {
    let (n, k) = (w.n(), w.k());
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads };
    let wide = spread::<f32>(k) * size_of::<f32>();
    let row_bytes = if w.quant().is_some() { wide } else { w.bytes() / n };
    let panel = (PANEL_BYTES / row_bytes.max(1)).clamp(4, 64) / 4 * 4;
    let rows = (BLOCK_BYTES / wide.max(1)).clamp(12, m.max(12)) / 12 * 12;
    let parts_of_rows = m.div_ceil(rows);
    // Some parts more than threads, so that one late thread costs little.
    let parts = if threads == 1 { 1 } else { (threads * 4).div_ceil(parts_of_rows) };
    let cols = n.div_ceil(parts).next_multiple_of(8);
    Plan {
        rows,
        cols,
        panel: if m <= FUSED_ROWS || m < 4 && w.quant().is_none() { cols } else { panel },
    }
}

/// `out = act * w^T`; see [`crate::Kernels::matmul`].
pub(crate) fn matmul(
    token: Token,
    pool: &Threads,
    out: &mut [f32],
    act: &[f32],
    w: &Weights,
    m: usize,
) {
    let (n, k) = (w.n(), w.k());
    assert_eq!(act.len(), m * k, "activations of {m} rows for {w:?}");
    assert_eq!(out.len(), m * n, "outputs of {m} rows for {w:?}");
    if m == 0 || n == 0 {
        return;
    }
    let out = MatMut { at: out.as_mut_ptr(), stride: n };
    // Whole tiles of rows, the next ones or some later ones.
    let tile_bytes = 4 * w.bytes() / n;
    let ahead = 4 * w.stride() * AHEAD_BYTES.div_ceil(tile_bytes.max(1));
    ACT.with_borrow_mut(|lines| {
        let act = copy_activations(pool, lines, act, m, k);
        let plan = plan(m, w, pool.count());
        let parts_of_cols = n.div_ceil(plan.cols);
        let parts = parts_of_cols * m.div_ceil(plan.rows);
        pool.run(parts, |part| {
            let (out, act) = (&out, &act);
            let (i, j) = (part / parts_of_cols * plan.rows, part % parts_of_cols * plan.cols);
            let (rows, end) = (plan.rows.min(m - i), (j + plan.cols).min(n));
            for j in (j..end).step_by(plan.panel) {
                let cols = plan.panel.min(end - j);
                // SAFETY: parts write disjoint blocks of the outputs, all inside (asserted
                // above); rows of activations and weights are padded with zeros.
                unsafe {
                    let out = MatMut { at: out.at.add(i * out.stride + j), stride: out.stride };
                    let act = Mat { at: act.row(i), stride: act.stride };
                    match &w.data {
                        Data::F32(lines) => {
                            let w = columns::<f32>(lines, w, j, cols);
                            f32::product(token, out, act, w, k, rows, cols, ahead);
                        }
                        Data::Quant(quant, lines) if rows <= FUSED_ROWS => {
                            let w = columns::<u8>(lines, w, j, cols);
                            quant::product(token, *quant, out, act, w, k, rows, cols);
                        }
                        Data::Quant(quant, lines) => PANEL.with_borrow_mut(|panel| {
                            let stride = spread::<f32>(k);
                            let panel = panel.at_least::<f32>(cols * stride).as_mut_ptr();
                            let panel = MatMut { at: panel, stride };
                            let w = columns::<u8>(lines, w, j, cols);
                            quant::expand(token, *quant, panel, w, k, cols);
                            f32::product(token, out, act, panel.read(), k, rows, cols, 0);
                        }),
                        Data::F16(lines) => {
                            let w = columns::<u16>(lines, w, j, cols);
                            u16::product(token, out, act, w, k, rows, cols, ahead);
                        }
                    }
                }
            }
        });
    });
}

/// Rows `j..j + n` of the weights, which the slice checks.
fn columns<E: bytemuck::Pod>(lines: &Lines, w: &Weights, j: usize, n: usize) -> Mat<E> {
    let stride = w.stride();
    Mat { at: lines.as_slice::<E>()[j * stride..][..n * stride].as_ptr(), stride }
}

fn copy_activations(
    pool: &Threads,
    lines: &mut Lines,
    act: &[f32],
    m: usize,
    k: usize,
) -> Mat<f32> {
    let stride = spread::<f32>(k);
    let to = MatMut { at: lines.at_least::<f32>(m * stride).as_mut_ptr(), stride };
    let parts = if m * k < WORTH_COPYING { 1 } else { pool.count() };
    let rows = m.div_ceil(parts);
    pool.run(parts, |part| {
        let to = &to;
        for i in part * rows..m.min((part + 1) * rows) {
            // SAFETY: rows are disjoint and all inside; a row belongs to one part.
            let to = unsafe { std::slice::from_raw_parts_mut(to.from_row(i).at, stride) };
            let (row, pad) = to.split_at_mut(k);
            row.copy_from_slice(&act[i * k..][..k]);
            pad.fill(0.0);
        }
    });
    to.read()
}

#[cfg(test)]
mod tests;
