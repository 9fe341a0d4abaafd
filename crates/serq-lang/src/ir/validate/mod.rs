//! What must hold of a program before it runs.
//!
//! Text and JSON come through here alike. Every check goes on after an error, so that one pass
//! names everything that is wrong; each error says where (in the IR, and in the source if the
//! program carries positions), why, and what to do. What depends on values of a run is left to
//! the run.

mod content;
mod expr;
mod hidden;
mod lease;
mod moment;
mod progress;
mod shared;
mod stmt;
mod table;

use std::fmt;

pub use moment::Moment;

use super::program::{
    Arrival, CEvict, CPreempt, CServe, CStageKind, MAX_SESSIONS, Preset, Program, Rate, Slots,
    Trace,
};
use super::span::Place;
use super::{FORMAT, VERSION, VERSION_6, version_needed};

/// Most errors one call reports; a generated file with one mistake repeated stays readable.
const MAX_ERRORS: usize = 100;

/// Longest chain of pools that spill to each other.
const MAX_TIERS: usize = 16;

/// One thing that is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IrError {
    /// Stable name of the rule, for machines and for `explain`.
    pub code: &'static str,
    /// Where in the IR, e.g. `blocks[3][1].work`.
    pub path: String,
    /// Where in the source, when known.
    pub place: Option<Place>,
    pub reason: String,
    pub help: String,
}

impl IrError {
    pub(super) fn new(
        code: &'static str,
        path: impl Into<String>,
        reason: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { code, path: path.into(), place: None, reason: reason.into(), help: help.into() }
    }
}

impl fmt::Display for IrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: ")?,
            None => write!(f, "{}: ", self.path)?,
        }
        write!(f, "{} [{}]; {}", self.reason, self.code, self.help)
    }
}

impl std::error::Error for IrError {}

/// Checks a whole program.
///
/// Errors: everything found, at most 100, in the order declarations, traffic, statements.
pub fn validate(program: &Program) -> Result<(), Vec<IrError>> {
    let mut check = Check { program, errors: Vec::new() };
    check.program();
    if check.errors.is_empty() { Ok(()) } else { Err(check.errors) }
}

/// The walk: the program and what was found so far.
struct Check<'a> {
    program: &'a Program,
    errors: Vec<IrError>,
}

/// Where the walk is, for messages.
#[derive(Clone)]
struct At {
    path: String,
    place: Option<Place>,
}

impl At {
    fn field(&self, name: &str) -> At {
        At { path: format!("{}.{name}", self.path), place: self.place.clone() }
    }
}

