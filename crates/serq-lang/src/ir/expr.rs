//! Expressions: numbers, attributes, the clock and the state, draws, arithmetic.

use serde::{Deserialize, Serialize};

use super::num;
use super::program::Slot;

/// An expression. Every value is an `f64`; a comparison gives 0 or 1, and any value but 0 is true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CExpr {
    /// A constant; infinite ones are the string `"inf"` in JSON.
    Num(#[serde(with = "num")] f64),
    /// An attribute of the session the expression is evaluated for.
    Attr(Slot),
    /// A variable of the moment of evaluation.
    Ctx(Ctx),
    /// A draw.
    Sample(Dist, Vec<CExpr>),
    /// A function, or an observable of a pool or stage.
    Call(Fun, Vec<CArg>),
    Unary(Unary, Box<CExpr>),
    Binary(Binary, Box<CExpr>, Box<CExpr>),
    /// `c ? a : b`; only the arm taken is evaluated.
    Cond(Box<CExpr>, Box<CExpr>, Box<CExpr>),
    /// What table number so and so of [`super::Program::tables`] says at a place.
    Table(usize, Vec<CExpr>),
}

/// A pool or stage: member `index` of the `count` entries from `base` on. Without an index the
/// count is 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CRef {
    pub base: usize,
    pub count: usize,
    #[serde(default)]
    pub index: Option<Box<CExpr>>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CArg {
    Expr(CExpr),
    Pool(CRef),
    Stage(CRef),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unary {
    Neg,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    And,
    Or,
}

/// Variables of a moment; see [`super::validate::Moment`] for which exist when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ctx {
    /// The clock, seconds.
    Now,
    /// Units of the cache entry judged for eviction.
    Size,
    /// Seconds since that entry was last released.
    Age,
    /// When it was last released.
    Last,
    /// 1 while the entry's session waits in some pool's queue.
    Queued,
    /// Jobs present at a processor-sharing stage.
    N,
    /// Residents of a step stage.
    Nres,
    /// Decoding residents; in a cost, those scheduled.
    Ndec,
    /// Units decoding residents hold in the stage's memory; in a cost, those scheduled.
    Kvb,
    /// The same for prefilling residents.
    Kvp,
    /// Tokens scheduled in the iteration.
    Ntok,
    /// Prefill tokens among them.
    Npre,
    /// Sum over prefill chunks of `n * (position + n / 2)`.
    Attn,
    /// Tokens of context that the decodes scheduled read: over them, the position behind the token.
    Ctxb,
    /// Context that the prefill chunks scheduled read: sum of `n * position`, the position before the
    /// chunk.
    Ctxp,
    /// Prefill chunks scheduled.
    Nchunk,
    /// 1 if the resident judged decodes.
    Decoding,
    /// Admission number of the resident judged; in a statement or queue key, the session's latest.
    Admission,
    /// Tokens it has left.
    Remaining,
    /// Seconds the session judged has waited in this queue.
    Waited,
}

impl Ctx {
    /// Every variable, in declaration order.
    pub const ALL: [Ctx; 20] = [
        Ctx::Now,
        Ctx::Size,
        Ctx::Age,
        Ctx::Last,
        Ctx::Queued,
        Ctx::N,
        Ctx::Nres,
        Ctx::Ndec,
        Ctx::Kvb,
        Ctx::Kvp,
        Ctx::Ntok,
        Ctx::Npre,
        Ctx::Attn,
        Ctx::Ctxb,
        Ctx::Ctxp,
        Ctx::Nchunk,
        Ctx::Decoding,
        Ctx::Admission,
        Ctx::Remaining,
        Ctx::Waited,
    ];

    /// The name in program text.
    pub fn name(self) -> &'static str {
        match self {
            Ctx::Now => "now",
            Ctx::Size => "size",
            Ctx::Age => "age",
            Ctx::Last => "last",
            Ctx::Queued => "queued",
            Ctx::N => "n",
            Ctx::Nres => "nres",
            Ctx::Ndec => "ndec",
            Ctx::Kvb => "kvb",
            Ctx::Kvp => "kvp",
            Ctx::Ntok => "ntok",
            Ctx::Npre => "npre",
            Ctx::Attn => "attn",
            Ctx::Ctxb => "ctxb",
            Ctx::Ctxp => "ctxp",
            Ctx::Nchunk => "nchunk",
            Ctx::Decoding => "decoding",
            Ctx::Admission => "admission",
            Ctx::Remaining => "remaining",
            Ctx::Waited => "waited",
        }
    }
}

