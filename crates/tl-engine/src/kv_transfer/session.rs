//! One push on its way in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tl_kv::handoff::{ChunkHead, HandleError, Incoming, PushError};
use tl_proto::kv::v1::{KvAck, KvChunk};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::counters::add;
use super::receiver::{Books, Inner, Receiving, code_of, ensure_timer};

/// A push of which some chunks may have arrived, over its connection. Dropping it gives
/// everything back and frees the handle id.
pub(super) struct Session {
    inner: Arc<Inner>,
    serial: u64,
    push: Incoming,
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
            push: Incoming::new(&inner.pool, inner.limits, incarnation),
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
        let action = self.push.judge(&head).map_err(|e| refusal(&e))?;
        self.admit(&head)?;
        self.push.take(action, &head, &c.payload).map_err(|e| refusal(&e))?;
        let counters = &self.inner.counters;
        if head.payload_len > 0 {
            add(&counters.blocks_received, 1);
            add(&counters.bytes_received, head.payload_len as u64);
        } else {
            add(&counters.blocks_deduped, 1);
        }
        Ok(())
    }

    fn admit(&mut self, head: &ChunkHead<'_>) -> Result<(), Status> {
        let now = self.inner.now();
        let mut books = self.inner.books();
        if books.closed {
            return Err(Status::unavailable("the receiver has been shut down"));
        }
        let began = self.push.admit(head, &mut books.table, now);
        books.audit(&self.inner);
        if began.map_err(|e| not_admitted(&e))? {
            let receiving = Receiving { serial: self.serial, wake: self.ended.clone() };
            books.receiving.insert(head.handle_id.to_owned(), receiving);
            ensure_timer(&self.inner, &mut books);
        }
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
        let whole = self.push.whole().map_err(|e| refusal(&e))?;
        let now = self.inner.now();
        let landed = {
            let mut books = self.inner.books();
            let landed = self.push.land(whole, &mut books.table, now);
            books.audit(&self.inner);
            if let Some(handle_id) = self.push.handle() {
                self.forget(&mut books, handle_id);
            }
            ensure_timer(&self.inner, &mut books);
            landed
        };
        // What was refused goes back here, outside the lock of the handles.
        let ack = landed.map_err(|refused| not_admitted(&refused.error))?;
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
        if self.outcome != Outcome::Landed {
            let now = self.inner.now();
            let mut books = self.inner.books();
            self.push.abort(&mut books.table, now);
            books.audit(&self.inner);
            if let Some(handle_id) = self.push.handle() {
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
