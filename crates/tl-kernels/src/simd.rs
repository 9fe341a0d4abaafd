//! The vocabulary in which every kernel is written once: sixteen f32 lanes.
//!
//! A kernel generic over [`Simd`] performs the same IEEE operations in the same
//! order on every instruction set, so equal bits follow from equal primitives
//! instead of from three hand-kept copies. AVX-512 holds the lanes in one
//! register, AVX2 in two, portable code in an array. The only freedom left to an
//! implementation is how many independent sums it keeps in registers
//! ([`Simd::step`], [`Simd::R`] and the tile sizes), which no sum can see.
//!
//! An implementor is a token: holding a value proves that the CPU has the
//! instructions, which is what makes the arithmetic methods safe to call. All
//! methods are `#[inline(always)]` and must end up inside a function that enables
//! the target features (see `dispatch.rs`), otherwise they are correct but slow.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(test)]
pub(crate) mod faulty;
pub(crate) mod portable;

/// Lanes of one vector; also the stride of the partial sums of a dot product.
pub(crate) const LANES: usize = 16;

/// What a weight or a cached key is stored as: `u16` holds IEEE half bits.
pub(crate) trait Elem: bytemuck::Pod + Send + Sync + Default {
    const F16: bool;
}

impl Elem for u16 {
    const F16: bool = true;
}

impl Elem for f32 {
    const F16: bool = false;
}

pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen f32 lanes.
    type V: Copy;

    /// Rows of the largest register tile that does not spill.
    const MR: usize;

    fn splat(self, x: f32) -> Self::V;

    /// # Safety
    /// `p` is readable for 16 elements; no alignment is needed.
    unsafe fn load<E: Elem>(self, p: *const E) -> Self::V;

    /// # Safety
    /// `p` is writable for 16 elements; no alignment is needed.
    unsafe fn store(self, p: *mut f32, v: Self::V);

    /// Stores lanes register by register, `plane` elements apart: [`Simd::WIDTH`] lanes at `p`, the
    /// next at `p + plane`.
    ///
    /// # Safety
    /// Each place is writable; no alignment is needed.
    unsafe fn store_planes(self, p: *mut f32, plane: usize, v: Self::V);

    /// Rounds to nearest even, overflow to infinity, NaN to a quiet NaN.
    ///
    /// # Safety
    /// `p` is writable for 16 elements; no alignment is needed.
    unsafe fn store_f16(self, p: *mut u16, v: Self::V);

    /// The half at `p` in every lane.
    ///
    /// # Safety
    /// `p` is readable for 2 bytes.
    unsafe fn splat_f16(self, p: *const u8) -> Self::V;

    /// The halves at `p` and behind it, each in every lane.
    ///
    /// # Safety
    /// `p` is readable for 4 bytes.
    unsafe fn splat_f16_pair(self, p: *const u8) -> [Self::V; 2];

    /// Sixteen signed bytes.
    ///
    /// # Safety
    /// `p` is readable for 16 bytes.
    unsafe fn load_i8(self, p: *const u8) -> Self::V;

    /// The low, then the high four bits of sixteen bytes, `0..=15`.
    ///
    /// # Safety
    /// `p` is readable for 16 bytes.
    unsafe fn load_nibbles(self, p: *const u8) -> [Self::V; 2];

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a > b ? a : b`, so the second operand when either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? a : b`, so the second operand when either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? 0 : x`.
    fn zero_if_less(self, a: Self::V, b: Self::V, x: Self::V) -> Self::V;
    /// Takes `n + 1.5 * 2^23` for whole `n` in `-126..=127` and makes `2^n`.
    fn pow2_of_shifted(self, t: Self::V) -> Self::V;

    /// The reduction tree: lane `l` takes lane `l + 8`, then `l + 4`, `l + 2`, `l + 1`.
    fn sum(self, v: Self::V) -> f32;
    /// Eight reductions at once, each by the tree of [`Simd::sum`].
    fn sum8(self, v: [Self::V; 8]) -> [f32; 8];
    /// The largest lane by the tree of [`Simd::sum`] with [`Simd::max`].
    fn max_lane(self, v: Self::V) -> f32;

    /// One step of a dot-product tile: `acc[i][j] += a[i][off..] * w[j][off..]` over 16 lanes.
    ///
    /// # Safety
    /// Every pointer of `a` and `w` is readable for 16 elements from `off`.
    unsafe fn step<E: Elem, const M: usize, const N: usize>(
        self,
        acc: &mut [[Self::V; N]; M],
        a: &[*const f32; M],
        w: &[*const E; N],
        off: usize,
    );

    /// What one register holds, for sums in which lanes do not matter.
    type R: Copy;
    /// Lanes of [`Simd::R`].
    const WIDTH: usize;

    fn splat_r(self, x: f32) -> Self::R;

    /// # Safety
    /// `p` is readable for `WIDTH` elements.
    unsafe fn load_r<E: Elem>(self, p: *const E) -> Self::R;

    /// # Safety
    /// `p` is writable for `WIDTH` elements.
    unsafe fn store_r(self, p: *mut f32, v: Self::R);

    /// `a * b + c`, rounded once.
    fn fma_r(self, a: Self::R, b: Self::R, c: Self::R) -> Self::R;
}

/// Asks for the cache line at `p`; any address is allowed.
#[inline(always)]
pub(crate) fn prefetch<T>(p: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, and every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// `2^23 * 1.5`: added to a small float, its low mantissa bits are the float rounded to a whole
/// number (to nearest even), on every instruction set.
pub(crate) const SHIFT: f32 = 12_582_912.0;
