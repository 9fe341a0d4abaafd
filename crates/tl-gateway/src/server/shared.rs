//! What every task of the gateway shares, and the guards that count for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tl_api::config::{GatewaySection, Target};
use tl_api::metrics::{GatewayMetrics, RoleLabel, WorkerCounts};
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::TaskTracker;

use super::names::Names;
use super::peers::Peers;
use super::story::Stories;
use crate::registry::ledger::Ticket;
use crate::registry::{Registry, Slot, WorkerRole};
use crate::route::{
    self, Alone, Blocked, Demand, Pick, Plan, Policy, Router, Skipped, Tried, Want,
};

/// The time all of the gateway goes by. tokio's, so that tests can pause it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: GatewaySection,
    pub(crate) fleet: Arc<Fleet>,
    names: Mutex<Arc<Names>>,
    pub(crate) peers: Peers,
    pub(crate) metrics: GatewayMetrics,
    pub(crate) stories: Stories,
    /// Drivers and the calls they leave behind (releases, cancels).
    pub(crate) tasks: TaskTracker,
    pub(crate) draining: AtomicBool,
    /// Seconds since the epoch; `created` of the models.
    pub(crate) started: u64,
}

/// What [`Shared::new`] is given.
pub(crate) struct Parts {
    pub(crate) config: GatewaySection,
    pub(crate) peers: Peers,
    /// Seconds since the epoch.
    pub(crate) started: u64,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Shared {
        let Parts { config, peers, started } = parts;
        Shared {
            fleet: Arc::new(Fleet::new(config.heartbeat_miss_limit, config.admission_queue)),
            names: Mutex::new(Arc::new(Names::new(&config.routes))),
            peers,
            metrics: GatewayMetrics::new(),
            stories: Stories::new(config.debug),
            tasks: TaskTracker::new(),
            draining: AtomicBool::new(false),
            started,
            config,
        }
    }

    /// The table of routes as it is now.
    pub(crate) fn names(&self) -> Arc<Names> {
        self.names.lock().clone()
    }

    /// Replaces the table by what `change` makes of it, as one step.
    pub(crate) fn replace_names<E>(
        &self,
        change: impl FnOnce(&Names) -> Result<Names, E>,
    ) -> Result<Arc<Names>, E> {
        let mut names = self.names.lock();
        *names = Arc::new(change(&names)?.after(names.epoch()));
        self.fleet.registry.lock().routes_changed();
        Ok(names.clone())
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy { kind: self.config.route_policy, load_factor: self.config.affinity_load_factor }
    }

    /// Drops the dead, and sets what is counted at scrape time.
    pub(crate) fn tick(&self) {
        let gone = self.fleet.registry.lock().evict(now());
        for id in &gone {
            tracing::warn!(worker = %id, "worker dropped: its heartbeats stopped");
        }
        if !gone.is_empty() {
            self.fleet.changed.notify_waiters();
        }
        let mut counts = [WorkerCounts::default(); 3];
        let mut addresses = Vec::new();
        {
            let registry = self.fleet.registry.lock();
            for worker in registry.live(now()) {
                let counts = &mut counts[worker.info.role as usize];
                if worker.is_draining() {
                    counts.draining += 1;
                } else {
                    counts.healthy += 1;
                }
                addresses.push(worker.info.grpc_address.clone());
                addresses.extend(worker.info.kv_address.clone());
            }
        }
        for (role, label) in [
            (WorkerRole::Unified, RoleLabel::Unified),
            (WorkerRole::Prefill, RoleLabel::Prefill),
            (WorkerRole::Decode, RoleLabel::Decode),
        ] {
            self.metrics.set_workers(label, counts[role as usize]);
        }
        self.peers.keep_only(&addresses);
    }

    /// A failure that is held against a worker.
    pub(crate) fn blame(&self, slot: Slot, why: &str) {
        let mut registry = self.fleet.registry.lock();
        let left = registry.failed(now(), slot);
        let id = registry.worker(slot).map(|w| w.info.id.clone()).unwrap_or_default();
        drop(registry);
        if left {
            tracing::warn!(worker = %id, why, "worker left rotation after failures in a row");
        } else {
            tracing::info!(worker = %id, why, "worker failed a request");
        }
    }

