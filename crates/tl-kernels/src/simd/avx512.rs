//! Sixteen lanes as one AVX-512 register; the last eight lanes fold as in `avx2.rs`.
//!
//! Only AVX-512F is used, so that every CPU with AVX-512 qualifies. Thirty-two
//! registers hold a tile of 4 x 4 sums with room to spare.

use std::arch::x86_64::*;

use super::avx2::{Avx2, max_of_8, sum_of_8, sum8_of_8};
use super::{Elem, LANES, Simd};

/// Proof that the CPU has AVX-512F beside AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let all = Avx2::detect().is_some() && is_x86_feature_detected!("avx512f");
        all.then_some(Self(()))
    }
}

type V = __m512;

/// Lanes 0..8 and lanes 8..16.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
unsafe fn halves(v: V) -> (__m256, __m256) {
    // SAFETY: the caller vouches for AVX-512F.
    unsafe {
        let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v));
        (_mm512_castps512_ps256(v), _mm256_castpd_ps(high))
    }
}

macro_rules! lanewise {
    ($($name:ident = $op:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, a: V, b: V) -> V {
            // SAFETY: `self` proves the instructions.
            unsafe { $op(a, b) }
        }
    )*};
}

impl Simd for Avx512 {
    type V = V;
    const MR: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load<E: Elem>(self, p: *const E) -> V {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 elements;
        // `F16` is true for `u16` alone.
        unsafe {
            if E::F16 {
                _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))
            } else {
                _mm512_loadu_ps(p.cast())
            }
        }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: V) {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 elements.
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn store_planes(self, p: *mut f32, _plane: usize, v: V) {
        // SAFETY: one register holds all lanes.
        unsafe { self.store(p, v) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: V) {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 elements.
        unsafe {
            _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        }
    }

    #[inline(always)]
    unsafe fn splat_f16(self, p: *const u8) -> V {
        // SAFETY: `self` proves the instructions, the caller vouches for 2 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(p.cast::<i16>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn splat_f16_pair(self, p: *const u8) -> [V; 2] {
        // SAFETY: `self` proves the instructions, the caller vouches for 4 bytes.
        unsafe {
            let pairs = _mm512_cvtph_ps(_mm256_set1_epi32(p.cast::<i32>().read_unaligned()));
            [_mm512_moveldup_ps(pairs), _mm512_movehdup_ps(pairs)]
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const u8) -> V {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_nibbles(self, p: *const u8) -> [V; 2] {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 bytes.
        unsafe {
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
            let low = _mm512_and_si512(bytes, _mm512_set1_epi32(15));
            let high = _mm512_srli_epi32::<4>(bytes);
            [_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(high)]
        }
    }

    lanewise! {
        add = _mm512_add_ps;
        sub = _mm512_sub_ps;
        mul = _mm512_mul_ps;
        div = _mm512_div_ps;
        max = _mm512_max_ps;
        min = _mm512_min_ps;
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn zero_if_less(self, a: V, b: V, x: V) -> V {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
            _mm512_mask_blend_ps(less, x, _mm512_setzero_ps())
        }
    }

    #[inline(always)]
    fn pow2_of_shifted(self, t: V) -> V {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(t));
            _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(127 << 23)))
        }
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let (low, high) = halves(v);
            sum_of_8(_mm256_add_ps(low, high))
        }
    }

    #[inline(always)]
    fn sum8(self, v: [V; 8]) -> [f32; 8] {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let mut eight = [_mm256_setzero_ps(); 8];
            for (slot, v) in eight.iter_mut().zip(v) {
                let (low, high) = halves(v);
                *slot = _mm256_add_ps(low, high);
            }
            sum8_of_8(eight)
        }
    }

    #[inline(always)]
    fn max_lane(self, v: V) -> f32 {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let (low, high) = halves(v);
            max_of_8(_mm256_max_ps(low, high))
        }
    }

    #[inline(always)]
    unsafe fn step<E: Elem, const M: usize, const N: usize>(
        self,
        acc: &mut [[V; N]; M],
        a: &[*const f32; M],
        w: &[*const E; N],
        off: usize,
    ) {
        // SAFETY: the caller vouches for 16 elements from `off`.
        unsafe {
            let mut av = [self.splat(0.0); M];
            for i in 0..M {
                av[i] = self.load(a[i].add(off));
            }
            for j in 0..N {
                let wv = self.load(w[j].add(off));
                for i in 0..M {
                    acc[i][j] = self.fma(av[i], wv, acc[i][j]);
                }
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
