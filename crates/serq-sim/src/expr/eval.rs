//! Evaluation.

use serq_lang::ir::{Binary, Ctx, Fun};

use super::{Code, Expr, MAX_AXES, Node, Ref, Table};
use crate::error::{Reason, Result};
use crate::rng::{Rng, dist};
use crate::world::World;

/// Values of the context variables; which of them mean something depends on the moment.
pub(crate) type Vars = [f64; Ctx::ALL.len()];

/// What an expression is evaluated for.
#[derive(Clone, Copy)]
pub(crate) struct Env<'a> {
    /// The session's attributes; empty at a moment without a session.
    pub(crate) attrs: &'a [f64],
    /// The session's slot, if there is one and it lives.
    pub(crate) session: Option<u32>,
    pub(crate) vars: &'a Vars,
}

/// No context variables.
pub(crate) const NO_VARS: Vars = [0.0; Ctx::ALL.len()];

impl<'a> Env<'a> {
    pub(crate) fn session(world: &'a World, session: u32) -> Self {
        Self { attrs: world.attrs(session), session: Some(session), vars: &NO_VARS }
    }

    pub(crate) fn stage(vars: &'a Vars) -> Self {
        Self { attrs: &[], session: None, vars }
    }
}

impl Code {
    #[inline]
    pub(crate) fn eval(&self, e: Expr, w: &World, env: &Env<'_>, rng: &mut Rng) -> Result<f64> {
        self.arg(e.0, w, env, rng)
    }

    /// The member a reference stands for.
    pub(crate) fn resolve(&self, r: Ref, w: &World, env: &Env<'_>, rng: &mut Rng) -> Result<u32> {
        match r {
            Ref::Fixed(i) => Ok(i),
            Ref::Member { base, count, index } => {
                let v = self.eval(index, w, env, rng)?;
                if v >= 0.0 && v < f64::from(count) && v.fract() == 0.0 {
                    Ok(base + v as u32)
                } else {
                    Err(bad_index(v, count))
                }
            }
        }
    }

    /// A child: leaves without a call.
    #[inline(always)]
    fn arg(&self, at: u32, w: &World, env: &Env<'_>, rng: &mut Rng) -> Result<f64> {
        match self.nodes[at as usize] {
            Node::Num(v) => Ok(v),
            Node::Attr(slot) => Ok(env.attrs[slot as usize]),
            Node::Now => Ok(w.now),
            _ => self.at(at, w, env, rng),
        }
    }

