//! Constants, families, arrivals and the run.

use super::{Const, Families, Family, Linker, MAX_MEMBERS, Override, place};
use crate::ast::{self, ArriveLaw, StageKind};
use crate::diag::{Code, Diagnostic, closest};
use crate::ir::{Arrival, CGauge, CShare, Ctx, MAX_SESSIONS, Rate, Slo, Trace};
use crate::source::Span;

/// Largest seed: every integer up to here is an exact `f64`.
const MAX_SEED: f64 = 9_007_199_254_740_991.0;

impl<'a> Linker<'a> {
    /// Constants, in order: each may read those above it. An override takes the place of the
    /// declared value.
    pub(super) fn lets(&mut self, lets: &'a [ast::Let], overrides: &'a [Override]) {
        for (at, (name, _)) in overrides.iter().enumerate() {
            if !lets.iter().any(|l| l.name.text == name.text) {
                let known = lets.iter().map(|l| l.name.text.as_str());
                let d = Diagnostic::new(
                    Code::E0601,
                    name.span,
                    format!("the program has no `let {}` to override", name.text),
                )
                .did_you_mean(closest(&name.text, known));
                self.report(d);
            }
            if overrides[..at].iter().any(|(n, _)| n.text == name.text) {
                let message = format!("`{}` is overridden twice", name.text);
                let d =
                    Diagnostic::new(Code::E0602, name.span, message).help("keep one of the two");
                self.report(d);
            }
        }
        for (at, decl) in lets.iter().enumerate() {
            let name = &decl.name;
            if let Some(first) = lets[..at].iter().find(|l| l.name.text == name.text) {
                self.declared_twice("constant", name, first.name.span);
                continue;
            }
            let ctx = Ctx::ALL.into_iter().find(|c| c.name() == name.text);
            if name.text == "inf" || ctx.is_some() {
                let d = Diagnostic::new(
                    Code::E0308,
                    name.span,
                    format!("`{}` is no name for a constant", name.text),
                )
                .at("the language gives it a meaning of its own");
                self.report(d);
                continue;
            }
            let given = overrides.iter().find(|(n, _)| n.text == name.text).map(|(_, e)| e);
            let before = self.diags.len();
            let mut value = self.constant(given.unwrap_or(&decl.value));
            if value.is_none() && self.diags.len() > before {
                self.forward_reference(lets, at, given.unwrap_or(&decl.value));
                value = None;
            }
            self.consts.insert(name.text.clone(), Const { value, span: name.span, used: false });
        }
    }

    /// A constant that reads one declared below it: the unknown name is known, only too late.
    fn forward_reference(&mut self, lets: &[ast::Let], at: usize, value: &ast::Expr) {
        let mut reads: Vec<(&str, Span)> = Vec::new();
        value.walk(&mut |e| {
            if let ast::ExprKind::Name(name) = &e.kind {
                reads.push((name, e.span));
            }
        });
        for (name, span) in reads {
            if let Some(later) = lets[at..].iter().find(|l| l.name.text == name) {
                self.diags.amend(Code::E0303, span, |d| {
                    d.label(later.name.span, "declared here, further down")
                        .help("a constant reads those above it: move that one up")
                });
            }
        }
    }

    fn declared_twice(&mut self, what: &str, name: &ast::Name, first: Span) {
        let message = format!("a second {what} `{}`", name.text);
        let d = Diagnostic::new(Code::E0306, name.span, message)
            .label(first, "first declared here")
            .help("give it another name");
        self.report(d);
    }

    /// Gives pools and stages their numbers.
    pub(super) fn families(&mut self, tree: &'a ast::Program) {
        for pool in &tree.pools {
            let count = self.family_size(pool.count.as_ref(), &pool.name);
            if let Some(first) = self.pools.get(&pool.name.text) {
                let first = first.span;
                self.declared_twice("pool", &pool.name, first);
                continue;
            }
            if self.room(self.pools.members, count, pool.name.span) {
                add(&mut self.pools, &pool.name, count, None);
            }
        }
        for stage in &tree.stages {
            let count = self.family_size(stage.count.as_ref(), &stage.name);
            if let Some(first) = self.stages.get(&stage.name.text) {
                let first = first.span;
                self.declared_twice("stage", &stage.name, first);
                continue;
            }
            if self.room(self.stages.members, count, stage.name.span) {
                add(&mut self.stages, &stage.name, count, Some(stage));
            }
        }
    }

    fn room(&mut self, members: usize, count: usize, span: Span) -> bool {
        let fits = members + count <= MAX_MEMBERS;
        if !fits {
            let message = format!("more than {MAX_MEMBERS} members of families");
            self.report(Diagnostic::new(Code::E0407, span, message));
        }
        fits
    }

