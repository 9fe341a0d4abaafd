//! Stored elements to f32 or f16.
//!
//! A quantised block is expanded in f32 (`d * q + m` as one product and one sum, each rounded):
//! what the kernels make of it in registers. Rounding to f16 is to nearest even.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use crate::checkpoint::Dtype;

/// Elements expanded at a time on the way to f16: small enough to stay in the first-level cache.
const CHUNK: usize = 1024;

/// Expands `bytes` into `out`; `bytes` must hold exactly `out.len()` elements.
pub(crate) fn to_f32(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    debug_assert_eq!(bytes.len() * dtype.block_len(), out.len() * dtype.block_bytes());
    match dtype {
        Dtype::F32 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *o = f32::from_le_bytes(*b);
            }
        }
        Dtype::Bf16 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *o = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
            }
        }
        Dtype::F16 => {
            let mut bits = [0u16; CHUNK];
            for (out, bytes) in out.chunks_mut(CHUNK).zip(bytes.chunks(CHUNK * 2)) {
                let bits = &mut bits[..out.len()];
                copy_u16(bytes, bits);
                bits.reinterpret_cast::<half::f16>().convert_to_f32_slice(out);
            }
        }
        Dtype::Q4_0 => blocks::<18>(bytes, out, |block, out| {
            let d = f16_at(block, 0);
            nibbles(&block[2..], out, |q| d * (f32::from(q) - 8.0));
        }),
        Dtype::Q4_1 => blocks::<20>(bytes, out, |block, out| {
            let (d, m) = (f16_at(block, 0), f16_at(block, 2));
            nibbles(&block[4..], out, |q| f32::from(q) * d + m);
        }),
        Dtype::Q8_0 => blocks::<34>(bytes, out, |block, out| {
            let d = f16_at(block, 0);
            for (o, &q) in out.iter_mut().zip(&block[2..]) {
                *o = d * f32::from(q as i8);
            }
        }),
    }
}

/// Expands `bytes` into f16 bits, rounding to nearest even; an f16 tensor is copied.
pub(crate) fn to_f16(dtype: Dtype, bytes: &[u8], out: &mut [u16]) {
    if dtype == Dtype::F16 {
        copy_u16(bytes, out);
        return;
    }
    let mut chunk = [0f32; CHUNK];
    let chunk_bytes = CHUNK / dtype.block_len() * dtype.block_bytes();
    for (out, bytes) in out.chunks_mut(CHUNK).zip(bytes.chunks(chunk_bytes)) {
        let chunk = &mut chunk[..out.len()];
        to_f32(dtype, bytes, chunk);
        out.reinterpret_cast_mut::<half::f16>().convert_from_f32_slice(chunk);
    }
}

/// Whether every f16 is finite.
pub(crate) fn all_finite_f16(bits: &[u16]) -> bool {
    bits.chunks(4096).all(|c| c.iter().fold(true, |ok, b| ok & (b & 0x7c00 != 0x7c00)))
}

/// Whether every f32 is finite.
pub(crate) fn all_finite_f32(values: &[f32]) -> bool {
    values.chunks(4096).all(|c| c.iter().fold(true, |ok, v| ok & v.is_finite()))
}

fn copy_u16(bytes: &[u8], out: &mut [u16]) {
    for (o, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *o = u16::from_le_bytes(*b);
    }
}

fn f16_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn blocks<const N: usize>(bytes: &[u8], out: &mut [f32], f: impl Fn(&[u8; N], &mut [f32; 32])) {
    for (block, out) in bytes.as_chunks::<N>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        f(block, out);
    }
}

/// The low nibbles are elements 0..16, the high ones 16..32.
fn nibbles(bytes: &[u8], out: &mut [f32; 32], value: impl Fn(u8) -> f32) {
    let (low, high) = out.split_at_mut(16);
    for ((l, h), &b) in low.iter_mut().zip(high).zip(bytes) {
        *l = value(b & 0x0f);
        *h = value(b >> 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dtype: Dtype, bytes: &[u8], expected: &[f32]) {
        let mut out = vec![f32::NAN; expected.len()];
        to_f32(dtype, bytes, &mut out);
        assert_eq!(out, expected, "{dtype:?}");
        let mut bits = vec![0xffff; expected.len()];
        to_f16(dtype, bytes, &mut bits);
        let rounded: Vec<u16> =
            expected.iter().map(|&v| half::f16::from_f32(v).to_bits()).collect();
        assert_eq!(bits, rounded, "{dtype:?} as f16");
    }

    fn f16_bytes(v: f32) -> [u8; 2] {
        half::f16::from_f32(v).to_le_bytes()
    }

    #[test]
    fn plain_types() {
        let values = [0.0f32, -1.5, 3.1415927, 1e-3, 100.25];
        let f32s: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        check(Dtype::F32, &f32s, &values);
        let bf16: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()[2..].to_vec()).collect();
        let truncated = values.map(|v| f32::from_bits(v.to_bits() & 0xffff_0000));
        check(Dtype::Bf16, &bf16, &truncated);
        let f16: Vec<u8> = values.iter().flat_map(|&v| f16_bytes(v)).collect();
        let rounded = values.map(|v| half::f16::from_f32(v).to_f32());
        check(Dtype::F16, &f16, &rounded);
    }

    #[test]
    fn quantised_blocks_expand_by_their_definition() {
        let quants: Vec<u8> = (0..16).map(|i| i | ((15 - i) << 4)).collect();
        let q = |i: usize| if i < 16 { i as f32 } else { (31 - i) as f32 };

        let mut block = f16_bytes(0.25).to_vec();
        block.extend(&quants);
        check(Dtype::Q4_0, &block, &std::array::from_fn::<_, 32, _>(|i| 0.25 * (q(i) - 8.0)));

        let mut block = [f16_bytes(0.5), f16_bytes(-3.0)].concat();
        block.extend(&quants);
        check(Dtype::Q4_1, &block, &std::array::from_fn::<_, 32, _>(|i| 0.5 * q(i) - 3.0));

        let mut block = f16_bytes(0.125).to_vec();
        block.extend((0..32).map(|i: i32| (8 * i - 128) as u8));
        check(Dtype::Q8_0, &block, &std::array::from_fn::<_, 32, _>(|i| i as f32 - 16.0));
    }

    #[test]
    fn long_tensors_cross_chunk_borders() {
        let values: Vec<f32> = (0..CHUNK * 2 + 7).map(|i| (i as f32).sin()).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        check(Dtype::F32, &bytes, &values);
        let blocks: Vec<u8> = (0..CHUNK / 32 * 3)
            .flat_map(|b| [f16_bytes(1.0 + b as f32).to_vec(), vec![1; 32]].concat())
            .collect();
        let expected: Vec<f32> = (0..CHUNK * 3).map(|i| 1.0 + (i / 32) as f32).collect();
        check(Dtype::Q8_0, &blocks, &expected);
    }

    #[test]
    fn infinities_are_seen() {
        assert!(all_finite_f16(&[0x7bff, 0xfbff, 0]));
        assert!(!all_finite_f16(&[0, 0x7c00]));
        assert!(!all_finite_f16(&[0, 0xfe00]));
        assert!(all_finite_f32(&[f32::MAX, -0.0]));
        assert!(!all_finite_f32(&[0.0, f32::NAN]));
    }
}
