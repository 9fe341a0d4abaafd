//! Activations times weights: `out[i][j] = dot(act[i], w[j])`, nothing but dot products.
//!
//! Lane `l` of a dot product sums the products of the columns `l, l + 16, ..` in that
//! order, and the lanes are added by one tree. The sums of a tile of outputs stay in
//! registers over the whole row, so no blocking ever touches the order; what is tuned
//! here is only which outputs are computed next to each other.
//!
//! - Few rows (decode): weights are widened in registers on their single way through.
//! - Many rows (prefill): a panel of weight rows that fits the first-level cache is
//!   widened to f32 once and used for every row of a block of activations that fits
//!   the second level.

use std::cell::RefCell;

use crate::isa::Token;
use crate::threads::Threads;
use crate::tiles::{Mat, MatMut, Stored};
use crate::weights::{Data, Weights};

/// Activation rows up to which halves are widened in registers at each use.
const DIRECT_ROWS: usize = 6;
/// Bytes of the widened panel: most of a 32 KiB first-level cache.
const PANEL_BYTES: usize = 20 * 1024;
/// Bytes of the activations a panel is used for: well inside a second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;
/// Multiply-adds below which waking other threads costs more than it gives.
const WORTH_SHARING: usize = 1 << 15;

thread_local! {
    /// The widened panel of this thread, kept between products.
    static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// The product through panels of `panel_rows` widened rows.
///
/// # Safety
/// As [`Stored::product`]; rows of `w` follow one another without gaps.
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
    PANEL.with_borrow_mut(|panel| {
        if panel.len() < panel_rows * w.stride {
            panel.resize(panel_rows * w.stride, 0.0);
        }
        let mut j = 0;
        while j < n {
            let count = panel_rows.min(n - j);
            // SAFETY: the caller's contract, for the columns `j..j + count`; the panel holds them.
            unsafe {
                let rows = Mat { at: w.row(j), stride: w.stride };
                let wide = MatMut { at: panel.as_mut_ptr(), stride: w.stride };
                E::widen(token, wide, rows, w.stride, count);
                let wide = Mat { at: panel.as_ptr(), stride: w.stride };
                let out = MatMut { at: out.at.add(j), stride: out.stride };
                f32::product(token, out, act, wide, k, m, count);
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
    panel_rows: usize,
}

fn plan(m: usize, n: usize, k: usize, stride: usize, f16: bool, threads: usize) -> Plan {
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads };
    if m <= DIRECT_ROWS {
        // Some parts more than threads, so that one late thread costs little.
        let parts = if threads == 1 { 1 } else { threads * 4 };
        let cols = n.div_ceil(parts).next_multiple_of(8);
        return Plan { rows: m, cols, panel_rows: 0 };
    }
    let row_bytes = stride * size_of::<f32>();
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
    let (n, k, stride) = (w.n(), w.k(), w.stride());
    assert_eq!(act.len(), m * k, "activations of {m} rows for {w:?}");
    assert_eq!(out.len(), m * n, "outputs of {m} rows for {w:?}");
    if m == 0 || n == 0 {
        return;
    }
    let plan = plan(m, n, k, stride, w.is_f16(), pool.count());
    let parts_of_cols = n.div_ceil(plan.cols);
    let parts = parts_of_cols * m.div_ceil(plan.rows);
    let out = MatMut { at: out.as_mut_ptr(), stride: n };
    pool.run(parts, |part| {
        let out = &out;
        let (i, j) = (part / parts_of_cols * plan.rows, part % parts_of_cols * plan.cols);
        let (m, n) = (plan.rows.min(m - i), plan.cols.min(n - j));
        // The slices check that the part is inside.
        let act = Mat { at: act[i * k..][..m * k].as_ptr(), stride: k };
        // SAFETY: parts write disjoint blocks of the outputs, all inside (asserted above);
        // rows of weights are padded with zeros by construction.
        unsafe {
            let out = MatMut { at: out.at.add(i * out.stride + j), stride: out.stride };
            match &w.data {
                Data::F32(lines) => {
                    let rows = &lines.as_slice::<f32>()[j * stride..][..n * stride];
                    let rows = Mat { at: rows.as_ptr(), stride };
                    f32::product(token, out, act, rows, k, m, n);
                }
                Data::F16(lines) => {
                    let rows = &lines.as_slice::<u16>()[j * stride..][..n * stride];
                    let rows = Mat { at: rows.as_ptr(), stride };
                    if plan.panel_rows == 0 {
                        u16::product(token, out, act, rows, k, m, n);
                    } else {
                        by_panels(token, out, act, rows, k, m, n, plan.panel_rows);
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests;
