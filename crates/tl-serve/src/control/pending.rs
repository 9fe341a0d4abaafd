//! The prefills of this moment, so that `Cancel` reaches a push and `Drain` waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

struct Table {
    next: u64,
    by_serial: HashMap<u64, (String, CancellationToken)>,
}

/// Prefills under way.
pub(super) struct Pending {
    table: Mutex<Table>,
    count: watch::Sender<usize>,
}

/// One prefill under way; leaves the table when dropped.
pub(super) struct Entry {
    pending: Arc<Pending>,
    serial: u64,
    cancelled: CancellationToken,
}

impl Pending {
    pub(super) fn new() -> Arc<Pending> {
        let table = Table { next: 0, by_serial: HashMap::new() };
        Arc::new(Pending { table: Mutex::new(table), count: watch::Sender::new(0) })
    }

    pub(super) fn enter(self: &Arc<Pending>, request_id: &str) -> Entry {
        let cancelled = CancellationToken::new();
        let mut table = self.table.lock();
        let serial = table.next;
        table.next += 1;
        table.by_serial.insert(serial, (request_id.to_owned(), cancelled.clone()));
        self.count.send_replace(table.by_serial.len());
        Entry { pending: self.clone(), serial, cancelled }
    }

    /// Cancels every prefill of that id; whether there was one.
    pub(super) fn cancel(&self, request_id: &str) -> bool {
        let mut found = false;
        for (id, cancelled) in self.table.lock().by_serial.values() {
            if id == request_id {
                cancelled.cancel();
                found = true;
            }
        }
        found
    }

    /// Waits until nothing is under way; what is left at the deadline is cancelled, and
    /// counted once it has gone.
    pub(super) async fn drain(&self, deadline: Duration) -> usize {
        let mut count = self.count.subscribe();
        // The sender lives as long as `self`: waiting does not fail.
        let emptied = tokio::time::timeout(deadline, count.wait_for(|&n| n == 0));
        if emptied.await.is_ok() {
            return 0;
        }
        let left: Vec<CancellationToken> =
            self.table.lock().by_serial.values().map(|(_, token)| token.clone()).collect();
        left.iter().for_each(CancellationToken::cancel);
        let _gone = count.wait_for(|&n| n == 0).await;
        left.len()
    }
}

impl Entry {
    /// Returns once somebody cancels the prefill.
    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.pending.table.lock();
        table.by_serial.remove(&self.serial);
        self.pending.count.send_replace(table.by_serial.len());
    }
}
