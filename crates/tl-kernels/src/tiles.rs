//! The loops below every product and every attention, generic over lanes and storage.
//!
//! Everything here works on plain addresses; `matmul.rs` and `attention.rs` decide what is
//! computed where and vouch for the sizes. The sums of a tile of outputs stay in
//! registers while their terms are added one after the other, so the size of a tile
//! cannot be seen in a result.

use crate::dispatch::dispatch;
use crate::isa::Token;
use crate::simd::{Elem, LANES, Simd, prefetch};

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

impl MatMut {
    /// The rows from row `i` on.
    ///
    /// # Safety
    /// Row `i` is inside what `at` points to.
    #[inline(always)]
    pub(crate) unsafe fn from_row(self, i: usize) -> MatMut {
        // SAFETY: the caller vouches for the row.
        unsafe { MatMut { at: self.at.add(i * self.stride), stride: self.stride } }
    }

    /// To read what was written.
    #[inline(always)]
    pub(crate) fn read(self) -> Mat<f32> {
        Mat { at: self.at, stride: self.stride }
    }
}

impl<T> Mat<T> {
    /// The columns from column `j` on.
    ///
    /// # Safety
    /// Column `j` is inside what `at` points to.
    #[inline(always)]
    pub(crate) unsafe fn from_column(self, j: usize) -> Mat<T> {
        // SAFETY: the caller vouches for the column.
        unsafe { Mat { at: self.at.add(j), stride: self.stride } }
    }
}

// SAFETY: plain addresses; the parts of a job read what nobody writes ..
unsafe impl<T: Sync> Sync for Mat<T> {}
// SAFETY: .. and write disjoint elements.
unsafe impl Sync for MatMut {}

/// `out[i][j] = dot(act[i], w[j])` for `i < m`, `j < n`, over `k` columns.
///
/// While the first rows are computed, the weights `ahead` elements further on are asked for
/// (none if it is zero).
///
/// # Safety
/// The views hold `m` and `n` rows, padded with zeros to whole vectors where `k` is none,
/// and nobody else touches the outputs.
#[inline(always)]
unsafe fn product<S: Simd, E: Elem>(
    s: S,
    out: MatMut,
    act: Mat<f32>,
    w: Mat<E>,
    k: usize,
    m: usize,
    n: usize,
    ahead: usize,
) {
    let mut i = 0;
    // SAFETY: the caller's contract, cut into tiles of rows.
    unsafe {
        while S::MR >= 4 && i + 4 <= m {
            strip::<S, E, 4, 2, 4>(s, out, act, w, k, i, n, ahead);
            i += 4;
        }
        while S::MR >= 3 && i + 3 <= m {
            strip::<S, E, 3, 2, 2>(s, out, act, w, k, i, n, ahead);
            i += 3;
        }
        while S::MR >= 2 && i + 2 <= m {
            strip::<S, E, 2, 2, 3>(s, out, act, w, k, i, n, ahead);
            i += 2;
        }
        while i < m {
            strip::<S, E, 1, 2, 4>(s, out, act, w, k, i, n, ahead);
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
    ahead: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut rows = [act.at; M];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = act.row(i + r);
        }
        let mut j = 0;
        while j + N <= n {
            tile::<S, E, M, N>(s, out, &rows, w, k, i, j, ahead);
            j += N;
        }
        while j + REST <= n {
            tile::<S, E, M, REST>(s, out, &rows, w, k, i, j, ahead);
            j += REST;
        }
        while j < n {
            tile::<S, E, M, 1>(s, out, &rows, w, k, i, j, ahead);
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
    ahead: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut cols = [w.at; N];
        for (c, col) in cols.iter_mut().enumerate() {
            *col = w.row(j + c);
        }
        let line = 64 / size_of::<E>();
        if M > 1 && i == 0 && ahead > 0 {
            for col in &cols {
                for off in (0..k).step_by(line) {
                    prefetch(col.wrapping_add(ahead + off));
                }
            }
        }
        let mut acc = [[s.splat(0.0); N]; M];
        let mut off = 0;
        while off < k {
            // A single row waits for memory most of all: spread the asking.
            if M == 1 && ahead > 0 && off % line == 0 {
                for col in &cols {
                    prefetch(col.wrapping_add(ahead + off));
                }
            }
            s.step(&mut acc, rows, &cols, off);
            off += LANES;
        }
        store_sums(s, out, &acc, i, j);
    }
}

/// Adds the lanes of a tile of sums and stores them at `(i, j)`.
///
/// # Safety
/// The tile at `(i, j)` is inside `out`.
#[inline(always)]
pub(crate) unsafe fn store_sums<S: Simd, const M: usize, const N: usize>(
    s: S,
    out: MatMut,
    acc: &[[S::V; N]; M],
    i: usize,
    j: usize,
) {
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
            // SAFETY: the caller vouches for the tile.
            unsafe { *out.at.add((i + r) * out.stride + j + c) = *total };
        }
        flat += 8;
    }
}

