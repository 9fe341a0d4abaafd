//! What holds in every reachable state of a [`Pool`], each statement under its own name.
//!
//! A statement is a function of the pool and of all its holders and says what contradicts it. It looks at
//! everything; `ledger` asks the same of what changed.

use super::list::{Links, NONE};
use super::pool::{Holder, Pool};
use super::table::ROOT;

/// A statement that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub statement: &'static str,
    pub detail: String,
}

type Statement = fn(&Pool, &[&Holder]) -> Result<(), String>;

/// The statements and their names.
pub const STATEMENTS: [(&str, Statement); 7] = [
    ("every block is used, cached or blank", conserved),
    ("a block's references are its holders", references_are_holders),
    ("the free list is the unreferenced blocks", free_is_unreferenced),
    ("blank blocks are reused before cached ones", blank_before_cached),
    ("the copies of a content are the blocks that carry it", copies_are_carriers),
    ("a content is known while something needs it", contents_are_needed),
    ("a holder's contents are one prefix", holders_hold_prefixes),
];

/// The first statement that does not hold.
pub fn check(pool: &Pool, holders: &[&Holder]) -> Result<(), Violation> {
    for (statement, holds) in STATEMENTS {
        holds(pool, holders).map_err(|detail| Violation { statement, detail })?;
    }
    Ok(())
}

/// `used + cached + blank = cap`, and the counters are the counts.
pub fn conserved(pool: &Pool, _: &[&Holder]) -> Result<(), String> {
    let used = pool.blocks.iter().filter(|b| b.refs > 0).count() as u64;
    let cached = pool.blocks.iter().filter(|b| b.refs == 0 && b.content != NONE).count() as u64;
    let blank = pool.blocks.iter().filter(|b| b.refs == 0 && b.content == NONE).count() as u64;
    let counted = (pool.used(), pool.cached(), pool.free());
    same("used, cached and free", counted, (used, cached, cached + blank))?;
    same("the sum and the cap", used + cached + blank, pool.cap())
}

pub fn references_are_holders(pool: &Pool, holders: &[&Holder]) -> Result<(), String> {
    let mut held = vec![0_u32; pool.blocks.len()];
    for &b in holders.iter().flat_map(|h| h.blocks.iter()) {
        held[b as usize] += 1;
    }
    for (b, (block, held)) in pool.blocks.iter().zip(held).enumerate() {
        same(format_args!("references of block {b}"), block.refs, held)?;
    }
    Ok(())
}

/// Each once, and the list reads the same in both directions.
pub fn free_is_unreferenced(pool: &Pool, _: &[&Holder]) -> Result<(), String> {
    let mut listed = walk(&pool.free_links, pool.free, pool.blocks.len())?;
    same("length of the free list", listed.len() as u64, pool.free())?;
    listed.sort_unstable();
    let unreferenced: Vec<u32> =
        (0..).zip(&pool.blocks).filter(|(_, block)| block.refs == 0).map(|(b, _)| b).collect();
    same("free blocks", listed, unreferenced)
}

pub fn blank_before_cached(pool: &Pool, _: &[&Holder]) -> Result<(), String> {
    let list = walk(&pool.free_links, pool.free, pool.blocks.len())?;
    let mut after = list.into_iter().skip_while(|&b| pool.blocks[b as usize].content == NONE);
    match after.find(|&b| pool.blocks[b as usize].content == NONE) {
        Some(b) => Err(format!("blank block {b} is behind a cached one")),
        None => Ok(()),
    }
}

pub fn copies_are_carriers(pool: &Pool, _: &[&Holder]) -> Result<(), String> {
    let mut copies = 0;
    for (id, node) in pool.table.live() {
        for b in walk(&pool.copy_links, node.copies, pool.blocks.len())? {
            same(format_args!("content of block {b}"), pool.blocks[b as usize].content, id)?;
            copies += 1;
        }
    }
    let carriers = pool.blocks.iter().filter(|b| b.content != NONE).count();
    same("copies and carriers", copies, carriers)
}

/// Each entry counts the blocks that carry it and the entries that go on from it, and the index holds
/// exactly the entries.
pub fn contents_are_needed(pool: &Pool, _: &[&Holder]) -> Result<(), String> {
    let mut needed = vec![0_u32; pool.table.places()];
    needed[ROOT as usize] = 1;
    for (id, node) in pool.table.live() {
        if id != ROOT {
            needed[node.parent as usize] += 1;
        }
    }
    for block in pool.blocks.iter().filter(|b| b.content != NONE) {
        needed[block.content as usize] += 1;
    }
    same("references of nothing", pool.table.node(ROOT).refs, needed[ROOT as usize])?;
    same("tokens before the end of nothing", pool.table.node(ROOT).depth, 0)?;
    let mut live = 0;
    for (id, node) in pool.table.live() {
        same(format_args!("references of content {id}"), node.refs, needed[id as usize])?;
        if id != ROOT {
            live += 1;
            let depth = pool.table.node(node.parent).depth + u64::from(node.piece.len);
            same(format_args!("tokens before the end of content {id}"), node.depth, depth)?;
            same(format_args!("content {id} is in the index"), pool.table.indexed(id), true)?;
        }
    }
    same("contents in the index", pool.table.indexed_count(), live)
}

/// The i-th block of a holder carries a prefix of i + 1 blocks, which goes on from that of the block
/// before it; behind the registered ones nothing carries content.
pub fn holders_hold_prefixes(pool: &Pool, holders: &[&Holder]) -> Result<(), String> {
    for holder in holders {
        (0..holder.blocks.len()).try_for_each(|i| pool.goes_on(holder, i))?;
    }
    Ok(())
}

impl Pool {
    /// The same of one block of a holder.
    pub(super) fn goes_on(&self, holder: &Holder, i: usize) -> Result<(), String> {
        let content = |i: usize| self.blocks[holder.blocks[i] as usize].content;
        let Some(&b) = holder.blocks.get(i) else { return Ok(()) };
        if i >= holder.registered {
            return same(format_args!("content of the unregistered block {b}"), content(i), NONE);
        }
        let (from, content) = (if i == 0 { ROOT } else { content(i - 1) }, content(i));
        if content == NONE || !self.table.extends(content, from) {
            return Err(format!("block {b}, number {i} of its holder, does not go on"));
        }
        let depth = (i as u64 + 1) * u64::from(self.block);
        same(
            format_args!("tokens before the end of block {b}"),
            self.table.node(content).depth,
            depth,
        )
    }
}

/// A list's blocks, or why it is no list. `most` bounds the walk, should the links go round.
fn walk(links: &Links, ends: super::list::Ends, most: usize) -> Result<Vec<u32>, String> {
    let ahead: Vec<u32> = links.iter(ends).take(most + 1).collect();
    let mut back: Vec<u32> = links.iter_back(ends).take(most + 1).collect();
    back.reverse();
    if ahead.len() > most {
        return Err("a list goes round in a circle".to_owned());
    }
    same("a list read from both ends", &ahead, &back)?;
    Ok(ahead)
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(
    what: impl std::fmt::Display,
    a: T,
    b: T,
) -> Result<(), String> {
    if a == b { Ok(()) } else { Err(format!("{what}: {a:?} and {b:?}")) }
}
