//! What happens to single rows between the matrix products: norm, activation, softmax,
//! rotation, conversion.
//!
//! Sums are sixteen lanes and one tree like every dot product. The exponential is our
//! own, so that it has the same bits everywhere; libm's differs from version to version.

use crate::dispatch::dispatch;
use crate::simd::{LANES, SHIFT, Simd};

/// `exp(x)` in each lane, at most 1 ulp off where the result is normal.
///
/// Below -86 (results under 4.5e-38) it is 0, so that no subnormal is ever made;
/// above 88.72 it is infinite; NaN stays NaN. `exp(0)` is exactly 1.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`, a polynomial of degree 7 in `r`, and `2^n`
/// put on in two factors, since `2^128` has no f32.
#[inline(always)]
fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let capped = s.min(s.splat(89.0), x);
    let shifted = s.fma(capped, s.splat(std::f32::consts::LOG2_E), s.splat(SHIFT));
    let n = s.sub(shifted, s.splat(SHIFT));
    // ln 2 in two parts, the first with so few bits that n times it is exact.
    let r = s.fma(n, s.splat(-0.693_359_4), capped);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    p = s.fma(p, r, s.splat(1.398_199_9e-3));
    p = s.fma(p, r, s.splat(8.333_452e-3));
    p = s.fma(p, r, s.splat(4.166_579_6e-2));
    p = s.fma(p, r, s.splat(1.666_666_5e-1));
    p = s.fma(p, r, s.splat(0.5));
    let p = s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0));
    let half = s.pow2_of_shifted(s.sub(shifted, s.splat(1.0)));
    let y = s.mul(s.mul(p, half), s.splat(2.0));
    s.zero_if_less(x, s.splat(-86.0), y)
}

/// The 16 elements from `i`, those past the end of `x` replaced by `pad`.
#[inline(always)]
fn load_or<S: Simd>(s: S, x: &[f32], i: usize, pad: f32) -> S::V {
    if i + LANES <= x.len() {
        // SAFETY: 16 elements from `i` are inside the slice.
        unsafe { s.load(x.as_ptr().add(i)) }
    } else {
        let mut lanes = [pad; LANES];
        lanes[..x.len() - i].copy_from_slice(&x[i..]);
        // SAFETY: an array of 16.
        unsafe { s.load(lanes.as_ptr()) }
    }
}

/// Stores to the elements from `i` those lanes that are inside `x`.
#[inline(always)]
fn store_in<S: Simd>(s: S, x: &mut [f32], i: usize, v: S::V) {
    if i + LANES <= x.len() {
        // SAFETY: 16 elements from `i` are inside the slice.
        unsafe { s.store(x.as_mut_ptr().add(i), v) }
    } else {
        let mut lanes = [0.0; LANES];
        // SAFETY: an array of 16.
        unsafe { s.store(lanes.as_mut_ptr(), v) }
        let n = x.len() - i;
        x[i..].copy_from_slice(&lanes[..n]);
    }
}

#[inline(always)]
fn dot_kernel<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut acc = s.splat(0.0);
    let mut i = 0;
    while i < a.len() {
        acc = s.fma(load_or(s, a, i, 0.0), load_or(s, b, i, 0.0), acc);
        i += LANES;
    }
    s.sum(acc)
}

#[inline(always)]
fn rmsnorm_kernel<S: Simd>(s: S, out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
    let mean = dot_kernel(s, x, x) / x.len() as f32;
    let scale = s.splat(1.0 / (mean + eps).sqrt());
    let mut i = 0;
    while i < x.len() {
        let scaled = s.mul(load_or(s, x, i, 0.0), scale);
        store_in(s, out, i, s.mul(scaled, load_or(s, weight, i, 0.0)));
        i += LANES;
    }
}

#[inline(always)]
fn silu_mul_kernel<S: Simd>(s: S, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let mut i = 0;
    while i < gate.len() {
        let g = load_or(s, gate, i, 0.0);
        let e = exp(s, s.sub(s.splat(0.0), g));
        let silu = s.div(g, s.add(s.splat(1.0), e));
        store_in(s, out, i, s.mul(silu, load_or(s, up, i, 0.0)));
        i += LANES;
    }
}

#[inline(always)]
fn exp_kernel<S: Simd>(s: S, x: &mut [f32]) {
    let mut i = 0;
    while i < x.len() {
        let y = exp(s, load_or(s, x, i, 0.0));
        store_in(s, x, i, y);
        i += LANES;
    }
}

#[inline(always)]
fn max_kernel<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut m = s.splat(f32::NEG_INFINITY);
    let mut i = 0;
    while i < x.len() {
        m = s.max(load_or(s, x, i, f32::NEG_INFINITY), m);
        i += LANES;
    }
    s.max_lane(m)
}

