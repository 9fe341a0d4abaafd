//! The loop, on a thread of its own.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::{BeatState, Load, Registry, WorkerIdentity, beat_once, worker_status};

/// A running heartbeat. Ends when stopped or dropped.
#[derive(Debug)]
pub struct Heartbeat {
    state: Arc<BeatState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts beating: at once, then every `interval`, each time with a load read
    /// just before and each bounded by `timeout`.
    ///
    /// The loop has its own thread and runtime, since the caller's may be busy with
    /// exactly the overload that the gateway should hear about. The error is the
    /// system's refusal to give a thread or a reactor.
    pub fn spawn(
        reg: Arc<dyn Registry>,
        id: WorkerIdentity,
        load: Arc<dyn Fn() -> Load + Send + Sync>,
        interval: Duration,
        timeout: Duration,
    ) -> io::Result<Heartbeat> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let state = Arc::new(BeatState::default());
        let (stop, stopped) = oneshot::channel();
        let shared = state.clone();
        let thread = std::thread::Builder::new().name("tl-heartbeat".into()).spawn(move || {
            let beats = async {
                // An interval of zero would panic in tokio; a millisecond is as good.
                let mut due = tokio::time::interval(interval.max(Duration::from_millis(1)));
                due.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    due.tick().await;
                    let status = worker_status(&id, &load());
                    beat_once(reg.as_ref(), status, timeout, &shared).await;
                }
            };
            runtime.block_on(async {
                tokio::select! {
                    () = beats => {}
                    _ = stopped => {}
                }
            });
            // A name look-up may still sit in the blocking pool; nobody waits for it.
            runtime.shutdown_background();
        })?;
        Ok(Heartbeat { state, stop: Some(stop), thread: Some(thread) })
    }

    /// What the beats have told so far.
    pub fn state(&self) -> &Arc<BeatState> {
        &self.state
    }

    /// Ends the loop and the beat in flight, and returns when the thread is gone.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the heartbeat thread had panicked");
        }
    }
}
