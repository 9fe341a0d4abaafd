//! The name of a full block: a hash chained through all blocks before it.
//!
//! FNV-1a is a contract with other implementations, not a choice: it is not collision resistant.
//! The pool therefore compares tokens on a prefix hit and never trusts a hash alone.

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01B3;

fn fnv1a64_append(state: u64, data: &[u8]) -> u64 {
    data.iter().fold(state, |h, &byte| (h ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// FNV-1a, 64 bits.
pub fn fnv1a64(data: &[u8]) -> u64 {
    fnv1a64_append(FNV_OFFSET, data)
}

/// Hash of the full block `tokens` that follows the block named `parent` (0 for the first one).
/// Never 0, which means "no hash".
pub fn block_hash(parent: u64, tokens: &[u32]) -> u64 {
    let seed = fnv1a64_append(FNV_OFFSET, &parent.to_le_bytes());
    let hash = tokens.iter().fold(seed, |h, token| fnv1a64_append(h, &token.to_le_bytes()));
    hash.max(1)
}

/// Hashes of the full blocks of a prompt; a partial tail has none.
///
/// `block_tokens` of 0 gives no hashes.
pub fn prompt_hashes(tokens: &[u32], block_tokens: usize) -> Vec<u64> {
    if block_tokens == 0 {
        return Vec::new();
    }
    let mut parent = 0;
    tokens
        .chunks_exact(block_tokens)
        .map(|block| {
            parent = block_hash(parent, block);
            parent
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(fnv1a64(b"a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(block_hash(0, &[1, 2]), 0xA91A_B0C1_027B_9366);
        assert_eq!(
            prompt_hashes(&[1, 2, 3, 4, 5], 2),
            [0xA91A_B0C1_027B_9366, 0x03DF_8295_7160_5C60]
        );
    }

    #[test]
    fn chains_of_four() {
        #[track_caller]
        fn check(tokens: impl IntoIterator<Item = u32>, want: &[u64]) {
            let tokens: Vec<u32> = tokens.into_iter().collect();
            assert_eq!(prompt_hashes(&tokens, 4), want, "{tokens:?}");
        }
        check(1..=8, &[0x7E75_BA25_3EFD_3FC1, 0x6CDB_6EFF_5929_1782]);
        check(1..=9, &[0x7E75_BA25_3EFD_3FC1, 0x6CDB_6EFF_5929_1782]);
        check(10..=18, &[0xA9D3_89CF_014E_98C5, 0x3C04_F8FB_5C37_C8CD]);
        check(50..=53, &[0x4F6B_AC14_CBF5_09E5]);
        check(0..=8, &[0x2A89_9E40_6516_C205, 0x79F0_896F_71EF_9CAE]);
        check(100..=111, &[0x2C57_CB2C_161B_9E45, 0x1CF7_FB29_A2C1_6F3D, 0x6C4F_0A21_E6C1_796D]);
        check(3..=13, &[0xD6C8_2218_D982_5FC1, 0x8215_B5B5_AF51_AAD8]);
        check([5, 5, 5, 9, 2], &[0xC617_8E2E_3810_F3A9]);
        check([], &[]);
    }

    #[test]
    fn a_parent_names_the_whole_prefix() {
        let a = prompt_hashes(&[1, 2, 3, 4], 2);
        let b = prompt_hashes(&[9, 2, 3, 4], 2);
        assert_ne!(a[1], b[1], "equal second blocks after different first blocks");
        assert_eq!(prompt_hashes(&[1, 2, 3], 0), []);
    }
}
