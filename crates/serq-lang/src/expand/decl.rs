//! Copies of declarations.

use super::body::Where;
use super::{Expander, Scope};
use crate::ast::{
    Arrive, ArriveLaw, Call, DefBody, Expr, Gauge, Item, Let, Name, Pool, Preempt, Program, Queue,
    Run, Section, Serve, Share, Slo, Spill, Stage, StageKind, Step, StmtKind, Table, TraceClause,
    Workload,
};
use crate::diag::{Code, Diagnostic};
use crate::parse::Side;

impl<'d> Expander<'d, '_> {
    /// Adds a declaration, or those a call stands for. One that is wrong is left out: nothing is
    /// linked then.
    pub(super) fn item(&mut self, item: &'d Item, scope: &Scope<'d>, program: &mut Program) {
        self.order += 1;
        match item {
            Item::Call(call) => self.call_item(call, scope, program),
            Item::Let(decl) => {
                if let (Some(name), Some(value)) =
                    (self.name(&decl.name, scope), self.expr(&decl.value, scope))
                {
                    program.lets.push(Let { name, value });
                }
            }
            Item::Pool(pool) => program.pools.extend(self.pool(pool, scope)),
            Item::Stage(stage) => program.stages.extend(self.stage(stage, scope)),
            Item::Workload(workload) => {
                if let Some(w) = self.workload(workload, scope) {
                    let span = w.span;
                    self.once(&mut program.workload, w, span, "the workload");
                }
            }
            Item::Session(section) => {
                let s = self.section(section, scope, Side::Kernel);
                let word = s.word;
                self.once(&mut program.session, s, word, "the session");
            }
            Item::Server(section) => {
                let s = self.section(section, scope, Side::Server);
                let word = s.word;
                self.once(&mut program.server, s, word, "the server");
            }
            Item::Run(run) => {
                if let Some(run) = self.run(run, scope) {
                    let span = run.span;
                    self.once(&mut program.run, run, span, "the run");
                }
            }
            Item::Gauge(gauge) => {
                if let (Some(name), Some(value)) =
                    (self.name(&gauge.name, scope), self.expr(&gauge.value, scope))
                {
                    program.gauges.push(Gauge { name, value });
                }
            }
            Item::Share(share) => {
                let span = scope.span(share.span);
                let share = Share { span, ..*share };
                self.once(&mut program.share, share, span, "how stages are shared");
            }
            Item::Slo(slo) => {
                let bounds = slo.bounds.iter().filter_map(|(measure, bound)| {
                    let name = Name { text: measure.text.clone(), span: scope.span(measure.span) };
                    Some((name, self.expr(bound, scope)?))
                });
                let span = scope.span(slo.span);
                let slo = Slo { bounds: bounds.collect(), span };
                self.once(&mut program.slo, slo, span, "what requests must meet");
            }
            Item::Table(table) => self.table(table, program),
            // Both are gone by now.
            Item::Def(_) | Item::Use(_) => {}
        }
    }

    /// A table stands outside of all definitions, so it is taken as it is.
    fn table(&mut self, table: &'d Table, program: &mut Program) {
        if let Some(def) = self.defs.get(&table.name.text) {
            let message = format!("`{}` is defined as well", table.name.text);
            let d = Diagnostic::new(Code::E0306, table.name.span, message)
                .label(def.name.span, "first declared here")
                .help("give it another name");
            self.report(d);
        }
        program.tables.push(table.clone());
    }

    fn call_item(&mut self, call: &'d Call, scope: &Scope<'d>, program: &mut Program) {
        let Some((def, inner)) = self.enter(call, &call.args, scope) else { return };
        match &def.body {
            DefBody::Items(items) => {
                for item in items {
                    self.item(item, &inner, program);
                }
            }
            DefBody::Block(block) if block.iter().all(|s| matches!(s.kind, StmtKind::Call(_))) => {
                for stmt in block {
                    if let StmtKind::Call(call) = &stmt.kind {
                        self.call_item(call, &inner, program);
                    }
                }
            }
            _ => self.other_kind(def, scope.span(call.span), "a declaration"),
        }
    }

    fn list(&mut self, list: &'d [Expr], scope: &Scope<'d>) -> Option<Vec<Expr>> {
        list.iter().map(|e| self.expr(e, scope)).collect()
    }

    pub(super) fn optional_name(
        &mut self,
        name: Option<&'d Name>,
        scope: &Scope<'d>,
    ) -> Option<Option<Name>> {
        match name {
            Some(name) => self.name(name, scope).map(Some),
            None => Some(None),
        }
    }

    fn pool(&mut self, pool: &'d Pool, scope: &Scope<'d>) -> Option<Pool> {
        let name = self.name(&pool.name, scope)?;
        Some(Pool {
            span: name.span,
            name,
            count: self.optional(pool.count.as_ref(), scope)?,
            cap: self.optional(pool.cap.as_ref(), scope)?,
            block: self.optional(pool.block.as_ref(), scope)?,
            evict: match &pool.evict {
                Some(keys) => Some(self.list(keys, scope)?),
                None => None,
            },
            preempt: match &pool.preempt {
                Preempt::By { keys, requeue } => Preempt::By {
                    keys: self.list(keys, scope)?,
                    requeue: self.optional(requeue.as_ref(), scope)?,
                },
                other => other.clone(),
            },
            queue: match &pool.queue {
                Some(q) => Some(Queue { keys: self.list(&q.keys, scope)?, live: q.live }),
                None => None,
            },
            admit_via: self.optional_name(pool.admit_via.as_ref(), scope)?,
            spill: match &pool.spill {
                Some(spill) => Some(Spill {
                    to: self.name(&spill.to, scope)?,
                    via: self.name(&spill.via, scope)?,
                    work: self.expr(&spill.work, scope)?,
                    when: self.expr(&spill.when, scope)?,
                }),
                None => None,
            },
            shared: pool.shared,
        })
    }

    fn stage(&mut self, stage: &'d Stage, scope: &Scope<'d>) -> Option<Stage> {
        let name = self.name(&stage.name, scope)?;
        Some(Stage {
            span: name.span,
            name,
            count: self.optional(stage.count.as_ref(), scope)?,
            kind: match &stage.kind {
                StageKind::Fifo(e) => StageKind::Fifo(self.optional(e.as_ref(), scope)?),
                StageKind::Ps(e) => StageKind::Ps(self.expr(e, scope)?),
                StageKind::Delay => StageKind::Delay,
                StageKind::Step(step) => StageKind::Step(Box::new(self.step(step, scope)?)),
            },
            order: self.order,
        })
    }

    fn step(&mut self, step: &'d Step, scope: &Scope<'d>) -> Option<Step> {
        Some(Step {
            budget: self.optional(step.budget.as_ref(), scope)?,
            cost: self.optional(step.cost.as_ref(), scope)?,
            chunk: self.optional(step.chunk.as_ref(), scope)?,
            memory: self.optional_name(step.memory.as_ref(), scope)?,
            serve: match &step.serve {
                Some(Serve::By(keys)) => Some(Serve::By(self.list(keys, scope)?)),
                other => other.clone(),
            },
            integral: step.integral,
            ahead: self.optional(step.ahead.as_ref(), scope)?,
            fenced: self.optional(step.fenced.as_ref(), scope)?,
            stops: self.optional(step.stops.as_ref(), scope)?,
            span: scope.span(step.span),
        })
    }

    fn section(&mut self, section: &'d Section, scope: &Scope<'d>, side: Side) -> Section {
        Section {
            word: scope.span(section.word),
            body: self.block(&section.body, scope, Where { side, nesting: 1 }),
            order: self.order,
        }
    }

    fn workload(&mut self, w: &'d Workload, scope: &Scope<'d>) -> Option<Workload> {
        let section = |this: &mut Self, s: &'d Option<Section>, side| {
            s.as_ref().map(|s| this.section(s, scope, side))
        };
        Some(Workload {
            arrive: match &w.arrive {
                Some(arrive) => Some(Arrive {
                    law: match &arrive.law {
                        ArriveLaw::Poisson(e) => ArriveLaw::Poisson(self.expr(e, scope)?),
                        ArriveLaw::Closed(e) => ArriveLaw::Closed(self.expr(e, scope)?),
                        ArriveLaw::Batch(e) => ArriveLaw::Batch(self.expr(e, scope)?),
                        ArriveLaw::None => ArriveLaw::None,
                        ArriveLaw::Renewal(e) => ArriveLaw::Renewal(self.expr(e, scope)?),
                        ArriveLaw::Rates(rates) => {
                            let mut copied = Vec::with_capacity(rates.len());
                            for (rate, from) in rates {
                                copied.push((self.expr(rate, scope)?, self.expr(from, scope)?));
                            }
                            ArriveLaw::Rates(copied)
                        }
                        ArriveLaw::At(times) => ArriveLaw::At(self.list(times, scope)?),
                        ArriveLaw::Trace => ArriveLaw::Trace,
                    },
                    limit: self.optional(arrive.limit.as_ref(), scope)?,
                    span: scope.span(arrive.span),
                }),
                None => None,
            },
            trace: w.trace.clone().map(|t| TraceClause { span: scope.span(t.span), ..t }),
            init: section(self, &w.init, Side::Marks),
            turn: section(self, &w.turn, Side::Marks),
            session: section(self, &w.session, Side::Client),
            hidden: w.hidden.iter().map(|n| self.name(n, scope)).collect::<Option<_>>()?,
            span: scope.span(w.span),
        })
    }

    fn run(&mut self, run: &'d Run, scope: &Scope<'d>) -> Option<Run> {
        Some(Run {
            horizon: self.optional(run.horizon.as_ref(), scope)?,
            warmup: self.optional(run.warmup.as_ref(), scope)?,
            seed: self.optional(run.seed.as_ref(), scope)?,
            span: scope.span(run.span),
        })
    }
}