/// Laws a draw can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dist {
    /// `exp(mean)`
    Exp,
    /// `det(x)`
    Det,
    /// `uniform(lo, hi)`
    Uniform,
    /// `erlang(k, mean)`
    Erlang,
    /// `h2(mean, cv2)`: two exponential branches with balanced means
    H2,
    /// `bernoulli(p)`
    Bernoulli,
}

impl Dist {
    pub const ALL: [Dist; 6] =
        [Dist::Exp, Dist::Det, Dist::Uniform, Dist::Erlang, Dist::H2, Dist::Bernoulli];

    pub fn name(self) -> &'static str {
        match self {
            Dist::Exp => "exp",
            Dist::Det => "det",
            Dist::Uniform => "uniform",
            Dist::Erlang => "erlang",
            Dist::H2 => "h2",
            Dist::Bernoulli => "bernoulli",
        }
    }

    /// Number of parameters.
    pub fn arity(self) -> usize {
        match self {
            Dist::Exp | Dist::Det | Dist::Bernoulli => 1,
            Dist::Uniform | Dist::Erlang | Dist::H2 => 2,
        }
    }
}

/// Functions and observables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fun {
    Min,
    Max,
    Abs,
    Floor,
    Ceil,
    Sqrt,
    Exp,
    Ln,
    Pow,
    /// Jobs present at a stage, waiting and in service.
    Queue,
    /// Servers busy (fifo), jobs in the running iteration (step), else jobs present.
    Busy,
    /// Unfinished work at a stage.
    Work,
    /// Online estimate of a stage's arrival rate.
    EstLambda,
    /// Online estimate of its load.
    EstRho,
    /// Online estimate of its wait.
    EstWait,
    /// `price(stage, s_hit, ds)`: what extra work costs there, waiting imposed on others included.
    Price,
    /// Units allocated in a pool.
    Used,
    /// `cap - used`
    Free,
    /// Units of the session's own cached prefix there.
    Cachedin,
    /// Holder records.
    Holders,
    /// Sessions waiting for it.
    Queued,
    /// Tokens left in the step stage's iteration.
    BudgetLeft,
    /// `taking(pool, n)`, in an attempt to admit a hold of the pool: units that `n` units would take
    /// from the free ones. Of a shared pool these are whole blocks of `n`, less those of the hit, plus
    /// those of the hit that nobody holds; of another, whole blocks of `n`.
    Taking,
    /// What prefills under way still need of a pool: over the prefill parts of runs that grow it, whole
    /// blocks of position and prefill tokens not scheduled yet, less the allocation, not below 0.
    Owed,
    /// Units of a pool that the session has: in holds, in a booking that was granted, and leased, until
    /// the lease is told, noticed or abandoned.
    Mine,
    /// `share(stage, n)`: tokens that a newcomer who wants `n` gets in the step stage's iteration, the
    /// smallest of `n`, the budget left, and the chunk if there is one.
    Share,
}

/// What a parameter of a [`Fun`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunArg {
    Expr,
    Pool,
    Stage,
    /// A stage of kind `step`.
    Step,
}

