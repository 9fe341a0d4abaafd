//! From the IR's trees to flat code.

use serq_lang::ir::{CArg, CExpr, CRef, CTable, Ctx, Fun, FunArg, Grid, Unary};

use super::eval::{binary, math, math2};
use super::{Code, Expr, Node, Ref, Table};

/// Builds the code of a validated program.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub(crate) code: Code,
    /// Whether a resident is judged, whose admission then is a variable of the moment.
    judging: bool,
}

impl Builder {
    /// For expressions that may call these tables.
    pub(crate) fn new(tables: &[CTable]) -> Self {
        let mut builder = Builder::default();
        builder.code.tables = tables
            .iter()
            .map(|t| Table {
                grid: Grid::new(t),
                about: CTable {
                    points: Vec::new(),
                    name: t.name.clone(),
                    axes: t.axes.clone(),
                    ..*t
                },
            })
            .collect();
        builder
    }

    pub(crate) fn expr(&mut self, e: &CExpr) -> Expr {
        let node = self.node(e);
        self.push(node)
    }

    /// An expression that judges a resident.
    pub(crate) fn judging(&mut self, e: &CExpr) -> Expr {
        self.judging = true;
        let e = self.expr(e);
        self.judging = false;
        e
    }

    pub(crate) fn reference(&mut self, r: &CRef) -> Ref {
        let base = r.base as u32;
        let Some(index) = &r.index else { return Ref::Fixed(base) };
        let node = self.node(index);
        match node {
            Node::Num(v) if v >= 0.0 && v < r.count as f64 && v.fract() == 0.0 => {
                Ref::Fixed(base + v as u32)
            }
            _ => Ref::Member { base, count: r.count as u32, index: self.push(node) },
        }
    }

    fn push(&mut self, node: Node) -> Expr {
        self.code.nodes.push(node);
        Expr(self.code.nodes.len() as u32 - 1)
    }

    fn child(&mut self, e: &CExpr) -> u32 {
        self.expr(e).0
    }

    fn num(&self, at: u32) -> Option<f64> {
        self.code.as_num(Expr(at))
    }

    fn node(&mut self, e: &CExpr) -> Node {
        match e {
            CExpr::Num(v) => Node::Num(*v),
            CExpr::Attr(slot) => Node::Attr(*slot as u32),
            CExpr::Ctx(Ctx::Now) => Node::Now,
            CExpr::Ctx(Ctx::Admission) if !self.judging => Node::Admission,
            CExpr::Ctx(var) => Node::Var(*var as u8),
            CExpr::Sample(dist, args) => {
                let first = args.first().map_or(0, |a| self.child(a));
                let second = args.get(1).map_or(first, |b| self.child(b));
                Node::Sample(*dist, first, second)
            }
            CExpr::Call(fun, args) => self.call(*fun, args),
            CExpr::Table(table, args) => {
                let args: Vec<u32> = args.iter().map(|a| self.child(a)).collect();
                let first = self.code.args.len() as u32;
                self.code.args.extend(args);
                Node::Table(*table as u32, first)
            }
            CExpr::Unary(op, a) => {
                let a = self.child(a);
                match (op, self.num(a)) {
                    (Unary::Neg, Some(v)) => Node::Num(-v),
                    (Unary::Not, Some(v)) => Node::Num(f64::from(v == 0.0)),
                    (Unary::Neg, None) => Node::Neg(a),
                    (Unary::Not, None) => Node::Not(a),
                }
            }
            CExpr::Binary(op, a, b) => {
                let (a, b) = (self.child(a), self.child(b));
                match (self.num(a), self.num(b)) {
                    (Some(x), Some(y)) => Node::Num(binary(*op, x, y)),
                    _ => Node::Binary(*op, a, b),
                }
            }
            CExpr::Cond(c, a, b) => {
                let c = self.child(c);
                match self.num(c) {
                    Some(v) => self.node(if v == 0.0 { b } else { a }),
                    None => {
                        let (a, b) = (self.child(a), self.child(b));
                        Node::Cond(c, a, b)
                    }
                }
            }
        }
    }

    /// A validated call has the arguments its function takes; anything else is the constant NaN,
    /// which every use refuses.
    fn call(&mut self, fun: Fun, args: &[CArg]) -> Node {
        match args {
            [CArg::Expr(a)] if fun.params() == [FunArg::Expr] => {
                let a = self.child(a);
                self.num(a).map_or(Node::Math(fun, a), |v| Node::Num(math(fun, v)))
            }
            [CArg::Expr(a), CArg::Expr(b)] if fun.params().len() == 2 => {
                let (a, b) = (self.child(a), self.child(b));
                match (self.num(a), self.num(b)) {
                    (Some(x), Some(y)) => Node::Num(math2(fun, x, y)),
                    _ => Node::Math2(fun, a, b),
                }
            }
            [CArg::Pool(r)] => Node::Pool(fun, self.reference(r)),
            [CArg::Stage(r)] => {
                self.code.reads_estimates |=
                    matches!(fun, Fun::EstLambda | Fun::EstRho | Fun::EstWait);
                Node::Stage(fun, self.reference(r))
            }
            [CArg::Pool(r), CArg::Expr(a)] => {
                let r = self.reference(r);
                Node::Taking(r, self.child(a))
            }
            [CArg::Stage(r), CArg::Expr(a)] => {
                let r = self.reference(r);
                Node::Share(r, self.child(a))
            }
            [CArg::Stage(r), CArg::Expr(a), CArg::Expr(b)] => {
                self.code.reads_estimates = true;
                let r = self.reference(r);
                let (a, b) = (self.child(a), self.child(b));
                Node::Price(r, a, b)
            }
            _ => Node::Num(f64::NAN),
        }
    }
}
