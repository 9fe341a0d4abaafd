//! The decode side: pushes in, claims out.
//!
//! What may arrive when, and who may take it, is decided by `tl_kv::handoff`; this is
//! its driver. Three rules hold for every path through it:
//!
//! * whatever a push has taken is owned by its [`Session`], and goes back when that is
//!   dropped: refused, broken, cancelled or panicked makes no difference;
//! * the pool's lock is taken for bookkeeping only, never around a checksum, a parse
//!   or a copy, and never under the lock of the handles;
//! * a handle nobody claims ends on a timer that needs nothing else to happen.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tl_kv::handoff::{Claimed, HandleCfg, HandleTable, PushAssembly, PushLimits, receive};
use tl_kv::invariants::Invariant;
use tl_kv::{Held, SharedKv, lock};
use tl_proto::kv::v1::{KvAck, KvChunk};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::counters::{ReceiverCounters, ReceiverSnapshot, add};
use super::session::{Session, head_of, refusal};
use super::{KV_FORMAT, lease};

/// Hashes looked up in one hold of the pool's lock.
const HASHES_PER_LOCK: usize = 256;

/// Handles, and a way to reach the pushes among them.
pub(super) struct Books {
    pub(super) table: HandleTable<Claimed>,
    /// Wakes the push of a handle that ended while receiving.
    pub(super) receiving: HashMap<String, Receiving>,
    pub(super) timer_runs: bool,
    pub(super) closed: bool,
}

/// A push under way.
pub(super) struct Receiving {
    /// Tells the push from another one of the same handle id.
    pub(super) serial: u64,
    pub(super) wake: CancellationToken,
}

impl Books {
    /// Wakes the push under way under `handle_id`, if there is one: its handle ended.
    pub(super) fn wake(&mut self, handle_id: &str) {
        if let Some(push) = self.receiving.remove(handle_id) {
            push.wake.cancel();
        }
    }
}

impl Books {
    /// The rules of the handles, after an event. Tests run with it, a release build does without.
    pub(super) fn audit(&self, inner: &Inner) {
        if cfg!(debug_assertions) {
            let checked = self.table.check_at(inner.now());
            debug_assert!(checked.is_ok(), "{checked:?}");
        }
    }
}

/// What a handle owned while it waited is held: no block of it was given back meanwhile. Not under the lock of
/// the handles.
fn audit_claimed(claimed: &Claimed) {
    if cfg!(debug_assertions) {
        let pool = lock(claimed.held.pool());
        let freed = claimed.held.ids().iter().find(|&&id| pool.refs(id) == 0);
        let checked =
            Invariant::NoStaleRead.require(freed.is_none(), || format!("block {freed:?}"));
        drop(pool);
        debug_assert!(checked.is_ok(), "{checked:?}");
    }
}

/// The receiver's state, shared with its pushes and its timer.
pub(super) struct Inner {
    pub(super) pool: SharedKv,
    pub(super) limits: PushLimits,
    books: Mutex<Books>,
    pub(super) changed: Condvar,
    pub(super) counters: ReceiverCounters,
    pub(super) serials: AtomicU64,
    epoch: Instant,
}

impl Inner {
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock()
    }

    /// Milliseconds on the clock of the handle table.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// When the table's `at` is.
    pub(super) fn instant(&self, at: u64) -> Instant {
        self.epoch + std::time::Duration::from_millis(at)
    }
}

/// Receives pushes into one pool and holds them until they are claimed.
pub struct KvReceiver {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for KvReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvReceiver")
            .field("table", &self.inner.books().table)
            .finish_non_exhaustive()
    }
}

impl KvReceiver {
    /// A receiver with the default lease and bounds. Needs no runtime.
    pub fn new(pool: SharedKv) -> KvReceiver {
        KvReceiver::with_config(pool, HandleCfg::default())
    }

    /// A receiver with its own lease, idle timeout and bounds.
    pub fn with_config(pool: SharedKv, cfg: HandleCfg) -> KvReceiver {
        let max_blocks = lock(&pool).cfg().n_blocks;
        KvReceiver {
            inner: Arc::new(Inner {
                pool,
                limits: PushLimits { kv_format: KV_FORMAT, max_blocks },
                books: Mutex::new(Books {
                    table: HandleTable::new(cfg),
                    receiving: HashMap::new(),
                    timer_runs: false,
                    closed: false,
                }),
                changed: Condvar::new(),
                counters: ReceiverCounters::default(),
                serials: AtomicU64::new(0),
                epoch: Instant::now(),
            }),
        }
    }

    /// The pool that pushes land in.
    pub fn pool(&self) -> &SharedKv {
        &self.inner.pool
    }

    /// Which of these blocks the pool has, in the order asked, 0 being none. Takes no
    /// reference: one reported present can be evicted a moment later.
    ///
    /// FAILED_PRECONDITION for a format that is not read here.
    pub fn has_blocks(&self, hashes: &[u64], kv_format: u32) -> Result<Vec<bool>, Status> {
        if kv_format != KV_FORMAT {
            return Err(Status::failed_precondition(format!(
                "kv_format {kv_format} is not read here, expected {KV_FORMAT}"
            )));
        }
        let mut present = Vec::with_capacity(hashes.len());
        for some in hashes.chunks(HASHES_PER_LOCK) {
            let pool = lock(&self.inner.pool);
            present.extend(some.iter().map(|&hash| hash != 0 && pool.contains(hash)));
        }
        Ok(present)
    }

