//! `exp` and `ln` with the same bits on every machine.
//!
//! The platform's functions differ between C libraries, and in one C library between
//! processors with and without fused multiply-add; one last bit can move a cumulative
//! sum past the uniform drawn and with it a token. The functions here use additions
//! and multiplications only, in one order, and carry enough extra bits that the result
//! is the correctly rounded one for all but about one argument in 2^16 (`ln` within a
//! tenth of 1: in 2^9). The golden vectors are correctly rounded.

/// Arguments are reduced to multiples of `ln 2 / N`.
const N: usize = 128;
const BITS: u32 = N.trailing_zeros();
const LN_2: (f64, f64) = (std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);
const INVERSE_STEP: f64 = N as f64 / std::f64::consts::LN_2;
/// `ln 2 / N` in two parts; a product of the first with any step number is exact.
const STEP_HIGH: f64 = f64::from_bits(LN_2.0.to_bits() & !0x1F_FFFF) / N as f64;
const STEP_LOW: f64 = (LN_2.0 - STEP_HIGH * N as f64 + LN_2.1) / N as f64;
/// Below it a result can be subnormal.
const LOWEST: f64 = -708.0;
/// Adding and subtracting it rounds to an integer.
const TO_INTEGER: f64 = 6_755_399_441_055_744.0;
/// Adding and subtracting it rounds to a multiple of 2^-40.
const TO_2_40: f64 = 6144.0;
/// 2^(i/N): 21 leading bits, whose product with a multiple of 2^-40 below 2^-8 is
/// exact, and the rest.
static POWERS: [(f64, f64); N] = powers();

/// Fills `out` with `exp(argument(v))` of each value and gives their sum from left to
/// right. No argument is above 0.
pub(super) fn exp_sum(values: &[f64], argument: impl Fn(f64) -> f64, out: &mut Vec<f64>) -> f64 {
    out.clear();
    out.reserve(values.len());
    let mut total = 0.0;
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        let x = chunk.map(&argument);
        let ordinary = x.iter().fold(true, |all, &x| all & (x >= LOWEST));
        let y = if ordinary { exp_lanes(x) } else { x.map(exp) };
        // The chain of additions runs while the next chunk is computed.
        total = y.iter().fold(total, |sum, y| sum + y);
        out.extend_from_slice(&y);
    }
    for &value in rest {
        let y = exp(argument(value));
        total += y;
        out.push(y);
    }
    total
}

/// e^x for `x <= 0`, minus infinity included.
pub(super) fn exp(x: f64) -> f64 {
    if x < LOWEST { exp_tiny(x) } else { exp_lanes([x])[0] }
}

/// e^x of several numbers from [`LOWEST`] to 0.
#[inline(always)]
fn exp_lanes<const W: usize>(x: [f64; W]) -> [f64; W] {
    let (high, low, exponent) = exp_parts(x);
    let mut out = [0.0; W];
    for i in 0..W {
        let bits = (high[i] + low[i]).to_bits();
        out[i] = f64::from_bits(bits.wrapping_add((exponent[i] as u64) << 52));
    }
    out
}

/// As [`exp`], where the result can be subnormal or zero.
#[cold]
fn exp_tiny(x: f64) -> f64 {
    // Half of the smallest positive number.
    if x < -745.133_219_101_941_2 {
        return 0.0;
    }
    let ([high], [low], [exponent]) = exp_parts([x]);
    let sum = high + low;
    let scale = power_of_two(exponent + 1022);
    let (y, rest) = (sum * scale, ((high - sum) + low) * scale);
    if y >= 1.0 {
        return y * power_of_two(-1022);
    }
    // Below 2^-1022 numbers are spaced evenly, as from 1 to 2: round there, once.
    let above = 1.0 + y;
    let lost = (1.0 - above + y) + rest;
    ((above + lost) - 1.0) * power_of_two(-1022)
}

