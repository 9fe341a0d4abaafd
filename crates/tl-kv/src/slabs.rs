//! The bytes of all blocks, beside the pool's bookkeeping.
//!
//! One lock per block rather than one for the pool: attention over hundreds of blocks, a
//! checksum and a copy run while other threads allocate. The locks are never waited for. By the
//! ownership rules a block is written by its one owner or read by its holders, so a lock that is
//! taken shows a broken rule, and is an error.
//!
//! Layout of a block: `[layer][k | v][head][slot][dim]` f16 bit patterns, which is exactly the
//! payload of a v1 record, so that a full block is exported by one copy.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering, fence};

use parking_lot::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use crate::cfg::KvCfg;
use crate::error::KvError;
use crate::invariants::Invariant;

/// One K or V slab of one layer, `[Hkv][B][D]`, readable while the guard lives.
pub type SlabRead<'a> = MappedRwLockReadGuard<'a, [u16]>;
/// One K or V slab of one layer, `[Hkv][B][D]`, writable while the guard lives.
pub type SlabWrite<'a> = MappedRwLockWriteGuard<'a, [u16]>;

/// What the bookkeeping says about a block, mirrored here so that readers and writers can be
/// checked without the pool's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Access {
    /// No reference: neither read nor written through [`Slabs`].
    Unheld = 0,
    /// One owner, unregistered: may be read and written.
    Owned = 1,
    /// Registered or referenced more than once: may be read.
    Shared = 2,
}

struct Slot {
    access: AtomicU8,
    data: RwLock<Box<[u16]>>,
}

/// Storage of all blocks of one pool.
pub struct Slabs {
    cfg: KvCfg,
    slots: Vec<Slot>,
}

impl std::fmt::Debug for Slabs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slabs").field("cfg", &self.cfg).finish_non_exhaustive()
    }
}

impl Slabs {
    /// Storage for `cfg`, which must be valid. Blocks are zeroed by the allocator, so that a
    /// block costs no memory before it is first written.
    pub(crate) fn new(cfg: KvCfg) -> Result<Self, KvError> {
        let total = cfg.total_bytes().unwrap_or(usize::MAX);
        // The blocks below are allocated one by one and infallibly; asking once for the sum
        // turns a pool that can never fit into an error. Nothing is touched by the question.
        Vec::<u8>::new()
            .try_reserve_exact(total)
            .map_err(|e| KvError::no_memory(format!("{total} bytes of KV blocks: {e}")))?;
        let slots = (0..cfg.n_blocks)
            .map(|_| Slot {
                access: AtomicU8::new(Access::Unheld as u8),
                data: RwLock::new(vec![0; cfg.block_len()].into_boxed_slice()),
            })
            .collect();
        Ok(Self { cfg, slots })
    }

    /// The same bytes and the same rights, apart from these.
    pub(crate) fn fork(&self) -> Self {
        let copy = |slot: &Slot| Slot {
            access: AtomicU8::new(slot.access.load(Ordering::Acquire)),
            data: RwLock::new(slot.data.read().clone()),
        };
        Self { cfg: self.cfg, slots: self.slots.iter().map(copy).collect() }
    }

    /// Feeds the first `fill` positions of a block to a hasher.
    pub(crate) fn state(&self, id: u32, fill: u32, out: &mut impl Hasher) {
        let Some(slot) = self.slots.get(id as usize) else { return };
        let data = slot.data.read();
        let head = self.cfg.block_tokens as usize * self.cfg.head_dim as usize;
        let filled = fill as usize * self.cfg.head_dim as usize;
        for values in data.chunks(head.max(1)) {
            values[..filled.min(values.len())].hash(out);
        }
    }

    /// Shape of the blocks.
    pub fn cfg(&self) -> &KvCfg {
        &self.cfg
    }

    fn slot(&self, id: u32) -> Result<&Slot, KvError> {
        self.slots.get(id as usize).ok_or_else(|| {
            KvError::invalid(format!("block {id} of a pool of {}", self.cfg.n_blocks))
        })
    }