    /// Takes one chunk, the `expect_index`th of a push, and appends its block to
    /// `taken`, whose references the caller then owns; true when it came with content.
    ///
    /// One step of what [`KvReceiver::accept_all`] does, for a caller that keeps its
    /// own books; it makes no handle.
    pub fn accept_chunk(
        &self,
        c: &KvChunk,
        expect_index: u32,
        taken: &mut Vec<u32>,
    ) -> Result<bool, Status> {
        let mut assembly = PushAssembly::at(self.inner.limits, expect_index);
        let mut held = Held::empty(&self.inner.pool);
        let head = head_of(c);
        let action = assembly.chunk(&head).map_err(|e| refusal(&e))?;
        receive(action, &head, &c.payload, &mut held).map_err(|e| refusal(&e))?;
        taken.extend(held.into_raw());
        Ok(head.payload_len > 0)
    }

    /// Takes a whole push: afterwards its blocks wait under its handle. On an error,
    /// one of the chunks' included, nothing stays.
    pub fn accept_all(
        &self,
        chunks: impl IntoIterator<Item = Result<KvChunk, Status>>,
    ) -> Result<KvAck, Status> {
        let mut session = self.session(0);
        for chunk in chunks {
            session.chunk(&chunk?)?;
        }
        session.finish()
    }

    /// A push by the process `incarnation` (0: unknown), to be fed chunk by chunk.
    pub(super) fn session(&self, incarnation: u64) -> Session {
        Session::new(self.inner.clone(), incarnation)
    }

    /// Takes the blocks that wait under a handle; the caller owns the references.
    /// `None` when there is no such handle, or not any more, or its push still runs.
    pub fn claim(&self, handle_id: &str) -> Option<Vec<u32>> {
        self.claim_held(handle_id).map(|claimed| claimed.held.into_raw())
    }

    /// As [`KvReceiver::claim`], as a value that gives the blocks back by itself.
    pub fn claim_held(&self, handle_id: &str) -> Option<Claimed> {
        let now = self.inner.now();
        let claimed = {
            let mut books = self.inner.books();
            let claimed = books.table.claim(handle_id, now);
            books.audit(&self.inner);
            claimed
        };
        match claimed {
            Ok(claimed) => {
                audit_claimed(&claimed);
                add(&self.inner.counters.handles_claimed, 1);
                Some(claimed)
            }
            Err(error) => {
                tracing::debug!(handle_id, %error, "claim of a kv handle");
                None
            }
        }
    }

    /// Gives back whatever waits under a handle. Repeating it, or naming a handle that
    /// never was, is fine. A push that is under way, or only arrives after this, does
    /// not land.
    pub fn release(&self, handle_id: &str) {
        let now = self.inner.now();
        let released = {
            let mut books = self.inner.books();
            let live = books.table.live();
            let released = books.table.release(handle_id, now);
            books.wake(handle_id);
            books.audit(&self.inner);
            if books.table.live() < live {
                add(&self.inner.counters.handles_released, 1);
            }
            released
        };
        drop(released);
    }

    /// Declares a pushing process dead: its handles are given back, its pushes under
    /// way end, and it can begin none. Returns how many handles ended.
    pub fn fence(&self, incarnation: u64) -> usize {
        let now = self.inner.now();
        let fenced = {
            let mut books = self.inner.books();
            let fenced = books.table.fence(incarnation, now);
            for (handle_id, _) in &fenced {
                books.wake(handle_id);
            }
            books.audit(&self.inner);
            fenced
        };
        add(&self.inner.counters.handles_fenced, fenced.len() as u64);
        fenced.len()
    }

    /// Handles that wait for their claim.
    pub fn pending(&self) -> usize {
        self.inner.books().table.ready()
    }

    /// What this receiver has done so far.
    pub fn counters(&self) -> ReceiverSnapshot {
        self.inner.counters.snapshot()
    }

    /// How long a push may go without a chunk.
    pub(super) fn idle_timeout(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.inner.books().table.cfg().receive_ms)
    }
}

impl Drop for KvReceiver {
    fn drop(&mut self) {
        let mut books = self.inner.books();
        books.closed = true;
        for push in books.receiving.values() {
            push.wake.cancel();
        }
        self.inner.changed.notify_all();
    }
}

/// The code of a refusal, as gRPC has it.
pub(super) fn code_of(code: tl_kv::Code) -> Code {
    Code::from_i32(code as i32)
}

/// Starts the lease timer unless it runs, and lets it look at the deadlines again;
/// called whenever one may have become the earliest.
pub(super) fn ensure_timer(inner: &Arc<Inner>, books: &mut Books) {
    if !books.timer_runs && !books.closed {
        books.timer_runs = lease::spawn(inner.clone());
    }
    inner.changed.notify_all();
}
