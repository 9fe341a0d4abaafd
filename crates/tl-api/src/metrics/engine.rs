//! The engine's half: the pool, the scheduler, the hand-off.

use super::{RoleLabel, ServingMetrics, render};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Values that live elsewhere (in the pool, the scheduler, the handle table) and are read at scrape
/// time. Those that count are absolute since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EngineSample {
    pub kv_free: u64,
    pub kv_used: u64,
    pub kv_cached: u64,
    pub kv_evictions: u64,
    /// Admitted, not running.
    pub queue_depth: u64,
    pub active_sequences: u64,
    /// Tokens in the last step.
    pub batch_tokens: u64,
    /// Prompt tokens looked up in the prefix cache, and those found.
    pub prefix_query_tokens: u64,
    pub prefix_hit_tokens: u64,
    pub preemptions: u64,
    /// Requests taken over from another engine with their prompt's KV.
    pub remote_prefills: u64,
    /// Prompt tokens of such requests that had to be computed again here.
    pub resume_recomputed_tokens: u64,
    /// Handles whose blocks wait for a resume.
    pub handles_waiting: u64,
    pub handles_claimed: u64,
    pub handles_released: u64,
    pub handles_expired: u64,
    /// Envelope bytes of blocks that came from other engines.
    pub kv_bytes_received: u64,
}

/// All series of an engine.
#[derive(Debug)]
pub struct EngineMetrics {
    registry: Registry,
    serving: ServingMetrics,
    kv_blocks: Family<State, Gauge>,
    kv_evictions: Counter,
    queue_depth: Gauge,
    active_sequences: Gauge,
    batch_tokens: Gauge,
    prefix_hit_ratio: Gauge<f64, AtomicU64>,
    preemptions: Counter,
    transfer_bytes: Family<Direction, Counter>,
    transfer_blocks: Family<Outcome, Counter>,
    remote_prefill: Counter,
    resume_recomputed: Counter,
    handles: Family<State, Gauge>,
    handles_ended: Family<Outcome, Counter>,
    handles_expired: Counter,
}

impl EngineMetrics {
    pub fn new(role: RoleLabel) -> EngineMetrics {
        let mut registry = Registry::default();
        let serving = ServingMetrics::new(role, &mut registry);
        let m = EngineMetrics {
            serving,
            kv_blocks: Family::default(),
            kv_evictions: Counter::default(),
            queue_depth: Gauge::default(),
            active_sequences: Gauge::default(),
            batch_tokens: Gauge::default(),
            prefix_hit_ratio: Gauge::default(),
            preemptions: Counter::default(),
            transfer_bytes: Family::default(),
            transfer_blocks: Family::default(),
            remote_prefill: Counter::default(),
            resume_recomputed: Counter::default(),
            handles: Family::default(),
            handles_ended: Family::default(),
            handles_expired: Counter::default(),
            registry,
        };
        m.with_registered()
    }