    fn at(&self, at: u32, w: &World, env: &Env<'_>, rng: &mut Rng) -> Result<f64> {
        Ok(match self.nodes[at as usize] {
            Node::Num(v) => v,
            Node::Attr(slot) => env.attrs[slot as usize],
            Node::Now => w.now,
            Node::Var(var) => env.vars[var as usize],
            Node::Binary(Binary::And, a, b) => {
                let left = self.arg(a, w, env, rng)?;
                f64::from(left != 0.0 && self.arg(b, w, env, rng)? != 0.0)
            }
            Node::Binary(Binary::Or, a, b) => {
                let left = self.arg(a, w, env, rng)?;
                f64::from(left != 0.0 || self.arg(b, w, env, rng)? != 0.0)
            }
            Node::Binary(op, a, b) => {
                let left = self.arg(a, w, env, rng)?;
                binary(op, left, self.arg(b, w, env, rng)?)
            }
            Node::Cond(c, a, b) => {
                let taken = if self.arg(c, w, env, rng)? == 0.0 { b } else { a };
                self.arg(taken, w, env, rng)?
            }
            Node::Neg(a) => -self.arg(a, w, env, rng)?,
            Node::Not(a) => f64::from(self.arg(a, w, env, rng)? == 0.0),
            Node::Math(fun, a) => math(fun, self.arg(a, w, env, rng)?),
            Node::Math2(fun, a, b) => {
                let left = self.arg(a, w, env, rng)?;
                math2(fun, left, self.arg(b, w, env, rng)?)
            }
            Node::Sample(law, a, b) => {
                let first = self.arg(a, w, env, rng)?;
                let second = if a == b { first } else { self.arg(b, w, env, rng)? };
                dist::draw(rng, law, first, second).map_err(|why| {
                    Reason::new(
                        "draw",
                        format!("`~{}` cannot be drawn: {why}", law.name()),
                        "check the expressions of its parameters",
                    )
                })?
            }
            Node::Pool(fun, r) => {
                let pool = self.resolve(r, w, env, rng)?;
                w.pool_observable(fun, pool, env.session)
            }
            Node::Stage(Fun::BudgetLeft, r) => {
                let stage = self.resolve(r, w, env, rng)?;
                w.budget_left(self, stage, rng)?
            }
            Node::Stage(fun, r) => {
                let stage = self.resolve(r, w, env, rng)?;
                w.stage_observable(fun, stage)
            }
            Node::Admission => w.admission(env.session),
            Node::Taking(r, n) => {
                let pool = self.resolve(r, w, env, rng)?;
                let n = self.arg(n, w, env, rng)?;
                w.taking(pool, n)
            }
            Node::Share(r, n) => {
                let stage = self.resolve(r, w, env, rng)?;
                let n = self.arg(n, w, env, rng)?;
                w.share(self, stage, n, rng)?
            }
            Node::Table(table, first) => self.table(table, first, w, env, rng)?,
            Node::Price(r, hit, more) => {
                let stage = self.resolve(r, w, env, rng)?;
                let hit = self.arg(hit, w, env, rng)?;
                let more = self.arg(more, w, env, rng)?;
                w.price(stage, hit, more)
            }
        })
    }
}

impl Code {
    fn table(
        &self,
        table: u32,
        first: u32,
        w: &World,
        env: &Env<'_>,
        rng: &mut Rng,
    ) -> Result<f64> {
        let Table { grid, about } = &self.tables[table as usize];
        let mut at = [0.0; MAX_AXES];
        let axes = grid.axes();
        for (k, place) in at[..axes].iter_mut().enumerate() {
            *place = self.arg(self.args[first as usize + k], w, env, rng)?;
        }
        grid.value(&at[..axes]).map_err(|unread| {
            Reason::new(
                "table",
                format!("the table `{}` has no value here: {}", about.name, unread.describe(about)),
                "measure there, or let the table go on: `outside extend`, `outside clamp`",
            )
        })
    }
}

#[cold]
fn bad_index(v: f64, count: u32) -> Box<Reason> {
    Reason::new(
        "index",
        format!("index {v} names no member of a family of {count}"),
        "an index is a whole number from 0 to the family's size less 1",
    )
}

pub(super) fn binary(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Pow => pow(a, b),
        Binary::Lt => f64::from(a < b),
        Binary::Le => f64::from(a <= b),
        Binary::Gt => f64::from(a > b),
        Binary::Ge => f64::from(a >= b),
        Binary::Eq => f64::from(a == b),
        Binary::Ne => f64::from(a != b),
        Binary::And => f64::from(a != 0.0 && b != 0.0),
        Binary::Or => f64::from(a != 0.0 || b != 0.0),
    }
}

pub(super) fn math(fun: Fun, a: f64) -> f64 {
    match fun {
        Fun::Abs => a.abs(),
        Fun::Floor => a.floor(),
        Fun::Ceil => a.ceil(),
        Fun::Sqrt => a.sqrt(),
        Fun::Exp => libm::exp(a),
        Fun::Ln => libm::log(a),
        _ => f64::NAN,
    }
}

/// `min` and `max` of a NaN are NaN: a mistake must not disappear.
pub(super) fn math2(fun: Fun, a: f64, b: f64) -> f64 {
    match fun {
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        Fun::Min => a.min(b),
        Fun::Max => a.max(b),
        Fun::Pow => pow(a, b),
        _ => f64::NAN,
    }
}

fn pow(a: f64, b: f64) -> f64 {
    if b == 2.0 { a * a } else { libm::pow(a, b) }
}
