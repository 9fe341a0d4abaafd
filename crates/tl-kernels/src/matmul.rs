//! Activations times weights: `out[i][j] = dot(act[i], w[j])`, nothing but dot products.
//!
//! Lane `l` of a dot product sums the products of the columns `l, l + 16, ..` in that
//! order, and the lanes are added by one tree. No blocking below ever cuts a sum; what is
//! tuned here is only which outputs are computed next to each other.
//!
//! - Activations are copied once to rows that start on a cache line, are padded with
//!   zeros and are never a multiple of 1 KiB apart, where they would fall into few sets
//!   of a cache.
//! - With few rows, weights are widened or expanded in registers at each use.
//! - With many, a panel of weights in single precision that fits the first-level cache is
//!   used for all rows of a block of activations that fits the second level (`panel.rs`).

use std::cell::RefCell;

use crate::isa::Token;
use crate::panel::{self, Chunks, Sums};
use crate::quant::{self, FUSED_ROWS};
use crate::simd::LANES;
use crate::threads::Threads;
use crate::tiles::{Mat, MatMut, Stored};
use crate::weights::{Data, Lines, Weights, spread};

/// Bytes of the activations a panel is used for: well inside a second-level cache.
const BLOCK_BYTES: usize = 256 * 1024;
/// Rows of such a block at least, however long they are: a panel is made anew for each block.
const BLOCK_ROWS: usize = 48;
/// Rows from which on a panel of floats pays.
const PANEL_ROWS: usize = 12;
/// How far ahead of their use weights are asked for.
const AHEAD_BYTES: usize = 8 * 1024;
/// Multiply-adds below which waking other threads costs more than it gives.
const WORTH_SHARING: usize = 1 << 15;
/// Elements below which activations are copied by one thread.
const WORTH_COPYING: usize = 1 << 16;

thread_local! {
    /// The copied activations of the calling thread, kept between products.
    static ACT: RefCell<Lines> = RefCell::default();
    /// A thread's panel and the sums between its chunks, kept between products.
    static PANEL: RefCell<(Lines, Lines)> = RefCell::default();
    /// A padded row.
    static ROW: RefCell<Lines> = RefCell::default();
}

/// How a product is cut: parts are blocks of rows times runs of columns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    rows: usize,
    cols: usize,
    /// By panels in chunks; else straight from the weights.
    panels: Option<Chunks>,
}

fn plan(m: usize, w: &Weights, threads: usize) -> Plan {
    let (n, k) = (w.n(), w.k());
    let threads = if m * n * k < WORTH_SHARING { 1 } else { threads };
    let straight = if w.quant().is_some() { FUSED_ROWS } else { PANEL_ROWS - 1 };
    let panels = (m > straight && k > 0).then(|| Chunks::of(k));
    let most = (BLOCK_BYTES / (spread::<f32>(k) * size_of::<f32>()).max(1)).max(BLOCK_ROWS);
    // Blocks of equal height: a low one at the end would use its panels too little.
    let rows = m.div_ceil(m.div_ceil(most)).next_multiple_of(4);
    let parts_of_rows = m.div_ceil(rows);
    // Some parts more than threads, so that one late thread costs little.
    let parts = if threads == 1 { 1 } else { (threads * 4).div_ceil(parts_of_rows) };
    Plan { rows, cols: n.div_ceil(parts).next_multiple_of(12), panels }
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
        let plan = plan(m, w, pool.count());
        let act = copy_activations(token, pool, lines, act, m, k, plan.panels);
        let parts_of_cols = n.div_ceil(plan.cols);
        let parts = parts_of_cols * m.div_ceil(plan.rows);
        pool.run(parts, |part| {
            let (out, act) = (&out, &act);
            let (i, j) = (part / parts_of_cols * plan.rows, part % parts_of_cols * plan.cols);
            let (rows, cols) = (plan.rows.min(m - i), plan.cols.min(n - j));
            // SAFETY: parts write disjoint blocks of the outputs, all inside (asserted above);
            // rows of activations and weights are padded with zeros.
            unsafe {
                let out = MatMut { at: out.at.add(i * out.stride + j), stride: out.stride };
                let act = Mat { at: act.row(i), stride: act.stride };
                match plan.panels {
                    None => straight(token, out, act, w, rows, j, cols),
                    Some(chunks) => by_panels(token, out, act, w, chunks, rows, j, cols),
                }
            }
        });
    });
}

/// `rows` rows by the weights `j..j + cols`, each read where it lies.
///
/// # Safety
/// `out` and `act` hold the rows, padded with zeros; nobody else touches the outputs.
unsafe fn straight(
    token: Token,
    out: MatMut,
    act: Mat<f32>,
    w: &Weights,
    rows: usize,
    j: usize,
    cols: usize,
) {
    let k = w.k();
    // Whole tiles of rows, the next ones or some later ones.
    let tile_bytes = 4 * w.bytes() / w.n();
    let ahead = 4 * w.stride() * AHEAD_BYTES.div_ceil(tile_bytes.max(1));
    // SAFETY: the caller's contract; `columns` checks the weights.
    unsafe {
        match &w.data {
            Data::F32(lines) => {
                f32::product(token, out, act, columns(lines, w, j, cols), k, rows, cols, ahead);
            }
            Data::F16(lines) => {
                u16::product(token, out, act, columns(lines, w, j, cols), k, rows, cols, ahead);
            }
            Data::Quant(quant, lines) => {
                quant::product(token, *quant, out, act, columns(lines, w, j, cols), k, rows, cols);
            }
        }
    }
}

