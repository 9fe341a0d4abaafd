//! Checks of one expression at its moment.

use super::{At, Check, Moment};
use crate::ir::{CArg, CExpr, CRef, CStageKind, Fun, FunArg, MAX_EXPR_DEPTH};

impl Check<'_> {
    /// Checks an expression; `may_draw` is false where it is evaluated an unknown number of times.
    pub(super) fn expr(&mut self, e: &CExpr, moment: Moment, may_draw: bool, at: &At) {
        if e.depth() > MAX_EXPR_DEPTH {
            self.error(
                at,
                "expr-depth",
                format!("the expression is nested more than {MAX_EXPR_DEPTH} deep"),
                "split it with `set`",
            );
            return;
        }
        e.walk(&mut |e| self.node(e, moment, may_draw, at));
    }

    fn node(&mut self, e: &CExpr, moment: Moment, may_draw: bool, at: &At) {
        match e {
            CExpr::Num(v) if v.is_nan() => {
                self.error(at, "ir-number", "a constant is nan", "give a number");
            }
            CExpr::Attr(slot) => {
                if *slot >= self.program.attrs.len() {
                    self.missing(at, "attribute", *slot);
                } else if !moment.has_session() {
                    let name = &self.program.attrs[*slot];
                    let reason = format!(
                        "attribute `{name}` is read in {}, where there is no session",
                        moment.describe()
                    );
                    self.error(
                        at,
                        "moment-attr",
                        reason,
                        "use pool and stage observables, or the totals of the moment",
                    );
                }
            }
            CExpr::Ctx(var) if !moment.has(*var) => {
                let places: Vec<_> = Moment::of(*var).map(Moment::describe).collect();
                let reason = format!("`{}` is read in {}", var.name(), moment.describe());
                self.error(at, "moment-ctx", reason, format!("it exists in {}", places.join(", ")));
            }
            CExpr::Sample(dist, args) => {
                if !may_draw {
                    let reason = format!(
                        "{} draws (`~{}`), but is evaluated any number of times",
                        moment.describe(),
                        dist.name()
                    );
                    self.error(at, "draw", reason, "draw once with `set` before, and read that");
                }
                if args.len() != dist.arity() {
                    let reason = format!(
                        "`~{}` takes {} argument(s), not {}",
                        dist.name(),
                        dist.arity(),
                        args.len()
                    );
                    self.error(at, "arity", reason, "see the list of distributions");
                }
            }
            CExpr::Call(fun, args) => self.call(*fun, args, moment, at),
            CExpr::Table(table, args) => self.table(*table, args, at),
            _ => {}
        }
    }

    fn call(&mut self, fun: Fun, args: &[CArg], moment: Moment, at: &At) {
        let params = fun.params();
        if params.len() != args.len() {
            let reason =
                format!("`{}` takes {} argument(s), not {}", fun.name(), params.len(), args.len());
            self.error(at, "arity", reason, "see the list of functions");
            return;
        }
        for (param, arg) in params.iter().zip(args) {
            match (param, arg) {
                (FunArg::Expr, CArg::Expr(_)) => {}
                (FunArg::Pool, CArg::Pool(r)) => {
                    self.family(r, self.program.pools.len(), "pool", at);
                }
                (FunArg::Stage, CArg::Stage(r)) => {
                    self.family(r, self.program.stages.len(), "stage", at);
                }
                (FunArg::Step, CArg::Stage(r)) => {
                    if self.family(r, self.program.stages.len(), "stage", at) && !self.is_step(r) {
                        let reason =
                            format!("`{}` reads a stage that is no step stage", fun.name());
                        self.error(at, "arg-kind", reason, "only a step stage has a budget");
                    }
                }
                _ => {
                    let reason = format!("`{}` has an argument of the wrong kind", fun.name());
                    self.error(at, "arg-kind", reason, "name a pool, a stage or a number there");
                }
            }
        }
        if !fun.is_arithmetic() && moment == Moment::Gap {
            let reason = format!("the gap between arrivals reads `{}`", fun.name());
            self.error(at, "gap", reason, "traffic comes by itself: use the clock and draws");
        }
        if moment == Moment::Gauge {
            self.gauge_call(fun, args, at);
        }
        if fun == Fun::Taking && moment != Moment::Admit {
            let reason = format!("`taking` is read in {}", moment.describe());
            self.error(at, "taking", reason, "only an attempt to admit a hold takes something");
        }
        if matches!(fun, Fun::BudgetLeft | Fun::Share) && moment == Moment::Budget {
            let reason =
                format!("`{}` is read in a budget or chunk, which it depends on", fun.name());
            let help = "use the number of residents or the memory they hold";
            self.error(at, "budget-left", reason, help);
        }
    }

    /// A gauge reads what changes at events only, of members that are always the same.
    fn gauge_call(&mut self, fun: Fun, args: &[CArg], at: &At) {
        if matches!(fun, Fun::Work | Fun::BudgetLeft | Fun::Share | Fun::Cachedin | Fun::Mine) {
            let reason = format!("`{}` is read in a gauge", fun.name());
            let help = "it changes between events or belongs to a session: observe it instead";
            self.error(at, "gauge", reason, help);
        }
        let moves = |a: &CArg| match a {
            CArg::Pool(r) | CArg::Stage(r) => {
                r.index.as_ref().is_some_and(|i| i.as_num().is_none())
            }
            CArg::Expr(_) => false,
        };
        if args.iter().any(moves) {
            let reason = "a gauge reads a member whose index is no constant";
            self.error(at, "gauge", reason, "one gauge per member, or their sum");
        }
    }

    /// Checks that a reference's members exist; whether they do.
    pub(super) fn family(&mut self, r: &CRef, len: usize, what: &str, at: &At) -> bool {
        let end = r.base.checked_add(r.count);
        if r.count == 0 || end.is_none_or(|end| end > len) {
            let reason = format!(
                "a {what} reference names {} member(s) from {}, but there are {len}",
                r.count, r.base
            );
            self.error(at, "ir-index", reason, format!("count the {what} list from 0"));
            return false;
        }
        if r.count > 1 && r.index.is_none() {
            let reason = format!("a family of {} {what}s is used without an index", r.count);
            self.error(at, "family-index", reason, "say which member");
            return false;
        }
        if let Some(v) = r.index.as_deref().and_then(CExpr::as_num)
            && !(v >= 0.0 && v.fract() == 0.0 && v < r.count as f64)
        {
            let reason = format!("member {v} of a family of {} {what}s", r.count);
            self.error(at, "family-range", reason, format!("members are 0 to {}", r.count - 1));
            return false;
        }
        true
    }

    /// Whether every member is a step stage; only for references that `family` accepted.
    pub(super) fn is_step(&self, r: &CRef) -> bool {
        self.members(r).iter().all(|s| matches!(s.kind, CStageKind::Step(_)))
    }

    /// Whether some member is a step stage.
    pub(super) fn has_step(&self, r: &CRef) -> bool {
        self.members(r).iter().any(|s| matches!(s.kind, CStageKind::Step(_)))
    }

    fn members(&self, r: &CRef) -> &[crate::ir::CStage] {
        &self.program.stages[r.base..r.base + r.count]
    }
}
