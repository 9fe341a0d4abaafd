//! The blocks, who holds them, and which are reused first.

use thiserror::Error;

use super::chain::{Chain, Cursor};
use super::list::{Ends, Links, NONE};
use super::table::{ROOT, Table};
use crate::slots::{Slots, Tail};

/// An engine's memory: blocks with reference counts, a free list, and a content for each block that
/// has one.
// A copy would have holders that do not know it: only tests make one.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Pool {
    /// Tokens in a block.
    pub(super) block: u32,
    /// Whether blocks are ever registered.
    keeps: bool,
    pub(super) blocks: Slots<Block>,
    pub(super) free: Ends,
    pub(super) free_links: Links,
    pub(super) copy_links: Links,
    pub(super) table: Table,
    /// Length of the free list.
    pub(super) free_count: u32,
    /// Free blocks with content.
    pub(super) cached_count: u32,
    evictions: u64,
    /// Advanced by every change, so that an old [`Hit`] is recognised.
    version: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) refs: u32,
    /// The prefix that ends with this block, or [`NONE`].
    pub(super) content: u32,
}

/// The blocks a request holds, in the order of its tokens. They stay held until
/// [`Pool::close`]: whoever owns this value owns them.
#[derive(Debug)]
#[must_use = "its blocks stay held until it is closed"]
pub struct Holder {
    pub(super) blocks: Tail<u32>,
    /// How many of them, from the first, carry content.
    pub(super) registered: usize,
    /// Where in the chain the registered ones end.
    cursor: Cursor,
}

/// What a chain finds in a pool: its longest run of full cached blocks. Good until the pool changes.
#[derive(Clone, Debug)]
pub struct Hit {
    blocks: Vec<u32>,
    cursor: Cursor,
    /// Blocks among them that nobody holds.
    idle: u32,
    block: u32,
    version: u64,
}

