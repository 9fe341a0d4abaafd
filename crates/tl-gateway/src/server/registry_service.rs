//! `tl.control.v1.WorkerRegistry`: engines announce themselves here.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tl_api::config::Secret;
use tl_api::headers::CLUSTER_TOKEN;
use tl_proto::control::v1::worker_registry_server::WorkerRegistry;
use tl_proto::control::v1::{HeartbeatAck, WorkerStatus};
use tonic::{Request, Response, Status};

use super::shared::{Shared, now};
use crate::registry::{Change, Slot};

#[derive(Debug)]
pub(crate) struct RegistryService {
    shared: Arc<Shared>,
    token: Option<Secret>,
    /// Slots whose `Info` is being asked for.
    asking: Arc<Mutex<HashSet<Slot>>>,
}

impl RegistryService {
    pub(crate) fn new(shared: Arc<Shared>, token: Option<Secret>) -> RegistryService {
        RegistryService { shared, token, asking: Arc::default() }
    }

    /// What a beat does not carry. Asked again at each beat until it is answered.
    fn ask_info(&self, slot: Slot, address: String) {
        if !self.asking.lock().insert(slot) {
            return;
        }
        let shared = self.shared.clone();
        let asking = self.asking.clone();
        tokio::spawn(async move {
            let info = shared.peers.info(&address).await;
            let max = info.and_then(|i| u32::try_from(i.max_context).ok()).filter(|m| *m > 0);
            if let Some(max) = max {
                shared.fleet.registry.lock().set_max_context(slot, max);
            }
            asking.lock().remove(&slot);
        });
    }
}

#[tonic::async_trait]
impl WorkerRegistry for RegistryService {
    async fn heartbeat(
        &self,
        request: Request<WorkerStatus>,
    ) -> Result<Response<HeartbeatAck>, Status> {
        if let Some(token) = &self.token {
            let given = request.metadata().get(CLUSTER_TOKEN);
            if !given.is_some_and(|given| token.matches(given.as_bytes())) {
                return Err(Status::unauthenticated(
                    "cluster token missing or wrong; every process needs the same [cluster].token",
                ));
            }
        }
        let status = request.into_inner();
        let beat = {
            let mut registry = self.shared.fleet.registry.lock();
            let beat = registry
                .beat(now(), &status)
                .map_err(|error| Status::invalid_argument(error.to_string()))?;
            let unasked = registry.worker(beat.slot).is_some_and(|w| w.max_context.is_none());
            (beat, unasked)
        };
        let (beat, unasked) = beat;
        let (id, role, model) = (&status.worker_id, &status.role, &status.model);
        match &beat.change {
            Change::Same => {}
            Change::Joined { replaced } => {
                tracing::info!(worker = %id, %role, %model, ?replaced, "worker joined");
                self.warn_of_pairs(beat.slot);
            }
            Change::Draining(draining) => tracing::info!(worker = %id, draining, "worker changed"),
        }
        if unasked {
            self.ask_info(beat.slot, status.grpc_address);
        }
        self.shared.fleet.changed.notify_waiters();
        Ok(Response::new(HeartbeatAck { drain: beat.drain, route_epoch: beat.route_epoch }))
    }
}

impl RegistryService {
    /// Names each pairing that the new worker is refused.
    fn warn_of_pairs(&self, slot: Slot) {
        use crate::registry::{WorkerRole, pairing};
        let registry = self.shared.fleet.registry.lock();
        let Some(joined) = registry.worker(slot) else { return };
        for other in registry.live(now()).filter(|w| w.info.model == joined.info.model) {
            let (p, d) = match (joined.info.role, other.info.role) {
                (WorkerRole::Prefill, WorkerRole::Decode) => (joined, other),
                (WorkerRole::Decode, WorkerRole::Prefill) => (other, joined),
                _ => continue,
            };
            if let Err(why) = pairing::check(&p.info, &d.info) {
                tracing::warn!(prefill = %p.info.id, decode = %d.info.id, %why, "not paired");
            }
        }
    }
}