/// `x[j] = exp(x[j] * scale - max)` for `j < n`, where `max` is the largest `x[j] * scale`;
/// their sum. The rest of the last vector, which `x` must hold, is overwritten.
#[inline(always)]
fn exp_scores_kernel<S: Simd>(s: S, x: &mut [f32], n: usize, scale: f32) -> f32 {
    let x = &mut x[..n.next_multiple_of(LANES)];
    let scale = s.splat(scale);
    let mut m = s.splat(f32::NEG_INFINITY);
    let mut i = 0;
    while i < x.len() {
        let mut scaled = s.mul(load_or(s, x, i, 0.0), scale);
        if i + LANES > n {
            // Whatever lies past the end, NaN too, becomes -inf: no maximum, no probability.
            let limit = past(s, n - i);
            scaled = s.min(limit, s.zero_if_less(limit, s.splat(0.0), scaled));
        }
        m = s.max(scaled, m);
        store_in(s, x, i, scaled);
        i += LANES;
    }
    let m = s.splat(s.max_lane(m));
    let mut sum = s.splat(0.0);
    let mut i = 0;
    while i < x.len() {
        let p = exp(s, s.sub(load_or(s, x, i, 0.0), m));
        sum = s.add(sum, p);
        store_in(s, x, i, p);
        i += LANES;
    }
    s.sum(sum)
}

/// Infinity in the first `n` lanes, negative infinity in the others.
#[inline(always)]
fn past<S: Simd>(s: S, n: usize) -> S::V {
    const LIMITS: [f32; 2 * LANES] = {
        let mut limits = [f32::INFINITY; 2 * LANES];
        let mut l = LANES;
        while l < 2 * LANES {
            limits[l] = f32::NEG_INFINITY;
            l += 1;
        }
        limits
    };
    // SAFETY: 16 elements from `16 - n` are inside the array, which the slice checks.
    unsafe { s.load(LIMITS[LANES - n..][..LANES].as_ptr()) }
}

#[inline(always)]
fn softmax_kernel<S: Simd>(s: S, x: &mut [f32]) {
    let max = s.splat(max_kernel(s, x));
    let mut sum = s.splat(0.0);
    let mut i = 0;
    while i < x.len() {
        let p = exp(s, s.sub(load_or(s, x, i, f32::NEG_INFINITY), max));
        sum = s.add(sum, p);
        store_in(s, x, i, p);
        i += LANES;
    }
    let sum = s.splat(s.sum(sum));
    let mut i = 0;
    while i < x.len() {
        let p = s.div(load_or(s, x, i, 0.0), sum);
        store_in(s, x, i, p);
        i += LANES;
    }
}

#[inline(always)]
fn to_f16_kernel<S: Simd>(s: S, src: &[f32], dst: &mut [u16]) {
    let mut i = 0;
    while i < src.len() {
        let v = load_or(s, src, i, 0.0);
        if i + LANES <= dst.len() {
            // SAFETY: 16 elements from `i` are inside the slice.
            unsafe { s.store_f16(dst.as_mut_ptr().add(i), v) };
        } else {
            let mut lanes = [0; LANES];
            // SAFETY: an array of 16.
            unsafe { s.store_f16(lanes.as_mut_ptr(), v) };
            let n = dst.len() - i;
            dst[i..].copy_from_slice(&lanes[..n]);
        }
        i += LANES;
    }
}

#[inline(always)]
fn to_f32_kernel<S: Simd>(s: S, src: &[u16], dst: &mut [f32]) {
    let mut i = 0;
    while i < src.len() {
        let v = if i + LANES <= src.len() {
            // SAFETY: 16 elements from `i` are inside the slice.
            unsafe { s.load(src.as_ptr().add(i)) }
        } else {
            let mut lanes = [0u16; LANES];
            lanes[..src.len() - i].copy_from_slice(&src[i..]);
            // SAFETY: an array of 16.
            unsafe { s.load(lanes.as_ptr()) }
        };
        store_in(s, dst, i, v);
        i += LANES;
    }
}

dispatch! { pub(crate) fn dot = dot_kernel(a: &[f32], b: &[f32]) -> f32 }
dispatch! { pub(crate) fn rmsnorm = rmsnorm_kernel(
out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) }
dispatch! { pub(crate) fn silu_mul = silu_mul_kernel(gate: &[f32], up: &[f32], out: &mut [f32]) }
dispatch! { pub(crate) fn exp_all = exp_kernel(x: &mut [f32]) }
dispatch! { pub(crate) fn max_all = max_kernel(x: &[f32]) -> f32 }
dispatch! { pub(crate) fn softmax = softmax_kernel(x: &mut [f32]) }
dispatch! { pub(crate) fn exp_scores = exp_scores_kernel(
x: &mut [f32], n: usize, scale: f32) -> f32 }
dispatch! { pub(crate) fn to_f16 = to_f16_kernel(src: &[f32], dst: &mut [u16]) }
dispatch! { pub(crate) fn to_f32 = to_f32_kernel(src: &[u16], dst: &mut [f32]) }
