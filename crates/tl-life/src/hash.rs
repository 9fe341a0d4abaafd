//! States as keys.
//!
//! Two states are the same when everything that decides how they go on is equal. [`Key128`] folds
//! that into 128 bits: with ten million states the chance that any two of them are confused is
//! below 1e-24. [`Exact`] keeps all of it, and a test counts the states of an exploration both ways.

use std::hash::Hasher;

/// Two independent 64-bit lanes of multiply and fold.
#[derive(Clone, Copy, Debug)]
pub struct Key128 {
    a: u64,
    b: u64,
}

impl Default for Key128 {
    fn default() -> Self {
        Self { a: 0x9E37_79B9_7F4A_7C15, b: 0xC2B2_AE3D_27D4_EB4F }
    }
}

fn fold(x: u64, k: u64) -> u64 {
    let product = u128::from(x) * u128::from(k);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Key128 {
    fn word(&mut self, x: u64) {
        self.a = fold(self.a.rotate_left(23) ^ x, 0xA076_1D64_78BD_642F).wrapping_add(x);
        self.b = fold(self.b.wrapping_add(x) ^ 0xE703_7ED1_A0B4_28DB, 0x8EBC_6AF0_9C88_C6E3)
            ^ x.rotate_left(32);
    }

    /// The key.
    pub fn key(mut self) -> u128 {
        self.word(0x5897_89E6_6CF1_B1CD);
        self.word(self.a ^ self.b.rotate_left(17));
        (u128::from(self.a) << 64) | u128::from(self.b)
    }
}

impl Hasher for Key128 {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        self.word(bytes.len() as u64);
    }

    fn write_u8(&mut self, x: u8) {
        self.word(u64::from(x));
    }

    fn write_u32(&mut self, x: u32) {
        self.word(u64::from(x));
    }

    fn write_u64(&mut self, x: u64) {
        self.word(x);
    }

    fn write_usize(&mut self, x: usize) {
        self.word(x as u64);
    }

    fn finish(&self) -> u64 {
        self.key() as u64
    }
}

/// Everything that was hashed, byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exact(pub Vec<u8>);

impl Hasher for Exact {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.push(bytes.len() as u8);
    }

    fn finish(&self) -> u64 {
        0
    }
}
