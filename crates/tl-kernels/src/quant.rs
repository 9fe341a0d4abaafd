//! Weights that stay in the blocks in which a checkpoint stores them.
//!
//! A decode step reads every weight once, so it is as fast as memory delivers them: four bits
//! a weight arrive three times as fast as sixteen. Activations are not quantised, and the
//! values are those of the f32 expansion, bit for bit: what is saved is memory alone.

use std::fmt;

use crate::dispatch::dispatch;
use crate::isa::Token;
use crate::simd::{LANES, Simd, prefetch};
use crate::tiles::{Mat, MatMut, store_sums};

/// A storage format in blocks of 32 weights, as in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quant {
    /// f16 `d`, 32 nibbles `q`: `d * (q - 8)`.
    Q4_0,
    /// f16 `d`, f16 `m`, 32 nibbles `q`: `d * q + m`.
    Q4_1,
    /// f16 `d`, 32 signed bytes `q`: `d * q`.
    Q8_0,
}

impl Quant {
    /// Weights in a block.
    pub const BLOCK: usize = 32;

    pub fn block_bytes(self) -> usize {
        match self {
            Quant::Q4_0 => 18,
            Quant::Q4_1 => 20,
            Quant::Q8_0 => 34,
        }
    }

    /// Bytes of a row of `k` weights: whole blocks.
    pub fn row_bytes(self, k: usize) -> usize {
        k / Self::BLOCK * self.block_bytes()
    }
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quant::Q4_0 => "Q4_0",
            Quant::Q4_1 => "Q4_1",
            Quant::Q8_0 => "Q8_0",
        })
    }
}

/// How far ahead of their use blocks are asked for.
const AHEAD_BYTES: usize = 4 * 1024;

/// Expands `n` rows of `k` weights, in planes (see `panel.rs`; portable code has one), and asks for
/// what lies `ahead` bytes further.
///
/// # Safety
/// `from` holds the rows in blocks of `quant`, those of `to` hold `k` elements.
pub(crate) unsafe fn expand(
    token: Token,
    quant: Quant,
    to: MatMut,
    from: Mat<u8>,
    k: usize,
    n: usize,
    ahead: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match quant {
            Quant::Q4_0 => expand_q4_0(token, to, from, k, n, ahead),
            Quant::Q4_1 => expand_q4_1(token, to, from, k, n, ahead),
            Quant::Q8_0 => expand_q8_0(token, to, from, k, n, ahead),
        }
    }
}

/// One format.
trait Format {
    const QUANT: Quant;

    /// The 32 weights of a block.
    ///
    /// # Safety
    /// `block` is readable for a whole block.
    unsafe fn weights<S: Simd>(s: S, block: *const u8) -> [S::V; 2];
}

struct Q4_0;
struct Q4_1;
struct Q8_0;

impl Format for Q4_0 {
    const QUANT: Quant = Quant::Q4_0;

    #[inline(always)]
    unsafe fn weights<S: Simd>(s: S, block: *const u8) -> [S::V; 2] {
        // SAFETY: the caller vouches for the block.
        unsafe {
            let (d, eight) = (s.splat_f16(block), s.splat(8.0));
            let [low, high] = s.load_nibbles(block.add(2));
            [s.mul(d, s.sub(low, eight)), s.mul(d, s.sub(high, eight))]
        }
    }
}

impl Format for Q4_1 {
    const QUANT: Quant = Quant::Q4_1;

    #[inline(always)]
    unsafe fn weights<S: Simd>(s: S, block: *const u8) -> [S::V; 2] {
        // SAFETY: the caller vouches for the block.
        unsafe {
            let [d, m] = s.splat_f16_pair(block);
            let [low, high] = s.load_nibbles(block.add(4));
            // The product has at most 15 bits: fused or not, only the sum is rounded.
            [s.fma(low, d, m), s.fma(high, d, m)]
        }
    }
}

impl Format for Q8_0 {
    const QUANT: Quant = Quant::Q8_0;

    #[inline(always)]
    unsafe fn weights<S: Simd>(s: S, block: *const u8) -> [S::V; 2] {
        // SAFETY: the caller vouches for the block.
        unsafe {
            let d = s.splat_f16(block);
            let (low, high) = (s.load_i8(block.add(2)), s.load_i8(block.add(2 + LANES)));
            [s.mul(d, low), s.mul(d, high)]
        }
    }
}

