//! The gateway's half: routing, refusals, the fleet.

use super::{CappedLabel, RoleLabel, ServingMetrics, render};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    code: u16,
    tenant: String,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
    tenant: String,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RuleLabels {
    rule: String,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WorkerLabels {
    role: &'static str,
    state: &'static str,
}

/// Live workers of one role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub healthy: u64,
    pub draining: u64,
}

/// All series of a gateway.
#[derive(Debug)]
pub struct GatewayMetrics {
    registry: Registry,
    serving: ServingMetrics,
    route: CappedLabel,
    tenant: CappedLabel,
    rule: CappedLabel,
    requests: Family<RequestLabels, Counter>,
    rejections: Family<LimitLabels, Counter>,
    cache_hits: Counter,
    denials: Family<RuleLabels, Counter>,
    workers: Family<WorkerLabels, Gauge>,
    decode_alone: Counter,
    failovers: Counter,
    inflight: Gauge,
}

impl Default for GatewayMetrics {
    fn default() -> GatewayMetrics {
        GatewayMetrics::new()
    }
}

impl GatewayMetrics {
    pub fn new() -> GatewayMetrics {
        let mut r = Registry::default();
        let serving = ServingMetrics::new(RoleLabel::Gateway, &mut r);
        let requests = Family::<RequestLabels, Counter>::default();
        let rejections = Family::<LimitLabels, Counter>::default();
        let cache_hits = Counter::default();
        let denials = Family::<RuleLabels, Counter>::default();
        let workers = Family::<WorkerLabels, Gauge>::default();
        let decode_alone = Counter::default();
        let failovers = Counter::default();
        let inflight = Gauge::default();
        r.register(
            "tl_gateway_requests",
            "Requests answered, by route and status",
            requests.clone(),
        );
        r.register(
            "tl_gateway_ratelimit_rejections",
            "Requests refused by a key's limit",
            rejections.clone(),
        );
        r.register(
            "tl_gateway_cache_hits",
            "Requests answered from the response cache",
            cache_hits.clone(),
        );
        r.register(
            "tl_gateway_policy_denials",
            "Requests refused by a policy rule",
            denials.clone(),
        );
        r.register("tl_gateway_workers", "Live engines by role and state", workers.clone());
        r.register(
            "tl_gateway_decode_alone",
            "Requests a decode engine served whole, no prefill engine being there",
            decode_alone.clone(),
        );
        r.register(
            "tl_gateway_failovers",
            "Requests tried again on another engine",
            failovers.clone(),
        );
        r.register(
            "tl_gateway_inflight",
            "Requests between arrival and the last byte of their answer",
            inflight.clone(),
        );
        let m = GatewayMetrics {
            registry: r,
            serving,
            route: CappedLabel::default(),
            tenant: CappedLabel::default(),
            rule: CappedLabel::default(),
            requests,
            rejections,
            cache_hits,
            denials,
            workers,
            decode_alone,
            failovers,
            inflight,
        };
        for role in [RoleLabel::Unified, RoleLabel::Prefill, RoleLabel::Decode] {
            m.set_workers(role, WorkerCounts::default());
        }
        m
    }

    /// The request-level histograms.
    pub fn serving(&self) -> &ServingMetrics {
        &self.serving
    }

    pub fn request(&self, route: &str, code: u16, tenant: &str) {
        let labels = RequestLabels {
            route: self.route.value(route),
            code,
            tenant: self.tenant.value(tenant),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// `limit` is `rpm` or `tpm`.
    pub fn ratelimit_rejection(&self, limit: &'static str, tenant: &str) {
        self.rejections
            .get_or_create(&LimitLabels { limit, tenant: self.tenant.value(tenant) })
            .inc();
    }

    pub fn cache_hit(&self) {
        self.cache_hits.inc();
    }

    pub fn policy_denial(&self, rule: &str) {
        self.denials.get_or_create(&RuleLabels { rule: self.rule.value(rule) }).inc();
    }

    pub fn set_workers(&self, role: RoleLabel, counts: WorkerCounts) {
        for (state, n) in [("healthy", counts.healthy), ("draining", counts.draining)] {
            let labels = WorkerLabels { role: role.as_str(), state };
            self.workers.get_or_create(&labels).set(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }

    pub fn decode_alone(&self) {
        self.decode_alone.inc();
    }

    pub fn failover(&self) {
        self.failovers.inc();
    }

    /// Counts one request as in flight until the guard is dropped; move it into the response body.
    pub fn enter(&self) -> InFlight {
        self.inflight.inc();
        InFlight(self.inflight.clone())
    }

    /// Requests in flight now.
    pub fn inflight(&self) -> i64 {
        self.inflight.get()
    }

    pub fn render(&self) -> String {
        render(&self.registry)
    }
}

/// One request in flight.
#[derive(Debug)]
pub struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
