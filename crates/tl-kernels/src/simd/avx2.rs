//! Sixteen lanes as two AVX2 registers: lanes 0..8 and lanes 8..16.
//!
//! With sixteen registers in all, a tile of 3 x 2 sums (12 registers), 3 activations and
//! 1 weight is the largest that does not spill; [`Simd::step`] therefore goes through the
//! two halves one after the other.

use std::arch::x86_64::*;

use super::{Elem, Simd};

/// Proof that the CPU has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        all.then_some(Self(()))
    }
}

type V = [__m256; 2];

/// Eight elements, widened where they are halves.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and `p` is readable for 8 elements.
#[inline(always)]
unsafe fn load8<E: Elem>(p: *const E) -> __m256 {
    // SAFETY: the caller vouches for both; `F16` is true for `u16` alone.
    unsafe {
        if E::F16 { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) } else { _mm256_loadu_ps(p.cast()) }
    }
}

/// Folds lane `l + 4` onto `l` for two vectors at once: `[a0+a4 .. a3+a7, b4+b0 .. b7+b3]`.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn fold4(a: __m256, b: __m256) -> __m256 {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let kept = _mm256_blend_ps::<0b1111_0000>(a, b);
        let moved = _mm256_permute2f128_ps::<0x21>(a, b);
        _mm256_add_ps(kept, moved)
    }
}

/// Eight vectors of eight lanes to their eight sums, in the order of the vectors.
///
/// Each level adds the upper half of a sum's lanes to the lower half, as the tree
/// says; two sums share each instruction. Addition commutes, so which operand
/// comes first does not matter.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn sum8_of_8(v: [__m256; 8]) -> [f32; 8] {
    // SAFETY: the caller vouches for AVX2; the store goes to an array of 8.
    unsafe {
        // low half: sum i, high half: sum i + 4; four lanes each.
        let mut four = [_mm256_setzero_ps(); 4];
        for (i, slot) in four.iter_mut().enumerate() {
            *slot = fold4(v[i], v[i + 4]);
        }
        // [x0+x2, x1+x3, y2+y0, y3+y1] in each half.
        let mut two = [_mm256_setzero_ps(); 2];
        for (i, slot) in two.iter_mut().enumerate() {
            let (x, y) = (four[2 * i], four[2 * i + 1]);
            let kept = _mm256_blend_ps::<0b1100_1100>(x, y);
            let moved = _mm256_shuffle_ps::<0b01_00_11_10>(x, y);
            *slot = _mm256_add_ps(kept, moved);
        }
        let even = _mm256_shuffle_ps::<0b10_00_10_00>(two[0], two[1]);
        let odd = _mm256_shuffle_ps::<0b11_01_11_01>(two[0], two[1]);
        let mut out = [0.0; 8];
        _mm256_storeu_ps(out.as_mut_ptr(), _mm256_add_ps(even, odd));
        out
    }
}

/// The tree over the last eight lanes.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn sum_of_8(v: __m256) -> f32 {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        let one = _mm_add_ss(two, _mm_shuffle_ps::<1>(two, two));
        _mm_cvtss_f32(one)
    }
}

/// As [`sum_of_8`], with the larger of two lanes (`a > b ? a : b`).
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn max_of_8(v: __m256) -> f32 {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        let one = _mm_max_ss(two, _mm_shuffle_ps::<1>(two, two));
        _mm_cvtss_f32(one)
    }
}

macro_rules! lanewise {
    ($($name:ident = $op:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, a: V, b: V) -> V {
            // SAFETY: `self` proves the instructions.
            unsafe { [$op(a[0], b[0]), $op(a[1], b[1])] }
        }
    )*};
}

