//! The kernels as the rest of the workspace calls them: safe, sizes checked.

use crate::attention::{self, AttnJob, AttnScratch, AttnShape};
use crate::isa::{Isa, Token};
use crate::simd::portable::Portable;
use crate::threads::Threads;
use crate::weights::Weights;
use crate::{matmul, rows};

/// The kernels of one instruction set.
///
/// Every method gives the same bits on every instruction set, for every number of
/// threads and every way of batching the rows; the one exception is the payload of a
/// NaN. All methods panic if slices have not the lengths that they document: sizes are
/// the caller's arithmetic, never outside input.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    token: Token,
}

impl Kernels {
    /// The kernels for `isa`, or `None` where the CPU has not got it.
    pub fn new(isa: Isa) -> Option<Self> {
        Token::new(isa).map(|token| Self { token })
    }

    /// The fastest kernels of this CPU that give the right bits; see [`Isa::detect`].
    pub fn detect() -> Self {
        let token = Token::new(Isa::detect().isa).unwrap_or(Token::Portable(Portable));
        Self { token }
    }

    pub(crate) fn of(token: Token) -> Self {
        Self { token }
    }

    pub fn isa(&self) -> Isa {
        self.token.isa()
    }

    /// `out[i][j] = dot(act[i], w[j])`: activations (m x k) by weights (n x k) to outputs (m x n).
    pub fn matmul(&self, pool: &Threads, out: &mut [f32], act: &[f32], w: &Weights, m: usize) {
        matmul::matmul(self.token, pool, out, act, w, m);
    }

    /// The dot product of two rows of equal length: sixteen lanes, one tree.
    pub fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "a dot product of rows of different lengths");
        rows::dot(self.token, a, b)
    }

    /// `out = x / sqrt(mean(x^2) + eps) * weight`, for one row.
    pub fn rmsnorm(&self, out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
        assert_eq!(x.len(), weight.len(), "rmsnorm of a row by weights of another length");
        assert_eq!(x.len(), out.len(), "rmsnorm of a row to one of another length");
        rows::rmsnorm(self.token, out, x, weight, eps);
    }

    /// Rotates the pairs `(2 i, 2 i + 1)` of each head in `x` by the angle whose cosine and sine
    /// are `cos[i]`, `sin[i]`; a head has `2 * cos.len()` elements.
    pub fn rope_interleaved(&self, x: &mut [f32], cos: &[f32], sin: &[f32]) {
        let half = check_rope(x, cos, sin);
        for head in x.chunks_exact_mut(2 * half) {
            for ((pair, &c), &s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                (pair[0], pair[1]) = rotate(pair[0], pair[1], c, s);
            }
        }
    }

    /// As [`Kernels::rope_interleaved`], for the pairs `(i, i + half)`.
    pub fn rope_half(&self, x: &mut [f32], cos: &[f32], sin: &[f32]) {
        let half = check_rope(x, cos, sin);
        for head in x.chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            for (((a, b), &c), &s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = rotate(*a, *b, c, s);
            }
        }
    }

    /// `out = gate / (1 + exp(-gate)) * up`, elementwise.
    pub fn silu_mul(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        assert_eq!(gate.len(), up.len(), "silu_mul of rows of different lengths");
        assert_eq!(gate.len(), out.len(), "silu_mul to a row of another length");
        rows::silu_mul(self.token, gate, up, out);
    }

    /// `x += y`, elementwise.
    pub fn add_assign(&self, x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len(), "the sum of rows of different lengths");
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }

    /// `x = exp(x)`, elementwise, at most 1 ulp off; 0 below -86.
    pub fn exp(&self, x: &mut [f32]) {
        rows::exp_all(self.token, x);
    }

    /// The largest element, NaN ignored; negative infinity for an empty row.
    pub fn max(&self, x: &[f32]) -> f32 {
        rows::max_all(self.token, x)
    }

    /// `x = exp(x - max) / sum`, for one row.
    pub fn softmax(&self, x: &mut [f32]) {
        rows::softmax(self.token, x);
    }

    /// The nearest halves (bits), as [`crate::f32_to_f16`].
    pub fn f32_to_f16(&self, src: &[f32], dst: &mut [u16]) {
        assert_eq!(src.len(), dst.len(), "a conversion to a row of another length");
        rows::to_f16(self.token, src, dst);
    }

    /// The values of halves (bits), as [`crate::f16_to_f32`].
    pub fn f16_to_f32(&self, src: &[u16], dst: &mut [f32]) {
        assert_eq!(src.len(), dst.len(), "a conversion to a row of another length");
        rows::to_f32(self.token, src, dst);
    }

    /// Causal attention of one sequence in one layer, over the blocks of a KV pool.
    ///
    /// `q` and `out` are `[rows][n_heads][head_dim]`; row `i` is at position `start + i`
    /// and sees the positions `0..=start + i`, whose keys and values (the rows' own too)
    /// are in the blocks already: position `p` is row `p % block_tokens` of block
    /// `p / block_tokens`, laid out `[n_kv_heads][block_tokens][head_dim]` in half bits.
    /// What lies in a block past the last position is never used.
    #[allow(clippy::too_many_arguments, reason = "one call carries a whole layer's attention")]
    pub fn attention(
        &self,
        pool: &Threads,
        out: &mut [f32],
        q: &[f32],
        k_blocks: &[&[u16]],
        v_blocks: &[&[u16]],
        start: usize,
        rows: usize,
        shape: AttnShape,
        scale: f32,
        scratch: &mut AttnScratch,
    ) {
        let mut job = [AttnJob { out, q, k_blocks, v_blocks, start, rows }];
        attention::attention(self.token, pool, &mut job, shape, scale, scratch);
    }

    /// [`Kernels::attention`] over keys and values that were not rounded to halves. The order is
    /// the same: with blocks that hold the values of halves, so are the bits.
    #[allow(clippy::too_many_arguments, reason = "one call carries a whole layer's attention")]
    pub fn attention_f32(
        &self,
        pool: &Threads,
        out: &mut [f32],
        q: &[f32],
        k_blocks: &[&[f32]],
        v_blocks: &[&[f32]],
        start: usize,
        rows: usize,
        shape: AttnShape,
        scale: f32,
        scratch: &mut AttnScratch,
    ) {
        let mut job = [AttnJob { out, q, k_blocks, v_blocks, start, rows }];
        attention::attention(self.token, pool, &mut job, shape, scale, scratch);
    }

    /// [`Kernels::attention`] of several sequences, with the same bits as one by one: the work of
    /// all is shared out at once, so that a batch of single rows keeps many threads busy.
    pub fn attention_batch(
        &self,
        pool: &Threads,
        jobs: &mut [AttnJob<'_, u16>],
        shape: AttnShape,
        scale: f32,
        scratch: &mut AttnScratch,
    ) {
        attention::attention(self.token, pool, jobs, shape, scale, scratch);
    }
}

/// Half the head dimension.
fn check_rope(x: &[f32], cos: &[f32], sin: &[f32]) -> usize {
    assert_eq!(cos.len(), sin.len(), "rope tables of different lengths");
    assert!(!cos.is_empty(), "rope over empty tables");
    assert_eq!(x.len() % (2 * cos.len()), 0, "rope over {} elements, not whole heads", x.len());
    cos.len()
}

/// Products and sums are rounded one by one: no fused operation, the same everywhere.
fn rotate(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a * cos - b * sin, a * sin + b * cos)
}

#[cfg(test)]
pub(crate) mod tests;
