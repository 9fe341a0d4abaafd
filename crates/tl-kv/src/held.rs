//! References to blocks as a value that gives itself back.
//!
//! A running request, a push in flight, a handle that waits for its resume: each owns its blocks
//! as a `Held`, and every path that ends one of them, an error, a panic or a dropped future
//! included, frees them by dropping it. Nothing frees by remembering to.

use crate::error::KvError;
use crate::pool::{KvPool, SharedKv, lock};

/// One reference to each of `ids`, released on drop, last block first, so that the tail of a
/// prefix is evicted before its head.
///
/// Dropping locks the pool: not while the pool is locked by the same thread, see
/// [`Held::release_into`].
#[must_use = "dropping it releases the blocks"]
pub struct Held {
    pool: SharedKv,
    ids: Vec<u32>,
}

impl Held {
    /// Holds nothing yet.
    pub fn empty(pool: &SharedKv) -> Self {
        Self::adopt(pool, Vec::new())
    }

    /// Allocates `n` blocks; EFULL when there is no room.
    pub fn alloc(pool: &SharedKv, n: usize) -> Result<Self, KvError> {
        let ids = lock(pool).alloc(n)?;
        Ok(Self::adopt(pool, ids))
    }

    /// Takes over references that the caller owns, one per id.
    pub fn adopt(pool: &SharedKv, ids: Vec<u32>) -> Self {
        Self { pool: SharedKv::clone(pool), ids }
    }

    /// The blocks, in order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether it holds no block.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The pool of the blocks.
    pub fn pool(&self) -> &SharedKv {
        &self.pool
    }

    /// Takes over one more reference that the caller owns.
    pub fn push(&mut self, id: u32) {
        self.ids.push(id);
    }

    /// Takes over everything `other` holds.
    pub fn append(&mut self, mut other: Held) {
        debug_assert!(SharedKv::ptr_eq(&self.pool, &other.pool), "blocks of two pools");
        self.ids.append(&mut other.ids);
    }

    /// Splits the blocks from `at` on into a value of their own; `at` past the end gives an
    /// empty one.
    pub fn split_off(&mut self, at: usize) -> Held {
        let ids = self.ids.split_off(at.min(self.ids.len()));
        Self::adopt(&self.pool, ids)
    }

    /// Replaces block `i`, whose reference the caller has moved elsewhere (copy on write).
    pub fn replace(&mut self, i: usize, id: u32) {
        if let Some(slot) = self.ids.get_mut(i) {
            *slot = id;
        }
    }

    /// One more reference to each of the blocks, as a value of its own.
    pub fn share(&self) -> Result<Held, KvError> {
        let mut ids = Vec::with_capacity(self.ids.len());
        let mut pool = lock(&self.pool);
        for &id in &self.ids {
            if let Err(error) = pool.retain(id) {
                release_all(&mut pool, &ids);
                return Err(error);
            }
            ids.push(id);
        }
        drop(pool);
        Ok(Self::adopt(&self.pool, ids))
    }

    /// The references, no longer released by anybody but the caller.
    pub fn into_raw(mut self) -> Vec<u32> {
        std::mem::take(&mut self.ids)
    }

    /// Releases the blocks into a pool that the caller has locked. `pool` must be theirs.
    pub fn release_into(self, pool: &mut KvPool) {
        release_all(pool, &self.into_raw());
    }
}

fn release_all(pool: &mut KvPool, ids: &[u32]) {
    for &id in ids.iter().rev() {
        if pool.release(id).is_err() {
            pool.note_violation();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            release_all(&mut lock(&self.pool), &self.ids);
        }
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.ids).finish()
    }
}
