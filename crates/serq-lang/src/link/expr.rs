//! Expressions and references.

use super::place::Place;
use super::{Family, Linker, MAX_NODES, fold, place};
use crate::ast::{Arg, BinaryOp, Expr, ExprKind, Name, Ref, UnaryOp};
use crate::diag::{Code, Diagnostic, closest, plural};
use crate::ir::{Binary, CArg, CExpr, CRef, Dist, Fun, FunArg, MAX_EXPR_DEPTH, Unary};
use crate::source::Span;

/// What stands in for an expression that was wrong. Nothing is linked once an error was reported,
/// so the value is never used.
pub(super) const WRONG: CExpr = CExpr::Num(1.0);

fn op(op: BinaryOp) -> Binary {
    match op {
        BinaryOp::Or => Binary::Or,
        BinaryOp::And => Binary::And,
        BinaryOp::Lt => Binary::Lt,
        BinaryOp::Le => Binary::Le,
        BinaryOp::Gt => Binary::Gt,
        BinaryOp::Ge => Binary::Ge,
        BinaryOp::Eq => Binary::Eq,
        BinaryOp::Ne => Binary::Ne,
        BinaryOp::Add => Binary::Add,
        BinaryOp::Sub => Binary::Sub,
        BinaryOp::Mul => Binary::Mul,
        BinaryOp::Div => Binary::Div,
        BinaryOp::Pow => Binary::Pow,
    }
}

impl<'a> Linker<'a> {
    /// Links an expression of a place. After an error the result is some number.
    pub(super) fn expr(&mut self, e: &'a Expr, place: Place) -> CExpr {
        let linked = self.node(e, place);
        if linked.depth() > MAX_EXPR_DEPTH {
            let message = format!("more than {MAX_EXPR_DEPTH} levels once bindings are put in");
            let d = Diagnostic::new(Code::E0109, e.span, message)
                .help("compute a part of it with `set` before");
            self.report(d);
            return WRONG;
        }
        linked
    }

    /// The value of a constant expression; `None` after an error.
    pub(super) fn constant(&mut self, e: &'a Expr) -> Option<f64> {
        let before = self.diags.len();
        let value = self.expr(e, place::CONST).as_num();
        value.filter(|_| self.diags.len() == before)
    }

    /// An amount: a constant one is checked to be 0 or more.
    pub(super) fn amount(&mut self, e: &'a Expr, place: Place) -> CExpr {
        let linked = self.expr(e, place);
        if let Some(v) = linked.as_num().filter(|v| *v < 0.0) {
            let message = format!("{v} as {}", place.what.replacen("a statement", "an amount", 1));
            let d = Diagnostic::new(Code::E0413, e.span, message).help("amounts are 0 or more");
            self.report(d);
        }
        linked
    }

