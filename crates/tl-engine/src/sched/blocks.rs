//! The scheduler's view of the KV pool: tables that grow, and the prefix cache.
//!
//! A request's blocks are one [`Table`], which gives them back when dropped. Full blocks are
//! registered under their chained hash, with their tokens, as soon as they are computed and not
//! only when the request ends, so that a second prompt with the same beginning, or a peer that asks
//! before a push, finds them while the first still runs. From then on nobody writes them.

use tl_kv::{Held, KvPool, SharedKv, block_hash, lock};

use crate::engine::Refused;

/// The blocks of one sequence: position `j` in block `j / B`, slot `j % B`.
#[derive(Debug)]
pub struct Table {
    held: Held,
    /// Leading blocks that are full and need no further bookkeeping.
    settled: usize,
}

impl Table {
    pub(super) fn ids(&self) -> &[u32] {
        self.held.ids()
    }
}

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Blocks {
    kv: SharedKv,
    block_tokens: usize,
    total_blocks: usize,
    prefix_cache: bool,
}

impl Blocks {
    pub fn new(kv: SharedKv, prefix_cache: bool) -> Blocks {
        let (block_tokens, total_blocks) = {
            let books = lock(&kv);
            (books.cfg().block_tokens as usize, books.cfg().n_blocks as usize)
        };
        Blocks { kv, block_tokens, total_blocks, prefix_cache }
    }

    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    pub fn total_blocks(&self) -> usize {
        self.total_blocks
    }

    /// Blocks that an allocation could have now.
    pub(super) fn available(&self) -> usize {
        let stats = lock(&self.kv).stats();
        (stats.free + stats.cached) as usize
    }

    pub fn prefix_cache(&self) -> bool {
        self.prefix_cache
    }

    /// Blocks for the whole of `tokens`, and how many leading tokens are in cached ones: at most
    /// `(len - 1) / B` blocks, so that the last token is computed. Nothing is taken when it does not
    /// fit.
    pub(super) fn allocate(&self, tokens: &[u32]) -> Option<(Table, usize)> {
        let want = tokens.len().div_ceil(self.block_tokens);
        let mut books = lock(&self.kv);
        let mut ids = if self.prefix_cache { books.match_prefix(tokens) } else { Vec::new() };
        let hits = ids.len();
        match books.alloc(want - hits) {
            Ok(fresh) => ids.extend(fresh),
            Err(_) => {
                let hits = Held::adopt(&self.kv, ids);
                hits.release_into(&mut books);
                return None;
            }
        }
        drop(books);
        let table = Table { held: Held::adopt(&self.kv, ids), settled: hits };
        Some((table, hits * self.block_tokens))
    }

    /// Takes over blocks that hold the KV of exactly `prompt`, computed elsewhere. Registered
    /// blocks must bear these tokens' names; they become prefix hits for later prompts.
    pub fn adopt(&self, held: Held, prompt: &[u32]) -> Result<Table, Refused> {
        let b = self.block_tokens;
        let (got, want) = (held.len(), prompt.len().div_ceil(b));
        if got != want || !SharedKv::ptr_eq(held.pool(), &self.kv) {
            return Err(Refused::WrongBlocks { got, want, prompt: prompt.len() });
        }
        let mut chain = Vec::new();
        extend_chain(&mut chain, prompt, b);
        let mut books = lock(&self.kv);
        // All of it is checked before any of it is named: blocks of a refused prompt tell nothing.
        for (index, (&id, tokens)) in held.ids().iter().zip(prompt.chunks(b)).enumerate() {
            let name = books.hash_of(id);
            let filled = books.fill(id).ok() == Some(tokens.len() as u32);
            if !filled || (name != 0 && chain.get(index) != Some(&name)) {
                return Err(Refused::ForeignBlock { index });
            }
        }
        for (index, (&id, tokens)) in held.ids().iter().zip(prompt.chunks_exact(b)).enumerate() {
            let parent = if index == 0 { 0 } else { chain[index - 1] };
            if books.hash_of(id) == 0 {
                self.register(&mut books, id, parent, tokens);
            } else if books.attach_tokens(id, parent, tokens).is_err() {
                return Err(Refused::ForeignBlock { index });
            }
        }
        drop(books);
        Ok(Table { held, settled: prompt.len() / b })
    }

    /// Makes room for `total` tokens. `false`, and nothing changed, when the pool has none.
    pub(super) fn grow(&self, table: &mut Table, total: usize) -> bool {
        let missing = total.div_ceil(self.block_tokens).saturating_sub(table.held.len());
        if missing == 0 {
            return true;
        }
        match Held::alloc(&self.kv, missing) {
            Ok(more) => {
                table.held.append(more);
                true
            }
            Err(_) => false,
        }
    }

    /// Makes the block of `position` one that this table alone sees, copying it if it is shared or
    /// registered. `false`, and nothing changed, when the pool has no room for the copy.
    pub(super) fn own(&self, table: &mut Table, position: usize) -> bool {
        let index = position / self.block_tokens;
        let id = table.held.ids()[index];
        match lock(&self.kv).writable(id) {
            Ok(owned) => {
                table.held.replace(index, owned);
                table.settled = table.settled.min(index);
                true
            }
            Err(_) => false,
        }
    }

    /// Notes that the KV of all of `tokens` is in the table: newly full blocks get their fill and
    /// their name. `chain` holds the names of the leading full blocks and grows with them.
    pub(super) fn computed(&self, table: &mut Table, tokens: &[u32], chain: &mut Vec<u64>) {
        let b = self.block_tokens;
        let full = tokens.len() / b;
        if full <= table.settled {
            return;
        }
        extend_chain(chain, tokens, b);
        let mut books = lock(&self.kv);
        for index in table.settled..full {
            let id = table.held.ids()[index];
            let parent = if index == 0 { 0 } else { chain[index - 1] };
            if books.hash_of(id) == 0 && books.set_fill(id, b as u32).is_ok() {
                self.register(&mut books, id, parent, &tokens[index * b..(index + 1) * b]);
            }
        }
        table.settled = full;
    }

    /// The blocks of `prompt`, all computed, as a value of their own; the partial tail gets its
    /// fill.
    pub(super) fn release_to_owner(
        &self,
        table: Table,
        prompt: &[u32],
        chain: &mut Vec<u64>,
    ) -> Held {
        extend_chain(chain, prompt, self.block_tokens);
        let tail = prompt.len() % self.block_tokens;
        if let (Some(&id), true) = (table.held.ids().last(), tail > 0) {
            let filled = lock(&self.kv).set_fill(id, tail as u32);
            debug_assert!(filled.is_ok(), "a partial block is private: {filled:?}");
        }
        table.held
    }

    fn register(&self, books: &mut KvPool, id: u32, parent: u64, tokens: &[u32]) {
        if !self.prefix_cache {
            return;
        }
        // Not registered when another block has the name already: this one then stays private, and
        // is freed instead of cached.
        if let Err(error) = books.register_tokens(id, parent, tokens) {
            tracing::warn!(id, %error, "block not registered");
        }
    }
}

fn extend_chain(chain: &mut Vec<u64>, tokens: &[u32], block_tokens: usize) {
    for block in tokens.chunks_exact(block_tokens).skip(chain.len()) {
        chain.push(block_hash(chain.last().copied().unwrap_or(0), block));
    }
}
