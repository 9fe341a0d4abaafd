//! Products of many rows: panels of weights in single precision, used from the first-level cache.
//!
//! With few rows a product waits for weights, and they are widened or expanded in registers
//! (`tiles.rs`, `quant.rs`). With many it waits for the multiply-adds, and whatever else the inner
//! loop does is in their way. So a panel, some weight rows by a chunk of columns, is made once for
//! all rows of a block, in a layout that the inner loop reads in the simplest way:
//!
//! - **Planes.** A register may hold fewer than sixteen lanes. A chunk then lies as that many
//!   planes, first the lanes of the first register of every step, then those of the second. Each
//!   plane is a pass of its own, whose tile has half as many sums per output as there are lanes,
//!   so more outputs fit the registers and a loaded value is used more often.
//! - **Chunks.** A panel of long rows would not fit the cache. Between the chunks of a row the
//!   sums of its lanes wait in memory, as they are; no chunk can be seen in a result.
//!
//! Every lane of every sum still adds its terms in the order of the columns.

use std::mem::MaybeUninit;

use crate::dispatch::dispatch;
use crate::isa::Token;
use crate::simd::{Elem, LANES, Simd, prefetch};
use crate::tiles::{Mat, MatMut, store_sums};

/// Chunks begin at whole vectors and at whole blocks of quantised weights.
const UNIT: usize = 32;

/// Columns of a chunk at most: four rows of a chunk and a panel share a first-level cache.
const CHUNK: usize = 640;
/// Bytes of a panel: most of a 32 KiB first-level cache.
const PANEL_BYTES: usize = 22 * 1024;

/// How rows of `k` columns are cut: chunks of equal length, whole vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    /// Columns, padded to whole vectors.
    padded: usize,
    pub(crate) len: usize,
}

impl Chunks {
    pub(crate) fn of(k: usize) -> Self {
        let padded = k.next_multiple_of(LANES);
        let len = padded.div_ceil(padded.div_ceil(CHUNK).max(1)).next_multiple_of(UNIT);
        Self { padded, len }
    }

    /// First column and length of each.
    pub(crate) fn iter(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.padded)
            .step_by(self.len.max(1))
            .map(move |at| (at, self.len.min(self.padded - at)))
    }

    pub(crate) fn count(self) -> usize {
        self.padded.div_ceil(self.len.max(1))
    }

    /// Weight rows of a panel: whole tiles.
    pub(crate) fn panel_rows(self, token: Token) -> usize {
        let tile = tile_columns(token);
        (PANEL_BYTES / (self.len * size_of::<f32>()).max(1) / tile).clamp(1, 16) * tile
    }
}

/// The sums of the lanes of a block of outputs between two chunks, `[row][column][LANES]`.
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    /// Null if there is one chunk.
    pub(crate) at: *mut f32,
    /// Floats from one row to the next.
    pub(crate) stride: usize,
    /// Whether the chunk is the first: the sums begin at zero.
    pub(crate) first: bool,
    /// Whether it is the last: the sums become outputs.
    pub(crate) last: bool,
}

/// `out[i][j] = dot(act[i], w[j])` for `i < m`, `j < n`, or its next chunk of `len` columns: whole
/// vectors, in planes in both views.
///
/// # Safety
/// The views hold `m` and `n` rows of the chunk, `sums` has place for `m` by `n` unless the chunk
/// is the only one, and nobody else touches outputs and sums.
#[inline(always)]
unsafe fn product_kernel<S: Simd, E: Elem>(
    s: S,
    out: MatMut,
    sums: Sums,
    act: Mat<f32>,
    w: Mat<E>,
    len: usize,
    m: usize,
    n: usize,
) {
    let mut i = 0;
    // SAFETY: the caller's contract, cut into tiles of rows.
    unsafe {
        while S::MR >= 4 && i + 6 <= m {
            strip::<S, E, 6, 4>(s, out, sums, act, w, len, i, n);
            i += 6;
        }
        while S::MR == 3 && i + 4 <= m {
            strip::<S, E, 4, 3>(s, out, sums, act, w, len, i, n);
            i += 4;
        }
        while S::MR >= 3 && i + 3 <= m {
            strip::<S, E, 3, 3>(s, out, sums, act, w, len, i, n);
            i += 3;
        }
        while S::MR >= 3 && i + 2 <= m {
            strip::<S, E, 2, 3>(s, out, sums, act, w, len, i, n);
            i += 2;
        }
        while i < m {
            strip::<S, E, 1, 3>(s, out, sums, act, w, len, i, n);
            i += 1;
        }
    }
}

/// Columns of the widest tile of [`product_kernel`].
fn tile_columns(token: Token) -> usize {
    match token {
        #[cfg(target_arch = "x86_64")]
        Token::Avx512(_) => 4,
        _ => 3,
    }
}

