//! The timer of a receiver's handles.
//!
//! A thread, not a task: it must run when the receiver is used without a runtime, when
//! the runtime is busy, and above all when nothing else happens, since what it ends is
//! what blocks everything else. It lives while there are handles.

use std::sync::Arc;

use super::counters::add;
use super::receiver::Inner;

/// Starts the timer; false when the system gives no thread. The next push tries again.
pub(super) fn spawn(inner: Arc<Inner>) -> bool {
    let spawned = std::thread::Builder::new().name("tl-kv-lease".into()).spawn(move || run(&inner));
    if let Err(error) = &spawned {
        tracing::error!(%error, "no thread for the kv lease timer");
    }
    spawned.is_ok()
}

fn run(inner: &Inner) {
    loop {
        let expired = {
            let mut books = inner.books();
            let Some(deadline) = books.table.next_deadline().filter(|_| !books.closed) else {
                books.timer_runs = false;
                return;
            };
            inner.changed.wait_until(&mut books, inner.instant(deadline));
            let expired = books.table.expire(inner.now());
            for (handle_id, _) in &expired {
                books.wake(handle_id);
            }
            books.audit(inner);
            expired
        };
        for (handle_id, claimed) in expired {
            add(&inner.counters.handles_expired, 1);
            tracing::warn!(
                handle_id,
                complete = claimed.is_some(),
                "kv handle expired before it was claimed"
            );
            drop(claimed);
        }
    }
}