impl Fun {
    pub const ALL: [Fun; 26] = [
        Fun::Min,
        Fun::Max,
        Fun::Abs,
        Fun::Floor,
        Fun::Ceil,
        Fun::Sqrt,
        Fun::Exp,
        Fun::Ln,
        Fun::Pow,
        Fun::Queue,
        Fun::Busy,
        Fun::Work,
        Fun::EstLambda,
        Fun::EstRho,
        Fun::EstWait,
        Fun::Price,
        Fun::Used,
        Fun::Free,
        Fun::Cachedin,
        Fun::Holders,
        Fun::Queued,
        Fun::BudgetLeft,
        Fun::Taking,
        Fun::Owed,
        Fun::Mine,
        Fun::Share,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fun::Min => "min",
            Fun::Max => "max",
            Fun::Abs => "abs",
            Fun::Floor => "floor",
            Fun::Ceil => "ceil",
            Fun::Sqrt => "sqrt",
            Fun::Exp => "exp",
            Fun::Ln => "ln",
            Fun::Pow => "pow",
            Fun::Queue => "queue",
            Fun::Busy => "busy",
            Fun::Work => "work",
            Fun::EstLambda => "est_lambda",
            Fun::EstRho => "est_rho",
            Fun::EstWait => "est_wait",
            Fun::Price => "price",
            Fun::Used => "used",
            Fun::Free => "free",
            Fun::Cachedin => "cachedin",
            Fun::Holders => "holders",
            Fun::Queued => "queued",
            Fun::BudgetLeft => "budget_left",
            Fun::Taking => "taking",
            Fun::Owed => "owed",
            Fun::Mine => "mine",
            Fun::Share => "share",
        }
    }

    /// The parameters, in order.
    pub fn params(self) -> &'static [FunArg] {
        match self {
            Fun::Min | Fun::Max | Fun::Pow => &[FunArg::Expr, FunArg::Expr],
            Fun::Abs | Fun::Floor | Fun::Ceil | Fun::Sqrt | Fun::Exp | Fun::Ln => &[FunArg::Expr],
            Fun::Queue | Fun::Busy | Fun::Work | Fun::EstLambda | Fun::EstRho | Fun::EstWait => {
                &[FunArg::Stage]
            }
            Fun::Price => &[FunArg::Stage, FunArg::Expr, FunArg::Expr],
            Fun::Used
            | Fun::Free
            | Fun::Cachedin
            | Fun::Holders
            | Fun::Queued
            | Fun::Owed
            | Fun::Mine => &[FunArg::Pool],
            Fun::BudgetLeft => &[FunArg::Step],
            Fun::Taking => &[FunArg::Pool, FunArg::Expr],
            Fun::Share => &[FunArg::Step, FunArg::Expr],
        }
    }

    /// Whether the value is a function of its arguments alone.
    pub fn is_arithmetic(self) -> bool {
        self.params().iter().all(|p| *p == FunArg::Expr)
    }
}

impl CRef {
    /// A pool or stage that is no family.
    pub fn one(base: usize) -> Self {
        Self { base, count: 1, index: None }
    }

    /// Member `index` of a family.
    pub fn member(base: usize, count: usize, index: CExpr) -> Self {
        Self { base, count, index: Some(Box::new(index)) }
    }
}

impl CExpr {
    /// Calls `f` on each direct subexpression, in order of evaluation; indices of references are
    /// subexpressions.
    pub fn for_children<'a>(&'a self, f: &mut dyn FnMut(&'a CExpr)) {
        match self {
            CExpr::Num(_) | CExpr::Attr(_) | CExpr::Ctx(_) => {}
            CExpr::Sample(_, args) | CExpr::Table(_, args) => args.iter().for_each(f),
            CExpr::Call(_, args) => {
                for arg in args {
                    match arg {
                        CArg::Expr(e) => f(e),
                        CArg::Pool(r) | CArg::Stage(r) => {
                            if let Some(index) = &r.index {
                                f(index);
                            }
                        }
                    }
                }
            }
            CExpr::Unary(_, a) => f(a),
            CExpr::Binary(_, a, b) => {
                f(a);
                f(b);
            }
            CExpr::Cond(c, a, b) => {
                f(c);
                f(a);
                f(b);
            }
        }
    }

    /// Calls `f` on this expression and everything below it, without recursion.
    pub fn walk<'a>(&'a self, f: &mut dyn FnMut(&'a CExpr)) {
        let mut stack = vec![self];
        while let Some(e) = stack.pop() {
            f(e);
            let from = stack.len();
            e.for_children(&mut |c| stack.push(c));
            stack[from..].reverse();
        }
    }

    /// Nesting depth; a leaf has depth 1.
    pub fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut stack = vec![(self, 1)];
        while let Some((e, d)) = stack.pop() {
            deepest = deepest.max(d);
            e.for_children(&mut |c| stack.push((c, d + 1)));
        }
        deepest
    }

    /// Whether some part draws.
    pub fn draws(&self) -> bool {
        let mut found = false;
        self.walk(&mut |e| found |= matches!(e, CExpr::Sample(..)));
        found
    }

    /// The value, if this is a number.
    pub fn as_num(&self) -> Option<f64> {
        match self {
            CExpr::Num(v) => Some(*v),
            _ => None,
        }
    }
}