/// `M` rows of outputs, `N` columns at a time and then one at a time.
///
/// # Safety
/// As [`product_kernel`], with `i + M <= m`.
#[inline(always)]
unsafe fn strip<S: Simd, E: Elem, const M: usize, const N: usize>(
    s: S,
    out: MatMut,
    sums: Sums,
    act: Mat<f32>,
    w: Mat<E>,
    len: usize,
    i: usize,
    n: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut j = 0;
        while j + N <= n {
            tile::<S, E, M, N>(s, out, sums, act, w, len, i, j);
            j += N;
        }
        while j < n {
            tile::<S, E, M, 1>(s, out, sums, act, w, len, i, j);
            j += 1;
        }
    }
}

/// # Safety
/// As [`product_kernel`]; the tile at `(i, j)` is inside.
#[inline(always)]
unsafe fn tile<S: Simd, E: Elem, const M: usize, const N: usize>(
    s: S,
    out: MatMut,
    sums: Sums,
    act: Mat<f32>,
    w: Mat<E>,
    len: usize,
    i: usize,
    j: usize,
) {
    // SAFETY: the caller's contract; a plane is `len * WIDTH / LANES` floats.
    unsafe {
        let (mut rows, mut cols) = ([act.at; M], [w.at; N]);
        for (r, row) in rows.iter_mut().enumerate() {
            *row = act.row(i + r);
        }
        for (c, col) in cols.iter_mut().enumerate() {
            *col = w.row(j + c);
        }
        // Written by the passes before it is read.
        let mut own = MaybeUninit::<[[[f32; LANES]; N]; M]>::uninit();
        let (lanes, stride) = if sums.at.is_null() {
            (own.as_mut_ptr().cast::<f32>(), N * LANES)
        } else {
            (sums.at.add(i * sums.stride + j * LANES), sums.stride)
        };
        let plane = len / LANES * S::WIDTH;
        for first_lane in (0..LANES).step_by(S::WIDTH) {
            let lanes = lanes.add(first_lane);
            let mut acc = [[s.splat_r(0.0); N]; M];
            if !sums.first {
                for r in 0..M {
                    for c in 0..N {
                        acc[r][c] = s.load_r(lanes.add(r * stride + c * LANES).cast_const());
                    }
                }
            }
            let mut off = first_lane / S::WIDTH * plane;
            let end = off + plane;
            while off < end {
                let mut wv = [s.splat_r(0.0); N];
                for c in 0..N {
                    wv[c] = s.load_r(cols[c].add(off));
                }
                for r in 0..M {
                    let av = s.load_r(rows[r].add(off));
                    for c in 0..N {
                        acc[r][c] = s.fma_r(av, wv[c], acc[r][c]);
                    }
                }
                off += S::WIDTH;
            }
            for r in 0..M {
                for c in 0..N {
                    s.store_r(lanes.add(r * stride + c * LANES), acc[r][c]);
                }
            }
        }
        if sums.last {
            let mut acc = [[s.splat(0.0); N]; M];
            for r in 0..M {
                for c in 0..N {
                    acc[r][c] = s.load(lanes.add(r * stride + c * LANES).cast_const());
                }
            }
            store_sums(s, out, &acc, i, j);
        }
    }
}

/// Lays `n` rows of a chunk of `len` columns, whole vectors, out in planes, and asks for what lies
/// `ahead` elements further.
///
/// # Safety
/// Both views hold the rows.
#[inline(always)]
unsafe fn lay_kernel<S: Simd, E: Elem>(
    s: S,
    to: MatMut,
    from: Mat<E>,
    len: usize,
    n: usize,
    ahead: usize,
) {
    let plane = len / LANES * S::WIDTH;
    for i in 0..n {
        // SAFETY: the caller's contract.
        unsafe {
            let (to, from) = (to.from_row(i).at, from.row(i));
            for step in 0..len / LANES {
                prefetch(from.wrapping_add(step * LANES + ahead));
                for p in 0..LANES / S::WIDTH {
                    let v = s.load_r(from.add(step * LANES + p * S::WIDTH));
                    s.store_r(to.add(p * plane + step * S::WIDTH), v);
                }
            }
        }
    }
}

dispatch! { pub(crate) unsafe fn product = product_kernel::<f32>(
out: MatMut, sums: Sums, act: Mat<f32>, w: Mat<f32>, len: usize, m: usize, n: usize) }
dispatch! { pub(crate) unsafe fn lay_f16 = lay_kernel::<u16>(
to: MatMut, from: Mat<u16>, len: usize, n: usize, ahead: usize) }
dispatch! { pub(crate) unsafe fn lay_f32 = lay_kernel::<f32>(
to: MatMut, from: Mat<f32>, len: usize, n: usize, ahead: usize) }