    /// A hand-off that did not arrive, whosever fault it is.
    pub(crate) fn blame_link(&self, prefill: Slot, decode: Slot, why: &str) {
        let mut registry = self.fleet.registry.lock();
        let left = registry.link_failed(now(), prefill, decode);
        let id = |slot| registry.worker(slot).map(|w| w.info.id.clone()).unwrap_or_default();
        let (prefill, decode) = (id(prefill), id(decode));
        drop(registry);
        if left {
            tracing::warn!(%prefill, %decode, why, "hand-offs failed in a row: the way is left out");
        } else {
            tracing::info!(%prefill, %decode, why, "a hand-off failed");
        }
    }

    pub(crate) fn praise_link(&self, prefill: Slot, decode: Slot) {
        self.fleet.registry.lock().link_succeeded(prefill, decode);
    }

    pub(crate) fn praise(&self, slot: Slot) {
        self.fleet.registry.lock().succeeded(slot);
    }
}

/// Registry, router, and who waits for room.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) registry: Mutex<Registry>,
    router: Mutex<Router>,
    /// Room or workers may have come.
    pub(crate) changed: Notify,
    /// Places of those who wait for room.
    waiting: Semaphore,
}

/// What the caller of [`Fleet::admit`] wants, owned.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) key: Vec<u8>,
    pub(crate) demand: Demand,
    pub(crate) targets: Vec<Target>,
    pub(crate) tried: Tried,
    /// When waiting for room ends.
    pub(crate) deadline: tokio::time::Instant,
}

/// A worker that was chosen and counts the request until this is dropped.
#[derive(Debug)]
pub(crate) struct Engaged {
    pub(crate) pick: Pick,
    pub(crate) load: Load,
}

#[derive(Debug)]
pub(crate) enum Routed {
    Pair { prefill: Engaged, decode: Engaged },
    Alone { engine: Engaged, why: Alone },
}

/// How long a wait for room goes without looking again: beats come every 2 s.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long a worker that said it was full is left alone by the request it refused. Whoever
/// else gets room in the meantime is taken at once.
const AVOID: Duration = Duration::from_millis(250);

impl Fleet {
    pub(crate) fn new(miss_limit: u32, queue: u32) -> Fleet {
        Fleet {
            registry: Mutex::new(Registry::new(miss_limit)),
            router: Mutex::new(Router::default()),
            changed: Notify::new(),
            waiting: Semaphore::new(queue as usize),
        }
    }

    /// Chooses engines and counts the request there; where only room is missing, waits for it
    /// until the deadline.
    pub(crate) async fn admit(
        self: &Arc<Fleet>,
        policy: Policy,
        mut ask: Ask,
    ) -> (Result<Routed, Blocked>, Vec<Skipped>) {
        let mut place = None;
        let avoid_until = tokio::time::Instant::now() + AVOID;
        loop {
            // Before looking, so that what changes after the look wakes us.
            let changed = self.changed.notified();
            let (found, skipped) = self.look(policy, &ask);
            if !matches!(found, Err(Blocked::NoRoom)) {
                return (found, skipped);
            }
            if place.is_none() {
                match self.waiting.try_acquire() {
                    Ok(permit) => place = Some(permit),
                    Err(_) => return (found, skipped),
                }
            }
            let now = tokio::time::Instant::now();
            if ask.deadline <= now {
                return (found, skipped);
            }
            let mut wake = ask.deadline.min(now + LOOK_AGAIN);
            if !ask.tried.avoid.is_empty() {
                wake = wake.min(avoid_until);
            }
            let _ = tokio::time::timeout_at(wake, changed).await;
            if tokio::time::Instant::now() >= avoid_until {
                // Who was full then may have room now.
                ask.tried.avoid.clear();
            }
        }
    }

