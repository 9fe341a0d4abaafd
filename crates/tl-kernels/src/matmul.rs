//! Activations times weights: `out[i][j] = dot(act[i], w[j])`, nothing but dot products.
//!
//! Lane `l` of a dot product sums the products of the columns `l, l + 16, ..` in that
//! order, and the lanes are added by one tree. No blocking below ever cuts a sum; what is
//! tuned here is only which outputs are computed next to each other.
//!
//! - Activations are copied once to rows that start on a cache line, are padded with
//!   zeros and are never a multiple of 1 KiB apart, where they would fall into few sets
//!   of a cache.
//! - Few rows (decode): weights are widened in registers on their single way through.
//! - Many rows (prefill): a panel of weight rows that fits the first-level cache is
//!   widened to f32 once and used for every row of a block of activations that fits
//!   the second level.

use std::cell::RefCell;

use crate::isa::Token;
use crate::simd::LANES;
use crate::threads::Threads;
use crate::tiles::{Mat, MatMut, Stored};
use crate::weights::{Data, Lines, Weights};

/// Activation rows up to which halves are widened in registers at each use.
const DIRECT_ROWS: usize = 6;
/// Bytes of the widened panel: most of a 32 KiB first-level cache.
const PANEL_BYTES: usize = 20 * 1024;
/// Bytes of the activations a panel is used for: well inside a second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;
/// Multiply-adds below which waking other threads costs more than it gives.
const WORTH_SHARING: usize = 1 << 15;
/// Elements below which activations are copied by one thread.
const WORTH_COPYING: usize = 1 << 16;

thread_local! {
    /// The copied activations of the calling thread, kept between products.
    static ACT: RefCell<Lines> = RefCell::default();
    /// The widened panel of a thread, kept between products.
    static PANEL: RefCell<Lines> = RefCell::default();
}

/// Elements between rows of `k` f32 in scratch memory: whole lines, and an odd number of
/// them, so that the same columns of many rows spread over all sets of a cache.
pub(crate) fn spread(k: usize) -> usize {
    (k.div_ceil(LANES) | 1) * LANES
}

/// The product through panels of `panel_rows` widened rows.
///
/// # Safety
/// As [`Stored::product`].
#[allow(clippy::too_many_arguments, reason = "kernels take plain pointers and sizes")]
unsafe fn by_panels<E: Stored>(
    token: Token,
    out: MatMut,
    act: Mat<f32>,
    w: Mat<E>,
    k: usize,
    m: usize,
    n: usize,
    panel_rows: usize,
) {
    let stride = spread(k);
    PANEL.with_borrow_mut(|panel| {
        let panel = panel.at_least::<f32>(panel_rows * stride).as_mut_ptr();
        let mut j = 0;
        while j < n {
            let count = panel_rows.min(n - j);
            // SAFETY: the caller's contract, for the columns `j..j + count`; the panel holds them.
            unsafe {
                let rows = Mat { at: w.row(j), stride: w.stride };
                E::widen(token, MatMut { at: panel, stride }, rows, k, count);
                let out = MatMut { at: out.at.add(j), stride: out.stride };
                f32::product(token, out, act, Mat { at: panel, stride }, k, m, count);
            }
            j += count;
        }
    });
}

/// How a product is cut: parts are blocks of rows times runs of columns.
#[derive(Debug, PartialEq)]
struct Plan {
    rows: usize,
    cols: usize,
    /// Zero where weights are used as they are.
    panel_rows: usize,
}

fn plan(m: usize, n: usize, k: usize, f16: bool, threads: usize) -> Plan {
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads };
    if m <= DIRECT_ROWS {
        // Some parts more than threads, so that one late thread costs little.
        let parts = if threads == 1 { 1 } else { threads * 4 };
        let cols = n.div_ceil(parts).next_multiple_of(8);
        return Plan { rows: m, cols, panel_rows: 0 };
    }
    let row_bytes = spread(k) * size_of::<f32>();
    let rows = (BLOCK_BYTES / row_bytes).clamp(12, m.max(12)) / 12 * 12;
    let panel_rows = (PANEL_BYTES / row_bytes).clamp(2, 64) / 2 * 2;
    let parts_of_rows = m.div_ceil(rows);
    let cols = if threads == 1 {
        n
    } else {
        let parts = (threads * 4).div_ceil(parts_of_rows);
        n.div_ceil(parts).next_multiple_of(panel_rows)
    };
    Plan { rows, cols, panel_rows: if f16 { panel_rows } else { 0 } }
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
    ACT.with_borrow_mut(|lines| {
        let act = copy_activations(token, pool, lines, act, m, k);
        let plan = plan(m, n, k, w.is_f16(), pool.count());
        let parts_of_cols = n.div_ceil(plan.cols);
        let parts = parts_of_cols * m.div_ceil(plan.rows);
        pool.run(parts, |part| {
            let (out, act) = (&out, &act);
            let (i, j) = (part / parts_of_cols * plan.rows, part % parts_of_cols * plan.cols);
            let (m, n) = (plan.rows.min(m - i), plan.cols.min(n - j));
            // SAFETY: parts write disjoint blocks of the outputs, all inside (asserted above);
            // rows of activations and weights are padded with zeros.
            unsafe {
                let out = MatMut { at: out.at.add(i * out.stride + j), stride: out.stride };
                let act = Mat { at: act.row(i), stride: act.stride };
                match &w.data {
                    Data::F32(lines) => {
                        f32::product(token, out, act, columns(lines, w, j, n), k, m, n);
                    }
                    Data::F16(lines) if plan.panel_rows == 0 => {
                        u16::product(token, out, act, columns(lines, w, j, n), k, m, n);
                    }
                    Data::F16(lines) => {
                        let w = columns::<u16>(lines, w, j, n);
                        by_panels(token, out, act, w, k, m, n, plan.panel_rows);
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
    token: Token,
    pool: &Threads,
    lines: &mut Lines,
    act: &[f32],
    m: usize,
    k: usize,
) -> Mat<f32> {
    let stride = spread(k);
    let to = MatMut { at: lines.at_least::<f32>(m * stride).as_mut_ptr(), stride };
    let parts = if m * k < WORTH_COPYING { 1 } else { pool.count() };
    let rows = m.div_ceil(parts);
    pool.run(parts, |part| {
        let to = &to;
        let i = (part * rows).min(m);
        let count = rows.min(m - i);
        let from = Mat { at: act[i * k..][..count * k].as_ptr(), stride: k };
        // SAFETY: parts write disjoint rows, all inside.
        unsafe {
            let to = MatMut { at: to.at.add(i * stride), stride };
            f32::widen(token, to, from, k, count);
        }
    });
    Mat { at: to.at, stride }
}

#[cfg(test)]
mod tests;
