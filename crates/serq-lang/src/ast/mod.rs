//! The program as it was written, before names mean anything.
//!
//! Every node that an error may point at has its place. Sugar is still sugar here; the linker
//! rewrites it.

mod stmt;
mod table;

pub use stmt::{
    Bind, Block, Branch, Choose, Claim, Content, Form, Hold, Lease, Mode, Move, OPEN, Renew, Role,
    RunStmt, ServePlace, Serving, Stmt, StmtKind, Tell, Until,
};

pub use table::{File as TableFile, Only, Row, Rows, Table};

use crate::source::Span;

#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    pub text: String,
    pub span: Span,
}

/// An expression; `height` is that of its tree, which the parser bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
    pub height: u16,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    Num(f64),
    Name(String),
    Call(Name, Vec<Arg>),
    /// `~name(args)`
    Sample(Name, Vec<Expr>),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    Cond(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// An argument that could name a pool, a stage or a variable stays a reference until the function
/// is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    Expr(Expr),
    Ref(Ref),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    Neg,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Or,
    And,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    Add,
    Sub,
    Mul,
    Div,
    Pow,
}

/// `name` or `name[index]`
#[derive(Clone, Debug, PartialEq)]
pub struct Ref {
    pub name: Name,
    pub index: Option<Expr>,
    pub span: Span,
}

/// A declaration, as it stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Let(Let),
    Pool(Box<Pool>),
    Stage(Box<Stage>),
    Workload(Box<Workload>),
    Session(Section),
    Server(Section),
    Run(Box<Run>),
    Gauge(Gauge),
    Share(Share),
    Slo(Slo),
    Table(Box<Table>),
    Def(Box<Def>),
    Use(Use),
    Call(Call),
}

/// `def name(params) = expression;` or `def name(params) { ... }`
#[derive(Clone, Debug, PartialEq)]
pub struct Def {
    pub name: Name,
    pub params: Vec<Name>,
    pub body: DefBody,
    pub facts: DefFacts,
}

/// What a definition's body says, in no particular order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DefFacts {
    /// What is called: functions and definitions.
    pub calls: Vec<Name>,
    /// Every name that is read, called, or declared.
    pub names: Vec<String>,
    /// Attributes and bindings that get a value.
    pub changes: Vec<String>,
}

/// What a definition stands for.
#[derive(Clone, Debug, PartialEq)]
pub enum DefBody {
    Expr(Expr),
    /// Statements. If all of them are calls, they may be calls of declarations as well.
    Block(Block),
    Items(Vec<Item>),
}

/// `use "path";`
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    pub path: String,
    pub span: Span,
}

/// A definition's name with arguments, as a statement or a declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: Name,
    pub args: Vec<Arg>,
    pub span: Span,
}

/// `gauge name = expression;`
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    pub name: Name,
    pub value: Expr,
}

/// `share maxmin;` or `share bottleneck;`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub max_min: bool,
    pub span: Span,
}

/// `slo ttft e tpot e ...;`
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    /// What is bounded, by which value, in the order of the text.
    pub bounds: Vec<(Name, Expr)>,
    pub span: Span,
}

/// A whole program: its files put together and its definitions put in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub lets: Vec<Let>,
    pub pools: Vec<Pool>,
    pub stages: Vec<Stage>,
    pub workload: Option<Workload>,
    /// A `session` outside the workload: the kernel form.
    pub session: Option<Section>,
    pub server: Option<Section>,
    pub run: Option<Run>,
    pub gauges: Vec<Gauge>,
    pub share: Option<Share>,
    pub slo: Option<Slo>,
    pub tables: Vec<Table>,
    /// The whole text.
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Let {
    pub name: Name,
    pub value: Expr,
}

/// A pool or a family of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: Name,
    pub count: Option<Expr>,
    pub cap: Option<Expr>,
    pub block: Option<Expr>,
    /// Eviction keys; none is least recently used.
    pub evict: Option<Vec<Expr>>,
    pub preempt: Preempt,
    pub queue: Option<Queue>,
    pub admit_via: Option<Name>,
    pub spill: Option<Spill>,
    pub shared: bool,
    pub span: Span,
}

/// Who gives way when a growth does not fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Preempt {
    #[default]
    None,
    Lifo,
    /// `by (keys) requeue (e)`
    By {
        keys: Vec<Expr>,
        requeue: Option<Expr>,
    },
}

/// `queue by (keys)`, with `live` evaluated again at every selection.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub keys: Vec<Expr>,
    pub live: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Spill {
    pub to: Name,
    pub via: Name,
    pub work: Expr,
    pub when: Expr,
}

/// A stage or a family of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    pub name: Name,
    pub count: Option<Expr>,
    pub kind: StageKind,
    pub span: Span,
    /// Its place among all declarations of the program.
    pub order: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StageKind {
    Fifo(Option<Expr>),
    Ps(Expr),
    Delay,
    Step(Box<Step>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    pub budget: Option<Expr>,
    pub cost: Option<Expr>,
    pub chunk: Option<Expr>,
    pub memory: Option<Name>,
    pub serve: Option<Serve>,
    pub integral: bool,
    pub ahead: Option<Expr>,
    pub fenced: Option<Expr>,
    pub stops: Option<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Serve {
    Admission,
    By(Vec<Expr>),
    DecodeFirst,
    ExclusivePrefill,
    PrefillAlone,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    pub arrive: Option<Arrive>,
    pub trace: Option<TraceClause>,
    pub init: Option<Section>,
    pub turn: Option<Section>,
    pub session: Option<Section>,
    pub hidden: Vec<Name>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Arrive {
    pub law: ArriveLaw,
    /// `for N`
    pub limit: Option<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ArriveLaw {
    Poisson(Expr),
    Closed(Expr),
    Batch(Expr),
    None,
    /// The gap before each session.
    Renewal(Expr),
    /// Rates, and from when on.
    Rates(Vec<(Expr, Expr)>),
    /// Times.
    At(Vec<Expr>),
    /// As recorded.
    Trace,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TraceClause {
    pub path: String,
    pub ordered: bool,
    pub span: Span,
}

/// A named block: `init`, `turn`, `session`, `server`. The place is that of the word.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    pub word: Span,
    pub body: Block,
    /// The place of the declaration it belongs to among all of the program.
    pub order: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    pub horizon: Option<Expr>,
    pub warmup: Option<Expr>,
    pub seed: Option<Expr>,
    pub span: Span,
}

impl Expr {
    /// Calls `f` on this expression and all below it, indices of references included.
    pub fn walk<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        let mut stack = vec![self];
        while let Some(e) = stack.pop() {
            f(e);
            match &e.kind {
                ExprKind::Num(_) | ExprKind::Name(_) => {}
                ExprKind::Call(_, args) => {
                    for arg in args {
                        match arg {
                            Arg::Expr(e) => stack.push(e),
                            Arg::Ref(r) => stack.extend(r.index.as_ref()),
                        }
                    }
                }
                ExprKind::Sample(_, args) => stack.extend(args),
                ExprKind::Unary(_, a) => stack.push(a),
                ExprKind::Binary(_, a, b) => stack.extend([&**a, &**b]),
                ExprKind::Cond(c, a, b) => stack.extend([&**c, &**a, &**b]),
            }
        }
    }

    /// The first draw in it, in no particular order.
    pub fn draw(&self) -> Option<Span> {
        let mut found = None;
        self.walk(&mut |e| {
            if matches!(e.kind, ExprKind::Sample(..)) {
                found = Some(e.span);
            }
        });
        found
    }
}
