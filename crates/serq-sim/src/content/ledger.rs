//! The statements about a [`Pool`], asked of what changed since the last time.
//!
//! Blocks, their neighbours in lists, contents and holders are kept in lists that know what of them was lent
//! for change ([`crate::slots`]). A ledger remembers what each contributed to the sums (references of blocks,
//! needs of contents, blocks used and cached), takes that out, puts in what it contributes now, and asks
//! the statements that speak of one place or of neighbours where a place or a neighbour changed.
//!
//! Why nothing is missed: each statement of [`super::invariant`] is one of three. A sum, of which only what
//! changed is counted again. A comparison of a block, a content or a place of a holder with its neighbours,
//! which is asked again of both if either changed, and of those it was beside before. That a list is one list from
//! end to end is the third: here it is asked of the links of what changed, which finds a block that is on
//! no list, on a wrong one or on one twice; that no links form a circle beside the list is what only the
//! walk of [`super::invariant`] shows. The index of
//! contents changes in two places of [`super::table`], both of which change the content, too.

use super::Pool;
use super::invariant::{STATEMENTS, Violation, same};
use super::list::{Ends, Links, NONE};
use super::pool::Holder;
use super::table::ROOT;
use crate::slots::{Slots, Touched};

/// What each block, content and holder contributed when it was last looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    blocks: Vec<OfBlock>,
    contents: Vec<OfContent>,
    holders: Vec<OfHolder>,
    /// Ends of the free list.
    free: Ends,
    used: u64,
    cached: u64,
    live: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OfBlock {
    used: bool,
    content: u32,
    /// Times that holders have it, and their numbers, each one added by exclusive or: the number of the
    /// only one if there is one.
    held: u32,
    by: u32,
    /// Its neighbours on the free list and among the copies of its content.
    beside: [(u32, u32); 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OfContent {
    live: bool,
    parent: u32,
    depth: u64,
    /// Blocks that carry it and contents that go on from it.
    needs: u32,
    /// Ends of the list of those blocks.
    copies: Ends,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfHolder {
    blocks: Vec<u32>,
    registered: usize,
    /// How many there were before it under this number.
    generation: u32,
}

/// What is to be looked at: blocks, contents, places of holders.
#[derive(Debug, Default)]
struct Suspects {
    blocks: Touched,
    contents: Touched,
    places: Vec<(u32, usize)>,
}

impl Suspects {
    fn ends(&mut self, ends: Ends) {
        for b in [ends.first, ends.last].into_iter().filter(|b| *b != NONE) {
            self.blocks.note(b as usize);
        }
    }
}

const BLANK: OfBlock =
    OfBlock { used: false, content: NONE, held: 0, by: 0, beside: [(NONE, NONE); 2] };

impl Ledger {
    /// Takes over what changed and asks the statements about it. The holders that were lent for change.
    pub(crate) fn check(
        &mut self,
        pool: &mut Pool,
        holders: &mut Slots<Option<Holder>>,
    ) -> Result<Vec<u32>, Violation> {
        let mut suspects = Suspects::default();
        let lent = holders.touched();
        self.holders.resize(holders.len(), OfHolder::default());
        self.blocks.resize(pool.blocks.len(), BLANK);
        for &h in &lent {
            self.take_holder(h, holders[h as usize].as_ref(), &mut suspects);
        }
        let contents = pool.table.touched();
        let changed = self.take_contents(pool, &contents, &mut suspects);
        let blocks = pool.blocks.touched();
        for &b in &blocks {
            self.take_block(pool, b, &mut suspects);
        }
        for id in changed {
            // Who carries a content that is another than before is not what it was.
            let ends = pool.table.node(id).copies;
            for b in pool.copy_links.iter(ends).take(pool.blocks.len()) {
                self.suspect_places(pool, b, &mut suspects);
            }
        }
        blocks.into_iter().for_each(|b| suspects.blocks.note(b as usize));
        suspects.ends(std::mem::replace(&mut self.free, pool.free));
        for (which, links) in [&mut pool.free_links, &mut pool.copy_links].into_iter().enumerate() {
            for b in links.touched() {
                // Who it was beside may still say so.
                let beside = &mut self.blocks[b as usize].beside[which];
                let before = std::mem::replace(beside, links.around(b));
                let all = [b, before.0, before.1].into_iter().filter(|b| *b != NONE);
                all.for_each(|b| suspects.blocks.note(b as usize));
            }
        }
        self.ask(pool, holders, suspects)?;
        Ok(lent)
    }

    /// How many holders had this number before the one that has it.
    pub(crate) fn generation(&self, holder: u32) -> u32 {
        self.holders.get(holder as usize).map_or(0, |h| h.generation)
    }

    /// Where a ledger of the same pool made at once differs, if anywhere.
    pub(crate) fn differs(&self, pool: &Pool, holders: &[Option<Holder>]) -> Option<String> {
        let fresh = Ledger::of(pool, holders);
        let sums = |l: &Ledger| format!("{:?}", (l.used, l.cached, l.live));
        let kept =
            |h: &OfHolder, k: &OfHolder| (&h.blocks, h.registered) == (&k.blocks, k.registered);
        let dead = |id: &OfContent| OfContent { needs: id.needs, ..OfContent::default() };
        let alike = |a: &OfContent, b: &OfContent| {
            if a.live || b.live { a == b } else { dead(a) == dead(b) }
        };
        if sums(self) != sums(&fresh) {
            return Some(format!("sums: {} and {}", sums(self), sums(&fresh)));
        }
        let block = (0..).zip(self.blocks.iter().zip(&fresh.blocks)).find(|(_, (a, b))| a != b);
        let content = self.contents.iter().zip(&fresh.contents).find(|(a, b)| !alike(a, b));
        let holder = self.holders.iter().zip(&fresh.holders).find(|(a, b)| !kept(a, b));
        let block = block.map(|(b, of): (u32, _)| format!("block {b}: {of:?}"));
        let content = content.map(|of| format!("content: {of:?}"));
        block.or(content).or(holder.map(|of| format!("holder: {of:?}")))
    }

    /// The ledger of a pool, everything counted.
    fn of(pool: &Pool, holders: &[Option<Holder>]) -> Self {
        let mut ledger = Self {
            blocks: vec![BLANK; pool.blocks.len()],
            holders: vec![OfHolder::default(); holders.len()],
            ..Self::default()
        };
        let mut suspects = Suspects::default();
        for (h, holder) in (0..).zip(holders) {
            ledger.hold(h, holder.as_ref(), 0, &mut suspects);
        }
        let all: Vec<u32> = (0..pool.table.places() as u32).collect();
        ledger.take_contents(pool, &all, &mut suspects);
        for b in 0..pool.blocks.len() as u32 {
            ledger.take_block(pool, b, &mut suspects);
            let beside = [pool.free_links.around(b), pool.copy_links.around(b)];
            ledger.blocks[b as usize].beside = beside;
        }
        ledger
    }

    /// A holder that was lent for change: the same that has grown, another, or none.
    fn take_holder(&mut self, h: u32, holder: Option<&Holder>, suspects: &mut Suspects) {
        let before = &mut self.holders[h as usize];
        let had = before.blocks.len();
        let from = holder.map_or(0, |holder| holder.blocks.see());
        if from < had {
            before.generation += 1;
            for b in before.blocks.drain(from..) {
                let block = &mut self.blocks[b as usize];
                block.held -= 1;
                block.by ^= h;
                suspects.blocks.note(b as usize);
            }
        }
        self.hold(h, holder, from, suspects);
    }

    /// Its blocks from one on are a holder's.
    fn hold(&mut self, h: u32, holder: Option<&Holder>, from: usize, suspects: &mut Suspects) {
        let before = &mut self.holders[h as usize];
        let registered = holder.map_or(0, Holder::registered);
        let first = from.min(before.registered).min(registered);
        before.registered = registered;
        let Some(holder) = holder else { return };
        for &b in &holder.blocks[from..] {
            before.blocks.push(b);
            let block = &mut self.blocks[b as usize];
            block.held += 1;
            block.by ^= h;
            suspects.blocks.note(b as usize);
        }
        suspects.places.extend((first..holder.blocks.len()).map(|i| (h, i)));
    }

    /// Contents that were lent for change. Those that are others than before.
    fn take_contents(&mut self, pool: &Pool, ids: &[u32], suspects: &mut Suspects) -> Vec<u32> {
        self.contents.resize(pool.table.places(), OfContent::default());
        let mut changed = Vec::new();
        for &id in ids {
            suspects.contents.note(id as usize);
            let (node, before) = (pool.table.node(id), self.contents[id as usize]);
            let now = OfContent {
                live: node.refs > 0,
                parent: node.parent,
                depth: node.depth,
                needs: before.needs,
                copies: node.copies,
            };
            if now == before {
                continue;
            }
            self.contents[id as usize] = now;
            // A list that ends elsewhere: those that were its ends are so no more.
            suspects.ends(before.copies);
            suspects.ends(now.copies);
            if (OfContent { copies: before.copies, ..now }) == before {
                continue;
            }
            for (of, gone) in [(before, true), (now, false)] {
                if of.live {
                    self.live = if gone { self.live - 1 } else { self.live + 1 };
                    // Of nothing before it there is always one.
                    let parent = if id == ROOT { ROOT } else { of.parent };
                    self.need(parent, gone, suspects);
                }
            }
            changed.push(id);
        }
        changed
    }

    fn need(&mut self, id: u32, gone: bool, suspects: &mut Suspects) {
        if let Some(of) = self.contents.get_mut(id as usize) {
            of.needs = if gone { of.needs - 1 } else { of.needs + 1 };
            suspects.contents.note(id as usize);
        }
    }

    /// A block that was lent for change.
    fn take_block(&mut self, pool: &Pool, b: u32, suspects: &mut Suspects) {
        let (block, before) = (pool.blocks[b as usize], self.blocks[b as usize]);
        let now = OfBlock { used: block.refs > 0, content: block.content, ..before };
        self.blocks[b as usize] = now;
        for (of, gone) in [(before, true), (now, false)] {
            let idle = !of.used && of.content != NONE;
            for (sum, counts) in [(&mut self.used, of.used), (&mut self.cached, idle)] {
                *sum = if gone { *sum - u64::from(counts) } else { *sum + u64::from(counts) };
            }
            if of.content != NONE {
                self.need(of.content, gone, suspects);
            }
        }
        if now.content != before.content {
            self.suspect_places(pool, b, suspects);
        }
    }

    /// The places of holders that a block is at, and those behind them.
    fn suspect_places(&self, pool: &Pool, b: u32, suspects: &mut Suspects) {
        let content = pool.blocks[b as usize].content;
        let depth = if content == NONE { 0 } else { pool.table.node(content).depth };
        let likely = (depth / u64::from(pool.block)).saturating_sub(1) as usize;
        let of = self.blocks[b as usize];
        let holders = match of.held {
            0 => return,
            1 => of.by..of.by + 1,
            // It can only have changed by a mistake.
            _ => 0..self.holders.len() as u32,
        };
        for h in holders {
            let Some(holder) = self.holders.get(h as usize) else { continue };
            let at = match holder.blocks.get(likely) {
                Some(of) if *of == b => Some(likely),
                _ => holder.blocks.iter().rposition(|of| *of == b),
            };
            suspects.places.extend(at.into_iter().flat_map(|i| [(h, i), (h, i + 1)]));
        }
    }

    /// The statements, of whatever they could fail for.
    fn ask(
        &self,
        pool: &Pool,
        holders: &[Option<Holder>],
        mut suspects: Suspects,
    ) -> Result<(), Violation> {
        let named = |k: usize| move |detail| Violation { statement: STATEMENTS[k].0, detail };
        self.conserved(pool).map_err(named(0))?;
        let (mut blocks, mut contents) = (Vec::new(), Vec::new());
        suspects.blocks.take(&mut blocks);
        suspects.contents.take(&mut contents);
        for &b in &blocks {
            let (refs, held) = (pool.blocks[b as usize].refs, self.blocks[b as usize].held);
            same(format_args!("references of block {b}"), refs, held).map_err(named(1))?;
        }
        ends(&pool.free_links, pool.free).map_err(named(2))?;
        for &b in &blocks {
            let idle = pool.blocks[b as usize].refs == 0;
            listed(&pool.free_links, pool.free, b, idle).map_err(named(2))?;
        }
        for &b in &blocks {
            blank_before_cached(pool, b).map_err(named(3))?;
        }
        for &b in &blocks {
            carried(pool, b).map_err(named(4))?;
        }
        for &id in &contents {
            let node = pool.table.node(id);
            ends(&pool.copy_links, node.copies).map_err(named(4))?;
            let first = (node.refs > 0).then_some(node.copies.first).filter(|b| *b != NONE);
            if let Some(b) = first {
                same(format_args!("content of block {b}"), pool.blocks[b as usize].content, id)
                    .map_err(named(4))?;
            }
        }
        for &id in &contents {
            self.needed(pool, id).map_err(named(5))?;
        }
        same("contents in the index", pool.table.indexed_count() + 1, self.live)
            .map_err(named(5))?;
        for (h, i) in suspects.places {
            let holder = holders.get(h as usize).and_then(Option::as_ref);
            holder.map_or(Ok(()), |holder| pool.goes_on(holder, i)).map_err(named(6))?;
        }
        Ok(())
    }

    fn conserved(&self, pool: &Pool) -> Result<(), String> {
        let counted = (pool.used(), pool.cached(), pool.free());
        same("used, cached and free", counted, (self.used, self.cached, pool.cap() - self.used))
    }

    fn needed(&self, pool: &Pool, id: u32) -> Result<(), String> {
        let (node, of) = (pool.table.node(id), self.contents[id as usize]);
        same(format_args!("references of content {id}"), node.refs, of.needs)?;
        if id == ROOT {
            return same("tokens before the end of nothing", node.depth, 0);
        }
        if !of.live {
            return Ok(());
        }
        same(format_args!("content {id} is in the index"), pool.table.indexed(id), true)?;
        let depth = pool.table.node(node.parent).depth + u64::from(node.piece.len);
        same(format_args!("tokens before the end of content {id}"), node.depth, depth)
    }
}

/// A list's ends are no block, or two blocks that nothing is beyond.
fn ends(links: &Links, ends: Ends) -> Result<(), String> {
    let Ends { first, last } = ends;
    same("a list has no first and no last block", first == NONE, last == NONE)?;
    if first != NONE {
        same(
            "before the first and behind the last",
            [links.around(first).0, links.around(last).1],
            [NONE; 2],
        )?;
    }
    Ok(())
}

/// A block is on a list, between two that say so, or it is not.
fn listed(links: &Links, ends: Ends, b: u32, is: bool) -> Result<(), String> {
    let (prev, next) = links.around(b);
    let on = prev != NONE || next != NONE || ends.first == b;
    same(format_args!("block {b} is on its list"), on, is)?;
    if on {
        let before = if prev == NONE { ends.first } else { links.around(prev).1 };
        let behind = if next == NONE { ends.last } else { links.around(next).0 };
        same(format_args!("block {b} between {prev} and {next}"), [before, behind], [b; 2])?;
    }
    Ok(())
}

fn blank_before_cached(pool: &Pool, b: u32) -> Result<(), String> {
    let (prev, next) = pool.free_links.around(b);
    let pairs = [(prev, b), (b, next)];
    let blank = |b: u32| pool.blocks[b as usize].content == NONE;
    let on = pairs.into_iter().filter(|(ahead, behind)| *ahead != NONE && *behind != NONE);
    match on.into_iter().find(|(ahead, behind)| !blank(*ahead) && blank(*behind)) {
        Some((_, b)) => Err(format!("blank block {b} is behind a cached one")),
        None => Ok(()),
    }
}

/// A block is among the copies of its content, and its neighbours there carry the same.
fn carried(pool: &Pool, b: u32) -> Result<(), String> {
    let content = pool.blocks[b as usize].content;
    if content == NONE {
        return same(
            format_args!("the blank block {b} is a copy"),
            pool.copy_links.around(b),
            (NONE, NONE),
        );
    }
    let node = pool.table.node(content);
    listed(&pool.copy_links, node.copies, b, true)?;
    let (prev, next) = pool.copy_links.around(b);
    for beside in [prev, next].into_iter().filter(|b| *b != NONE) {
        let other = pool.blocks[beside as usize].content;
        same(format_args!("content of block {beside} beside {b}"), other, content)?;
    }
    Ok(())
}