/// `acc[i] += probs[i][j] * values[j]` for `j < count` ascending, `i < queries`, over `dim`
/// elements: whole vectors.
///
/// # Safety
/// The views hold the rows, and nobody else touches `acc`.
#[inline(always)]
unsafe fn weigh<S: Simd, E: Elem>(
    s: S,
    acc: MatMut,
    probs: Mat<f32>,
    values: Mat<E>,
    dim: usize,
    queries: usize,
    count: usize,
) {
    let mut i = 0;
    // SAFETY: the caller's contract, cut into tiles of rows. Eight sums and more hide the
    // latency of the additions; one register fewer than there are keeps them from spilling.
    unsafe {
        while S::MR >= 4 && i + 4 <= queries {
            weigh_rows::<S, E, 4, 4>(s, acc, probs, values, dim, i, count);
            i += 4;
        }
        while S::MR >= 3 && i + 3 <= queries {
            weigh_rows::<S, E, 3, 3>(s, acc, probs, values, dim, i, count);
            i += 3;
        }
        while S::MR >= 3 && i + 2 <= queries {
            weigh_rows::<S, E, 2, 4>(s, acc, probs, values, dim, i, count);
            i += 2;
        }
        while i < queries {
            weigh_rows::<S, E, 1, 4>(s, acc, probs, values, dim, i, count);
            i += 1;
        }
    }
}

/// `M` queries, `N` registers of elements at a time and then fewer.
///
/// # Safety
/// As [`weigh`], with `i + M <= queries`.
#[inline(always)]
unsafe fn weigh_rows<S: Simd, E: Elem, const M: usize, const N: usize>(
    s: S,
    acc: MatMut,
    probs: Mat<f32>,
    values: Mat<E>,
    dim: usize,
    i: usize,
    count: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut d = 0;
        while d + N * S::WIDTH <= dim {
            weigh_tile::<S, E, M, N>(s, acc, probs, values, i, count, d);
            d += N * S::WIDTH;
        }
        while d + 2 * S::WIDTH <= dim {
            weigh_tile::<S, E, M, 2>(s, acc, probs, values, i, count, d);
            d += 2 * S::WIDTH;
        }
        while d < dim {
            weigh_tile::<S, E, M, 1>(s, acc, probs, values, i, count, d);
            d += S::WIDTH;
        }
    }
}

/// # Safety
/// As [`weigh`]; the tile of `M` rows from `i` and `N` registers from `d` is inside.
#[inline(always)]
unsafe fn weigh_tile<S: Simd, E: Elem, const M: usize, const N: usize>(
    s: S,
    acc: MatMut,
    probs: Mat<f32>,
    values: Mat<E>,
    i: usize,
    count: usize,
    d: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut sums = [[s.splat_r(0.0); N]; M];
        let mut weights = [probs.at; M];
        for r in 0..M {
            weights[r] = probs.row(i + r);
            for c in 0..N {
                sums[r][c] = s.load_r(acc.from_row(i + r).at.add(d + c * S::WIDTH).cast_const());
            }
        }
        for j in 0..count {
            let value = values.row(j).add(d);
            let p = weights.map(|weight| s.splat_r(*weight.add(j)));
            for c in 0..N {
                let v = s.load_r(value.add(c * S::WIDTH));
                for r in 0..M {
                    sums[r][c] = s.fma_r(p[r], v, sums[r][c]);
                }
            }
        }
        for r in 0..M {
            for c in 0..N {
                s.store_r(acc.from_row(i + r).at.add(d + c * S::WIDTH), sums[r][c]);
            }
        }
    }
}

/// The kernels for one way of storing weights, keys and values.
pub(crate) trait Stored: Elem {
    /// See [`product`].
    ///
    /// # Safety
    /// As there.
    #[allow(clippy::too_many_arguments, reason = "kernels take plain pointers and sizes")]
    unsafe fn product(
        token: Token,
        out: MatMut,
        act: Mat<f32>,
        w: Mat<Self>,
        k: usize,
        m: usize,
        n: usize,
        ahead: usize,
    );

    /// See [`weigh`].
    ///
    /// # Safety
    /// As there.
    #[allow(clippy::too_many_arguments, reason = "kernels take plain pointers and sizes")]
    unsafe fn weigh(
        token: Token,
        acc: MatMut,
        probs: Mat<f32>,
        values: Mat<Self>,
        dim: usize,
        queries: usize,
        count: usize,
    );
}

macro_rules! stored {
    ($elem:ty) => {
        impl Stored for $elem {
            dispatch! { unsafe fn product = product::<$elem>(
            out: MatMut, act: Mat<f32>, w: Mat<$elem>,
            k: usize, m: usize, n: usize, ahead: usize) }
            dispatch! { unsafe fn weigh = weigh::<$elem>(
            acc: MatMut, probs: Mat<f32>, values: Mat<$elem>,
            dim: usize, queries: usize, count: usize) }
        }
    };
}

stored!(u16);
stored!(f32);