    fn with_registered(mut self) -> EngineMetrics {
        let r = &mut self.registry;
        r.register("tl_engine_kv_blocks", "Blocks of the KV pool by state", self.kv_blocks.clone());
        r.register(
            "tl_engine_kv_evictions",
            "Cached blocks given up to make room",
            self.kv_evictions.clone(),
        );
        r.register(
            "tl_engine_queue_depth",
            "Requests admitted and not running",
            self.queue_depth.clone(),
        );
        r.register(
            "tl_engine_active_sequences",
            "Sequences that own KV blocks and take part in steps",
            self.active_sequences.clone(),
        );
        r.register("tl_engine_batch_tokens", "Tokens in the last step", self.batch_tokens.clone());
        r.register(
            "tl_engine_prefix_cache_hit_ratio",
            "Prompt tokens found in the prefix cache over those looked up",
            self.prefix_hit_ratio.clone(),
        );
        r.register(
            "tl_engine_spec_accept_rate",
            "Draft tokens accepted over those proposed; 0 while nothing is drafted",
            Gauge::<f64, AtomicU64>::default(),
        );
        r.register(
            "tl_engine_preemptions",
            "Running sequences set back to the queue for want of blocks",
            self.preemptions.clone(),
        );
        r.register(
            "tl_kv_transfer_bytes",
            "Envelope bytes of KV blocks that crossed between engines",
            self.transfer_bytes.clone(),
        );
        r.register(
            "tl_kv_transfer_blocks",
            "KV blocks handed to a decode engine: sent, or found there already",
            self.transfer_blocks.clone(),
        );
        r.register(
            "tl_engine_remote_prefill",
            "Requests resumed from KV blocks that another engine computed",
            self.remote_prefill.clone(),
        );
        r.register(
            "tl_engine_resume_recomputed_tokens",
            "Prompt tokens of resumed requests computed a second time",
            self.resume_recomputed.clone(),
        );
        r.register("tl_kv_handles", "Handles on the decode side by state", self.handles.clone());
        r.register(
            "tl_kv_handles_ended",
            "Handles by how their wait ended",
            self.handles_ended.clone(),
        );
        r.register(
            "tl_kv_handles_expired",
            "Handles that nobody claimed before their lease ended",
            self.handles_expired.clone(),
        );
        for state in ["free", "used", "cached"] {
            self.kv_blocks.get_or_create(&State { state }).set(0);
        }
        self.handles.get_or_create(&State { state: "waiting" }).set(0);
        for outcome in ["claimed", "released", "expired"] {
            self.handles_ended.get_or_create(&Outcome { outcome }).inc_by(0);
        }
        for direction in ["sent", "received"] {
            self.transfer_bytes.get_or_create(&Direction { direction }).inc_by(0);
        }
        for outcome in ["sent", "deduped"] {
            self.transfer_blocks.get_or_create(&Outcome { outcome }).inc_by(0);
        }
        self
    }

    /// The request-level histograms.
    pub fn serving(&self) -> &ServingMetrics {
        &self.serving
    }

    /// A push to a decode engine has been acknowledged.
    pub fn kv_pushed(&self, bytes: u64, sent: u64, deduped: u64) {
        self.transfer_bytes.get_or_create(&Direction { direction: "sent" }).inc_by(bytes);
        self.transfer_blocks.get_or_create(&Outcome { outcome: "sent" }).inc_by(sent);
        self.transfer_blocks.get_or_create(&Outcome { outcome: "deduped" }).inc_by(deduped);
    }

    /// The exposition, with `now` for all that is read at scrape time.
    pub fn render(&self, now: &EngineSample) -> String {
        let EngineSample {
            kv_free,
            kv_used,
            kv_cached,
            kv_evictions,
            queue_depth,
            active_sequences,
            batch_tokens,
            prefix_query_tokens,
            prefix_hit_tokens,
            preemptions,
            remote_prefills,
            resume_recomputed_tokens,
            handles_waiting,
            handles_claimed,
            handles_released,
            handles_expired,
            kv_bytes_received,
        } = *now;
        for (state, n) in [("free", kv_free), ("used", kv_used), ("cached", kv_cached)] {
            self.kv_blocks.get_or_create(&State { state }).set(gauge(n));
        }
        self.handles.get_or_create(&State { state: "waiting" }).set(gauge(handles_waiting));
        for (outcome, n) in [
            ("claimed", handles_claimed),
            ("released", handles_released),
            ("expired", handles_expired),
        ] {
            raise(&self.handles_ended.get_or_create(&Outcome { outcome }), n);
        }
        self.queue_depth.set(gauge(queue_depth));
        self.active_sequences.set(gauge(active_sequences));
        self.batch_tokens.set(gauge(batch_tokens));
        let ratio = match prefix_query_tokens {
            0 => 0.0,
            n => prefix_hit_tokens as f64 / n as f64,
        };
        self.prefix_hit_ratio.set(ratio);
        raise(&self.kv_evictions, kv_evictions);
        raise(&self.preemptions, preemptions);
        raise(&self.remote_prefill, remote_prefills);
        raise(&self.resume_recomputed, resume_recomputed_tokens);
        raise(&self.handles_expired, handles_expired);
        raise(
            &self.transfer_bytes.get_or_create(&Direction { direction: "received" }),
            kv_bytes_received,
        );
        render(&self.registry)
    }
}

fn gauge(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Two scrapes may overlap; the later value must not be undone by the earlier one.
fn raise(counter: &Counter, to: u64) {
    counter.inner().fetch_max(to, Ordering::Relaxed);
}
