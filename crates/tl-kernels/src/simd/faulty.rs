//! Portable code with one primitive wrong: what the guard must notice.

use super::portable::Portable;
use super::{Elem, LANES, Simd};
use crate::isa::Isa;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Faulty {
    pub(crate) flaw: Flaw,
    /// What it passes itself off as.
    pub(crate) isa: Isa,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    UnfusedMultiplyAdd,
    UnfusedRegister,
    UnfusedStep,
    OtherTree,
    OtherTreeOfEight,
    TruncatedHalf,
    HalfFlushesSubnormals,
    SwappedNibbles,
    UnsignedBytes,
    SwappedScales,
    ScaleOfNeighbour,
    MaxTakesFirstOfNan,
    MinTakesFirstOfNan,
    MaxLaneMissesOne,
    LessOrEqual,
    PowerOffByOne,
    ApproximateDivision,
    LastLaneLost,
    RegisterShifted,
}

pub(crate) const FLAWS: [Flaw; 19] = [
    Flaw::UnfusedMultiplyAdd,
    Flaw::UnfusedRegister,
    Flaw::UnfusedStep,
    Flaw::OtherTree,
    Flaw::OtherTreeOfEight,
    Flaw::TruncatedHalf,
    Flaw::HalfFlushesSubnormals,
    Flaw::SwappedNibbles,
    Flaw::UnsignedBytes,
    Flaw::SwappedScales,
    Flaw::ScaleOfNeighbour,
    Flaw::MaxTakesFirstOfNan,
    Flaw::MinTakesFirstOfNan,
    Flaw::MaxLaneMissesOne,
    Flaw::LessOrEqual,
    Flaw::PowerOffByOne,
    Flaw::ApproximateDivision,
    Flaw::LastLaneLost,
    Flaw::RegisterShifted,
];

type V = [f32; LANES];

fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    std::array::from_fn(|l| f(a[l], b[l]))
}

/// Pairs of neighbours, then pairs of pairs.
fn other_tree(v: V) -> f32 {
    let mut sums = v.to_vec();
    while sums.len() > 1 {
        sums = sums.chunks(2).map(|c| c[0] + c[1]).collect();
    }
    sums[0]
}

impl Faulty {
    fn is(self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }
}

impl Simd for Faulty {
    type V = V;
    const MR: usize = 4;

    fn splat(self, x: f32) -> V {
        Portable.splat(x)
    }

    unsafe fn load<E: Elem>(self, p: *const E) -> V {
        // SAFETY: the caller's contract.
        let mut v = unsafe { Portable.load(p) };
        if E::F16 && self.is(Flaw::HalfFlushesSubnormals) {
            v = v.map(|x| if x.abs() < 6.2e-5 { 0.0 } else { x });
        }
        v
    }

    unsafe fn store(self, p: *mut f32, mut v: V) {
        if self.is(Flaw::LastLaneLost) {
            v[LANES - 1] = 0.0;
        }
        // SAFETY: the caller's contract.
        unsafe { Portable.store(p, v) }
    }

    unsafe fn store_planes(self, p: *mut f32, _plane: usize, v: V) {
        // SAFETY: one register holds all lanes.
        unsafe { self.store(p, v) }
    }

    unsafe fn store_f16(self, p: *mut u16, v: V) {
        let v = if self.is(Flaw::TruncatedHalf) {
            v.map(|x| f32::from_bits(x.to_bits() & !0x1fff))
        } else {
            v
        };
        // SAFETY: the caller's contract.
        unsafe { Portable.store_f16(p, v) }
    }

    unsafe fn splat_f16(self, p: *const u8) -> V {
        // SAFETY: the caller's contract; a block goes on behind its scale.
        unsafe { Portable.splat_f16(if self.is(Flaw::ScaleOfNeighbour) { p.add(2) } else { p }) }
    }

    unsafe fn splat_f16_pair(self, p: *const u8) -> [V; 2] {
        // SAFETY: the caller's contract.
        let [d, m] = unsafe { Portable.splat_f16_pair(p) };
        if self.is(Flaw::SwappedScales) { [m, d] } else { [d, m] }
    }

