//! What pools and stages are declared with.

use super::{Family, Linker, place};
use crate::ast::{Expr, Name, Pool, Preempt, Serve, Stage, StageKind, Step};
use crate::diag::{Code, Diagnostic};
use crate::ir::{
    CEvict, CExpr, CPool, CPreempt, CQueue, CServe, CSpill, CStage, CStageKind, CStep,
};
use crate::source::Span;

impl<'a> Linker<'a> {
    /// The members of a pool's family. A second pool of a name has been reported and adds none.
    pub(super) fn pool_options(&mut self, decl: &'a Pool) {
        let Some(family) = self.pools.get(&decl.name.text).filter(|f| f.span == decl.name.span)
        else {
            return;
        };
        let (base, count) = (family.base, family.count);
        let cap = decl.cap.as_ref().map_or(f64::INFINITY, |e| {
            self.in_range(e, "a cap is 0 or more, or inf", |v| v >= 0.0)
        });
        let block = decl.block.as_ref().map(|e| {
            self.in_range(e, "a block is a positive number of units", |v| v > 0.0 && v.is_finite())
        });
        let evict = match &decl.evict {
            Some(keys) => CEvict::By(keys.iter().map(|e| self.expr(e, place::EVICT_KEY)).collect()),
            None => CEvict::Lru,
        };
        let queue = decl.queue.as_ref().map(|queue| {
            let place = if queue.live { place::LIVE_KEY } else { place::QUEUE_KEY };
            let mut keys: Vec<CExpr> = queue.keys.iter().map(|e| self.expr(e, place)).collect();
            match (keys.pop(), queue.live) {
                (Some(key), false) if keys.is_empty() => CQueue::Key(key),
                (last, live) => {
                    keys.extend(last);
                    CQueue::Keys { keys, live }
                }
            }
        });
        let preempt = match &decl.preempt {
            Preempt::None => CPreempt::None,
            Preempt::Lifo => CPreempt::Lifo,
            Preempt::By { keys, requeue } => CPreempt::By {
                keys: keys.iter().map(|e| self.expr(e, place::VICTIM)).collect(),
                requeue: match requeue {
                    Some(e) => self.expr(e, place::VICTIM),
                    None => CExpr::Num(0.0),
                },
            },
        };
        let via = decl.admit_via.as_ref().and_then(|name| self.admit_via(decl, name, count));
        let spill = self.spill(decl, count);
        for member in 0..count {
            let pair = |(first, many): (usize, bool)| if many { first + member } else { first };
            self.program.pools.push(CPool {
                block,
                evict: evict.clone(),
                preempt: preempt.clone(),
                queue: queue.clone(),
                spill: spill.as_ref().map(|(to, via, work, when)| CSpill {
                    to: pair(*to),
                    via: pair(*via),
                    work: work.clone(),
                    when: when.clone(),
                }),
                admit_via: via.map(pair),
                shared: decl.shared,
                ..CPool::new(decl.name.text.clone(), cap)
            });
        }
        debug_assert_eq!(self.program.pools.len(), base + count);
    }

    /// A constant that must satisfy `ok`; 1 after an error.
    fn in_range(&mut self, e: &'a Expr, rule: &str, ok: impl Fn(f64) -> bool) -> f64 {
        let Some(value) = self.constant(e) else { return 1.0 };
        if !ok(value) {
            let d =
                Diagnostic::new(Code::E0405, e.span, format!("{value} is out of range")).help(rule);
            self.report(d);
        }
        value
    }

    fn admit_via(&mut self, decl: &Pool, name: &Name, count: usize) -> Option<(usize, bool)> {
        let Some(stage) = self.stages.get(&name.text) else {
            self.unknown_stage(name);
            return None;
        };
        if !stage.step {
            let declared = stage.span;
            let message = format!("`{}` is no step stage, so it admits nobody", name.text);
            let d = Diagnostic::new(Code::E0420, name.span, message)
                .label(declared, "declared here")
                .help("without `admit via`, a pool admits by itself");
            self.report(d);
            return None;
        }
        let pair = pairing(stage, count);
        let stage = (stage.count, stage.span);
        self.paired(pair, (&decl.name, count), (name, stage))
    }