/// As [`straight`], by panels in `chunks`, for activations in planes.
///
/// # Safety
/// As there.
#[allow(clippy::too_many_arguments, reason = "a part of a product, with its addresses")]
unsafe fn by_panels(
    token: Token,
    out: MatMut,
    act: Mat<f32>,
    w: &Weights,
    chunks: Chunks,
    rows: usize,
    j: usize,
    cols: usize,
) {
    PANEL.with_borrow_mut(|(panel, sums)| {
        let (most, stride) = (chunks.panel_rows(token), spread::<f32>(chunks.len));
        let panel = MatMut { at: panel.at_least::<f32>(most * stride).as_mut_ptr(), stride };
        let stride = most * LANES;
        let sums = if chunks.count() == 1 {
            std::ptr::null_mut()
        } else {
            sums.at_least::<f32>(rows * stride).as_mut_ptr()
        };
        for first in (0..cols).step_by(most) {
            let n = most.min(cols - first);
            for (number, (at, len)) in chunks.iter().enumerate() {
                let last = number + 1 == chunks.count();
                // The next chunk of these rows, or the first of the next panel's.
                let ahead = if last { most * w.k() - at } else { len };
                let sums = Sums { at: sums, stride, first: number == 0, last };
                // SAFETY: the panel holds `n` rows of a chunk, the sums `rows` rows of a panel's
                // columns, and the rest is the caller's contract; `columns` checks the weights,
                // and a chunk begins at a whole vector and a whole block.
                unsafe {
                    match &w.data {
                        Data::F32(lines) => {
                            let from = columns(lines, w, j + first, n).from_column(at);
                            panel::lay_f32(token, panel, from, len, n, ahead);
                        }
                        Data::F16(lines) => {
                            let from = columns(lines, w, j + first, n).from_column(at);
                            panel::lay_f16(token, panel, from, len, n, ahead);
                        }
                        Data::Quant(quant, lines) => {
                            let from = columns(lines, w, j + first, n);
                            let from = from.from_column(quant.row_bytes(at));
                            let ahead = quant.row_bytes(ahead);
                            quant::expand(token, *quant, panel, from, len, n, ahead);
                        }
                    }
                    let out = MatMut { at: out.at.add(first), stride: out.stride };
                    let act = act.from_column(at);
                    panel::product(token, out, sums, act, panel.read(), len, rows, n);
                }
            }
        }
    });
}

/// Rows `j..j + n` of the weights, which the slice checks.
fn columns<E: bytemuck::Pod>(lines: &Lines, w: &Weights, j: usize, n: usize) -> Mat<E> {
    let stride = w.stride();
    Mat { at: lines.as_slice::<E>()[j * stride..][..n * stride].as_ptr(), stride }
}

/// The rows padded with zeros; each chunk in planes if there are `chunks`.
fn copy_activations(
    token: Token,
    pool: &Threads,
    lines: &mut Lines,
    act: &[f32],
    m: usize,
    k: usize,
    chunks: Option<Chunks>,
) -> Mat<f32> {
    let stride = spread::<f32>(k);
    let to = MatMut { at: lines.at_least::<f32>(m * stride).as_mut_ptr(), stride };
    let parts = if m * k < WORTH_COPYING { 1 } else { pool.count() };
    let rows = m.div_ceil(parts);
    pool.run(parts, |part| {
        let to = &to;
        for i in part * rows..m.min((part + 1) * rows) {
            let from = &act[i * k..][..k];
            // SAFETY: rows are disjoint and all inside; a row belongs to one part.
            let to = unsafe { to.from_row(i) };
            match chunks {
                None => {
                    // SAFETY: as above.
                    let to = unsafe { std::slice::from_raw_parts_mut(to.at, stride) };
                    pad(from, to);
                }
                Some(chunks) if k % LANES == 0 => lay(token, to, from, chunks),
                Some(chunks) => ROW.with_borrow_mut(|row| {
                    let row = row.at_least::<f32>(k.next_multiple_of(LANES));
                    pad(from, row);
                    lay(token, to, row, chunks);
                }),
            }
        }
    });
    to.read()
}

fn pad(from: &[f32], to: &mut [f32]) {
    let (row, pad) = to.split_at_mut(from.len());
    row.copy_from_slice(from);
    pad.fill(0.0);
}

/// One row in planes.
fn lay(token: Token, to: MatMut, from: &[f32], chunks: Chunks) {
    for (at, len) in chunks.iter() {
        let from = from[at..][..len].as_ptr();
        // SAFETY: the slice holds the chunk, and `to` a row of all chunks.
        unsafe {
            let to = MatMut { at: to.at.add(at), stride: to.stride };
            panel::lay_f32(token, to, Mat { at: from, stride: 0 }, len, 1, len);
        }
    }
}

#[cfg(test)]
mod tests;
