//! Memory shared by content, in the engine's terms: amounts are units of the pool, blocks are whole
//! multiples of them, and whoever holds some has a number.
//!
//! The rules are those of [`crate::content`]. Units in use are counted once, however many hold them.

use std::cell::Cell;

use crate::content::{Chain, Hit, Holder, Pool as Blocks};
use crate::slots::Slots;

/// No holder: a claim of a pool that is not shared.
pub(crate) const NONE: u32 = u32::MAX;

/// Most blocks of a pool: each takes a few words of memory.
pub(crate) const MOST_BLOCKS: f64 = 16_777_216.0;

#[derive(Debug)]
pub(crate) struct Shared {
    blocks: Blocks,
    /// Units in a block.
    unit: f64,
    /// By number; numbers that are free again are in `spare`.
    holders: Slots<Option<Holder>>,
    spare: Vec<u32>,
    /// The latest look-up: expressions ask for the same one several times in an attempt.
    memo: Cell<Option<Memo>>,
    /// What was found when it was last checked.
    #[cfg(debug_assertions)]
    ledger: crate::content::Ledger,
}

#[derive(Clone, Copy, Debug)]
struct Memo {
    stamp: u64,
    version: u64,
    found: f64,
}

/// Whole tokens that cover an amount; what no memory has is the largest number.
fn up(units: f64) -> u64 {
    units.ceil() as u64
}

impl Shared {
    /// A pool of validated size: a whole number of units to a block.
    pub(crate) fn new(cap: f64, block: f64) -> Option<Self> {
        let blocks = Blocks::new((cap / block).floor() as u64, block as u32, true).ok()?;
        Some(Self {
            blocks,
            unit: block,
            holders: Slots::default(),
            spare: Vec::new(),
            memo: Cell::new(None),
            #[cfg(debug_assertions)]
            ledger: crate::content::Ledger::default(),
        })
    }

    pub(crate) fn free(&self) -> f64 {
        self.blocks.free() as f64 * self.unit
    }

    pub(crate) fn used(&self) -> f64 {
        self.blocks.used() as f64 * self.unit
    }

    /// Units nobody holds that have content.
    pub(crate) fn cached(&self) -> f64 {
        self.blocks.cached() as f64 * self.unit
    }

    /// Blocks that lost their content to a new use, so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.blocks.evictions()
    }

    /// The same in units.
    pub(crate) fn evicted(&self) -> f64 {
        self.blocks.evictions() as f64 * self.unit
    }

    pub(crate) fn hit(&self, chain: &Chain, limit: f64) -> Hit {
        self.blocks.hit(chain, limit.floor() as u64)
    }

    /// Units of the longest run of full cached blocks that a chain begins with. `stamp` names
    /// the chain.
    pub(crate) fn found(&self, chain: &Chain, stamp: u64) -> f64 {
        let version = self.blocks.version();
        if let Some(memo) = self.memo.get()
            && (memo.stamp, memo.version) == (stamp, version)
        {
            return memo.found;
        }
        let found = self.blocks.hit(chain, u64::MAX).tokens() as f64;
        self.memo.set(Some(Memo { stamp, version, found }));
        found
    }

    /// Free units that somebody takes who begins with `hit` and holds `units`.
    pub(crate) fn needed(&self, hit: &Hit, units: f64) -> f64 {
        self.blocks.needed(hit, up(units)) as f64 * self.unit
    }

    /// A new holder; `None` if the free blocks do not suffice or the hit is an old one.
    pub(crate) fn open(&mut self, hit: Hit, units: f64) -> Option<u32> {
        let holder = self.blocks.open(hit, up(units)).ok()?;
        match self.spare.pop() {
            Some(number) => {
                self.holders[number as usize] = Some(holder);
                Some(number)
            }
            None => {
                self.holders.push(Some(holder));
                Some(self.holders.len() as u32 - 1)
            }
        }
    }

    /// Units a holder has.
    pub(crate) fn alloc(&self, holder: u32) -> f64 {
        self.holder(holder).map_or(0.0, |h| h.blocks() as f64 * self.unit)
    }

    /// Units before the end of the next block that a holder would let others find.
    pub(crate) fn next_registered(&self, holder: u32) -> f64 {
        self.holder(holder).map_or(0.0, |h| (h.registered() + 1) as f64 * self.unit)
    }

    fn holder(&self, holder: u32) -> Option<&Holder> {
        self.holders.get(holder as usize)?.as_ref()
    }

    /// Takes blank blocks until `units` have room; false, and nothing changed, if there are too few.
    pub(crate) fn grow(&mut self, holder: u32, units: f64) -> bool {
        match self.holders.get_mut(holder as usize) {
            Some(Some(h)) => self.blocks.grow(h, up(units)).is_ok(),
            _ => false,
        }
    }

    /// The content of the first `units` is known: others find the full blocks among them.
    pub(crate) fn register(&mut self, holder: u32, chain: &Chain, units: f64) {
        if let Some(Some(h)) = self.holders.get_mut(holder as usize) {
            self.blocks.register(h, chain, units.floor() as u64);
        }
    }

    pub(crate) fn close(&mut self, holder: u32) {
        if let Some(h) = self.holders.get_mut(holder as usize).and_then(Option::take) {
            self.blocks.close(h);
            self.spare.push(holder);
        }
    }

    /// Holders there are.
    #[cfg(debug_assertions)]
    pub(crate) fn count(&self) -> usize {
        self.holders.len() - self.spare.len()
    }

    /// What is wrong with it, if anything.
    #[cfg(debug_assertions)]
    pub(crate) fn broken(&self) -> Option<String> {
        let holders: Vec<&Holder> = self.holders.iter().flatten().collect();
        let broken = crate::content::invariant::check(&self.blocks, &holders).err()?;
        Some(format!("{}: {}", broken.statement, broken.detail))
    }
}

#[cfg(all(test, debug_assertions))]
impl Shared {
    /// Breaks its books: a block has one reference more than holders.
    pub(crate) fn break_books(&mut self) {
        self.blocks.break_books();
    }
}

#[cfg(debug_assertions)]
impl Shared {
    /// Asks what must hold of what changed since the last time. The holders among that, or what is wrong.
    pub(crate) fn check(&mut self) -> Result<Vec<u32>, String> {
        let checked = self.ledger.check(&mut self.blocks, &mut self.holders);
        checked.map_err(|broken| format!("{}: {}", broken.statement, broken.detail))
    }

    /// Where the account of changes differs from a fresh one, if anywhere.
    pub(crate) fn differs(&self) -> Option<String> {
        self.ledger.differs(&self.blocks, &self.holders)
    }

    /// Whether there is a holder of this number, and how many there were before it.
    pub(crate) fn is_open(&self, holder: u32) -> bool {
        self.holder(holder).is_some()
    }

    pub(crate) fn generation(&self, holder: u32) -> u32 {
        self.ledger.generation(holder)
    }

    pub(crate) fn cap(&self) -> u64 {
        self.blocks.cap()
    }
}