/// The free blocks do not suffice. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{needed} blocks needed, {free} free")]
pub struct Short {
    pub needed: u64,
    pub free: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    #[error("a block of no tokens holds nothing; give it at least one")]
    EmptyBlock,
    #[error("{0} blocks are more than a pool can have; give it at most {max}", max = u32::MAX - 1)]
    TooManyBlocks(u64),
    #[error("the pool changed since the hit was looked up; look it up again")]
    StaleHit,
    #[error(transparent)]
    Short(#[from] Short),
}

impl Holder {
    /// Blocks held.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Of these, how many others may find.
    pub fn registered(&self) -> usize {
        self.registered
    }
}

impl Hit {
    pub fn tokens(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(self.block)
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl Pool {
    /// `blocks` blank blocks of `block` tokens. Without `keeps` nothing is ever registered and so
    /// nothing found.
    pub fn new(blocks: u64, block: u32, keeps: bool) -> Result<Self, PoolError> {
        if block == 0 {
            return Err(PoolError::EmptyBlock);
        }
        let count = u32::try_from(blocks).ok().filter(|&b| b < NONE);
        let count = count.ok_or(PoolError::TooManyBlocks(blocks))?;
        let (mut free, mut free_links) = (Ends::EMPTY, Links::new(count));
        for b in 0..count {
            free_links.push_back(&mut free, b);
        }
        Ok(Pool {
            block,
            keeps,
            blocks: vec![Block { refs: 0, content: NONE }; count as usize].into(),
            free,
            free_links,
            copy_links: Links::new(count),
            table: Table::new(),
            free_count: count,
            cached_count: 0,
            evictions: 0,
            version: 0,
        })
    }

    /// Blocks of the pool.
    pub fn cap(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Tokens in a block.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Blocks nobody holds, with content or without.
    pub fn free(&self) -> u64 {
        u64::from(self.free_count)
    }

    /// Blocks somebody holds.
    pub fn used(&self) -> u64 {
        self.cap() - self.free()
    }

    /// Blocks nobody holds that still have content.
    pub fn cached(&self) -> u64 {
        u64::from(self.cached_count)
    }

    /// Blocks that lost their content to a new use, so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Changes whenever what a chain finds may change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whole blocks that cover so many tokens.
    pub fn round_up(&self, tokens: u64) -> u64 {
        tokens.div_ceil(u64::from(self.block))
    }

    /// The longest run of full cached blocks that `chain` begins with, at most `limit` tokens. An
    /// engine that must compute at least one token gives one less than it knows.
    pub fn hit(&self, chain: &Chain, limit: u64) -> Hit {
        let most = limit.min(chain.len()) / u64::from(self.block);
        let mut hit = Hit {
            blocks: Vec::new(),
            cursor: Cursor::default(),
            idle: 0,
            block: self.block,
            version: self.version,
        };
        let (mut at, mut cursor) = (ROOT, Cursor::default());
        while (hit.blocks.len() as u64) < most {
            let Some(next) = self.table.find(at, chain, &mut cursor, self.block) else { break };
            let first = self.table.node(next).copies.first;
            if first == NONE {
                break;
            }
            hit.blocks.push(first);
            hit.cursor = cursor;
            hit.idle += u32::from(self.blocks[first as usize].refs == 0);
            at = next;
        }
        hit
    }

    /// Free blocks that a request takes which begins with `hit` and holds `tokens` tokens: the blocks
    /// beyond the hit, and those of the hit that nobody holds now.
    pub fn needed(&self, hit: &Hit, tokens: u64) -> u64 {
        self.round_up(tokens).saturating_sub(hit.blocks.len() as u64) + u64::from(hit.idle)
    }

    /// Takes the blocks of `hit`, then blank ones until `tokens` tokens have room.
    pub fn open(&mut self, hit: Hit, tokens: u64) -> Result<Holder, PoolError> {
        if hit.version != self.version {
            return Err(PoolError::StaleHit);
        }
        self.room_for(self.needed(&hit, tokens))?;
        self.version += 1;
        for &b in &hit.blocks {
            let block = &mut self.blocks[b as usize];
            block.refs += 1;
            if block.refs == 1 {
                self.free_links.remove(&mut self.free, b);
                self.free_count -= 1;
                self.cached_count -= 1;
            }
        }
        let registered = hit.blocks.len();
        let mut holder = Holder { blocks: hit.blocks.into(), registered, cursor: hit.cursor };
        self.fill(&mut holder, tokens);
        Ok(holder)
    }

    /// Blocks that a holder lacks for `tokens` tokens.
    pub fn lacking(&self, holder: &Holder, tokens: u64) -> u64 {
        self.round_up(tokens).saturating_sub(holder.blocks.len() as u64)
    }

    /// Takes blank blocks until `tokens` tokens have room.
    pub fn grow(&mut self, holder: &mut Holder, tokens: u64) -> Result<(), Short> {
        let lacking = self.lacking(holder, tokens);
        self.room_for(lacking)?;
        self.version += u64::from(lacking > 0);
        self.fill(holder, tokens);
        Ok(())
    }

    /// The content of the first `tokens` tokens is decided: the full blocks among them can be found
    /// from now on. Blocks of the holder beyond its room, or of a chain that is shorter, stay as
    /// they are.
    pub fn register(&mut self, holder: &mut Holder, chain: &Chain, tokens: u64) {
        if !self.keeps {
            return;
        }
        let full = tokens / u64::from(self.block);
        let full = usize::try_from(full).unwrap_or(usize::MAX).min(holder.blocks.len());
        while holder.registered < full {
            let before = holder.registered.checked_sub(1).map(|i| holder.blocks[i]);
            let from = before.map_or(ROOT, |b| self.blocks[b as usize].content);
            let mut cursor = holder.cursor;
            let Some(node) = self.table.intern(from, chain, &mut cursor, self.block) else {
                return;
            };
            let b = holder.blocks[holder.registered];
            self.version += 1;
            self.blocks[b as usize].content = node;
            self.copy_links.push_back(&mut self.table.node_mut(node).copies, b);
            holder.cursor = cursor;
            holder.registered += 1;
        }
    }

    /// Gives the blocks back. Those nobody else holds are free; with content they are reused last,
    /// the end of the request before its beginning.
    pub fn close(&mut self, holder: Holder) {
        self.version += 1;
        for &b in holder.blocks.iter().rev() {
            let block = &mut self.blocks[b as usize];
            block.refs -= 1;
            if block.refs > 0 {
                continue;
            }
            self.free_count += 1;
            if block.content == NONE {
                self.free_links.push_front(&mut self.free, b);
            } else {
                self.cached_count += 1;
                self.free_links.push_back(&mut self.free, b);
            }
        }
    }

    /// A block has one reference more than holders.
    #[cfg(all(test, debug_assertions))]
    pub(crate) fn break_books(&mut self) {
        self.blocks[0].refs += 1;
    }

    fn room_for(&self, needed: u64) -> Result<(), Short> {
        let free = self.free();
        if needed <= free { Ok(()) } else { Err(Short { needed, free }) }
    }

    /// The caller has made sure that the blocks are there.
    fn fill(&mut self, holder: &mut Holder, tokens: u64) {
        for _ in 0..self.lacking(holder, tokens) {
            let b = self.free.first;
            self.free_links.remove(&mut self.free, b);
            self.free_count -= 1;
            let content = std::mem::replace(&mut self.blocks[b as usize].content, NONE);
            if content != NONE {
                self.copy_links.remove(&mut self.table.node_mut(content).copies, b);
                self.table.release(content);
                self.cached_count -= 1;
                self.evictions += 1;
            }
            self.blocks[b as usize].refs = 1;
            holder.blocks.push(b);
        }
    }
}
