//! Half precision by integer code, equal to the F16C instructions bit for bit.
//!
//! The instructions are what the vector kernels use; this is what every other
//! target gets and what the tests hold the instructions against.

/// The value of an IEEE half. Exact; a signalling NaN becomes quiet, its payload stays.
#[inline]
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let exponent = u32::from(h >> 10) & 0x1f;
    let mantissa = u32::from(h & 0x03ff);
    let magnitude = match (exponent, mantissa) {
        (0, _) => {
            // A subnormal is mantissa * 2^-24, exactly representable as f32.
            (mantissa as f32 * f32::from_bits(0x3380_0000)).to_bits()
        }
        (0x1f, 0) => 0x7f80_0000,
        (0x1f, _) => 0x7fc0_0000 | mantissa << 13,
        _ => (exponent + 112) << 23 | mantissa << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// The nearest half, ties to even.
///
/// From 65520 in magnitude on the result is infinite, as IEEE 754 says: an
/// overflow stays visible instead of becoming a plausible 65504. Below
/// 2^-24 / 2 it is zero; subnormal halves are produced. A NaN stays a NaN
/// (quiet, the upper ten payload bits kept).
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00 | (magnitude >> 13) as u16 & 0x03ff;
    }
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Below 2^-14: adding 0.5 lines the mantissa up in units of 2^-24, and the
        // addition itself rounds to nearest even.
        let aligned = f32::from_bits(magnitude) + 0.5;
        return sign | (aligned.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let odd = magnitude >> 13 & 1;
    let rounded = magnitude - (112 << 23) + 0x0fff + odd;
    sign | (rounded >> 13) as u16
}
