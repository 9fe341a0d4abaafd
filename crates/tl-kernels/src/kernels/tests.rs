use super::*;
use crate::{f16_to_f32, f32_to_f16};

pub(crate) fn all_kernels() -> Vec<Kernels> {
    Isa::available().into_iter().filter_map(Kernels::new).collect()
}

/// A fixed stream of numbers in -1..1, among them exact zeros and small ones.
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn f32(&mut self) -> f32 {
        let bits = self.bits();
        let x = (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
        match bits & 63 {
            0 => 0.0,
            1 => x * 1e-6,
            _ => x,
        }
    }

    pub(crate) fn f32s(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.f32()).collect()
    }

    pub(crate) fn f16s(&mut self, n: usize) -> Vec<u16> {
        (0..n).map(|_| f32_to_f16(self.f32())).collect()
    }
}

pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// Runs `f` on every instruction set and demands the portable bits of all.
pub(crate) fn same_bits(what: &str, mut f: impl FnMut(Kernels) -> Vec<f32>) -> Vec<f32> {
    let mut all = all_kernels().into_iter();
    let reference = f(all.next().expect("portable kernels are always there"));
    for kernels in all {
        assert_eq!(bits(&f(kernels)), bits(&reference), "{what} on {}", kernels.isa());
    }
    reference
}

const LENGTHS: [usize; 12] = [1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 65, 576];

#[test]
fn names_and_detection() {
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
        assert_eq!(Isa::from_name(isa.name()), Some(isa));
        assert_eq!(Kernels::new(isa).map(|k| k.isa()), isa.is_available().then_some(isa));
    }
    assert_eq!(Isa::from_name("sse9"), None);
}

/// Written out without any shared code: the order that the crate promises.
fn dot_as_promised(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for start in (0..a.len()).step_by(16) {
        for (l, lane) in lanes.iter_mut().enumerate() {
            let at = |x: &[f32]| x.get(start + l).copied().unwrap_or(0.0);
            *lane = at(a).mul_add(at(b), *lane);
        }
    }
    for half in [8, 4, 2, 1] {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
    }
    lanes[0]
}

#[test]
fn dot_has_the_promised_order() {
    let mut stream = Stream::new(1);
    for n in (0..200).chain([576, 1536, 4099]) {
        let (a, b) = (stream.f32s(n), stream.f32s(n));
        let got = same_bits("dot", |k| vec![k.dot(&a, &b)])[0];
        assert_eq!(got.to_bits(), dot_as_promised(&a, &b).to_bits(), "n = {n}");
    }
}

#[test]
fn exp_is_within_one_ulp() {
    let ulps = |got: f32, want: f64| {
        let spacing =
            f64::from(f32::from_bits((want as f32).to_bits() + 1)) - f64::from(want as f32);
        (f64::from(got) - want).abs() / spacing
    };
    let mut worst = (0.0, 0.0);
    let xs: Vec<f32> = (0..1_800_000).map(|i| -86.0 + i as f32 * 9.7e-5).collect();
    let mut ys = xs.clone();
    Kernels::detect().exp(&mut ys);
    for (&x, &y) in xs.iter().zip(&ys) {
        let error = ulps(y, f64::from(x).exp());
        if error > worst.0 {
            worst = (error, x);
        }
    }
    assert!(worst.0 <= 1.0, "{} ulp at {}", worst.0, worst.1);
    assert!(*xs.last().expect("not empty") > 88.5, "the range reaches the top");
}

#[test]
fn exp_at_its_edges() {
    let cases = [
        (0.0, 1.0),
        (-0.0, 1.0),
        (f32::NEG_INFINITY, 0.0),
        (f32::INFINITY, f32::INFINITY),
        (89.0, f32::INFINITY),
        (1e30, f32::INFINITY),
        (-86.001, 0.0),
        (-1e30, 0.0),
        (f32::MIN_POSITIVE / 4.0, 1.0),
    ];
    for (x, want) in cases {
        let got = same_bits("exp", |k| {
            let mut y = vec![x];
            k.exp(&mut y);
            y
        });
        assert_eq!(got[0].to_bits(), f32::to_bits(want), "exp({x})");
    }
    let near_top = same_bits("exp", |k| {
        let mut y = vec![88.722, f32::NAN, -86.0];
        k.exp(&mut y);
        y
    });
    assert!(near_top[0].is_finite() && near_top[0] > 3.3e38);
    assert!(near_top[1].is_nan());
    assert!(near_top[2] >= f32::MIN_POSITIVE);
}

