//! Registration and prefix hits.

use super::KvPool;
use crate::error::KvError;
use crate::hash::block_hash;

impl KvPool {
    /// Makes a full, used block findable by `hash`. `false` when another block has that hash
    /// already: this one stays unregistered. The same hash again is `true`.
    ///
    /// EINVAL for hash 0, a block that is not full, or one registered under another hash; EBUSY
    /// while somebody writes the block. From here on nobody can write it.
    pub fn register(&mut self, id: u32, hash: u64) -> Result<bool, KvError> {
        let meta = *self.used(id)?;
        if hash == 0 {
            return Err(KvError::invalid(format!("block {id} registered under hash 0")));
        }
        if meta.hash == hash {
            return Ok(true);
        }
        if meta.hash != 0 {
            return Err(KvError::invalid(format!(
                "block {id} is registered as {:#018x}, not {hash:#018x}",
                meta.hash
            )));
        }
        if meta.fill != self.cfg.block_tokens {
            return Err(KvError::invalid(format!(
                "block {id} has {} of {} positions filled; only full blocks have a hash",
                meta.fill, self.cfg.block_tokens
            )));
        }
        if self.index.contains_key(&hash) {
            return Ok(false);
        }
        if !self.slabs.seal(id) {
            return Err(KvError::busy(format!("block {id} is registered while it is written")));
        }
        self.index.insert(hash, id);
        self.digest = self.digest.wrapping_add(hash);
        self.meta[id as usize].hash = hash;
        self.audit(&[id]);
        Ok(true)
    }

    /// As [`KvPool::register`] for a block whose tokens are known: the hash is computed, and the
    /// tokens are kept to be compared on a hit.
    ///
    /// A cached block of the same hash whose tokens are not known gives way to this one.
    pub fn register_tokens(
        &mut self,
        id: u32,
        parent_hash: u64,
        tokens: &[u32],
    ) -> Result<bool, KvError> {
        self.used(id)?;
        let hash = self.full_block_hash(parent_hash, tokens)?;
        if let Some(&other) = self.index.get(&hash) {
            let meta = &self.meta[other as usize];
            if other != id && meta.refs == 0 && !meta.proven {
                self.drop_cached(other);
                self.audit(&[other]);
            }
        }
        let registered = self.register(id, hash)?;
        if registered {
            self.prove(id, parent_hash, tokens)?;
        }
        Ok(registered)
    }

    /// Says which tokens a registered block holds, so that it can be a prefix hit. EINVAL when
    /// the block is unregistered, when the tokens do not hash to its name, or when it is known
    /// to hold other tokens.
    pub fn attach_tokens(
        &mut self,
        id: u32,
        parent_hash: u64,
        tokens: &[u32],
    ) -> Result<(), KvError> {
        let meta = *self.used(id)?;
        let hash = self.full_block_hash(parent_hash, tokens)?;
        if meta.hash == 0 {
            return Err(KvError::invalid(format!("block {id} is not registered")));
        }
        if meta.hash != hash {
            return Err(KvError::invalid(format!(
                "block {id} is {:#018x}, the tokens hash to {hash:#018x}",
                meta.hash
            )));
        }
        self.prove(id, parent_hash, tokens)
    }

    /// Checks that blocks that were pushed here are those of a prompt, and attaches its tokens.
    /// Returns how many full blocks are now known by their tokens; a full block that is not
    /// registered (its name belonged to other bytes) is taken as it is.
    ///
    /// EINVAL when the number of blocks, a fill or a name is not the prompt's.
    pub fn attach_prompt(&mut self, ids: &[u32], tokens: &[u32]) -> Result<u32, KvError> {
        let b = self.cfg.block_tokens as usize;
        if ids.len() != tokens.len().div_ceil(b) {
            return Err(KvError::invalid(format!(
                "{} blocks for a prompt of {} tokens",
                ids.len(),
                tokens.len()
            )));
        }
        let (mut parent, mut known) = (0, 0);
        for (&id, block) in ids.iter().zip(tokens.chunks(b)) {
            let fill = self.fill(id)?;
            if fill as usize != block.len() {
                return Err(KvError::invalid(format!(
                    "block {id} holds {fill} positions, the prompt has {}",
                    block.len()
                )));
            }
            if block.len() < b {
                break;
            }
            if self.hash_of(id) != 0 {
                self.attach_tokens(id, parent, block)?;
                known += 1;
            }
            parent = block_hash(parent, block);
        }
        Ok(known)
    }

