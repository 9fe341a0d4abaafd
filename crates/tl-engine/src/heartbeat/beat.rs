//! One beat and what is remembered of all of them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tl_proto::control::v1::WorkerStatus;
use tokio::sync::Notify;

use super::Registry;

/// What the beats so far have told. Written by the heartbeat alone, read by anyone.
#[derive(Debug, Default)]
pub struct BeatState {
    /// Beats started.
    pub sent: AtomicU64,
    /// Beats that got no answer in time, or an error.
    pub failed: AtomicU64,
    /// Failures since the last success.
    pub consecutive_failures: AtomicU32,
    /// The gateway has asked for a drain. Stays set whatever later answers say: a
    /// drain under way is not called off by a gateway that restarted and forgot it.
    pub drain: AtomicBool,
    /// The routing table's epoch in the last answer.
    pub route_epoch: AtomicU64,
    asked: Notify,
}

impl BeatState {
    /// Whether the gateway has asked for a drain since the start or since
    /// [`BeatState::drained`].
    pub fn drain_requested(&self) -> bool {
        self.drain.load(Ordering::Acquire)
    }

    /// Returns once a drain has been asked for.
    pub async fn wait_for_drain(&self) {
        loop {
            let notified = self.asked.notified();
            if self.drain_requested() {
                return;
            }
            notified.await;
        }
    }

    /// The engine has drained: the request is done with.
    pub fn drained(&self) {
        self.drain.store(false, Ordering::Release);
    }

    fn succeeded(&self, drain: bool, route_epoch: u64) {
        let missed = self.consecutive_failures.swap(0, Ordering::AcqRel);
        if missed > 0 {
            tracing::info!(missed, "the worker registry answers again");
        }
        self.route_epoch.store(route_epoch, Ordering::Release);
        if drain && !self.drain.swap(true, Ordering::AcqRel) {
            tracing::info!("the gateway asks for a drain");
            self.asked.notify_waiters();
        }
    }

    fn missed(&self, why: &str) {
        self.failed.fetch_add(1, Ordering::AcqRel);
        if self.consecutive_failures.fetch_add(1, Ordering::AcqRel) == 0 {
            tracing::warn!(
                error = why,
                "the worker registry does not answer; trying again at every beat"
            );
        }
    }
}

/// Sends one beat and records how it went; true when it was acknowledged within
/// `timeout`.
pub async fn beat_once(
    reg: &dyn Registry,
    status: WorkerStatus,
    timeout: Duration,
    st: &BeatState,
) -> bool {
    st.sent.fetch_add(1, Ordering::AcqRel);
    match tokio::time::timeout(timeout, reg.heartbeat(status)).await {
        Ok(Ok(ack)) => {
            st.succeeded(ack.drain, ack.route_epoch);
            true
        }
        Ok(Err(error)) => {
            st.missed(&error);
            false
        }
        Err(_) => {
            st.missed(&format!("no answer within {timeout:?}"));
            false
        }
    }
}