impl Check<'_> {
    fn error(
        &mut self,
        at: &At,
        code: &'static str,
        reason: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.errors.len() < MAX_ERRORS {
            let mut error = IrError::new(code, at.path.clone(), reason, help);
            error.place.clone_from(&at.place);
            self.errors.push(error);
        }
    }

    fn spans<T>(&self, f: impl FnOnce(&super::span::Spans) -> Option<T>) -> Option<T> {
        self.program.spans.as_ref().and_then(f)
    }

    fn program(&mut self) {
        let p = self.program;
        let root = At { path: "program".into(), place: None };
        if p.format != FORMAT {
            let reason = format!("the format is \"{}\"", p.format);
            self.error(&root, "ir-format", reason, "it is \"serq-tl\"");
        }
        let needed = version_needed(p);
        if ![VERSION, VERSION_6].contains(&p.version) {
            let reason = format!("the version is {}", p.version);
            let help = format!("this program reads {VERSION} and {VERSION_6}");
            self.error(&root, "ir-version", reason, help);
        } else if p.version < needed {
            let reason = format!("the version is {}, but the program needs {needed}", p.version);
            self.error(&root, "ir-version", reason, "write the version that it needs");
        }
        self.names(&root);
        self.run_parameters();
        for i in 0..p.pools.len() {
            self.pool(i);
        }
        self.spill_circles();
        for i in 0..p.stages.len() {
            self.stage(i);
        }
        self.arrival();
        self.gauges();
        self.slo();
        self.tables();
        self.trace();
        self.hidden_list();
        self.statements();
        if self.errors.is_empty() {
            self.loops_take_time();
            self.hidden_reads();
        }
    }

    fn names(&mut self, root: &At) {
        let p = self.program;
        for (list, names) in [("attrs", &p.attrs), ("observes", &p.observes)] {
            let mut seen = std::collections::BTreeSet::new();
            for (i, name) in names.iter().enumerate() {
                if !seen.insert(name) {
                    let at = At { path: format!("{list}[{i}]"), place: None };
                    self.error(
                        &at,
                        "ir-name",
                        format!("`{name}` is listed twice"),
                        "list a name once",
                    );
                }
            }
        }
        let mut slots = p.slots.all().to_vec();
        for (slot, name) in slots.iter().zip(Slots::NAMES) {
            if *slot >= p.attrs.len() {
                let reason =
                    format!("slot_{name} is {slot}, but there are {} attributes", p.attrs.len());
                self.error(root, "ir-index", reason, "slots 0 to 8 are the built-in attributes");
            }
        }
        slots.sort_unstable();
        slots.dedup();
        if slots.len() < Slots::NAMES.len() {
            self.error(
                root,
                "ir-name",
                "two built-in attributes share a slot",
                "slots 0 to 8 are the built-in attributes",
            );
        }
    }

    fn run_parameters(&mut self) {
        let p = self.program;
        let place = self.spans(|s| s.run.and_then(|span| s.resolve(span)));
        let at = At { path: "run".into(), place };
        if p.horizon == f64::INFINITY {
            if !p.is_finite() {
                let reason = "the run has no horizon, and its sessions no end";
                self.error(&at, "run-horizon", reason, "give a horizon, or a number of sessions");
            }
        } else if !(p.horizon.is_finite() && p.horizon > 0.0) {
            let reason = format!("the horizon is {}", p.horizon);
            self.error(&at, "run-horizon", reason, "give a positive number of seconds");
        }
        if !(p.warmup.is_finite() && p.warmup >= 0.0) {
            let reason = format!("the warm-up is {}", p.warmup);
            self.error(&at, "run-warmup", reason, "give a number of seconds, 0 for none");
        } else if p.warmup >= p.horizon {
            let reason = format!(
                "the warm-up of {} does not end before the horizon {}",
                p.warmup, p.horizon
            );
            self.error(&at, "run-warmup", reason, "measurements need time after the warm-up");
        }
    }

    fn pool(&mut self, i: usize) {
        let pool = &self.program.pools[i];
        let at = At { path: format!("pools[{i}]"), place: self.spans(|s| s.pool(i)) };
        if pool.cap.is_nan() || pool.cap < 0.0 {
            let reason = format!("pool `{}` has a cap of {}", pool.name, pool.cap);
            self.error(&at.field("cap"), "pool-cap", reason, "a cap is 0 or more, or inf");
        }
        if let Some(block) = pool.block
            && !(block.is_finite() && block > 0.0)
        {
            let reason = format!("pool `{}` has blocks of {block} units", pool.name);
            self.error(&at.field("block"), "pool-block", reason, "a block is a positive number");
        }
        if let CEvict::By(keys) = &pool.evict {
            for key in keys {
                self.expr(key, Moment::Evict, true, &at.field("evict"));
            }
        }
        if let CPreempt::By { keys, requeue } = &pool.preempt {
            for e in keys.iter().chain([requeue]) {
                self.expr(e, Moment::Victim, false, &at.field("preempt"));
            }
        }
        if let Some(queue) = &pool.queue {
            let moment = if queue.is_live() { Moment::Select } else { Moment::Queue };
            for key in queue.keys() {
                self.expr(key, moment, false, &at.field("queue"));
            }
        }
        if pool.shared {
            self.shared_pool(i, &at);
        }
        if let Some(stage) = pool.admit_via {
            match self.program.stages.get(stage).map(|s| &s.kind) {
                Some(CStageKind::Step(_)) => {}
                Some(_) => {
                    let reason = format!(
                        "pool `{}` is admitted via a stage that is no step stage",
                        pool.name
                    );
                    self.error(&at, "admit-via", reason, "only a step stage has a scheduler");
                }
                None => self.missing(&at.field("admit_via"), "stage", stage),
            }
        }
        if let Some(spill) = &pool.spill {
            let at = at.field("spill");
            let to = self.program.pools.get(spill.to);
            if to.is_none() {
                self.missing(&at, "pool", spill.to);
            } else if to.is_some_and(|p| p.shared) {
                let reason = format!("pool `{}` spills into a shared pool", pool.name);
                let help = "what is there has a content, and units that are moved have none";
                self.error(&at, "pool-shared", reason, help);
            } else if spill.to == i {
                let reason = format!("pool `{}` spills to itself", pool.name);
                self.error(&at, "spill", reason, "name another pool as the tier");
            }
            match self.program.stages.get(spill.via).map(|s| &s.kind) {
                None => self.missing(&at, "stage", spill.via),
                Some(CStageKind::Step(_)) => self.error(
                    &at,
                    "spill",
                    format!("pool `{}` spills via a step stage", pool.name),
                    "a spill has no session to schedule: use a fifo, ps or delay stage",
                ),
                Some(_) => {}
            }
            self.expr(&spill.work, Moment::Evict, true, &at);
            self.expr(&spill.when, Moment::Evict, true, &at);
        }
    }

    /// Evicted units must come to rest: no pool may spill back to one before it.
    fn spill_circles(&mut self) {
        let pools = &self.program.pools;
        let next = |i: usize| pools.get(i)?.spill.as_ref().map(|s| s.to);
        for (i, pool) in pools.iter().enumerate() {
            let mut end = Some(i);
            for _ in 0..MAX_TIERS {
                end = end.and_then(next);
            }
            if end.is_some() && next(i) != Some(i) {
                let place = self.spans(|s| s.pool(i));
                let at = At { path: format!("pools[{i}].spill"), place };
                let reason = format!(
                    "what pool `{}` spills goes in a circle, or through more than {MAX_TIERS} pools",
                    pool.name
                );
                self.error(&at, "spill", reason, "let the last tier drop what it evicts");
            }
        }
    }

    fn stage(&mut self, i: usize) {
        let stage = &self.program.stages[i];
        let at = At { path: format!("stages[{i}]"), place: self.spans(|s| s.stage(i)) };
        match &stage.kind {
            CStageKind::Fifo(0) => self.error(
                &at,
                "stage-servers",
                format!("stage `{}` has no server", stage.name),
                "a fifo stage has 1 server or more",
            ),
            CStageKind::Fifo(_) | CStageKind::Delay => {}
            CStageKind::Ps(capacity) => self.expr(capacity, Moment::Ps, true, &at),
            CStageKind::Step(step) => {
                self.expr(&step.budget, Moment::Budget, true, &at.field("budget"));
                self.expr(&step.chunk, Moment::Budget, true, &at.field("chunk"));
                self.expr(&step.cost, Moment::Step, true, &at.field("cost"));
                if let CServe::By(keys) = &step.serve {
                    for key in keys {
                        self.expr(key, Moment::Serve, false, &at.field("serve"));
                    }
                }
                if let Some(pool) = step.memory
                    && pool >= self.program.pools.len()
                {
                    self.missing(&at.field("memory"), "pool", pool);
                }
                if step.fenced && !step.ahead {
                    let reason = format!("stage `{}` is fenced, but not ahead", stage.name);
                    let help = "without `ahead` no iteration is under way while the next is made";
                    self.error(&at.field("fenced"), "step-fenced", reason, help);
                }
                if let Some(stops) = step.stops.filter(|t| !(*t >= 0.0)) {
                    let reason = format!("stage `{}` stops at time {stops}", stage.name);
                    self.error(&at.field("stops"), "step-stops", reason, "give a time, or inf");
                }
            }
        }
    }

    fn arrival(&mut self) {
        let place = self.spans(|s| s.arrival.and_then(|span| s.resolve(span)));
        let at = At { path: "arrival".into(), place };
        self.limit(&at);
        match &self.program.arrival {
            Arrival::None => {}
            Arrival::Renewal(gap) => self.expr(gap, Moment::Gap, true, &at),
            Arrival::Rates(rates) => self.rates(rates, &at),
            Arrival::Times(times) => self.times(times, &at),
            Arrival::Trace => match &self.program.trace {
                None => self.error(&at, "arrival", "there is no trace", "name one with `trace`"),
                Some(Trace::File(_)) => {}
                Some(Trace::Inline(sessions)) => {
                    let times = &self.program.trace_times;
                    if times.len() != sessions.len() {
                        let reason = format!(
                            "the trace has {} sessions, but {} times",
                            sessions.len(),
                            times.len()
                        );
                        self.error(&at, "arrival", reason, "a time of arrival for each session");
                    }
                    self.times(times, &at);
                    self.trace_content(sessions.len(), &at);
                }
            },
            Arrival::Poisson(rate) => {
                if !(rate.is_finite() && *rate > 0.0) {
                    let reason = format!("the arrival rate is {rate}");
                    self.error(&at, "arrival", reason, "give sessions per second; `none` for none");
                }
            }
            Arrival::Closed(n) | Arrival::Batch(n) => {
                if *n > MAX_SESSIONS {
                    let reason = format!("the workload has {n} sessions at once");
                    self.error(&at, "arrival", reason, "at most a million");
                }
            }
            Arrival::Sessions(sessions) => {
                for (k, session) in sessions.iter().enumerate() {
                    let at = At { path: format!("arrival[{k}]"), place: at.place.clone() };
                    self.session(session, k.checked_sub(1).map(|k| &sessions[k]), &at);
                    for preset in session.attrs.iter().chain(session.turns.iter().flatten()) {
                        self.preset(&at, *preset);
                    }
                }
            }
        }
    }

    /// Traffic that has no end of its own may be given one.
    fn limit(&mut self, at: &At) {
        let Some(n) = self.program.limit else { return };
        if n == 0 {
            self.error(at, "arrival", "no session is to come", "`none` says that");
        }
        let open = matches!(
            self.program.arrival,
            Arrival::Poisson(_) | Arrival::Renewal(_) | Arrival::Rates(_)
        );
        if !open {
            let reason = "a number of sessions is given for arrivals that have one";
            self.error(at, "arrival", reason, "poisson, renewal and rates can have one");
        }
    }

    fn rates(&mut self, rates: &[Rate], at: &At) {
        if rates.is_empty() {
            self.error(at, "arrival", "there is no rate", "give at least one");
        }
        for Rate(rate, from) in rates {
            if !(rate.is_finite() && *rate >= 0.0 && from.is_finite() && *from >= 0.0) {
                let reason = format!("a rate of {rate} from {from} on");
                self.error(at, "arrival", reason, "rates and times are 0 or more, and finite");
            }
        }
        if !rates.is_sorted_by(|a, b| a.1 < b.1) {
            self.error(at, "arrival", "the rates are not in order of time", "sort them");
        }
    }

    fn times(&mut self, times: &[f64], at: &At) {
        if times.iter().any(|t| !(t.is_finite() && *t >= 0.0)) {
            let reason = "a time of arrival is negative or not finite";
            self.error(at, "arrival", reason, "times are 0 or more");
        } else if !times.is_sorted() {
            self.error(at, "arrival", "the times of arrival are not ascending", "sort them");
        }
    }

    fn gauges(&mut self) {
        let mut seen = std::collections::BTreeSet::new();
        for (i, gauge) in self.program.gauges.iter().enumerate() {
            let place = self.spans(|s| s.resolve(*s.gauges.get(i)?));
            let at = At { path: format!("gauges[{i}]"), place };
            self.expr(&gauge.value, Moment::Gauge, false, &at);
            if !seen.insert(&gauge.name) {
                let reason = format!("gauge `{}` is there twice", gauge.name);
                self.error(&at, "ir-name", reason, "give each a name of its own");
            }
        }
    }

    fn slo(&mut self) {
        let Some(slo) = &self.program.slo else { return };
        for (name, bound) in slo.bounds().filter(|(_, bound)| !bound.is_finite() || *bound < 0.0) {
            let reason = format!("the bound on {name} is {bound} seconds");
            let at = At { path: "slo".into(), place: None };
            self.error(&at, "slo", reason, "a bound is a number of seconds, 0 or more");
        }
    }

    fn preset(&mut self, at: &At, Preset(slot, value): Preset) {
        if slot >= self.program.attrs.len() {
            self.missing(at, "attribute", slot);
        } else if value.is_nan() {
            let reason = format!("attribute `{}` is given as nan", self.program.attrs[slot]);
            self.error(at, "ir-number", reason, "give a number");
        }
    }

    fn trace(&mut self) {
        let Some(Trace::Inline(sessions)) = &self.program.trace else { return };
        let at = At { path: "trace".into(), place: None };
        if sessions.is_empty() {
            self.error(&at, "trace", "the trace has no session", "give at least one");
        }
        for (k, turns) in sessions.iter().enumerate() {
            for (t, turn) in turns.iter().enumerate() {
                if [turn.0, turn.1, turn.2, turn.3].iter().any(|v| !v.is_finite() || *v < 0.0) {
                    let at = At { path: format!("trace[{k}][{t}]"), place: None };
                    self.error(
                        &at,
                        "trace",
                        "a recorded turn has a number that is negative or not finite",
                        "new, out, think and forced are 0 or more",
                    );
                }
            }
        }
    }

    fn missing(&mut self, at: &At, what: &str, index: usize) {
        let reason = format!("there is no {what} number {index}");
        self.error(at, "ir-index", reason, format!("count the {what} list from 0"));
    }
}