    fn spill(
        &mut self,
        decl: &'a Pool,
        count: usize,
    ) -> Option<((usize, bool), (usize, bool), CExpr, CExpr)> {
        let spill = decl.spill.as_ref()?;
        let work = self.amount(&spill.work, place::SPILL);
        let when = self.expr(&spill.when, place::SPILL);
        let to = match self.pools.get(&spill.to.text) {
            None => {
                self.unknown_pool(&spill.to);
                None
            }
            Some(tier) if tier.span == decl.name.span => {
                let message = format!("`{}` spills into itself", decl.name.text);
                let d = Diagnostic::new(Code::E0420, spill.to.span, message)
                    .help("name another pool as the tier below");
                self.report(d);
                None
            }
            Some(tier) => {
                let (pair, facts) = (pairing(tier, count), (tier.count, tier.span));
                self.paired(pair, (&decl.name, count), (&spill.to, facts))
            }
        };
        let via = match self.stages.get(&spill.via.text) {
            None => {
                self.unknown_stage(&spill.via);
                None
            }
            Some(stage) if stage.step => {
                let declared = stage.span;
                let message =
                    format!("`{}` is a step stage, which serves sessions", spill.via.text);
                let d = Diagnostic::new(Code::E0420, spill.via.span, message)
                    .label(declared, "declared here")
                    .help("spilled units move over a `fifo`, `ps` or `delay` stage");
                self.report(d);
                None
            }
            Some(stage) => {
                let (pair, facts) = (pairing(stage, count), (stage.count, stage.span));
                self.paired(pair, (&decl.name, count), (&spill.via, facts))
            }
        };
        Some((to?, via?, work, when))
    }

    /// Reports families that cannot be paired: member with member, or all with one.
    fn paired(
        &mut self,
        pair: Option<(usize, bool)>,
        (one, count): (&Name, usize),
        (other, (other_count, declared)): (&Name, (usize, Span)),
    ) -> Option<(usize, bool)> {
        if pair.is_none() {
            let d = Diagnostic::new(
                Code::E0419,
                other.span,
                format!("`{}` has {count}, `{}` has {other_count}", one.text, other.text),
            )
            .label(declared, "declared here")
            .help("families pair member with member: give both the same size, or the other one size 1");
            self.report(d);
        }
        pair
    }

    /// The members of a stage's family.
    pub(super) fn stage_options(&mut self, decl: &'a Stage) {
        let Some(family) = self.stages.get(&decl.name.text).filter(|f| f.span == decl.name.span)
        else {
            return;
        };
        let count = family.count;
        let (kind, memory) = match &decl.kind {
            StageKind::Delay => (CStageKind::Delay, None),
            StageKind::Fifo(servers) => (CStageKind::Fifo(self.servers(servers.as_ref())), None),
            StageKind::Ps(e) => {
                let capacity = self.expr(e, place::CAPACITY);
                self.positive(&capacity, e, "a capacity is above 0");
                self.bounded(&capacity, e, "without a limit it is a `delay` stage");
                (CStageKind::Ps(capacity), None)
            }
            StageKind::Step(step) => self.step(decl, step, count),
        };
        for member in 0..count {
            let mut kind = kind.clone();
            if let (CStageKind::Step(step), Some((first, many))) = (&mut kind, memory) {
                step.memory = Some(if many { first + member } else { first });
            }
            self.program.stages.push(CStage { name: decl.name.text.clone(), kind });
        }
    }

    /// Reports a constant that is not above 0.
    fn positive(&mut self, linked: &CExpr, e: &Expr, rule: &str) {
        if let Some(v) = linked.as_num().filter(|v| *v <= 0.0) {
            let d = Diagnostic::new(Code::E0405, e.span, format!("{v} is out of range")).help(rule);
            self.report(d);
        }
    }

