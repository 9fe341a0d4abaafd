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

use crate::dispatch::dispatch;
use crate::isa::Token;
use crate::simd::{Elem, LANES, Simd};
use crate::threads::Threads;
use crate::weights::{Data, Weights};

/// Activation rows up to which halves are widened in registers at each use.
const DIRECT_ROWS: usize = 6;
/// Bytes of the widened panel: most of a 32 KiB first-level cache.
const PANEL_BYTES: usize = 20 * 1024;
/// Bytes of the activations a panel is used for: well inside a second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;
/// Multiply-adds below which waking other threads costs more than it gives.
const WORTH_SHARING: usize = 1 << 15;

/// A matrix view: rows `stride` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct Mat<T> {
    pub(crate) at: *const T,
    pub(crate) stride: usize,
}

impl<T> Mat<T> {
    /// # Safety
    /// Row `i` is inside what `at` points to.
    #[inline(always)]
    pub(crate) unsafe fn row(self, i: usize) -> *const T {
        // SAFETY: the caller vouches for the row.
        unsafe { self.at.add(i * self.stride) }
    }
}

/// Where outputs go: rows `stride` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct MatMut {
    pub(crate) at: *mut f32,
    pub(crate) stride: usize,
}

// SAFETY: a plain address; the parts of a job write disjoint elements through it.
unsafe impl Send for MatMut {}
// SAFETY: as above.
unsafe impl Sync for MatMut {}

/// `out[i][j] = dot(act[i], w[j])` for `i < m`, `j < n`, over `k` columns.
///
/// Rows of `w` are readable, and padded with zeros, up to a whole vector; rows of
/// `act` end at `k`.
///
/// # Safety
/// The views hold `m` and `n` such rows, and nobody else touches the outputs.
#[inline(always)]
pub(crate) unsafe fn product<S: Simd, E: Elem>(
    s: S,
    out: MatMut,
    act: Mat<f32>,
    w: Mat<E>,
    k: usize,
    m: usize,
    n: usize,
) {
    let mut i = 0;
    // SAFETY: the caller's contract, cut into tiles of rows.
    unsafe {
        while S::MR >= 4 && i + 4 <= m {
            strip::<S, E, 4, 2, 4>(s, out, act, w, k, i, n);
            i += 4;
        }
        while S::MR >= 3 && i + 3 <= m {
            strip::<S, E, 3, 2, 2>(s, out, act, w, k, i, n);
            i += 3;
        }
        while S::MR >= 2 && i + 2 <= m {
            strip::<S, E, 2, 2, 3>(s, out, act, w, k, i, n);
            i += 2;
        }
        while i < m {
            strip::<S, E, 1, 2, 4>(s, out, act, w, k, i, n);
            i += 1;
        }
    }
}

/// `M` rows of outputs, `N` columns at a time and then one at a time.
///
/// # Safety
/// As [`product`], with `i + M <= m`.
#[inline(always)]
unsafe fn strip<S: Simd, E: Elem, const M: usize, const REST: usize, const N: usize>(
    s: S,
    out: MatMut,
    act: Mat<f32>,
    w: Mat<E>,
    k: usize,
    i: usize,
    n: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut rows = [act.at; M];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = act.row(i + r);
        }
        let mut j = 0;
        while j + N <= n {
            tile::<S, E, M, N>(s, out, &rows, w, k, i, j);
            j += N;
        }
        while j + REST <= n {
            tile::<S, E, M, REST>(s, out, &rows, w, k, i, j);
            j += REST;
        }
        while j < n {
            tile::<S, E, M, 1>(s, out, &rows, w, k, i, j);
            j += 1;
        }
    }
}

