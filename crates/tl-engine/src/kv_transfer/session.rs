//! One push on its way in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tl_kv::handoff::{ChunkHead, HandleError, PushAssembly, PushError, Ticket, receive};
use tl_kv::{Held, lock};
use tl_proto::kv::v1::{KvAck, KvChunk};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::counters::add;
use super::receiver::{Books, Claimed, Inner, Receiving, code_of, ensure_timer};

/// A push of which some chunks may have arrived. Dropping it gives everything back and
/// frees the handle id.
pub(super) struct Session {
    inner: Arc<Inner>,
    serial: u64,
    incarnation: u64,
    assembly: PushAssembly,
    held: Held,
    hashes: Vec<u64>,
    /// The right to land, from the first chunk on.
    ticket: Option<Ticket>,
    ended: CancellationToken,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Open,
    Refused,
    Landed,
}

/// What a chunk says, without what it carries.
pub(super) fn head_of(c: &KvChunk) -> ChunkHead<'_> {
    ChunkHead {
        handle_id: &c.handle_id,
        block_hash: c.block_hash,
        block_index: c.block_index,
        n_blocks_total: c.n_blocks_total,
        kv_format: c.kv_format,
        payload_len: c.payload.len(),
        crc32c: c.crc32c,
    }
}

/// The answer to a push that broke a rule.
pub(super) fn refusal(error: &PushError) -> Status {
    Status::new(code_of(error.code()), error.to_string())
}

fn not_admitted(error: &HandleError) -> Status {
    Status::new(code_of(error.code()), error.to_string())
}

impl Session {
    pub(super) fn new(inner: Arc<Inner>, incarnation: u64) -> Session {
        Session {
            serial: inner.serials.fetch_add(1, Ordering::Relaxed),
            incarnation,
            assembly: PushAssembly::new(inner.limits),
            held: Held::empty(&inner.pool),
            hashes: Vec::new(),
            ticket: None,
            ended: CancellationToken::new(),
            outcome: Outcome::Open,
            inner,
        }
    }

    /// Cancelled when the handle ends while the push runs: released, expired, fenced.
    pub(super) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Takes the next chunk. After an error the push is over.
    pub(super) fn chunk(&mut self, c: &KvChunk) -> Result<(), Status> {
        let taken = self.take(c);
        if taken.is_err() {
            self.outcome = Outcome::Refused;
        }
        taken
    }

    fn take(&mut self, c: &KvChunk) -> Result<(), Status> {
        let head = head_of(c);
        let action = self.assembly.chunk(&head).map_err(|e| refusal(&e))?;
        match &self.ticket {
            None => self.begin(&head)?,
            Some(ticket) => {
                let now = self.inner.now();
                let touched = self.inner.books().table.touch(ticket, now);
                touched.map_err(|e| not_admitted(&e))?;
            }
        }
        receive(action, &head, &c.payload, &mut self.held).map_err(|e| refusal(&e))?;
        self.hashes.push(head.block_hash);
        let counters = &self.inner.counters;
        if head.payload_len > 0 {
            add(&counters.blocks_received, 1);
            add(&counters.bytes_received, head.payload_len as u64);
        } else {
            add(&counters.blocks_deduped, 1);
        }
        Ok(())
    }

    fn begin(&mut self, head: &ChunkHead<'_>) -> Result<(), Status> {
        let now = self.inner.now();
        let blocks = u64::from(head.n_blocks_total);
        let mut books = self.inner.books();
        if books.closed {
            return Err(Status::unavailable("the receiver has been shut down"));
        }
        let ticket = books
            .table
            .begin(head.handle_id, self.incarnation, blocks, now)
            .map_err(|e| not_admitted(&e))?;
        self.ticket = Some(ticket);
        let receiving = Receiving { serial: self.serial, wake: self.ended.clone() };
        books.receiving.insert(head.handle_id.to_owned(), receiving);
        ensure_timer(&self.inner, &mut books);
        Ok(())
    }

    /// The sender has closed its side: lands the push, or says what is missing.
    pub(super) fn finish(mut self) -> Result<KvAck, Status> {
        let landed = self.land();
        self.outcome = if landed.is_ok() { Outcome::Landed } else { Outcome::Refused };
        landed
    }

    /// This push needs no waking any more.
    fn forget(&self, books: &mut Books, handle_id: &str) {
        if books.receiving.get(handle_id).is_some_and(|push| push.serial == self.serial) {
            books.receiving.remove(handle_id);
        }
    }

    fn land(&mut self) -> Result<KvAck, Status> {
        let assembly = std::mem::replace(&mut self.assembly, PushAssembly::new(self.inner.limits));
        let ack = assembly.finish().map_err(|e| refusal(&e))?;
        let held = std::mem::replace(&mut self.held, Held::empty(&self.inner.pool));
        let n_tokens = {
            let pool = lock(&self.inner.pool);
            let fills = held.ids().iter().map(|&id| pool.fill(id).map(|n| n as usize));
            fills.sum::<Result<usize, _>>()
        };
        let claimed = Claimed {
            n_tokens: n_tokens.map_err(|e| Status::internal(e.to_string()))?,
            held,
            block_hashes: std::mem::take(&mut self.hashes),
            incarnation: self.incarnation,
        };
        let Some(ticket) = self.ticket.take() else {
            return Err(Status::internal("a complete push without a handle"));
        };
        let now = self.inner.now();
        let refused = {
            let mut books = self.inner.books();
            let refused = books.table.complete(ticket, claimed, now).err();
            self.forget(&mut books, &ack.handle_id);
            ensure_timer(&self.inner, &mut books);
            refused
        };
        if let Some(refused) = refused {
            return Err(not_admitted(&refused.error));
        }
        add(&self.inner.counters.handles_created, 1);
        Ok(KvAck {
            handle_id: ack.handle_id,
            blocks_received: ack.blocks_received,
            blocks_deduped: ack.blocks_deduped,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let now = self.inner.now();
            let mut books = self.inner.books();
            books.table.abort(ticket, now);
            if let Some((handle_id, _)) = self.assembly.handle() {
                self.forget(&mut books, handle_id);
            }
        }
        let counters = &self.inner.counters;
        match self.outcome {
            Outcome::Open => add(&counters.pushes_abandoned, 1),
            Outcome::Refused => add(&counters.pushes_refused, 1),
            Outcome::Landed => {}
        }
    }
}