impl Simd for Avx2 {
    type V = V;
    const MR: usize = 3;

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        // SAFETY: `self` proves the instructions.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    unsafe fn load<E: Elem>(self, p: *const E) -> V {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 elements.
        unsafe { [load8(p), load8(p.add(8))] }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: V) {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 elements.
        unsafe {
            _mm256_storeu_ps(p, v[0]);
            _mm256_storeu_ps(p.add(8), v[1]);
        }
    }

    #[inline(always)]
    unsafe fn store_planes(self, p: *mut f32, plane: usize, v: V) {
        // SAFETY: `self` proves the instructions, the caller vouches for 8 elements at each.
        unsafe {
            _mm256_storeu_ps(p, v[0]);
            _mm256_storeu_ps(p.add(plane), v[1]);
        }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: V) {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 elements.
        unsafe {
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]));
        }
    }

    #[inline(always)]
    unsafe fn splat_f16(self, p: *const u8) -> V {
        // SAFETY: `self` proves the instructions, the caller vouches for 2 bytes.
        unsafe { [_mm256_cvtph_ps(_mm_set1_epi16(p.cast::<i16>().read_unaligned())); 2] }
    }

    #[inline(always)]
    unsafe fn splat_f16_pair(self, p: *const u8) -> [V; 2] {
        // SAFETY: `self` proves the instructions, the caller vouches for 4 bytes.
        unsafe {
            let pairs = _mm256_cvtph_ps(_mm_set1_epi32(p.cast::<i32>().read_unaligned()));
            [[_mm256_moveldup_ps(pairs); 2], [_mm256_movehdup_ps(pairs); 2]]
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const u8) -> V {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 bytes.
        unsafe {
            let low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()));
            let high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.add(8).cast()));
            [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
        }
    }

    #[inline(always)]
    unsafe fn load_nibbles(self, p: *const u8) -> [V; 2] {
        // SAFETY: `self` proves the instructions, the caller vouches for 16 bytes.
        unsafe {
            let bytes = [
                _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())),
                _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.add(8).cast())),
            ];
            let mask = _mm256_set1_epi32(15);
            [
                bytes.map(|b| _mm256_cvtepi32_ps(_mm256_and_si256(b, mask))),
                bytes.map(|b| _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(b))),
            ]
        }
    }

    lanewise! {
        add = _mm256_add_ps;
        sub = _mm256_sub_ps;
        mul = _mm256_mul_ps;
        div = _mm256_div_ps;
        max = _mm256_max_ps;
        min = _mm256_min_ps;
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        // SAFETY: `self` proves the instructions.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn zero_if_less(self, a: V, b: V, x: V) -> V {
        // SAFETY: `self` proves the instructions.
        unsafe {
            [
                _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]), x[0]),
                _mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1]), x[1]),
            ]
        }
    }

    #[inline(always)]
    fn pow2_of_shifted(self, t: V) -> V {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let bias = _mm256_set1_epi32(127 << 23);
            t.map(|t| {
                let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(t));
                _mm256_castsi256_ps(_mm256_add_epi32(n, bias))
            })
        }
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        // SAFETY: `self` proves the instructions.
        unsafe { sum_of_8(_mm256_add_ps(v[0], v[1])) }
    }

    #[inline(always)]
    fn sum8(self, v: [V; 8]) -> [f32; 8] {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let mut eight = [_mm256_setzero_ps(); 8];
            for (slot, v) in eight.iter_mut().zip(v) {
                *slot = _mm256_add_ps(v[0], v[1]);
            }
            sum8_of_8(eight)
        }
    }

    #[inline(always)]
    fn max_lane(self, v: V) -> f32 {
        // SAFETY: `self` proves the instructions.
        unsafe { max_of_8(_mm256_max_ps(v[0], v[1])) }
    }

    #[inline(always)]
    unsafe fn step<E: Elem, const M: usize, const N: usize>(
        self,
        acc: &mut [[V; N]; M],
        a: &[*const f32; M],
        w: &[*const E; N],
        off: usize,
    ) {
        for half in 0..2 {
            let off = off + 8 * half;
            // SAFETY: `self` proves the instructions, the caller vouches for 16 elements.
            unsafe {
                let mut av = [_mm256_setzero_ps(); M];
                for i in 0..M {
                    av[i] = _mm256_loadu_ps(a[i].add(off));
                }
                for j in 0..N {
                    let wv = load8(w[j].add(off));
                    for i in 0..M {
                        acc[i][j][half] = _mm256_fmadd_ps(av[i], wv, acc[i][j][half]);
                    }
                }
            }
        }
    }

    type R = __m256;
    const WIDTH: usize = 8;

    #[inline(always)]
    fn splat_r(self, x: f32) -> __m256 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load_r<E: Elem>(self, p: *const E) -> __m256 {
        // SAFETY: `self` proves the instructions, the caller vouches for 8 elements.
        unsafe { load8(p) }
    }

    #[inline(always)]
    unsafe fn store_r(self, p: *mut f32, v: __m256) {
        // SAFETY: `self` proves the instructions, the caller vouches for 8 elements.
        unsafe { _mm256_storeu_ps(p, v) }
    }

    #[inline(always)]
    fn fma_r(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` proves the instructions.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
}