    pub(super) fn node(&mut self, e: &'a Expr, place: Place) -> CExpr {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let d = Diagnostic::new(Code::E0425, e.span, "the program's expressions are too large")
                .at(format!("more than {MAX_NODES} parts once bindings are put in"))
                .help("compute shared parts with `set`, instead of bindings in bindings");
            self.report(d);
            return WRONG;
        }
        match &e.kind {
            ExprKind::Num(v) => CExpr::Num(*v),
            ExprKind::Name(name) => self.resolve(name, e.span, place).unwrap_or(WRONG),
            ExprKind::Unary(sign, a) => {
                let sign = match sign {
                    UnaryOp::Neg => Unary::Neg,
                    UnaryOp::Not => Unary::Not,
                };
                match self.node(a, place) {
                    CExpr::Num(v) => CExpr::Num(fold::unary(sign, v)),
                    a => CExpr::Unary(sign, Box::new(a)),
                }
            }
            ExprKind::Binary(sign, a, b) => {
                let (a, b) = (self.node(a, place), self.node(b, place));
                match (&a, &b) {
                    (CExpr::Num(x), CExpr::Num(y)) => {
                        self.folded(fold::binary(op(*sign), *x, *y), e.span)
                    }
                    _ => CExpr::Binary(op(*sign), Box::new(a), Box::new(b)),
                }
            }
            ExprKind::Cond(c, a, b) => {
                let c = self.node(c, place);
                let (a, b) = (self.node(a, place), self.node(b, place));
                match c {
                    CExpr::Num(0.0) => b,
                    CExpr::Num(_) => a,
                    c => CExpr::Cond(Box::new(c), Box::new(a), Box::new(b)),
                }
            }
            ExprKind::Sample(name, args) => self.sample(name, args, e.span, place),
            ExprKind::Call(name, args) => self.call(name, args, e.span, place),
        }
    }

    /// A computed constant, if it is a number at all.
    pub(super) fn folded(&mut self, value: f64, span: Span) -> CExpr {
        if value.is_nan() {
            let d = Diagnostic::new(Code::E0426, span, "this has no value")
                .help("0 / 0, inf - inf, 0 * inf, ln or sqrt of a negative number have none");
            self.report(d);
            return WRONG;
        }
        CExpr::Num(value)
    }

    fn sample(&mut self, name: &Name, args: &'a [Expr], span: Span, place: Place) -> CExpr {
        let Some(dist) = Dist::ALL.into_iter().find(|d| d.name() == name.text) else {
            let names = Dist::ALL.map(Dist::name);
            let message = format!("unknown distribution `{}`", name.text);
            let d = Diagnostic::new(Code::E0305, name.span, message)
                .did_you_mean(closest(&name.text, names))
                .help(format!("known: {}", names.join(", ")));
            self.report(d);
            return WRONG;
        };
        if place.moment.is_none() {
            let d = Diagnostic::new(Code::E0404, span, "a constant cannot draw")
                .help("draw where the value is used, or with `set` in `init` or `turn`");
            self.report(d);
        } else if !place.draws {
            let d = Diagnostic::new(Code::E0423, span, format!("{} draws", place.what))
                .at("this may be evaluated any number of times")
                .help("draw once with `set` before, and read the attribute here");
            self.report(d);
        }
        if args.len() != dist.arity() {
            self.wrong_count(&format!("~{}", dist.name()), dist.arity(), args.len(), span);
        }
        let linked: Vec<CExpr> = args.iter().map(|a| self.node(a, place)).collect();
        if let Some((at, rule)) = wrong_parameter(dist, &linked) {
            let d = Diagnostic::new(
                Code::E0405,
                args[at].span,
                format!("`~{}` with this parameter", dist.name()),
            )
            .help(rule);
            self.report(d);
        }
        CExpr::Sample(dist, linked)
    }

    fn wrong_count(&mut self, what: &str, want: usize, got: usize, span: Span) {
        let message = format!("`{what}` takes {}, not {got}", plural(want, "argument"));
        let mut d = Diagnostic::new(Code::E0401, span, message);
        if matches!(what, "min" | "max") && got > 2 {
            d = d.help(format!("nest them: {what}(a, {what}(b, c))"));
        }
        self.report(d);
    }

    fn call(&mut self, name: &Name, args: &'a [Arg], span: Span, place: Place) -> CExpr {
        let Some(fun) = Fun::ALL.into_iter().find(|f| f.name() == name.text) else {
            return self.table_call(name, args, span, place).unwrap_or_else(|| {
                self.unknown_function(name);
                WRONG
            });
        };
        if !fun.is_arithmetic() && place.moment.is_none() {
            let message = format!("a constant cannot read `{}`", fun.name());
            let d = Diagnostic::new(Code::E0404, span, message)
                .help("pools and stages have no state before the run begins");
            self.report(d);
            return WRONG;
        }
        let recursive = matches!(place.what, "a budget" | "a chunk");
        if matches!(fun, Fun::BudgetLeft | Fun::Share) && recursive {
            let message = format!("`{}` is read in {}", fun.name(), place.what);
            let d = Diagnostic::new(Code::E0424, span, message).help(
                "it is what this expression decides: use the residents or the memory they hold",
            );
            self.report(d);
        }
        let params = fun.params();
        if params.len() != args.len() {
            self.wrong_count(fun.name(), params.len(), args.len(), span);
            return WRONG;
        }
        let mut linked = Vec::with_capacity(args.len());
        for (param, arg) in params.iter().zip(args) {
            match self.argument(fun, *param, arg, place) {
                Some(arg) => linked.push(arg),
                None => return WRONG,
            }
        }
        match fold::call(fun, &linked) {
            Some(value) => self.folded(value, span),
            None => CExpr::Call(fun, linked),
        }
    }

    fn unknown_function(&mut self, name: &Name) {
        let names = Fun::ALL.map(Fun::name);
        let message = format!("unknown function `{}`", name.text);
        let near = closest(&name.text, names.into_iter().chain(self.table_names_known()));
        let mut d = Diagnostic::new(Code::E0304, name.span, message).did_you_mean(near);
        if Dist::ALL.into_iter().any(|dist| dist.name() == name.text) {
            d = d.help(format!("to draw from a distribution, write ~{}(...)", name.text));
        } else if self.pools.get(&name.text).is_some() || self.stages.get(&name.text).is_some() {
            d = d.help(
                "pools and stages are read by functions: used(p), free(p), queue(s), work(s)",
            );
        } else {
            d = d.help(format!("known: {}", names.join(", ")));
        }
        self.report(d);
    }

    fn argument(&mut self, fun: Fun, param: FunArg, arg: &'a Arg, place: Place) -> Option<CArg> {
        let what = match param {
            FunArg::Expr => "a number",
            FunArg::Pool => "a pool",
            FunArg::Stage => "a stage",
            FunArg::Step => "a step stage",
        };
        match (param, arg) {
            (FunArg::Expr, Arg::Expr(e)) => Some(CArg::Expr(self.node(e, place))),
            (FunArg::Expr, Arg::Ref(Ref { name, index: None, .. })) => {
                self.nodes += 1;
                self.resolve(&name.text, name.span, place).map(CArg::Expr)
            }
            (FunArg::Expr, Arg::Ref(r)) => {
                self.wrong_kind(fun, what, r.span);
                None
            }
            (FunArg::Pool, Arg::Ref(r)) => {
                if self.pools.get(&r.name.text).is_none() && self.stages.get(&r.name.text).is_some()
                {
                    self.wrong_kind(fun, what, r.span);
                    return None;
                }
                self.pool_ref(r, index_of(place)).map(CArg::Pool)
            }
            (FunArg::Stage | FunArg::Step, Arg::Ref(r)) => {
                let stage = self.stages.get(&r.name.text);
                let is_step = stage.is_some_and(|s| s.step);
                let is_pool = self.pools.get(&r.name.text).is_some();
                if (stage.is_none() && is_pool)
                    || (param == FunArg::Step && stage.is_some() && !is_step)
                {
                    self.wrong_kind(fun, what, r.span);
                    return None;
                }
                self.stage_ref(r, index_of(place)).map(CArg::Stage)
            }
            (_, Arg::Expr(e)) => {
                self.wrong_kind(fun, what, e.span);
                None
            }
        }
    }

    fn wrong_kind(&mut self, fun: Fun, want: &str, span: Span) {
        let message = format!("`{}` takes {want} here", fun.name());
        let d = Diagnostic::new(Code::E0402, span, message).help(match want {
            "a number" => "read a pool or stage through a function: used(p), queue(s)",
            "a pool" => "name a pool, or a member of a family: kv[i]",
            _ => "name a stage, or a member of a family: S[i]",
        });
        self.report(d);
    }

    /// A pool, by name and index.
    pub(super) fn pool_ref(&mut self, r: &'a Ref, place: Place) -> Option<CRef> {
        match self.pools.get(&r.name.text) {
            Some(family) => {
                let family = Member::of(family);
                self.member(family, r, place)
            }
            None => {
                self.unknown_pool(&r.name);
                None
            }
        }
    }

    /// A stage, by name and index.
    pub(super) fn stage_ref(&mut self, r: &'a Ref, place: Place) -> Option<CRef> {
        match self.stages.get(&r.name.text) {
            Some(family) => {
                let family = Member::of(family);
                self.member(family, r, place)
            }
            None => {
                self.unknown_stage(&r.name);
                None
            }
        }
    }

    pub(super) fn unknown_pool(&mut self, name: &Name) {
        let mut d =
            Diagnostic::new(Code::E0301, name.span, format!("unknown pool `{}`", name.text))
                .did_you_mean(closest(&name.text, self.pools.names()));
        if self.stages.get(&name.text).is_some() {
            d = d.help(format!("`{}` is a stage", name.text));
        }
        self.report(d);
    }

    pub(super) fn unknown_stage(&mut self, name: &Name) {
        let mut d =
            Diagnostic::new(Code::E0302, name.span, format!("unknown stage `{}`", name.text))
                .did_you_mean(closest(&name.text, self.stages.names()));
        if self.pools.get(&name.text).is_some() {
            d = d.help(format!("`{}` is a pool", name.text));
        }
        self.report(d);
    }

    /// The member of a family that a reference means. A constant index becomes the member itself.
    fn member(&mut self, family: Member, r: &'a Ref, place: Place) -> Option<CRef> {
        let Member { base, count, declared } = family;
        let Some(index) = &r.index else {
            if count > 1 {
                let name = &r.name.text;
                let d = Diagnostic::new(
                    Code::E0403,
                    r.span,
                    format!("`{name}` is a family of {count}, and no member is named"),
                )
                .label(declared, "declared here")
                .help(format!("say which one: {name}[i]"));
                self.report(d);
                return None;
            }
            return Some(CRef::one(base));
        };
        let linked = self.expr(index, place);
        match linked.as_num() {
            None => Some(CRef::member(base, count, linked)),
            Some(v) if v >= 0.0 && v < count as f64 && libm::floor(v) == v => {
                Some(CRef::one(base + v as usize))
            }
            Some(v) => {
                let d = Diagnostic::new(
                    Code::E0411,
                    index.span,
                    format!("`{}` has no member {v}", r.name.text),
                )
                .label(declared, format!("members are 0 to {}", count - 1));
                self.report(d);
                None
            }
        }
    }
}

