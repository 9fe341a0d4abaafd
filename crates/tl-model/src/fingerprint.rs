//! A 64-bit name for what a model computes.
//!
//! Two engines may hand over KV blocks only when they would compute the same bits, so the name
//! covers the weights as they are multiplied (after conversion, whatever file they came from), the
//! dimensions, the rotary frequencies and the weight kind. It guards against mistakes and not
//! against forgery, so a fast mix of four lanes is used: hashing keeps pace with reading.

/// Multiplier of the 64-bit mix: odd, with bits spread evenly.
const M: u64 = 0x9e37_79b9_7f4a_7c15;

/// Streaming 64-bit hash; the same bytes in the same order give the same value, however they were
/// cut into calls whose lengths are the same.
#[derive(Debug, Clone)]
pub(crate) struct Hasher {
    lanes: [u64; 4],
    len: u64,
}

impl Hasher {
    pub(crate) fn new() -> Self {
        Self { lanes: [M, M.rotate_left(17), M.rotate_left(31), M.rotate_left(47)], len: 0 }
    }

    /// Adds one field. A field's end counts: "ab", "c" differs from "a", "bc".
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        let (chunks, tail) = bytes.as_chunks::<32>();
        for chunk in chunks {
            self.mix(chunk);
        }
        if !tail.is_empty() {
            let mut last = [0; 32];
            last[..tail.len()].copy_from_slice(tail);
            self.mix(&last);
        }
        self.len = fold(self.len ^ bytes.len() as u64);
    }

    pub(crate) fn number(&mut self, v: u64) {
        self.field(&v.to_le_bytes());
    }

    fn mix(&mut self, chunk: &[u8; 32]) {
        for (lane, word) in self.lanes.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *lane = fold(*lane ^ u64::from_le_bytes(*word));
        }
    }

    /// Never 0, which stands for "unknown" where a fingerprint is sent.
    pub(crate) fn finish(&self) -> u64 {
        let mut h = self.len;
        for lane in self.lanes {
            h = fold(h ^ lane);
        }
        h.max(1)
    }
}

/// Both halves of the product: a plain product moves bits upward only, and a difference in a high
/// bit would meet one in a low bit of the next word.
fn fold(x: u64) -> u64 {
    let product = u128::from(x ^ M.rotate_left(7)) * u128::from(M);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(fields: &[&[u8]]) -> u64 {
        let mut h = Hasher::new();
        fields.iter().for_each(|f| h.field(f));
        h.finish()
    }

    #[test]
    fn every_bit_and_every_border_counts() {
        let base: Vec<u8> = (0..100).collect();
        let mut seen = std::collections::HashSet::from([hash(&[&base])]);
        for bit in 0..800 {
            let mut other = base.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(hash(&[&other])), "bit {bit}");
        }
        for cut in 0..100 {
            assert!(seen.insert(hash(&[&base[..cut], &base[cut..]])), "cut {cut}");
        }
        assert!(seen.insert(hash(&[&base, &[]])));
        assert!(seen.insert(hash(&[&base, &[0]])));
    }
}
