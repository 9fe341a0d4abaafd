//! Two engines find each other's blocks by hash and trust each other's checksums. An engine whose
//! arithmetic differs would never fail: it would silently find nothing, or refuse everything. So
//! each one proves itself against fixed values before it announces itself.

use tl_kv::{CRC32C_RESIDUE, block_hash, crc32c, prompt_hashes};

/// A value that this build computes differently from every other engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "self-check of {what}: computed {got:#x}, every engine must compute {want:#x}; this build is broken"
)]
pub struct SelfCheckError {
    pub what: &'static str,
    pub got: u64,
    pub want: u64,
}

/// Checks block hashes and checksums against golden values.
pub fn self_check() -> Result<(), SelfCheckError> {
    let check = |what: &'static str, got: u64, want: u64| match got == want {
        true => Ok(()),
        false => Err(SelfCheckError { what, got, want }),
    };
    let first = block_hash(0, &[1, 2]);
    check("the block hash", first, 0xA91A_B0C1_027B_9366)?;
    check("the chained block hash", block_hash(first, &[3, 4]), 0x03DF_8295_7160_5C60)?;
    let chain = prompt_hashes(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 4);
    check("the number of full blocks", chain.len() as u64, 2)?;
    check("a prompt's last block hash", chain.last().copied().unwrap_or(0), 0x6CDB_6EFF_5929_1782)?;
    check("crc-32c", crc32c(b"123456789").into(), 0xE306_9283)?;
    let sealed = [b"123456789".as_slice(), &0xE306_9283_u32.to_le_bytes()].concat();
    check("the crc-32c residue", crc32c(&sealed).into(), CRC32C_RESIDUE.into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_build_passes() {
        assert_eq!(super::self_check(), Ok(()));
    }
}
