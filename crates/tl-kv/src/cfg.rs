//! The shape of a pool. Two engines can exchange blocks only when every field but `n_blocks`
//! agrees.

use crate::error::KvError;

/// Element type of format v1: IEEE half precision.
pub const TL_F16: i32 = 1;
/// The wire format this crate reads and writes.
pub const KV_FORMAT_V1: u32 = 1;

/// Shape of a pool and of each of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvCfg {
    /// Blocks in the pool.
    pub n_blocks: u32,
    /// Token positions per block (B).
    pub block_tokens: u32,
    /// Transformer layers (L).
    pub n_layers: u32,
    /// Key/value heads per layer (Hkv).
    pub n_kv_heads: u32,
    /// Elements per head (D).
    pub head_dim: u32,
    /// Element type, [`TL_F16`].
    pub dtype: i32,
    /// Wire format, [`KV_FORMAT_V1`].
    pub format: u32,
}

/// Where the blocks are. `free + used + cached` is the pool's size at every instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvStats {
    /// Blocks that hold nothing.
    pub free: u32,
    /// Blocks with at least one reference.
    pub used: u32,
    /// Blocks without a reference whose contents can still be found by hash.
    pub cached: u32,
    /// Cached blocks that were given up for an allocation, since the pool was made.
    pub evictions: u64,
}

impl KvCfg {
    /// Elements of one K or V slab: `Hkv * B * D`.
    pub fn slab_len(&self) -> usize {
        self.n_kv_heads as usize * self.block_tokens as usize * self.head_dim as usize
    }

    /// Elements of one block: `L * 2 * Hkv * B * D`.
    pub fn block_len(&self) -> usize {
        self.n_layers as usize * 2 * self.slab_len()
    }

    /// Bytes of one block, which is also the payload of one v1 record.
    pub fn block_bytes(&self) -> usize {
        self.block_len() * 2
    }

    /// Whether blocks of `other` can live in a pool of this shape.
    pub fn same_shape(&self, other: &KvCfg) -> bool {
        (self.block_tokens, self.n_layers, self.n_kv_heads, self.head_dim, self.dtype)
            == (other.block_tokens, other.n_layers, other.n_kv_heads, other.head_dim, other.dtype)
    }

    /// Refuses shapes no pool can have. After this, none of the products above overflows.
    pub fn validate(&self) -> Result<(), KvError> {
        for (what, value) in [
            ("n_blocks", self.n_blocks),
            ("block_tokens", self.block_tokens),
            ("n_layers", self.n_layers),
            ("n_kv_heads", self.n_kv_heads),
            ("head_dim", self.head_dim),
        ] {
            if value == 0 {
                return Err(KvError::invalid(format!("{what} is 0, expected at least 1")));
            }
        }
        if self.dtype != TL_F16 {
            return Err(KvError::unsupported(format!(
                "dtype {} is not supported, expected {TL_F16} (f16)",
                self.dtype
            )));
        }
        if self.format != KV_FORMAT_V1 {
            return Err(KvError::unsupported(format!(
                "KV format {} is not supported, expected {KV_FORMAT_V1}",
                self.format
            )));
        }
        if self.n_blocks == u32::MAX {
            return Err(KvError::no_memory(format!("{} blocks are one too many", self.n_blocks)));
        }
        self.total_bytes().map(|_| ()).ok_or_else(|| {
            KvError::no_memory(format!(
                "a pool of {} blocks of this shape is larger than the address space",
                self.n_blocks
            ))
        })
    }

    /// Bytes of all blocks, `None` when they cannot be addressed.
    pub fn total_bytes(&self) -> Option<usize> {
        let dims =
            [self.n_blocks, self.n_layers, self.n_kv_heads, self.block_tokens, self.head_dim];
        let bytes = dims.iter().try_fold(4usize, |n, &d| n.checked_mul(d as usize))?;
        isize::try_from(bytes).is_ok().then_some(bytes)
    }
}