    /// Opens a block that the caller holds a reference to for reading.
    ///
    /// EINVAL when nobody holds the block, EBUSY while it is being written.
    pub fn read(&self, id: u32) -> Result<BlockRead<'_>, KvError> {
        let slot = self.slot(id)?;
        if slot.access.load(Ordering::Acquire) == Access::Unheld as u8 {
            return Err(KvError::invalid(format!(
                "{}: block {id} is read but nobody holds it",
                Invariant::HeldBlocksOnly
            )));
        }
        self.read_any(id)
    }

    /// As [`Slabs::read`] for whoever excludes reuse of the block by holding the pool.
    pub(crate) fn read_any(&self, id: u32) -> Result<BlockRead<'_>, KvError> {
        let data = self.slot(id)?.data.try_read().ok_or_else(|| {
            KvError::busy(format!("{}: block {id} is being written", Invariant::OneWriter))
        })?;
        Ok(BlockRead { data, slab_len: self.cfg.slab_len() })
    }

    /// Opens a block for writing by its one owner.
    ///
    /// EINVAL when the block is not held, is registered, or is referenced more than once (make a
    /// private copy first: [`crate::KvPool::writable`]); EBUSY while somebody reads or writes it.
    pub fn write(&self, id: u32) -> Result<BlockWrite<'_>, KvError> {
        let slot = self.slot(id)?;
        let data = slot.data.try_write().ok_or_else(|| {
            KvError::busy(format!("{}: block {id} is open elsewhere", Invariant::OneWriter))
        })?;
        // Pairs with the fence in `set_access`: either this load sees that the block was sealed,
        // or the sealing side sees this lock.
        fence(Ordering::SeqCst);
        let access = slot.access.load(Ordering::Acquire);
        if access != Access::Owned as u8 {
            let (rule, why) = if access == Access::Unheld as u8 {
                (Invariant::HeldBlocksOnly, "nobody holds it")
            } else {
                (Invariant::SharedIsReadOnly, "it is registered or shared")
            };
            return Err(KvError::invalid(format!("{rule}: block {id} is written but {why}")));
        }
        Ok(BlockWrite { data, slab_len: self.cfg.slab_len() })
    }

    /// Publishes what the bookkeeping decided about a block.
    pub(crate) fn set_access(&self, id: u32, access: Access) {
        self.slots[id as usize].access.store(access as u8, Ordering::Release);
    }

    /// Whether that is who may touch a block, as published last.
    pub(crate) fn has_access(&self, id: u32, access: Access) -> bool {
        self.slots[id as usize].access.load(Ordering::Acquire) == access as u8
    }

    /// Forbids writing a block that is about to be registered; `false`, and nothing changed,
    /// while somebody is writing it.
    pub(crate) fn seal(&self, id: u32) -> bool {
        let slot = &self.slots[id as usize];
        let before = slot.access.swap(Access::Shared as u8, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let quiet = slot.data.try_read().is_some();
        if !quiet {
            slot.access.store(before, Ordering::Release);
        }
        quiet
    }

    pub(crate) fn slab_read(
        &self,
        id: u32,
        layer: u32,
        is_v: bool,
    ) -> Result<SlabRead<'_>, KvError> {
        let range = self.slab_range(layer, is_v)?;
        Ok(RwLockReadGuard::map(self.read_any(id)?.data, |data| &data[range]))
    }

    pub(crate) fn slab_write(
        &self,
        id: u32,
        layer: u32,
        is_v: bool,
    ) -> Result<SlabWrite<'_>, KvError> {
        let range = self.slab_range(layer, is_v)?;
        Ok(RwLockWriteGuard::map(self.write(id)?.data, |data| &mut data[range]))
    }

    fn slab_range(&self, layer: u32, is_v: bool) -> Result<std::ops::Range<usize>, KvError> {
        if layer >= self.cfg.n_layers {
            return Err(KvError::invalid(format!("layer {layer} of {}", self.cfg.n_layers)));
        }
        let len = self.cfg.slab_len();
        let start = (layer as usize * 2 + usize::from(is_v)) * len;
        Ok(start..start + len)
    }
}

/// A block open for reading. Slices are `[Hkv][B][D]`, row-major.
pub struct BlockRead<'a> {
    data: RwLockReadGuard<'a, Box<[u16]>>,
    slab_len: usize,
}

/// A block open for writing. Slices are `[Hkv][B][D]`, row-major.
pub struct BlockWrite<'a> {
    data: RwLockWriteGuard<'a, Box<[u16]>>,
    slab_len: usize,
}

impl BlockRead<'_> {
    /// Keys of `layer`. Panics when the pool has no such layer.
    pub fn k(&self, layer: usize) -> &[u16] {
        &self.data[layer * 2 * self.slab_len..][..self.slab_len]
    }

    /// Values of `layer`. Panics when the pool has no such layer.
    pub fn v(&self, layer: usize) -> &[u16] {
        &self.data[(layer * 2 + 1) * self.slab_len..][..self.slab_len]
    }

    /// The whole block, `[L][2][Hkv][B][D]`.
    pub fn all(&self) -> &[u16] {
        &self.data
    }
}

impl BlockWrite<'_> {
    /// Keys of `layer`. Panics when the pool has no such layer.
    pub fn k(&self, layer: usize) -> &[u16] {
        &self.data[layer * 2 * self.slab_len..][..self.slab_len]
    }

    /// Values of `layer`. Panics when the pool has no such layer.
    pub fn v(&self, layer: usize) -> &[u16] {
        &self.data[(layer * 2 + 1) * self.slab_len..][..self.slab_len]
    }

    /// Keys of `layer`, to write. Panics when the pool has no such layer.
    pub fn k_mut(&mut self, layer: usize) -> &mut [u16] {
        &mut self.data[layer * 2 * self.slab_len..][..self.slab_len]
    }

    /// Values of `layer`, to write. Panics when the pool has no such layer.
    pub fn v_mut(&mut self, layer: usize) -> &mut [u16] {
        &mut self.data[(layer * 2 + 1) * self.slab_len..][..self.slab_len]
    }

    /// The whole block, `[L][2][Hkv][B][D]`.
    pub fn all(&self) -> &[u16] {
        &self.data
    }

    /// The whole block, to write.
    pub fn all_mut(&mut self) -> &mut [u16] {
        &mut self.data
    }
}

impl std::fmt::Debug for BlockRead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockRead").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for BlockWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockWrite").finish_non_exhaustive()
    }
}