    fn family_size(&mut self, count: Option<&'a ast::Expr>, name: &ast::Name) -> usize {
        let Some(e) = count else { return 1 };
        match self.constant(e) {
            None => 1,
            Some(v) if v >= 1.0 && v <= MAX_MEMBERS as f64 && libm::floor(v) == v => v as usize,
            Some(v) => {
                let message = format!("`{}` as a family of {v}", name.text);
                let d = Diagnostic::new(Code::E0407, e.span, message)
                    .help(format!("a family has 1 to {MAX_MEMBERS} members"));
                self.report(d);
                1
            }
        }
    }

    pub(super) fn workload(&mut self, tree: &'a ast::Program) {
        let Some(workload) = &tree.workload else { return };
        if let Some(arrive) = &workload.arrive {
            self.program.arrival = self.arrival(&arrive.law);
            self.limit(arrive);
        }
        if let Some(trace) = &workload.trace {
            self.program.trace = Some(Trace::File(trace.path.clone()));
            self.program.trace_ordered = trace.ordered;
        }
    }

    fn arrival(&mut self, law: &'a ArriveLaw) -> Arrival {
        match law {
            ArriveLaw::None => Arrival::None,
            ArriveLaw::Poisson(e) => {
                let rate = self.constant(e).unwrap_or(1.0);
                if !(rate > 0.0 && rate.is_finite()) {
                    let message = format!("arrivals at a rate of {rate}");
                    let d = Diagnostic::new(Code::E0408, e.span, message).help(
                        "the rate is in sessions per second, above 0; `arrive none;` for none",
                    );
                    self.report(d);
                }
                Arrival::Poisson(rate)
            }
            ArriveLaw::Closed(e) => Arrival::Closed(self.sessions(e)),
            ArriveLaw::Batch(e) => Arrival::Batch(self.sessions(e)),
            ArriveLaw::Renewal(e) => {
                let gap = self.amount(e, place::GAP);
                if gap.as_num() == Some(0.0) || gap.as_num() == Some(f64::INFINITY) {
                    let d = Diagnostic::new(
                        Code::E0408,
                        e.span,
                        "a gap that lets no time pass, or all of it",
                    )
                    .help("the gap between arrivals is in seconds, above 0: renewal(~exp(2))");
                    self.report(d);
                }
                Arrival::Renewal(gap)
            }
            ArriveLaw::Rates(rates) => {
                let mut linked: Vec<Rate> = Vec::with_capacity(rates.len());
                for (rate, from) in rates {
                    let value = self.constant(rate).unwrap_or(1.0);
                    if !(value >= 0.0 && value.is_finite()) {
                        let message = format!("arrivals at a rate of {value}");
                        let d = Diagnostic::new(Code::E0408, rate.span, message)
                            .help("a rate is in sessions per second, 0 or more");
                        self.report(d);
                    }
                    let after = linked.last().map(|r| r.1);
                    if let Some(from) = self.moment(from, after, true) {
                        linked.push(Rate(value, from));
                    }
                }
                Arrival::Rates(linked)
            }
            ArriveLaw::At(times) => {
                let mut linked: Vec<f64> = Vec::with_capacity(times.len());
                for e in times {
                    let after = linked.last().copied();
                    linked.extend(self.moment(e, after, false));
                }
                Arrival::Times(linked)
            }
            ArriveLaw::Trace => Arrival::Trace,
        }
    }

    /// A time of arrival, not before the one above it.
    fn moment(&mut self, e: &'a ast::Expr, after: Option<f64>, strictly: bool) -> Option<f64> {
        let value = self.constant(e)?;
        let late = after.is_none_or(|a| if strictly { value > a } else { value >= a });
        if value >= 0.0 && value.is_finite() && late {
            return Some(value);
        }
        let d = Diagnostic::new(Code::E0408, e.span, format!("a time of {value}"))
            .help("times are in seconds, 0 or more, in ascending order");
        self.report(d);
        None
    }

    /// `for N`
    fn limit(&mut self, arrive: &'a ast::Arrive) {
        let Some(e) = &arrive.limit else { return };
        let open = matches!(
            arrive.law,
            ArriveLaw::Poisson(_) | ArriveLaw::Renewal(_) | ArriveLaw::Rates(_)
        );
        let n = self.sessions(e);
        if !open || n == 0 {
            let d = Diagnostic::new(Code::E0408, e.span, "a number of sessions that means nothing here")
                .help("`for N` ends poisson, renewal and rates after N sessions, 1 or more; the others have an end of their own, or none");
            self.report(d);
        }
        self.program.limit = Some(n);
    }

