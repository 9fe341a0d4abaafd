//! The result of a run.

pub(crate) mod deadlock;
pub(crate) mod gauge;
mod notes;
pub(crate) mod requests;
mod text;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::engine::Engine;
use crate::stage::Kind;
use deadlock::Deadlock;
use gauge::GaugeReport;
pub use notes::SERIOUS;
use requests::RequestsReport;
use serq_lang::ir::CStageKind;

/// Changes when a field changes its meaning or goes away.
pub const REPORT_VERSION: u32 = 1;

/// Quantiles every observe has.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Everything a run measured. In JSON, numbers that are not finite are `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub report_version: u32,
    /// Version of the simulator.
    pub serq_version: String,
    pub run: RunReport,
    /// In the program's order; in JSON an object by name.
    #[serde(serialize_with = "by_name")]
    pub observes: Vec<ObserveReport>,
    /// In the program's order; in JSON an object by name.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "gauge::by_name")]
    pub gauges: Vec<GaugeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestsReport>,
    pub stages: Vec<StageReport>,
    pub pools: Vec<PoolReport>,
    pub notes: Vec<Note>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlock: Option<Deadlock>,
}

/// The run itself. Seconds are simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    pub horizon: f64,
    pub warmup: f64,
    pub seed: u64,
    pub events: u64,
    /// Sessions that came, from time 0.
    pub arrivals: u64,
    /// Sessions that ended after the warm-up.
    pub ended: u64,
    /// Turns begun after the warm-up.
    pub turns: u64,
    /// Sessions alive at the end.
    pub live: u64,
    /// Time average after the warm-up.
    pub mean_live: f64,
}

/// Samples after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObserveReport {
    #[serde(skip)]
    pub name: String,
    pub count: u64,
    pub mean: f64,
    /// Half-width of the mean's 95 % interval by 20 batches; not a number under 40 samples.
    pub half_width: f64,
    /// Sample variance over squared mean.
    pub cv2: f64,
    pub min: f64,
    pub max: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    /// Those asked for besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<Quantile>,
    /// Largest relative error of the quantiles: 0 while every sample is kept.
    pub quantile_error: f64,
}

/// The smallest sample that at least a share `q` of the samples do not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantile {
    pub q: f64,
    pub value: f64,
}

/// A stage. Averages, completions and times are after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    pub name: String,
    /// Index within a family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<usize>,
    pub kind: &'static str,
    /// Jobs, waiting and in service.
    pub mean_present: f64,
    /// Share of time with at least one; of a stage of flows, carried work over capacity.
    pub utilisation: f64,
    pub completed: u64,
    /// Per second.
    pub throughput: f64,
    /// Seconds from joining to the start of service.
    pub mean_wait: f64,
    /// Seconds from there to the end.
    pub mean_service: f64,
    /// From time 0.
    pub iterations: u64,
    /// Shares of time a step stage spent on each kind of iteration, and idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
}

/// How an engine spent its time after the warm-up; the shares add up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Split {
    pub prefill: f64,
    pub decode: f64,
    pub mixed: f64,
    /// Iterations without tokens, after a preemption.
    pub empty: f64,
    pub idle: f64,
    pub prefill_tokens: f64,
    pub decode_tokens: f64,
    /// Decode tokens per iteration that has any.
    pub mean_decode_batch: f64,
}

/// A pool. Averages and times are after the warm-up, counters from time 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolReport {
    pub name: String,
    /// Index within a family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<usize>,
    pub cap: f64,
    /// Units.
    pub mean_used: f64,
    /// Units.
    pub mean_cached: f64,
    pub mean_queue: f64,
    pub mean_holders: f64,
    /// Sessions admitted from its queue after the warm-up: those whose hold names it first.
    pub waits: u64,
    /// Seconds those waited.
    pub mean_wait: f64,
    /// Allocations given back after the warm-up.
    pub holds: u64,
    /// Seconds from admission to release, leases included.
    pub mean_hold: f64,
    pub admissions: u64,
    pub evicted_entries: u64,
    pub evicted_units: f64,
    pub preemptions: u64,
    pub spills: u64,
    pub rejected: u64,
    pub stuck: u64,
}

/// Something the reader should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    pub code: &'static str,
    pub text: String,
}

fn by_name<S: Serializer>(observes: &[ObserveReport], out: S) -> Result<S::Ok, S::Error> {
    let mut map = out.serialize_map(Some(observes.len()))?;
    for observe in observes {
        map.serialize_entry(&observe.name, observe)?;
    }
    map.end()
}

impl Report {
    /// The JSON form, indented.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .unwrap_or_else(|e| unreachable!("plain data always has a JSON form: {e}"));
        text.push('\n');
        text
    }

    /// Aligned tables for reading.
    pub fn to_text(&self) -> String {
        text::tables(self)
    }

    pub fn observe(&self, name: &str) -> Option<&ObserveReport> {
        self.observes.iter().find(|o| o.name == name)
    }

    pub fn gauge(&self, name: &str) -> Option<&GaugeReport> {
        self.gauges.iter().find(|g| g.name == name)
    }

    /// The first stage of that name.
    pub fn stage(&self, name: &str) -> Option<&StageReport> {
        self.stages.iter().find(|s| s.name == name)
    }

    /// The first pool of that name.
    pub fn pool(&self, name: &str) -> Option<&PoolReport> {
        self.pools.iter().find(|p| p.name == name)
    }
}

