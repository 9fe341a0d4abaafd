//! Who owns which block.
//!
//! A block is in one of three states, and `free + used + cached == n_blocks` always:
//!
//! * **free**: no reference, contents meaningless;
//! * **used**: at least one reference. Unregistered with one reference it is writable by that one
//!   owner; registered or shared it is read-only;
//! * **cached**: no reference, still found by its hash. Allocation takes the least recently used
//!   of these when no block is free.
//!
//! Every operation is O(1) in the number of blocks: lists are threaded through flat arrays, the
//! index is one hash table, the counters are kept. None touches the contents of a block, apart
//! from `cow`, `writable`, `export` and `import`, which the hot paths replace by
//! [`crate::transfer`].
//!
//! **A hash is not a proof.** [`KvPool::lookup`] answers by hash alone, which is what the
//! hand-off's deduplication is defined on. A prefix hit of a local request goes through
//! [`KvPool::lookup_tokens`], which compares the tokens and the parent. A block that a peer
//! pushed has no tokens until [`KvPool::attach_tokens`] adds them.

mod audit;
mod index;
mod list;
mod prefix;
#[cfg(test)]
mod tests;
mod wire;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::cfg::{KvCfg, KvStats};
use crate::error::KvError;
use crate::fork::Names;
use crate::invariants::{Invariant, Violation};
use crate::slabs::{SlabRead, SlabWrite, Slabs};
use index::Index;
use list::{Links, List, NIL};

/// A pool as the threads of an engine share it. The mutex covers bookkeeping only.
pub type SharedKv = Arc<Mutex<KvPool>>;

/// A new pool behind a mutex.
pub fn shared(cfg: KvCfg) -> Result<SharedKv, KvError> {
    Ok(Arc::new(Mutex::new(KvPool::new(cfg)?)))
}

/// Locks the bookkeeping. Never drop a [`crate::Held`] of this pool while the guard lives: it
/// locks too. [`crate::Held::release_into`] is for that.
pub fn lock(pool: &SharedKv) -> MutexGuard<'_, KvPool> {
    pool.lock()
}

#[derive(Clone, Copy, Default, Hash)]
struct Meta {
    refs: u32,
    fill: u32,
    /// 0 when unregistered.
    hash: u64,
    /// Hash of the block before this one; meaningful with `proven`.
    parent: u64,
    /// The tokens of the block are known.
    proven: bool,
}

/// Bookkeeping of one pool.
pub struct KvPool {
    cfg: KvCfg,
    slabs: Arc<Slabs>,
    meta: Vec<Meta>,
    /// Tokens of proven blocks, `[n_blocks][B]`.
    tokens: Vec<u32>,
    index: Index,
    links: Links,
    free: List,
    /// Cached blocks, oldest first.
    lru: List,
    evictions: u64,
    /// Wrapping sum of all registered hashes.
    digest: u64,
    violations: u64,
    conflicts: u64,
    on_room: Option<Hook>,
    /// What debug builds have been paid for a look at everything.
    unaudited: u32,
}

type Hook = Box<dyn Fn() + Send + Sync>;