/// Whether a constant is a probability; arithmetic like `1 - 0.9 - 0.1` may miss 0 by a rounding.
pub(super) fn is_probability(p: f64) -> bool {
    (-1e-9..=1.0 + 1e-9).contains(&p)
}

/// The first parameter of a law that is constant and impossible, and the rule it breaks.
fn wrong_parameter(dist: Dist, args: &[CExpr]) -> Option<(usize, &'static str)> {
    let num = |k: usize| args.get(k).and_then(CExpr::as_num);
    let breaks = |k: usize, ok: &dyn Fn(f64) -> bool| num(k).is_some_and(|v| !ok(v));
    let mean = |v: f64| v.is_finite() && v >= 0.0;
    let (first, second) = match dist {
        Dist::Exp => (breaks(0, &mean), false),
        Dist::Det => (false, false),
        Dist::Uniform => {
            let order = num(0).zip(num(1)).is_some_and(|(lo, hi)| lo > hi);
            let finite = |v: f64| v.is_finite();
            (breaks(0, &finite), breaks(1, &finite) || order)
        }
        Dist::Erlang => (breaks(0, &|k| (0.0..=1e6).contains(&k)), breaks(1, &mean)),
        Dist::H2 => (breaks(0, &mean), breaks(1, &|cv2| cv2.is_finite() && cv2 >= 0.0)),
        Dist::Bernoulli => (breaks(0, &is_probability), false),
    };
    let rule = match dist {
        Dist::Exp => "its mean is finite, 0 or more",
        Dist::Uniform => "its bounds are finite, the smaller one first",
        Dist::Erlang => "it has 1 to a million phases, and a finite mean, 0 or more",
        Dist::H2 => "its mean and squared coefficient of variation are finite, 0 or more",
        _ => "a probability lies between 0 and 1",
    };
    match (first, second) {
        (true, _) => Some((0, rule)),
        (_, true) => Some((1, rule)),
        _ => None,
    }
}

/// What a reference needs of a family.
struct Member {
    base: usize,
    count: usize,
    declared: Span,
}

impl Member {
    fn of(family: &Family) -> Self {
        Member { base: family.base, count: family.count, declared: family.span }
    }
}

/// An index is evaluated when and for whom the expression around it is, and never draws.
fn index_of(place: Place) -> Place {
    Place { draws: false, ..place }
}
