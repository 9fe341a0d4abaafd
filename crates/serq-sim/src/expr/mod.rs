//! Expressions, compiled once.
//!
//! The trees of the IR become nodes in one flat arena, children before parents, with attribute
//! slots, context variables and constant pool indices resolved and constant parts folded. Nodes
//! are evaluated by a short recursion (depth is bounded by the validator), which keeps `? :`,
//! `&&` and `||` lazy without jumps; leaves are read in place by their parent.

mod compile;
mod eval;

pub(crate) use compile::Builder;
pub(crate) use eval::{Env, NO_VARS, Vars};

use serq_lang::ir::table::MAX_AXES;
use serq_lang::ir::{Binary, CTable, Dist, Fun, Grid};

/// A compiled expression: its root in [`Code::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expr(pub(crate) u32);

/// A pool or stage, resolved as far as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ref {
    Fixed(u32),
    Member { base: u32, count: u32, index: Expr },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Num(f64),
    Attr(u32),
    Now,
    Var(u8),
    Sample(Dist, u32, u32),
    Neg(u32),
    Not(u32),
    Binary(Binary, u32, u32),
    Cond(u32, u32, u32),
    /// A function of one number.
    Math(Fun, u32),
    /// `min`, `max`, `pow`.
    Math2(Fun, u32, u32),
    /// An observable of a pool.
    Pool(Fun, Ref),
    /// An observable of a stage.
    Stage(Fun, Ref),
    Price(Ref, u32, u32),
    /// A table's value: its number, and where its arguments are in [`Code::args`].
    Table(u32, u32),
    /// Number of the session's latest admission.
    Admission,
    /// What an amount would take of a pool.
    Taking(Ref, u32),
    /// What a newcomer gets of a stage's iteration.
    Share(Ref, u32),
}

/// A table, prepared; `about` has its names and no points.
#[derive(Debug)]
struct Table {
    grid: Grid,
    about: CTable,
}

/// Every expression of a program.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) nodes: Vec<Node>,
    /// Arguments of calls of tables.
    args: Vec<u32>,
    tables: Vec<Table>,
    /// Whether some expression reads a stage's online estimates.
    pub(crate) reads_estimates: bool,
}

impl Code {
    pub(crate) fn as_num(&self, e: Expr) -> Option<f64> {
        match self.nodes[e.0 as usize] {
            Node::Num(v) => Some(v),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