/// Each e^x as `(high + low) * 2^exponent`, with an error of about 2^-69.
///
/// One loop per step over a few lanes, which the compiler turns into vectors of
/// whatever width there is; the lanes do not meet, so that the width changes no bit.
#[inline(always)]
fn exp_parts<const W: usize>(x: [f64; W]) -> ([f64; W], [f64; W], [i64; W]) {
    let (mut k, mut exponent) = ([0.0; W], [0; W]);
    let (mut power_high, mut power_low) = ([0.0; W], [0.0; W]);
    for i in 0..W {
        let shifted = x[i] * INVERSE_STEP + TO_INTEGER;
        k[i] = shifted - TO_INTEGER;
        exponent[i] = i64::from(shifted.to_bits() as i32);
    }
    for i in 0..W {
        (power_high[i], power_low[i]) = POWERS[exponent[i] as usize % N];
        exponent[i] >>= BITS;
    }
    let (mut high, mut low) = ([0.0; W], [0.0; W]);
    for i in 0..W {
        // r = x - k ln2/N, rounded to a multiple of 2^-40 and the rest.
        let exact = x[i] - k[i] * STEP_HIGH;
        let r_high = (exact + TO_2_40) - TO_2_40;
        let r_low = (exact - r_high) - k[i] * STEP_LOW;
        let r = r_high + r_low;
        let series = 1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0)));
        let rest = r_low + r * r * (0.5 + r * series);

        // power * (1 + r_high + rest)
        let product = power_high[i] * r_high;
        high[i] = power_high[i] + product;
        let lost = product - (high[i] - power_high[i]);
        let others = power_low[i] * r_high + (power_high[i] + power_low[i]) * rest;
        low[i] = lost + (power_low[i] + others);
    }
    (high, low, exponent)
}

/// ln z for z from 1 to 2^32: a sum of weights of which one is 1.
pub(super) fn ln(z: f64) -> f64 {
    let f = z - 1.0;
    if f < 1e-6 {
        return f - f * f * (0.5 - f * (1.0 / 3.0 - f * 0.25));
    }
    // One Newton step with e^-y to more digits than y has: ln z = y + ln(z e^-y).
    let y = libm::log(z);
    let ([high], [low], [exponent]) = exp_parts([-y]);
    let scale = power_of_two(exponent);
    let product = z * (high * scale);
    let lost = libm::fma(z, high * scale, -product);
    y + ((product - 1.0) + (lost + z * (low * scale)))
}

/// 2^n for n from -1022 to 1023.
fn power_of_two(n: i64) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The table, computed by the compiler with twice the digits.
const fn powers() -> [(f64, f64); N] {
    let ratio = exp_series((LN_2.0 / N as f64, LN_2.1 / N as f64));
    let mut out = [(0.0, 0.0); N];
    let mut power = (1.0_f64, 0.0_f64);
    let mut i = 0;
    while i < N {
        let high = f64::from_bits(power.0.to_bits() & !0xFFFF_FFFF);
        out[i] = (high, (power.0 - high) + power.1);
        power = times(power, ratio);
        i += 1;
    }
    out
}

/// e^x of a small number of two parts.
const fn exp_series(x: (f64, f64)) -> (f64, f64) {
    // 1 + x (1 + x/2 (1 + x/3 (...)))
    let mut n = 16;
    let mut sum = (1.0, 0.0);
    while n > 0 {
        let term = divided(times(x, sum), n as f64);
        sum = plus((1.0, 0.0), term);
        n -= 1;
    }
    sum
}

/// The sum of two numbers and its rounding error; `|a| >= |b|`.
const fn sum_of(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    (s, b - (s - a))
}

/// The product of two numbers and its rounding error.
const fn product_of(a: f64, b: f64) -> (f64, f64) {
    let (a_high, a_low) = halves(a);
    let (b_high, b_low) = halves(b);
    let p = a * b;
    (p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low)
}

/// A number as the sum of two with half its digits each.
const fn halves(a: f64) -> (f64, f64) {
    let high = f64::from_bits(a.to_bits() & !0x7FF_FFFF);
    (high, a - high)
}

const fn plus(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let (s, e) = sum_of(a.0, b.0);
    sum_of(s, e + a.1 + b.1)
}

const fn times(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let (p, e) = product_of(a.0, b.0);
    sum_of(p, e + a.0 * b.1 + a.1 * b.0)
}

const fn divided(a: (f64, f64), n: f64) -> (f64, f64) {
    let q = a.0 / n;
    let (p, e) = product_of(q, n);
    sum_of(q, ((a.0 - p) - e + a.1) / n)
}