impl std::fmt::Debug for KvPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvPool")
            .field("cfg", &self.cfg)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl KvPool {
    /// A pool whose blocks are all free.
    ///
    /// EINVAL for a zero dimension, EUNSUPPORTED for another dtype or format, ENOMEM when the
    /// blocks cannot be allocated.
    pub fn new(cfg: KvCfg) -> Result<Self, KvError> {
        cfg.validate()?;
        let slabs = Arc::new(Slabs::new(cfg)?);
        let mut links = Links::new(cfg.n_blocks);
        let mut free = List::EMPTY;
        for id in 0..cfg.n_blocks {
            free.push_back(&mut links, id);
        }
        Ok(Self {
            cfg,
            slabs,
            meta: vec![Meta::default(); cfg.n_blocks as usize],
            tokens: vec![0; cfg.n_blocks as usize * cfg.block_tokens as usize],
            index: index::with_room_for(cfg.n_blocks),
            links,
            free,
            lru: List::EMPTY,
            evictions: 0,
            digest: 0,
            violations: 0,
            conflicts: 0,
            on_room: None,
            unaudited: 0,
        })
    }

    /// Shape of the pool.
    pub fn cfg(&self) -> &KvCfg {
        &self.cfg
    }

    /// Where the blocks are now.
    pub fn stats(&self) -> KvStats {
        KvStats {
            free: self.free.len,
            used: self.cfg.n_blocks - self.free.len - self.lru.len,
            cached: self.lru.len,
            evictions: self.evictions,
        }
    }

    /// Calls `hook` whenever a block has lost its last reference, so that an allocation that found
    /// no room may find it now. One hook; the latest stays.
    ///
    /// It runs under the pool's lock: it may set a flag or send to a channel, and neither wait nor
    /// touch the pool.
    pub fn on_room(&mut self, hook: impl Fn() + Send + Sync + 'static) {
        self.on_room = Some(Box::new(hook));
    }

    /// Times that a value which owns blocks found the books disagreeing. 0 unless there is a bug.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    pub(crate) fn note_violation(&mut self) {
        self.violations += 1;
    }

    /// Imports whose name belonged to a block of other bytes. They were kept apart.
    pub fn conflicts(&self) -> u64 {
        self.conflicts
    }

    pub(crate) fn note_conflict(&mut self) {
        self.conflicts += 1;
    }

    /// The contents, to be read and written without this pool's lock.
    pub fn slabs(&self) -> Arc<Slabs> {
        Arc::clone(&self.slabs)
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> usize {
        self.cfg.block_bytes()
    }

    /// Elements of one K or V slab, `Hkv * B * D`.
    pub fn slab_len(&self) -> usize {
        self.cfg.slab_len()
    }

    fn used(&self, id: u32) -> Result<&Meta, KvError> {
        match self.meta.get(id as usize) {
            None => Err(KvError::invalid(format!("block {id} of a pool of {}", self.cfg.n_blocks))),
            Some(meta) if meta.refs == 0 => {
                Err(KvError::invalid(format!("block {id} has no reference")))
            }
            Some(meta) => Ok(meta),
        }
    }

    /// Publishes to the storage who may touch a block.
    fn sync_access(&self, id: u32) {
        self.slabs.set_access(id, audit::access(self.meta[id as usize]));
    }

    /// Takes `n` blocks with one reference and fill 0 each: free ones first, then the least
    /// recently used cached ones. All or nothing: EFULL when `free + cached < n`.
    pub fn alloc(&mut self, n: usize) -> Result<Vec<u32>, KvError> {
        let room = self.free.len as usize + self.lru.len as usize;
        if n > room {
            return Err(KvError::full(format!(
                "{n} blocks wanted, {} free and {} cached of {}",
                self.free.len, self.lru.len, self.cfg.n_blocks
            )));
        }
        let mut ids = Vec::with_capacity(n);
        for _ in 0..n {
            let Some(id) = self.free.pop_front(&mut self.links).or_else(|| self.evict()) else {
                break;
            };
            self.meta[id as usize] = Meta { refs: 1, ..Meta::default() };
            self.sync_access(id);
            ids.push(id);
        }
        self.audit(&ids);
        Ok(ids)
    }

    fn evict(&mut self) -> Option<u32> {
        let id = self.lru.pop_front(&mut self.links)?;
        self.unregister(id);
        self.evictions += 1;
        Some(id)
    }

    /// Takes one more reference to a used block.
    pub fn retain(&mut self, id: u32) -> Result<(), KvError> {
        let refs = self.used(id)?.refs.checked_add(1).ok_or_else(|| {
            KvError::invalid(format!("block {id} has more references than can be counted"))
        })?;
        self.meta[id as usize].refs = refs;
        self.sync_access(id);
        self.audit(&[id]);
        Ok(())
    }

    /// Gives one reference back. With the last one the block becomes cached if it is registered,
    /// else free. EINVAL when it has none.
    pub fn release(&mut self, id: u32) -> Result<(), KvError> {
        self.used(id)?;
        let meta = &mut self.meta[id as usize];
        meta.refs -= 1;
        if meta.refs == 0 {
            if meta.hash == 0 {
                *meta = Meta::default();
                self.free.push_front(&mut self.links, id);
            } else {
                self.lru.push_back(&mut self.links, id);
            }
            self.sync_access(id);
            self.audit(&[id]);
            if let Some(hook) = &self.on_room {
                hook();
            }
        } else {
            self.sync_access(id);
            self.audit(&[id]);
        }
        Ok(())
    }

    /// A block of which the caller is the only holder: the same one when its reference count is
    /// 1, else a copy (contents and fill, unregistered) to which one reference moves.
    ///
    /// The result may still be registered and thus read-only; [`KvPool::writable`] never is.
    pub fn cow(&mut self, id: u32) -> Result<u32, KvError> {
        if self.used(id)?.refs == 1 { Ok(id) } else { self.private_copy(id) }
    }

    /// A block that the caller may write: the same one when nobody else can see it, else a copy
    /// to which one reference moves. For a full block whose last position is computed again.
    pub fn writable(&mut self, id: u32) -> Result<u32, KvError> {
        let meta = self.used(id)?;
        if meta.refs == 1 && meta.hash == 0 { Ok(id) } else { self.private_copy(id) }
    }

    fn private_copy(&mut self, id: u32) -> Result<u32, KvError> {
        let copy = self.alloc(1)?[0];
        let copied = self.slabs.read_any(id).and_then(|from| {
            self.slabs.write(copy)?.all_mut().copy_from_slice(from.all());
            Ok(())
        });
        if let Err(error) = copied {
            self.release(copy)?;
            return Err(error);
        }
        self.meta[copy as usize].fill = self.meta[id as usize].fill;
        self.release(id)?;
        self.audit(&[copy]);
        Ok(copy)
    }

    /// Sets how many positions of a used, unregistered block hold tokens, `0..=B`.
    pub fn set_fill(&mut self, id: u32, fill: u32) -> Result<(), KvError> {
        let meta = self.used(id)?;
        if meta.hash != 0 {
            return Err(KvError::invalid(format!("fill of registered block {id} is fixed")));
        }
        if fill > self.cfg.block_tokens {
            return Err(KvError::invalid(format!(
                "fill {fill} of block {id}, a block has {} positions",
                self.cfg.block_tokens
            )));
        }
        self.meta[id as usize].fill = fill;
        self.audit(&[id]);
        Ok(())
    }

    /// Positions of a used block that hold tokens.
    pub fn fill(&self, id: u32) -> Result<u32, KvError> {
        Ok(self.used(id)?.fill)
    }

    /// Reference count, 0 for a block that is free, cached or out of range.
    pub fn refs(&self, id: u32) -> u32 {
        self.meta.get(id as usize).map_or(0, |meta| meta.refs)
    }

    /// Hash a block is registered under, 0 when it is not.
    pub fn hash_of(&self, id: u32) -> u64 {
        self.meta.get(id as usize).map_or(0, |meta| meta.hash)
    }

    /// K (`is_v` false) or V slab of one layer, `[Hkv][B][D]`.
    pub fn slab(&self, id: u32, layer: u32, is_v: bool) -> Result<SlabRead<'_>, KvError> {
        self.slabs.slab_read(id, layer, is_v)
    }

    /// As [`KvPool::slab`], to write; the block must have one owner and be unregistered.
    pub fn slab_mut(&mut self, id: u32, layer: u32, is_v: bool) -> Result<SlabWrite<'_>, KvError> {
        self.slabs.slab_write(id, layer, is_v)
    }

    /// An independent copy: the same books, lists and bytes, and no hook. The values that hold its
    /// blocks are to be copied with it, see [`crate::fork`].
    pub fn fork(&self) -> Self {
        Self {
            cfg: self.cfg,
            slabs: Arc::new(self.slabs.fork()),
            meta: self.meta.clone(),
            tokens: self.tokens.clone(),
            index: self.index.clone(),
            links: self.links.clone(),
            free: self.free,
            lru: self.lru,
            evictions: self.evictions,
            digest: self.digest,
            violations: self.violations,
            conflicts: self.conflicts,
            on_room: None,
            unaudited: self.unaudited,
        }
    }

    /// The order of the blocks by their owners, as `owners` lists them, then by the lists.
    pub fn names<'a>(&self, owners: impl IntoIterator<Item = &'a [u32]>) -> Names {
        let none = self.cfg.n_blocks;
        let mut by_id = vec![none; self.meta.len()];
        let mut next = 0;
        let mut name = |id: u32| {
            if let Some(place) = by_id.get_mut(id as usize).filter(|place| **place == none) {
                *place = next;
                next += 1;
            }
        };
        owners.into_iter().flatten().for_each(|&id| name(id));
        for list in [&self.lru, &self.free] {
            let mut id = list.front();
            while id != NIL {
                name(id);
                id = self.links.next(id);
            }
        }
        (0..none).for_each(name);
        Names::new(by_id)
    }

    /// What decides how the pool goes on: books, order of the lists, and the bytes of every
    /// position that holds a token and may still be read. Blocks are told apart by `names`.
    pub fn state(&self, names: &Names, out: &mut impl Hasher) {
        let mut ids: Vec<u32> = (0..self.cfg.n_blocks).collect();
        ids.sort_unstable_by_key(|&id| names.of(id));
        for id in ids {
            let meta = &self.meta[id as usize];
            meta.hash(out);
            if meta.proven {
                self.tokens[self.token_range(id)].hash(out);
            }
            if meta.refs > 0 || meta.hash != 0 {
                self.slabs.state(id, meta.fill, out);
            }
        }
        for list in [&self.lru, &self.free] {
            let mut id = list.front();
            while id != NIL {
                names.of(id).hash(out);
                id = self.links.next(id);
            }
            NIL.hash(out);
        }
        self.violations.hash(out);
    }

    /// [`Invariant::UsedIsOwned`]: the references to each block are exactly those that `owners`
    /// name, one per mention. For tests and debugging, by whoever knows all owners.
    pub fn check_owners<'a>(
        &self,
        owners: impl IntoIterator<Item = &'a [u32]>,
    ) -> Result<(), Violation> {
        let mut owned = vec![0u32; self.meta.len()];
        for &id in owners.into_iter().flatten() {
            if let Some(n) = owned.get_mut(id as usize) {
                *n += 1;
            }
        }
        for (id, (meta, owned)) in self.meta.iter().zip(owned).enumerate() {
            Invariant::UsedIsOwned.require(meta.refs == owned, || {
                format!("block {id} has {} references and {owned} owners", meta.refs)
            })?;
        }
        Invariant::UsedIsOwned.require(self.violations == 0, || {
            format!("{} references were given back that nobody had", self.violations)
        })
    }

    /// Recomputes everything the pool keeps and compares; O(`n_blocks`), for tests and debugging.
    pub fn check(&self) -> Result<(), Violation> {
        let stats = self.stats();
        let n = self.cfg.n_blocks;
        Invariant::PoolBalance
            .require(stats.free + stats.used + stats.cached == n, || format!("{stats:?} of {n}"))?;
        Invariant::WithinCapacity
            .require(stats.used + stats.cached <= n, || format!("{stats:?} of {n}"))?;
        let used = self.meta.iter().filter(|m| m.refs > 0).count();
        let cached = self.meta.iter().filter(|m| m.refs == 0 && m.hash != 0).count();
        Invariant::PoolBalance
            .require((used, cached) == (stats.used as usize, stats.cached as usize), || {
                format!("{stats:?}, counted {used} used and {cached} cached")
            })?;
        for (list, name, registered) in [(&self.free, "free", false), (&self.lru, "lru", true)] {
            let (mut id, mut steps) = (list.front(), 0);
            while id != NIL && steps <= n {
                let meta = &self.meta[id as usize];
                Invariant::UnusedListed
                    .require(meta.refs == 0 && (meta.hash != 0) == registered, || {
                        format!("block {id} in the {name} list")
                    })?;
                id = self.links.next(id);
                steps += 1;
            }
            Invariant::UnusedListed.require(steps == list.len, || {
                format!("{name} list of {} has {steps}", list.len)
            })?;
        }
        let registered = self.meta.iter().filter(|m| m.hash != 0).count();
        Invariant::IndexExact.require(registered == self.index.len(), || {
            format!("{registered} registered, {} in the index", self.index.len())
        })?;
        for (id, meta) in self.meta.iter().enumerate().filter(|(_, m)| m.hash != 0) {
            Invariant::IndexExact
                .require(self.index.get(&meta.hash) == Some(&(id as u32)), || {
                    format!("block {id} is not found by its hash")
                })?;
            Invariant::RegisteredIsFull.require(meta.fill == self.cfg.block_tokens, || {
                format!("block {id} has fill {}", meta.fill)
            })?;
        }
        let digest = self.meta.iter().fold(0u64, |sum, m| sum.wrapping_add(m.hash));
        Invariant::IndexExact.require(digest == self.digest, || "digest".into())
    }
}