    unsafe fn load_i8(self, p: *const u8) -> V {
        // SAFETY: the caller's contract.
        let v = unsafe { Portable.load_i8(p) };
        if self.is(Flaw::UnsignedBytes) { v.map(|x| x.rem_euclid(256.0)) } else { v }
    }

    unsafe fn load_nibbles(self, p: *const u8) -> [V; 2] {
        // SAFETY: the caller's contract.
        let [low, high] = unsafe { Portable.load_nibbles(p) };
        if self.is(Flaw::SwappedNibbles) { [high, low] } else { [low, high] }
    }

    fn add(self, a: V, b: V) -> V {
        Portable.add(a, b)
    }

    fn sub(self, a: V, b: V) -> V {
        Portable.sub(a, b)
    }

    fn mul(self, a: V, b: V) -> V {
        Portable.mul(a, b)
    }

    fn div(self, a: V, b: V) -> V {
        if self.is(Flaw::ApproximateDivision) {
            return zip(a, b, |x, y| x * (1.0 / y));
        }
        Portable.div(a, b)
    }

    fn fma(self, a: V, b: V, c: V) -> V {
        if self.is(Flaw::UnfusedMultiplyAdd) {
            return self.add(self.mul(a, b), c);
        }
        Portable.fma(a, b, c)
    }

    fn max(self, a: V, b: V) -> V {
        if self.is(Flaw::MaxTakesFirstOfNan) {
            return zip(a, b, |x, y| if y > x { y } else { x });
        }
        Portable.max(a, b)
    }

    fn min(self, a: V, b: V) -> V {
        if self.is(Flaw::MinTakesFirstOfNan) {
            return zip(a, b, |x, y| if y < x { y } else { x });
        }
        Portable.min(a, b)
    }

    fn zero_if_less(self, a: V, b: V, x: V) -> V {
        if self.is(Flaw::LessOrEqual) {
            return std::array::from_fn(|l| if a[l] <= b[l] { 0.0 } else { x[l] });
        }
        Portable.zero_if_less(a, b, x)
    }

    fn pow2_of_shifted(self, t: V) -> V {
        let v = Portable.pow2_of_shifted(t);
        if self.is(Flaw::PowerOffByOne) { v.map(|x| 2.0 * x) } else { v }
    }

    fn sum(self, v: V) -> f32 {
        if self.is(Flaw::OtherTree) { other_tree(v) } else { Portable.sum(v) }
    }

    fn sum8(self, v: [V; 8]) -> [f32; 8] {
        if self.is(Flaw::OtherTreeOfEight) { v.map(other_tree) } else { Portable.sum8(v) }
    }

    fn max_lane(self, mut v: V) -> f32 {
        if self.is(Flaw::MaxLaneMissesOne) {
            v[LANES - 2] = v[0];
        }
        Portable.max_lane(v)
    }

    unsafe fn step<E: Elem, const M: usize, const N: usize>(
        self,
        acc: &mut [[V; N]; M],
        a: &[*const f32; M],
        w: &[*const E; N],
        off: usize,
    ) {
        for i in 0..M {
            for j in 0..N {
                // SAFETY: the caller vouches for 16 elements from `off`.
                let (av, wv) = unsafe { (self.load(a[i].add(off)), self.load(w[j].add(off))) };
                acc[i][j] = if self.is(Flaw::UnfusedStep) {
                    self.add(self.mul(av, wv), acc[i][j])
                } else {
                    self.fma(av, wv, acc[i][j])
                };
            }
        }
    }

    type R = V;
    const WIDTH: usize = LANES;

    fn splat_r(self, x: f32) -> V {
        self.splat(x)
    }

    unsafe fn load_r<E: Elem>(self, p: *const E) -> V {
        // SAFETY: the caller vouches for 16 elements.
        let mut v = unsafe { self.load(p) };
        if self.is(Flaw::RegisterShifted) {
            v.rotate_left(1);
        }
        v
    }

    unsafe fn store_r(self, p: *mut f32, v: V) {
        // SAFETY: the caller vouches for 16 elements.
        unsafe { self.store(p, v) }
    }

    fn fma_r(self, a: V, b: V, c: V) -> V {
        if self.is(Flaw::UnfusedRegister) {
            return self.add(self.mul(a, b), c);
        }
        self.fma(a, b, c)
    }
}