#[test]
fn exp_has_equal_bits() {
    let mut stream = Stream::new(2);
    let xs: Vec<f32> = (0..100_003)
        .map(
            |i| if i % 3 == 0 { f32::from_bits(stream.bits() as u32) } else { stream.f32() * 90.0 },
        )
        .collect();
    same_bits("exp", |k| {
        let mut y = xs.clone();
        k.exp(&mut y);
        y
    });
}

#[test]
fn rmsnorm_is_right_and_equal() {
    let mut stream = Stream::new(3);
    for n in LENGTHS {
        let (x, w) = (stream.f32s(n), stream.f32s(n));
        let got = same_bits("rmsnorm", |k| {
            let mut out = vec![0.0; n];
            k.rmsnorm(&mut out, &x, &w, 1e-5);
            out
        });
        let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n as f64;
        for i in 0..n {
            let want = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(w[i]);
            assert!((f64::from(got[i]) - want).abs() <= 1e-6 * want.abs().max(1e-3), "{n} at {i}");
        }
    }
}

#[test]
fn silu_mul_is_right_and_equal() {
    let mut stream = Stream::new(4);
    for n in LENGTHS {
        let gate: Vec<f32> = stream.f32s(n).iter().map(|x| x * 20.0).collect();
        let up = stream.f32s(n);
        let got = same_bits("silu_mul", |k| {
            let mut out = vec![0.0; n];
            k.silu_mul(&gate, &up, &mut out);
            out
        });
        for i in 0..n {
            let g = f64::from(gate[i]);
            let want = g / (1.0 + (-g).exp()) * f64::from(up[i]);
            assert!((f64::from(got[i]) - want).abs() <= 1e-6 * want.abs() + 1e-30, "{n} at {i}");
        }
    }
    let extremes = [f32::INFINITY, 200.0, -100.0, -1e30, 0.0];
    let got = same_bits("silu_mul", |k| {
        let mut out = vec![0.0; 5];
        k.silu_mul(&extremes, &[1.0; 5], &mut out);
        out
    });
    assert_eq!(bits(&got), bits(&[f32::INFINITY, 200.0, -0.0, -0.0, 0.0]));
}

#[test]
fn softmax_and_max() {
    let mut stream = Stream::new(5);
    for n in LENGTHS {
        let x: Vec<f32> = stream.f32s(n).iter().map(|x| x * 30.0).collect();
        let got = same_bits("softmax", |k| {
            let mut y = x.clone();
            k.softmax(&mut y);
            y
        });
        let max = same_bits("max", |k| vec![k.max(&x)])[0];
        assert_eq!(max, x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = x.iter().map(|&x| f64::from(x - max).exp()).sum();
        for i in 0..n {
            let want = f64::from(x[i] - max).exp() / sum;
            assert!((f64::from(got[i]) - want).abs() <= 1e-6 * want + 1e-37, "{n} at {i}");
        }
    }
    assert_eq!(Kernels::detect().max(&[]), f32::NEG_INFINITY);
}

#[test]
fn add_assign_adds() {
    let mut x = vec![1.0, 2.5, -3.0];
    Kernels::detect().add_assign(&mut x, &[0.5, 0.5, 3.0]);
    assert_eq!(x, [1.5, 3.0, 0.0]);
}

#[test]
fn ropes_rotate_their_pairs() {
    let (dim, heads) = (8, 3);
    let mut stream = Stream::new(6);
    let x = stream.f32s(heads * dim);
    let angles: Vec<f64> = (0..dim / 2).map(|i| 0.3 * (i + 1) as f64).collect();
    let cos: Vec<f32> = angles.iter().map(|a| a.cos() as f32).collect();
    let sin: Vec<f32> = angles.iter().map(|a| a.sin() as f32).collect();
    let check = |got: &[f32], pair: &dyn Fn(usize) -> (usize, usize)| {
        for head in 0..heads {
            for (i, angle) in angles.iter().enumerate() {
                let (a, b) = pair(i);
                let (a, b) = (head * dim + a, head * dim + b);
                let (x0, x1) = (f64::from(x[a]), f64::from(x[b]));
                assert!((f64::from(got[a]) - (x0 * angle.cos() - x1 * angle.sin())).abs() < 1e-6);
                assert!((f64::from(got[b]) - (x0 * angle.sin() + x1 * angle.cos())).abs() < 1e-6);
            }
        }
    };
    let interleaved = same_bits("rope", |k| {
        let mut y = x.clone();
        k.rope_interleaved(&mut y, &cos, &sin);
        y
    });
    check(&interleaved, &|i| (2 * i, 2 * i + 1));
    let half = same_bits("rope", |k| {
        let mut y = x.clone();
        k.rope_half(&mut y, &cos, &sin);
        y
    });
    check(&half, &|i| (i, i + dim / 2));
}

/// From the definition of the format, in f64.
fn half_by_definition(h: u16) -> f64 {
    let sign = if h & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(h >> 10 & 31), f64::from(h & 1023));
    sign * match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
    }
}