/// Takes the measurements of an engine that came to its end.
pub(crate) fn make(e: &mut Engine<'_>, quantiles: &[f64]) -> Report {
    let deadlock = deadlock::find(e);
    e.w.now = e.settings.horizon;
    e.look(e.w.now);
    let requests = requests::make(e, quantiles);
    let mut report = Report {
        report_version: REPORT_VERSION,
        serq_version: env!("CARGO_PKG_VERSION").to_owned(),
        run: RunReport {
            horizon: e.settings.horizon,
            warmup: e.settings.warmup,
            seed: e.settings.seed,
            events: e.handled,
            arrivals: e.arrived,
            ended: e.ended,
            turns: e.turns_begun,
            live: e.live,
            mean_live: e.live_average.mean(e.w.now),
        },
        observes: (0..e.samples.len()).map(|k| observe(e, k, quantiles)).collect(),
        gauges: gauge::reports(e),
        requests,
        stages: (0..e.w.stages.len()).map(|i| stage(e, i)).collect(),
        pools: (0..e.w.pools.len()).map(|i| pool(e, i)).collect(),
        notes: Vec::new(),
        deadlock,
    };
    report.notes = notes::notes(e, &report);
    report
}

fn observe(e: &Engine<'_>, k: usize, extra: &[f64]) -> ObserveReport {
    let s = &e.samples[k];
    let all: Vec<f64> = QUANTILES.iter().chain(extra).copied().collect();
    let values = s.quantiles(&all);
    ObserveReport {
        name: e.c.ir.observes[k].clone(),
        count: s.count(),
        mean: s.mean(),
        half_width: s.half_width(),
        cv2: s.cv2(),
        min: s.min,
        max: s.max,
        p50: values[0],
        p90: values[1],
        p99: values[2],
        quantiles: extra
            .iter()
            .zip(&values[QUANTILES.len()..])
            .map(|(&q, &value)| Quantile { q, value })
            .collect(),
        quantile_error: if s.is_exact() { 0.0 } else { crate::stats::histogram::HISTOGRAM_ERROR },
    }
}

fn stage(e: &Engine<'_>, i: usize) -> StageReport {
    let (now, ir) = (e.w.now, &e.c.ir.stages[i]);
    let s = &e.w.stages[i];
    let span = now - e.settings.warmup;
    let split = match &s.kind {
        Kind::Step(step) => {
            let mut time = s.stats.split;
            // The iteration the horizon cut short counts for the part that was.
            if step.running {
                let from = step.started().max(e.settings.warmup);
                time[step.kind_of(&e.w.jobs)] += (now - from).max(0.0);
            }
            let [prefill, decode, mixed, empty] = time.map(|t| t / span);
            let idle = (1.0 - prefill - decode - mixed - empty).max(0.0);
            let [prefill_tokens, decode_tokens] = s.stats.tokens;
            let mean_decode_batch = decode_tokens / s.stats.decoding as f64;
            Some(Split {
                prefill,
                decode,
                mixed,
                empty,
                idle,
                prefill_tokens,
                decode_tokens,
                mean_decode_batch,
            })
        }
        _ => None,
    };
    StageReport {
        name: ir.name.clone(),
        member: e.c.stage_members[i],
        kind: match ir.kind {
            CStageKind::Fifo(_) => "fifo",
            CStageKind::Ps(_) => "ps",
            CStageKind::Delay => "delay",
            CStageKind::Step(_) => "step",
        },
        mean_present: s.stats.present.mean(now),
        utilisation: match &s.kind {
            Kind::Flow(flow) => flow.carried.mean(now) / flow.capacity,
            _ => s.stats.busy.mean(now),
        },
        completed: s.stats.completed,
        throughput: s.stats.completed as f64 / span,
        mean_wait: s.stats.wait.mean(),
        mean_service: s.stats.service.mean(),
        iterations: s.stats.iterations,
        split,
    }
}

fn pool(e: &Engine<'_>, i: usize) -> PoolReport {
    let (now, p) = (e.w.now, &e.w.pools[i]);
    let s = &p.stats;
    PoolReport {
        name: e.c.ir.pools[i].name.clone(),
        member: e.c.pool_members[i],
        cap: p.cap,
        mean_used: s.used.mean(now),
        mean_cached: s.cached.mean(now),
        mean_queue: s.waiting.mean(now),
        mean_holders: s.holders.mean(now),
        waits: s.wait.count,
        mean_wait: s.wait.mean(),
        holds: s.hold.count,
        mean_hold: s.hold.mean(),
        admissions: s.admissions,
        evicted_entries: p.shared.as_ref().map_or(s.evicted_entries, |s| s.evictions()),
        evicted_units: p.shared.as_ref().map_or(s.evicted_units, |s| s.evicted()),
        preemptions: s.preemptions,
        spills: s.spills,
        rejected: s.rejected,
        stuck: s.stuck,
    }
}
