//! The rules of the books, asked in debug builds after every transition.
//!
//! [`KvPool::check`] looks at every block, which a transition of one must not cost. So the rules are asked of
//! the blocks that a transition was about, and of everything as often as transitions have paid
//! for it: a small pool is looked at whole after every few, a large one more rarely.

use super::{KvPool, Meta};
use crate::invariants::{Invariant, Violation};
use crate::slabs::Access;

/// Blocks of a whole look that one block of a transition pays for, and those that it costs beside the pool's.
const PAID: u32 = 4;
const BASE: u32 = 32;

impl KvPool {
    /// A transition was about these blocks. Panics in a debug build if it broke a rule.
    pub(super) fn audit(&mut self, ids: &[u32]) {
        if !cfg!(debug_assertions) {
            return;
        }
        let paid = u32::try_from(ids.len()).unwrap_or(u32::MAX).saturating_mul(PAID);
        self.unaudited = self.unaudited.saturating_add(paid);
        let mut checked = ids.iter().try_for_each(|&id| self.check_block(id));
        if self.unaudited >= self.cfg.n_blocks.saturating_add(BASE) {
            self.unaudited = 0;
            checked = checked.and_then(|()| self.check());
        }
        debug_assert!(checked.is_ok(), "{checked:?}");
    }

    /// The rules of [`KvPool::check`] that one block and its neighbours can break, and that the
    /// storage knows who may touch it.
    pub fn check_block(&self, id: u32) -> Result<(), Violation> {
        let Some(&meta) = self.meta.get(id as usize) else { return Ok(()) };
        let (free, cached) = (self.free.len, self.lru.len);
        let unused = u64::from(free) + u64::from(cached);
        Invariant::WithinCapacity.require(unused <= u64::from(self.cfg.n_blocks), || {
            format!("{free} free and {cached} cached of {}", self.cfg.n_blocks)
        })?;
        let lists = [(&self.free, meta.refs == 0 && meta.hash == 0), (&self.lru, is_cached(meta))];
        for (list, on) in lists {
            let holds = if on { list.has(&self.links, id) } else { !list.ends_with(id) };
            Invariant::UnusedListed
                .require(holds, || format!("block {id} with {} references", meta.refs))?;
        }
        Invariant::IndexExact
            .require(meta.hash == 0 || self.index.get(&meta.hash) == Some(&id), || {
                format!("block {id} is not found by its hash")
            })?;
        Invariant::RegisteredIsFull
            .require(meta.hash == 0 || meta.fill == self.cfg.block_tokens, || {
                format!("block {id} has fill {}", meta.fill)
            })?;
        let access = access(meta);
        let rule = match access {
            Access::Unheld => Invariant::HeldBlocksOnly,
            _ => Invariant::SharedIsReadOnly,
        };
        rule.require(self.slabs.has_access(id, access), || {
            format!("block {id} of {} references and hash {:#018x}", meta.refs, meta.hash)
        })
    }
}

fn is_cached(meta: Meta) -> bool {
    meta.refs == 0 && meta.hash != 0
}

/// Who may touch a block of these books.
pub(super) fn access(meta: Meta) -> Access {
    match (meta.refs, meta.hash) {
        (0, _) => Access::Unheld,
        (1, 0) => Access::Owned,
        _ => Access::Shared,
    }
}