    fn prove(&mut self, id: u32, parent_hash: u64, tokens: &[u32]) -> Result<(), KvError> {
        if self.meta[id as usize].proven {
            return if self.holds_tokens(id, parent_hash, tokens) {
                Ok(())
            } else {
                Err(KvError::invalid(format!("block {id} holds other tokens of the same hash")))
            };
        }
        let range = self.token_range(id);
        self.tokens[range].copy_from_slice(tokens);
        let meta = &mut self.meta[id as usize];
        meta.parent = parent_hash;
        meta.proven = true;
        Ok(())
    }

    /// Whether a block is known to hold exactly these tokens after that parent.
    pub fn holds_tokens(&self, id: u32, parent_hash: u64, tokens: &[u32]) -> bool {
        self.meta.get(id as usize).is_some_and(|meta| {
            meta.proven
                && meta.parent == parent_hash
                && self.tokens[self.token_range(id)] == *tokens
        })
    }

    pub(super) fn token_range(&self, id: u32) -> std::ops::Range<usize> {
        let b = self.cfg.block_tokens as usize;
        id as usize * b..(id as usize + 1) * b
    }

    fn full_block_hash(&self, parent_hash: u64, tokens: &[u32]) -> Result<u64, KvError> {
        if tokens.len() != self.cfg.block_tokens as usize {
            return Err(KvError::invalid(format!(
                "{} tokens for a block of {}",
                tokens.len(),
                self.cfg.block_tokens
            )));
        }
        Ok(block_hash(parent_hash, tokens))
    }

    /// Finds a block by hash and takes a reference to it. The tokens are not compared: for the
    /// deduplication of a push, which is defined on hashes.
    pub fn lookup(&mut self, hash: u64) -> Option<u32> {
        let id = *self.index.get(&hash)?;
        self.take(id).then_some(id)
    }

    /// Finds the block of `tokens` after `parent_hash` and takes a reference to it. A block whose
    /// tokens are unknown or differ is no hit.
    pub fn lookup_tokens(&mut self, parent_hash: u64, tokens: &[u32]) -> Option<u32> {
        let id = *self.index.get(&block_hash(parent_hash, tokens))?;
        (self.holds_tokens(id, parent_hash, tokens) && self.take(id)).then_some(id)
    }

    fn take(&mut self, id: u32) -> bool {
        let meta = &mut self.meta[id as usize];
        let Some(refs) = meta.refs.checked_add(1) else {
            return false;
        };
        if meta.refs == 0 {
            self.lru.remove(&mut self.links, id);
        }
        meta.refs = refs;
        self.sync_access(id);
        self.audit(&[id]);
        true
    }

    /// Whether a block of this hash is here, without taking a reference.
    pub fn contains(&self, hash: u64) -> bool {
        self.index.contains_key(&hash)
    }

    /// The longest run of cached full blocks at the front of a prompt, one reference each. At
    /// most `(len - 1) / B` blocks, so that at least one token is left to compute.
    pub fn match_prefix(&mut self, tokens: &[u32]) -> Vec<u32> {
        let b = self.cfg.block_tokens as usize;
        let limit = tokens.len().saturating_sub(1) / b;
        let mut parent = 0;
        let mut ids = Vec::new();
        for block in tokens.chunks_exact(b).take(limit) {
            let Some(id) = self.lookup_tokens(parent, block) else {
                break;
            };
            parent = self.meta[id as usize].hash;
            ids.push(id);
        }
        ids
    }

    /// Frees every cached block and says how many. Blocks in use stay, registered as they are.
    pub fn reset_cache(&mut self) -> u32 {
        let dropped = self.lru.len;
        while self.lru.len > 0 {
            let id = self.lru.front();
            self.drop_cached(id);
            self.audit(&[id]);
        }
        dropped
    }

    /// Wrapping sum of the hashes of all registered blocks: equal for pools that know the same
    /// blocks, and cheap enough to send with every heartbeat.
    pub fn index_digest(&self) -> u64 {
        self.digest
    }

    fn drop_cached(&mut self, id: u32) {
        self.lru.remove(&mut self.links, id);
        self.unregister(id);
        self.free.push_front(&mut self.links, id);
    }

    pub(super) fn unregister(&mut self, id: u32) {
        let meta = &mut self.meta[id as usize];
        self.index.remove(&meta.hash);
        self.digest = self.digest.wrapping_sub(meta.hash);
        *meta = super::Meta { refs: meta.refs, ..super::Meta::default() };
    }
}
