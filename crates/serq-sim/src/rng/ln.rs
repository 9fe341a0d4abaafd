//! The logarithm of a number that a uniform one left of 1.
//!
//! Half of what an exponential costs is a logarithm that looks for numbers it is never given. This one is for those
//! in (0, 1] that are no subnormals, has no branch, and gives the very bits of `libm::log`, which a test compares.
//!
//! As there: `x = 2^k (1 + f)` with `1 + f` between `sqrt(2)/2` and `sqrt(2)`, `s = f / (2 + f)`, and
//! `ln(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2))`, where `R` is a minimax polynomial (Sun's fdlibm, 1993). The sum is
//! formed in this order and no other.

/// High word of `sqrt(2)/2`.
const HALF_ROOT: u32 = 0x3fe6_a09e;
const ONE: u32 = 0x3ff0_0000;
const LN2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
/// `R(z) = z (R1 + z (R2 + ...))`.
const R: [f64; 7] = [
    f64::from_bits(0x3fe5_5555_5555_5593),
    f64::from_bits(0x3fd9_9999_9997_fa04),
    f64::from_bits(0x3fd2_4924_9422_9359),
    f64::from_bits(0x3fcc_71c5_1d8e_78af),
    f64::from_bits(0x3fc7_4664_96cb_03de),
    f64::from_bits(0x3fc3_9a09_d078_c69f),
    f64::from_bits(0x3fc2_f112_df3e_5244),
];

#[inline]
pub(super) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let high = (bits >> 32) as u32 + (ONE - HALF_ROOT);
    let k = f64::from((high >> 20) as i32 - 0x3ff);
    let mantissa = u64::from((high & 0x000f_ffff) + HALF_ROOT);
    let f = f64::from_bits(mantissa << 32 | bits & 0xffff_ffff) - 1.0;
    let half = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let even = w * (R[1] + w * (R[3] + w * R[5]));
    let odd = z * (R[0] + w * (R[2] + w * (R[4] + w * R[6])));
    s * (half + (odd + even)) + k * LN2_LOW - half + f + k * LN2_HIGH
}

#[cfg(test)]
mod tests {
    use super::ln;
    use crate::rng::{Purpose, Rng};

    #[test]
    fn its_bits_are_libms() {
        let check = |x: f64| assert_eq!(ln(x).to_bits(), libm::log(x).to_bits(), "{x}");
        let unit = 1.0 / (1u64 << 53) as f64;
        [1.0, 1.0 - unit, 0.5, unit, std::f64::consts::FRAC_1_SQRT_2].into_iter().for_each(check);
        let mut rng = Rng::stream(1, Purpose::Stage, 0, 0);
        for n in 0..1_000_000 {
            let u = rng.uniform();
            check(1.0 - u);
            // Small ones are rare, and of every size.
            check((1.0 - u) * 0.5f64.powi(n % 53));
        }
    }
}