/// # Safety
/// As [`product`]; the tile at `(i, j)` is inside.
#[inline(always)]
unsafe fn tile<S: Simd, E: Elem, const M: usize, const N: usize>(
    s: S,
    out: MatMut,
    rows: &[*const f32; M],
    w: Mat<E>,
    k: usize,
    i: usize,
    j: usize,
) {
    // SAFETY: the caller's contract; the last, partial vector of a row of activations is
    // read from a copy.
    unsafe {
        let mut cols = [w.at; N];
        for (c, col) in cols.iter_mut().enumerate() {
            *col = w.row(j + c);
        }
        let mut acc = [[s.splat(0.0); N]; M];
        let whole = k / LANES * LANES;
        let mut off = 0;
        while off < whole {
            if M == 1 {
                for col in &cols {
                    s.prefetch(col.wrapping_add(off + N * w.stride));
                }
            }
            s.step(&mut acc, rows, &cols, off);
            off += LANES;
        }
        if whole < k {
            let mut tail = [[0.0f32; LANES]; M];
            let mut tails = [tail[0].as_ptr(); M];
            for r in 0..M {
                std::ptr::copy_nonoverlapping(rows[r].add(whole), tail[r].as_mut_ptr(), k - whole);
                tails[r] = tail[r].as_ptr();
            }
            let cols = cols.map(|col| col.add(whole));
            s.step(&mut acc, &tails, &cols, 0);
        }
        let mut sums = [s.splat(0.0); 8];
        let mut flat = 0;
        while flat < M * N {
            let count = (M * N - flat).min(8);
            for (f, sum) in sums.iter_mut().enumerate().take(count) {
                *sum = acc[(flat + f) / N][(flat + f) % N];
            }
            let totals = s.sum8(sums);
            for (f, total) in totals.iter().enumerate().take(count) {
                let (r, c) = ((flat + f) / N, (flat + f) % N);
                *out.at.add((i + r) * out.stride + j + c) = *total;
            }
            flat += 8;
        }
    }
}

/// Widens `n` rows of `stride` elements.
///
/// # Safety
/// `panel` holds `n * stride` elements, `w` that many rows; `stride` is whole vectors.
#[inline(always)]
unsafe fn widen<S: Simd, E: Elem>(s: S, panel: *mut f32, w: Mat<E>, n: usize) {
    let mut i = 0;
    while i < n * w.stride {
        // SAFETY: the caller's contract; rows follow one another without gaps.
        unsafe { s.store(panel.add(i), s.load(w.at.add(i))) };
        i += LANES;
    }
}

/// The product through widened panels; `panel` holds `panel_rows` rows of `w.stride`.
///
/// # Safety
/// As [`product`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "kernels take plain pointers and sizes")]
unsafe fn panels<S: Simd, E: Elem>(
    s: S,
    out: MatMut,
    act: Mat<f32>,
    w: Mat<E>,
    k: usize,
    m: usize,
    n: usize,
    panel: &mut [f32],
    panel_rows: usize,
) {
    let mut j = 0;
    while j < n {
        let count = panel_rows.min(n - j);
        // SAFETY: the caller's contract, for the columns `j..j + count`.
        unsafe {
            let rows = Mat { at: w.row(j), stride: w.stride };
            widen(s, panel.as_mut_ptr(), rows, count);
            let wide = Mat { at: panel.as_ptr(), stride: w.stride };
            let out = MatMut { at: out.at.add(j), stride: out.stride };
            product(s, out, act, wide, k, m, count);
        }
        j += count;
    }
}

dispatch! { unsafe fn product_f16 = product::<u16>(
    out: MatMut, act: Mat<f32>, w: Mat<u16>, k: usize, m: usize, n: usize) }
dispatch! { unsafe fn product_f32 = product::<f32>(
    out: MatMut, act: Mat<f32>, w: Mat<f32>, k: usize, m: usize, n: usize) }
dispatch! { unsafe fn panels_f16 = panels::<u16>(
    out: MatMut, act: Mat<f32>, w: Mat<u16>, k: usize, m: usize, n: usize,
    panel: &mut [f32], panel_rows: usize) }

thread_local! {
    /// The widened panel of this thread, kept between products.
    static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
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
                    product_f32(token, out, act, rows, k, m, n);
                }
                Data::F16(lines) => {
                    let rows = &lines.as_slice::<u16>()[j * stride..][..n * stride];
                    let rows = Mat { at: rows.as_ptr(), stride };
                    if plan.panel_rows == 0 {
                        product_f16(token, out, act, rows, k, m, n);
                    } else {
                        PANEL.with_borrow_mut(|panel| {
                            let elements = plan.panel_rows * stride;
                            if panel.len() < elements {
                                panel.resize(elements, 0.0);
                            }
                            panels_f16(token, out, act, rows, k, m, n, panel, plan.panel_rows);
                        });
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests;