    /// Reports a constant that is infinite.
    fn bounded(&mut self, linked: &CExpr, e: &Expr, rule: &str) {
        if linked.as_num() == Some(f64::INFINITY) {
            let d = Diagnostic::new(Code::E0405, e.span, "inf is out of range").help(rule);
            self.report(d);
        }
    }

    fn servers(&mut self, servers: Option<&'a Expr>) -> u32 {
        let Some(e) = servers else { return 1 };
        match self.constant(e) {
            None => 1,
            Some(v) if v >= 1.0 && v <= f64::from(u32::MAX) && libm::floor(v) == v => v as u32,
            Some(v) => {
                let message = format!("a fifo stage with {v} servers");
                let d = Diagnostic::new(Code::E0406, e.span, message)
                    .help("their number is an integer, 1 or more; `delay` has as many as it needs");
                self.report(d);
                1
            }
        }
    }

    fn step(
        &mut self,
        decl: &'a Stage,
        step: &'a Step,
        count: usize,
    ) -> (CStageKind, Option<(usize, bool)>) {
        let budget = step.budget.as_ref().map_or(CExpr::Num(f64::INFINITY), |e| {
            let budget = self.expr(e, place::BUDGET);
            self.positive(&budget, e, "a budget is a positive number of tokens");
            budget
        });
        let chunk = step.chunk.as_ref().map_or(CExpr::Num(0.0), |e| self.amount(e, place::CHUNK));
        let cost = match &step.cost {
            Some(e) => {
                let cost = self.expr(e, place::COST);
                self.positive(&cost, e, "an iteration takes a positive time");
                self.bounded(&cost, e, "an iteration takes a finite time");
                cost
            }
            None => {
                let message = format!("the step stage `{}` has no cost", decl.name.text);
                let d = Diagnostic::new(Code::E0421, step.span, message)
                    .help("say how long an iteration takes: cost omega + alpha * ntok;");
                self.report(d);
                CExpr::Num(1.0)
            }
        };
        let serve = match &step.serve {
            None | Some(Serve::Admission) => CServe::By(Vec::new()),
            Some(Serve::By(keys)) => {
                CServe::By(keys.iter().map(|e| self.expr(e, place::SERVE_KEY)).collect())
            }
            Some(Serve::DecodeFirst) => CServe::By(vec![decode_first()]),
            Some(Serve::ExclusivePrefill) => CServe::ExclusivePrefill,
            Some(Serve::PrefillAlone) => CServe::PrefillAlone,
        };
        let memory = step.memory.as_ref().and_then(|name| match self.pools.get(&name.text) {
            None => {
                self.unknown_pool(name);
                None
            }
            Some(pool) => {
                let (pair, facts) = (pairing(pool, count), (pool.count, pool.span));
                self.paired(pair, (&decl.name, count), (name, facts))
            }
        });
        let kind = CStep {
            budget,
            chunk,
            serve,
            integral: step.integral,
            ahead: self.switch(step.ahead.as_ref()),
            fenced: self.switch(step.fenced.as_ref()),
            stops: step.stops.as_ref().map(|e| {
                self.in_range(e, "it is a time in seconds, 0 or more, or inf", |v| v >= 0.0)
            }),
            ..CStep::new(cost)
        };
        (CStageKind::Step(kind), memory)
    }

    /// A constant that is exactly 0 or 1.
    fn switch(&mut self, e: Option<&'a Expr>) -> bool {
        e.is_some_and(|e| self.in_range(e, "it is exactly 0 or 1", |v| v == 0.0 || v == 1.0) == 1.0)
    }
}

/// First member of the other family, and whether it goes member by member.
fn pairing(other: &Family, count: usize) -> Option<(usize, bool)> {
    (other.count == count || other.count == 1).then_some((other.base, other.count > 1))
}

/// `decoding ? 0 : 1`
fn decode_first() -> CExpr {
    CExpr::Cond(
        Box::new(CExpr::Ctx(crate::ir::Ctx::Decoding)),
        Box::new(CExpr::Num(0.0)),
        Box::new(CExpr::Num(1.0)),
    )
}