/// # Safety
/// As [`expand`].
#[inline(always)]
unsafe fn expand_kernel<S: Simd, F: Format>(
    s: S,
    to: MatMut,
    from: Mat<u8>,
    k: usize,
    n: usize,
    ahead: usize,
) {
    for i in 0..n {
        // SAFETY: the caller's contract.
        unsafe {
            let (mut block, mut to) = (from.row(i), to.from_row(i).at);
            let plane = k / LANES * S::WIDTH;
            for _ in 0..k / Quant::BLOCK {
                prefetch(block.wrapping_add(ahead));
                let [first, second] = F::weights(s, block);
                s.store_planes(to, plane, first);
                s.store_planes(to.add(S::WIDTH), plane, second);
                block = block.add(F::QUANT.block_bytes());
                to = to.add(2 * S::WIDTH);
            }
        }
    }
}

/// Rows of activations up to which weights are expanded in registers.
pub(crate) const FUSED_ROWS: usize = 4;

/// `out[i][j] = dot(act[i], w[j])` for `i < m <= FUSED_ROWS`, `j < n`, over `k` columns, without
/// a detour through memory.
///
/// # Safety
/// The views hold `m` and `n` rows, `w` in blocks of `quant`, and nobody else touches the outputs.
#[allow(clippy::too_many_arguments, reason = "kernels take plain pointers and sizes")]
pub(crate) unsafe fn product(
    token: Token,
    quant: Quant,
    out: MatMut,
    act: Mat<f32>,
    w: Mat<u8>,
    k: usize,
    m: usize,
    n: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match quant {
            Quant::Q4_0 => product_q4_0(token, out, act, w, k, m, n),
            Quant::Q4_1 => product_q4_1(token, out, act, w, k, m, n),
            Quant::Q8_0 => product_q8_0(token, out, act, w, k, m, n),
        }
    }
}

/// # Safety
/// As [`product`].
#[inline(always)]
unsafe fn product_kernel<S: Simd, F: Format>(
    s: S,
    out: MatMut,
    act: Mat<f32>,
    w: Mat<u8>,
    k: usize,
    m: usize,
    n: usize,
) {
    let mut j = 0;
    // SAFETY: the caller's contract, cut into tiles. More columns at once would spill registers.
    unsafe {
        while m == 1 && j + 2 <= n {
            fused_tile::<S, F, 1, 2>(s, out, act, w, k, j);
            j += 2;
        }
        while j < n {
            match m {
                1 => fused_tile::<S, F, 1, 1>(s, out, act, w, k, j),
                2 => fused_tile::<S, F, 2, 1>(s, out, act, w, k, j),
                3 => fused_tile::<S, F, 3, 1>(s, out, act, w, k, j),
                _ => fused_tile::<S, F, 4, 1>(s, out, act, w, k, j),
            }
            j += 1;
        }
    }
}

/// # Safety
/// As [`product`], with `m == M`; columns `j..j + N` are inside.
#[inline(always)]
unsafe fn fused_tile<S: Simd, F: Format, const M: usize, const N: usize>(
    s: S,
    out: MatMut,
    act: Mat<f32>,
    w: Mat<u8>,
    k: usize,
    j: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut acc = [[s.splat(0.0); N]; M];
        let (mut rows, mut cols) = ([act.at; M], [w.at; N]);
        for r in 0..M {
            rows[r] = act.row(r);
        }
        for c in 0..N {
            cols[c] = w.row(j + c);
        }
        let (mut off, mut at) = (0, 0);
        while off < k {
            for c in 0..N {
                let block = cols[c].add(at);
                prefetch(block.wrapping_add(AHEAD_BYTES));
                let weights = F::weights(s, block);
                for r in 0..M {
                    for half in 0..2 {
                        let a = s.load(rows[r].add(off + half * LANES));
                        acc[r][c] = s.fma(a, weights[half], acc[r][c]);
                    }
                }
            }
            off += Quant::BLOCK;
            at += F::QUANT.block_bytes();
        }
        store_sums(s, out, &acc, 0, j);
    }
}

dispatch! { unsafe fn expand_q4_0 = expand_kernel::<Q4_0>(
to: MatMut, from: Mat<u8>, k: usize, n: usize, ahead: usize) }
dispatch! { unsafe fn expand_q4_1 = expand_kernel::<Q4_1>(
to: MatMut, from: Mat<u8>, k: usize, n: usize, ahead: usize) }
dispatch! { unsafe fn expand_q8_0 = expand_kernel::<Q8_0>(
to: MatMut, from: Mat<u8>, k: usize, n: usize, ahead: usize) }
dispatch! { unsafe fn product_q4_0 = product_kernel::<Q4_0>(
out: MatMut, act: Mat<f32>, w: Mat<u8>, k: usize, m: usize, n: usize) }
dispatch! { unsafe fn product_q4_1 = product_kernel::<Q4_1>(
out: MatMut, act: Mat<f32>, w: Mat<u8>, k: usize, m: usize, n: usize) }
dispatch! { unsafe fn product_q8_0 = product_kernel::<Q8_0>(
out: MatMut, act: Mat<f32>, w: Mat<u8>, k: usize, m: usize, n: usize) }
