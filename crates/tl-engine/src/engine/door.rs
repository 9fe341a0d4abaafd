//! Who is inside: a place in the queue and an entry in the list of requests, both as guards.
//!
//! `submit` answers on the caller's thread, so the queue's bound is counted here and not by the
//! engine's channel: a request holds a [`Place`] from `submit` until it first runs. The list is
//! what `cancel` searches and what `drain` waits to see empty; a request's [`Entry`] travels with
//! it, and wherever the request ends, also in a channel nobody reads any more, the entry is gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::stats::Gauges;
use super::{EngineError, Refused};

/// What `submit`, the generation and the engine's thread all know of one request.
#[derive(Debug)]
pub(super) struct Ticket {
    key: u64,
    id: String,
    pub(super) deadline: Option<Instant>,
    abort: AtomicU8,
}

const CANCELLED: u8 = 1;
const DRAINED: u8 = 2;

impl Ticket {
    /// Whether the request is no longer wanted, and what its last event then says.
    pub(super) fn aborted(&self, now: Instant) -> Option<EngineError> {
        match self.abort.load(Ordering::Relaxed) {
            CANCELLED => Some(EngineError::Cancelled),
            DRAINED => Some(EngineError::Drained),
            _ if self.deadline.is_some_and(|d| d <= now) => Some(EngineError::DeadlineExceeded),
            _ => None,
        }
    }

    pub(super) fn cancel(&self) {
        self.abort(CANCELLED);
    }

    /// The first reason stays. Whether this is it.
    fn abort(&self, why: u8) -> bool {
        self.abort.compare_exchange(0, why, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[derive(Debug, Default)]
struct List {
    closed: Option<Refused>,
    next: u64,
    tickets: HashMap<u64, Arc<Ticket>>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) gauges: Gauges,
    capacity: usize,
    list: Mutex<List>,
    empty: Notify,
}

impl Door {
    pub(super) fn new(capacity: usize) -> Door {
        Door {
            gauges: Gauges::new(),
            capacity,
            list: Mutex::new(List::default()),
            empty: Notify::new(),
        }
    }

    /// Lets a request in, or says why not.
    pub(super) fn enter(
        self: &Arc<Door>,
        id: String,
        deadline: Option<Instant>,
    ) -> Result<(Place, Entry), Refused> {
        let mut list = self.list.lock();
        if let Some(why) = &list.closed {
            return Err(why.clone());
        }
        if !self.gauges.has_work() {
            self.gauges.progress();
        }
        let more = |n: usize| (n < self.capacity).then_some(n + 1);
        self.gauges
            .places
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map_err(|_| Refused::Full { capacity: self.capacity })?;
        let place = Place(Arc::clone(self));
        let key = list.next;
        list.next += 1;
        let ticket = Arc::new(Ticket { key, id, deadline, abort: AtomicU8::new(0) });
        list.tickets.insert(key, Arc::clone(&ticket));
        Ok((place, Entry { door: Arc::clone(self), ticket }))
    }

    /// Lets nobody in any more.
    pub(super) fn close(&self, why: Refused) {
        let flag = match why {
            Refused::Stopped => &self.gauges.stopped,
            _ => &self.gauges.draining,
        };
        flag.store(true, Ordering::Relaxed);
        let mut list = self.list.lock();
        // A stopped engine does not go back to draining.
        if list.closed != Some(Refused::Stopped) {
            list.closed = Some(why);
        }
    }

    /// Cancels all requests of this id; whether there was one.
    pub(super) fn cancel(&self, id: &str) -> bool {
        let list = self.list.lock();
        let mut found = false;
        for ticket in list.tickets.values().filter(|t| t.id == id) {
            ticket.cancel();
            found = true;
        }
        found
    }

    /// Aborts whoever is inside and not aborted yet, and says how many that were.
    pub(super) fn abort_all(&self) -> usize {
        self.list.lock().tickets.values().filter(|t| t.abort(DRAINED)).count()
    }

    fn is_empty(&self) -> bool {
        self.list.lock().tickets.is_empty()
    }

    /// Waits until nobody is inside, at most until `at`; whether nobody is.
    pub(super) async fn empty_by(&self, at: Instant) -> bool {
        loop {
            let emptied = self.empty.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.is_empty() {
                return true;
            }
            if tokio::time::timeout_at(at.into(), emptied).await.is_err() {
                return self.is_empty();
            }
        }
    }
}

/// A place in the queue, given back on drop.
#[derive(Debug)]
pub(super) struct Place(Arc<Door>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.gauges.places.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An entry in the list of requests, taken out on drop.
#[derive(Debug)]
pub(super) struct Entry {
    door: Arc<Door>,
    ticket: Arc<Ticket>,
}

impl Entry {
    pub(super) fn ticket(&self) -> &Arc<Ticket> {
        &self.ticket
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut list = self.door.list.lock();
        list.tickets.remove(&self.ticket.key);
        if list.tickets.is_empty() {
            self.door.empty.notify_waiters();
        }
    }
}