    /// Gauges, and the rule of shared stages.
    pub(super) fn gauges(&mut self, tree: &'a ast::Program) {
        for (at, gauge) in tree.gauges.iter().enumerate() {
            if let Some(first) = tree.gauges[..at].iter().find(|g| g.name.text == gauge.name.text) {
                self.declared_twice("gauge", &gauge.name, first.name.span);
                continue;
            }
            let value = self.expr(&gauge.value, place::GAUGE);
            self.program.gauges.push(CGauge { name: gauge.name.text.clone(), value });
        }
        self.program.share =
            tree.share.map(|share| if share.max_min { CShare::MaxMin } else { CShare::Bottleneck });
    }

    /// What a request must meet.
    pub(super) fn slo(&mut self, tree: &'a ast::Program) {
        let Some(slo) = &tree.slo else { return };
        let mut bounds = Slo::default();
        for (measure, bound) in &slo.bounds {
            let Some(value) = self.constant(bound) else { continue };
            if !value.is_finite() || value < 0.0 {
                let d =
                    Diagnostic::new(Code::E0441, bound.span, format!("a bound of {value} seconds"))
                        .help("a bound is a number of seconds, 0 or more");
                self.report(d);
            }
            let Some(place) = bounds.bound_mut(&measure.text) else { continue };
            if place.replace(value).is_some() {
                let reason = format!("`{}` is bounded twice", measure.text);
                self.report(Diagnostic::new(Code::E0441, measure.span, reason).help("keep one"));
            }
        }
        self.program.slo = Some(bounds);
    }

    fn sessions(&mut self, e: &'a ast::Expr) -> u64 {
        let n = self.constant(e).unwrap_or(1.0);
        if !(n >= 0.0 && n <= MAX_SESSIONS as f64 && libm::floor(n) == n) {
            let d = Diagnostic::new(Code::E0408, e.span, format!("{n} sessions"))
                .help(format!("their number is an integer from 0 to {MAX_SESSIONS}"));
            self.report(d);
            return 1;
        }
        n as u64
    }

    pub(super) fn run_options(&mut self, tree: &'a ast::Program) {
        let end = Span { start: tree.span.end, ..tree.span };
        let run = tree.run.as_ref();
        let finite = self.program.is_finite();
        if finite && run.and_then(|r| r.horizon.as_ref()).is_none() {
            self.program.horizon = f64::INFINITY;
            self.rest_of_run(run, f64::INFINITY, end);
            return;
        }
        let Some(horizon) = run.and_then(|r| r.horizon.as_ref()) else {
            let at = run.map_or(end, |r| r.span);
            let d = Diagnostic::new(Code::E0409, at, "the program does not say when it ends")
                .help("add `run { horizon 1000; }`, in seconds");
            self.report(d);
            return;
        };
        let value = self.constant(horizon).unwrap_or(1.0);
        if !(value > 0.0 && (value.is_finite() || finite)) {
            let message = format!("a horizon of {value}");
            let d = Diagnostic::new(Code::E0405, horizon.span, message)
                .help("it is a positive number of seconds");
            self.report(d);
        }
        self.program.horizon = value;
        self.rest_of_run(run, value, horizon.span);
    }

    fn rest_of_run(&mut self, run: Option<&'a ast::Run>, horizon: f64, horizon_at: Span) {
        if let Some(e) = run.and_then(|r| r.warmup.as_ref()) {
            if let Some(warmup) = self.constant(e) {
                self.warmup(warmup, horizon, e.span, horizon_at);
            }
        }
        if let Some(e) = run.and_then(|r| r.seed.as_ref()) {
            let seed = self.constant(e).unwrap_or(1.0);
            if !(0.0..=MAX_SEED).contains(&seed) || libm::floor(seed) != seed {
                let d = Diagnostic::new(Code::E0405, e.span, format!("a seed of {seed}"))
                    .help("it is an integer from 0 to 2^53 - 1");
                self.report(d);
            }
            self.program.seed = seed as u64;
        }
    }

    fn warmup(&mut self, warmup: f64, horizon: f64, at: Span, horizon_at: Span) {
        self.program.warmup = warmup;
        if warmup < 0.0 {
            let d = Diagnostic::new(Code::E0405, at, format!("a warm-up of {warmup}"))
                .help("it is a number of seconds; without one, everything is measured");
            self.report(d);
        } else if warmup >= horizon {
            let d = Diagnostic::new(
                Code::E0410,
                at,
                format!("a warm-up of {warmup} does not end before the horizon"),
            )
            .label(horizon_at, format!("the run ends at {horizon}"))
            .help("measurements begin after the warm-up: shorten it, or run longer");
            self.report(d);
        }
    }
}

fn add(families: &mut Families, name: &ast::Name, count: usize, stage: Option<&ast::Stage>) {
    let (base, span) = (families.members, name.span);
    let step = stage.is_some_and(|s| matches!(s.kind, StageKind::Step(_)));
    let order = stage.map_or(0, |s| s.order);
    families.list.push(Family { name: name.text.clone(), base, count, span, step, order });
    families.members += count;
}
