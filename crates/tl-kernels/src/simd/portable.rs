//! The reference: plain loops over an array of sixteen lanes.
//!
//! `f32::mul_add` is a single instruction where the target has one (aarch64) and a
//! correctly rounded library call elsewhere.

use super::{Elem, LANES, SHIFT, Simd};
use crate::f16::{f16_to_f32, f32_to_f16};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

type V = [f32; LANES];

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    std::array::from_fn(|l| f(a[l], b[l]))
}

#[inline(always)]
fn tree(mut v: V, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            v[l] = f(v[l], v[l + half]);
        }
        half /= 2;
    }
    v[0]
}

impl Simd for Portable {
    type V = V;
    const MR: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load<E: Elem>(self, p: *const E) -> V {
        if E::F16 {
            // SAFETY: the caller vouches for 16 elements, and `F16` is true for `u16` alone.
            let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
            bits.map(f16_to_f32)
        } else {
            // SAFETY: the caller vouches for 16 elements, and `F16` is false for `f32` alone.
            unsafe { p.cast::<V>().read_unaligned() }
        }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: V) {
        // SAFETY: the caller vouches for 16 elements.
        unsafe { p.cast::<V>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn store_planes(self, p: *mut f32, _plane: usize, v: V) {
        // SAFETY: one register holds all lanes.
        unsafe { self.store(p, v) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: V) {
        // SAFETY: the caller vouches for 16 elements.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(v.map(f32_to_f16)) }
    }

    #[inline(always)]
    unsafe fn splat_f16(self, p: *const u8) -> V {
        // SAFETY: the caller vouches for 2 bytes.
        let bytes = unsafe { p.cast::<[u8; 2]>().read_unaligned() };
        self.splat(f16_to_f32(u16::from_le_bytes(bytes)))
    }

    #[inline(always)]
    unsafe fn splat_f16_pair(self, p: *const u8) -> [V; 2] {
        // SAFETY: the caller vouches for 4 bytes.
        unsafe { [self.splat_f16(p), self.splat_f16(p.add(2))] }
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const u8) -> V {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { p.cast::<[i8; LANES]>().read_unaligned() };
        bytes.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_nibbles(self, p: *const u8) -> [V; 2] {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { p.cast::<[u8; LANES]>().read_unaligned() };
        [bytes.map(|b| f32::from(b & 15)), bytes.map(|b| f32::from(b >> 4))]
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x + y)
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x - y)
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x * y)
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x / y)
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        zip(a, b, |x, y| if x > y { x } else { y })
    }

    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        zip(a, b, |x, y| if x < y { x } else { y })
    }

    #[inline(always)]
    fn zero_if_less(self, a: V, b: V, x: V) -> V {
        std::array::from_fn(|l| if a[l] < b[l] { 0.0 } else { x[l] })
    }

    #[inline(always)]
    fn pow2_of_shifted(self, t: V) -> V {
        t.map(|t| f32::from_bits((t.to_bits() << 23).wrapping_add(127 << 23)))
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        tree(v, |x, y| x + y)
    }

    #[inline(always)]
    fn sum8(self, v: [V; 8]) -> [f32; 8] {
        v.map(|v| self.sum(v))
    }

    #[inline(always)]
    fn max_lane(self, v: V) -> f32 {
        tree(v, |x, y| if x > y { x } else { y })
    }

    #[inline(always)]
    unsafe fn step<E: Elem, const M: usize, const N: usize>(
        self,
        acc: &mut [[V; N]; M],
        a: &[*const f32; M],
        w: &[*const E; N],
        off: usize,
    ) {
        for j in 0..N {
            // SAFETY: the caller vouches for 16 elements from `off`.
            let wv = unsafe { self.load(w[j].add(off)) };
            for i in 0..M {
                // SAFETY: as above.
                let av = unsafe { self.load(a[i].add(off)) };
                acc[i][j] = self.fma(av, wv, acc[i][j]);
            }
        }
    }

    type R = V;
    const WIDTH: usize = LANES;

    #[inline(always)]
    fn splat_r(self, x: f32) -> V {
        self.splat(x)
    }

    #[inline(always)]
    unsafe fn load_r<E: Elem>(self, p: *const E) -> V {
        // SAFETY: the caller vouches for 16 elements.
        unsafe { self.load(p) }
    }

    #[inline(always)]
    unsafe fn store_r(self, p: *mut f32, v: V) {
        // SAFETY: the caller vouches for 16 elements.
        unsafe { self.store(p, v) }
    }

    #[inline(always)]
    fn fma_r(self, a: V, b: V, c: V) -> V {
        self.fma(a, b, c)
    }
}

const _: () = assert!(SHIFT.to_bits() << 23 == 0, "the shift must vanish from the exponent bits");