    fn look(
        self: &Arc<Fleet>,
        policy: Policy,
        ask: &Ask,
    ) -> (Result<Routed, Blocked>, Vec<Skipped>) {
        let want = Want {
            model: &ask.model,
            key: &ask.key,
            demand: ask.demand,
            targets: &ask.targets,
            tried: &ask.tried,
        };
        let now = now();
        let mut registry = self.registry.lock();
        let plan = route::plan(&registry, &mut self.router.lock(), policy, &want, now);
        let mut engage = |pick: Pick| {
            let ticket = registry.begin(now, pick.slot, pick.blocks)?;
            let load = Load { fleet: self.clone(), slot: pick.slot, ticket };
            Some(Engaged { pick, load })
        };
        match plan {
            Plan::Pair { prefill, decode, skipped } => match (engage(decode), engage(prefill)) {
                (Some(decode), Some(prefill)) => {
                    registry.link_entered(now, prefill.pick.slot, decode.pick.slot);
                    (Ok(Routed::Pair { prefill, decode }), skipped)
                }
                (decode, prefill) => {
                    // Their drop locks the registry.
                    drop(registry);
                    drop((decode, prefill));
                    (Err(Blocked::NoRoom), skipped)
                }
            },
            Plan::Alone { engine, why, skipped } => match engage(engine) {
                Some(engine) => (Ok(Routed::Alone { engine, why }), skipped),
                None => (Err(Blocked::NoRoom), skipped),
            },
            Plan::Blocked { why, skipped } => (Err(why), skipped),
        }
    }
}

/// One request at one worker: counted, with its blocks promised, until this is dropped.
#[derive(Debug)]
pub(crate) struct Load {
    fleet: Arc<Fleet>,
    slot: Slot,
    ticket: Ticket,
}

impl Load {
    /// `blocks` of the promise are in use on the worker.
    pub(crate) fn landed(&self, blocks: u32) {
        self.fleet.registry.lock().landed(now(), self.slot, self.ticket, blocks);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.fleet.registry.lock().end(self.slot, self.ticket);
        self.fleet.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::tests::status;
    use tl_api::config::RoutePolicy;

    fn ask(wait: Duration) -> Ask {
        Ask {
            model: "m".into(),
            key: Vec::new(),
            demand: Demand { prompt_tokens: 600, answer_tokens: 40 },
            targets: Vec::new(),
            tried: Tried::default(),
            deadline: tokio::time::Instant::now() + wait,
        }
    }

    const POLICY: Policy = Policy { kind: RoutePolicy::Affinity, load_factor: 1.25 };

    fn fleet(queue: u32) -> Arc<Fleet> {
        let fleet = Arc::new(Fleet::new(3, queue));
        for (id, role, port) in [("p", "prefill", 100), ("d", "decode", 200)] {
            fleet.registry.lock().beat(now(), &status(id, role, port)).unwrap();
        }
        fleet
    }

    #[tokio::test]
    async fn a_wait_for_room_ends_with_room_or_at_its_deadline() {
        let fleet = fleet(1);
        let long = Duration::from_secs(60);
        let (first, _) = fleet.admit(POLICY, ask(Duration::ZERO)).await;
        let Ok(Routed::Pair { prefill, decode }) = first else { panic!("{first:?}") };
        drop(prefill);
        let begun = tokio::time::Instant::now();
        let short = Duration::from_millis(50);
        let (second, _) = fleet.admit(POLICY, ask(short)).await;
        assert_eq!(second.err(), Some(Blocked::NoRoom));
        assert!(begun.elapsed() >= short && begun.elapsed() < long / 2);
        let waiting = tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.admit(POLICY, ask(long)).await.0 }
        });
        while fleet.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        // The one place to wait is taken.
        let begun = tokio::time::Instant::now();
        let (third, _) = fleet.admit(POLICY, ask(long)).await;
        assert_eq!(third.err(), Some(Blocked::NoRoom));
        drop(decode);
        assert!(matches!(waiting.await.unwrap(), Ok(Routed::Pair { .. })));
        assert!(begun.elapsed() < long / 2);
        let registry = fleet.registry.lock();
        assert!(registry.live(now()).all(|w| w.in_flight() == 0));
    }
}