#[test]
fn every_half_widens_to_its_value() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for kernels in all_kernels() {
        let mut wide = vec![0.0; all.len()];
        kernels.f16_to_f32(&all, &mut wide);
        let mut back = vec![0; all.len()];
        kernels.f32_to_f16(&wide, &mut back);
        for (i, &h) in all.iter().enumerate() {
            assert_eq!(wide[i].to_bits(), f16_to_f32(h).to_bits(), "{h:#x} on {}", kernels.isa());
            let want = half_by_definition(h);
            assert!(f64::from(wide[i]) == want || wide[i].is_nan() && want.is_nan(), "{h:#x}");
            assert_eq!(wide[i].is_sign_negative(), h & 0x8000 != 0);
            let quiet = if want.is_nan() { h | 0x0200 } else { h };
            assert_eq!(back[i], quiet, "{h:#x} there and back on {}", kernels.isa());
        }
    }
}

/// The two halves around `x` by the definition; ties go to the even one.
fn nearest_half(x: f32) -> u16 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let x = f64::from(x.abs());
    let (mut low, mut high) = (0u16, 0x7c00u16);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if half_by_definition(middle) <= x { low = middle } else { high = middle }
    }
    let above = if high == 0x7c00 { 65536.0 } else { half_by_definition(high) };
    let (down, up) = (x - half_by_definition(low), above - x);
    let to_high = up < down || up == down && high & 1 == 0;
    sign | if to_high { high } else { low }
}

#[test]
fn singles_round_to_the_nearest_half() {
    let mut stream = Stream::new(7);
    let mut xs: Vec<f32> = Vec::new();
    for h in 0..0x7c00u16 {
        // Both sides of each tie, and the tie.
        let middle = (half_by_definition(h) + half_by_definition(h + 1).min(65536.0)) / 2.0;
        let middle = middle as f32;
        xs.extend([
            middle,
            f32::from_bits(middle.to_bits() - 1),
            f32::from_bits(middle.to_bits() + 1),
        ]);
    }
    for _ in 0..200_000 {
        xs.push(f32::from_bits(stream.bits() as u32));
        xs.push(stream.f32() * 1e-5);
    }
    xs.extend([
        0.0,
        -0.0,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        65519.996,
        65520.0,
    ]);
    xs.extend([f32::MIN_POSITIVE, f32::from_bits(1), 2.9802322e-8, 2.980233e-8]);
    for &x in xs.iter().filter(|x| !x.is_nan()) {
        let want = if x.is_infinite() {
            0x7c00 | (x.to_bits() >> 16) as u16 & 0x8000
        } else {
            nearest_half(x)
        };
        assert_eq!(f32_to_f16(x), want, "{x:e}");
    }
    xs.extend([f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)]);
    for kernels in all_kernels() {
        let mut out = vec![0; xs.len()];
        kernels.f32_to_f16(&xs, &mut out);
        for (&x, &h) in xs.iter().zip(&out) {
            assert_eq!(h, f32_to_f16(x), "{:#x} on {}", x.to_bits(), kernels.isa());
        }
    }
}
