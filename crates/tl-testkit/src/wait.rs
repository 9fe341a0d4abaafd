//! Waiting for a condition without guessing how long it takes.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long [`eventually`] is usually given: far above what a loaded machine needs,
/// and reached only by a failing test.
pub const DEADLINE: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(5);

/// Polls `cond` every 5 ms; true as soon as it holds, false at the deadline.
pub async fn eventually(deadline: Duration, mut cond: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if cond() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// [`eventually`] for a condition that must itself be awaited.
pub async fn eventually_async<F: Future<Output = bool>>(
    deadline: Duration,
    mut cond: impl FnMut() -> F,
) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if cond().await {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// [`eventually`] for a test without a runtime.
pub fn eventually_blocking(deadline: Duration, mut cond: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if cond() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(POLL);
    }
}
