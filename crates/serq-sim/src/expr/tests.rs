use serq_lang::ir::{Binary, CArg, CExpr, Dist, Fun, Unary};

use super::{Builder, Env, NO_VARS};
use crate::rng::{Purpose, Rng};
use crate::world::World;

fn num(v: f64) -> CExpr {
    CExpr::Num(v)
}

fn bin(op: Binary, a: CExpr, b: CExpr) -> CExpr {
    CExpr::Binary(op, Box::new(a), Box::new(b))
}

fn call(fun: Fun, args: &[f64]) -> CExpr {
    CExpr::Call(fun, args.iter().map(|v| CArg::Expr(num(*v))).collect())
}

/// Evaluates with attribute 0 being 3; constants are folded or not depending on the expression.
fn value(e: &CExpr) -> f64 {
    let mut b = Builder::default();
    let root = b.expr(e);
    let env = Env { attrs: &[3.0], session: None, vars: &NO_VARS };
    let mut rng = Rng::stream(1, Purpose::Statements, 0, 0);
    b.code.eval(root, &World::default(), &env, &mut rng).unwrap()
}

/// The same with every constant hidden behind the attribute, so that nothing is folded.
fn unfolded(e: &CExpr) -> f64 {
    fn hide(e: &CExpr) -> CExpr {
        match e {
            CExpr::Num(v) => bin(Binary::Add, bin(Binary::Mul, num(0.0), CExpr::Attr(0)), num(*v)),
            CExpr::Unary(op, a) => CExpr::Unary(*op, Box::new(hide(a))),
            CExpr::Binary(op, a, b) => bin(*op, hide(a), hide(b)),
            CExpr::Cond(c, a, b) => {
                CExpr::Cond(Box::new(hide(c)), Box::new(hide(a)), Box::new(hide(b)))
            }
            CExpr::Call(f, args) => CExpr::Call(
                *f,
                args.iter()
                    .map(|a| match a {
                        CArg::Expr(e) => CArg::Expr(hide(e)),
                        other => other.clone(),
                    })
                    .collect(),
            ),
            other => other.clone(),
        }
    }
    value(&hide(e))
}

#[test]
fn operators_and_functions() {
    let not = |e| CExpr::Unary(Unary::Not, Box::new(e));
    let neg = |e| CExpr::Unary(Unary::Neg, Box::new(e));
    let cases = [
        (bin(Binary::Sub, num(5.0), num(7.0)), -2.0),
        (bin(Binary::Div, num(1.0), num(4.0)), 0.25),
        (bin(Binary::Pow, num(2.0), num(-1.0)), 0.5),
        (bin(Binary::Pow, num(3.0), num(2.0)), 9.0),
        (bin(Binary::Lt, num(1.0), num(1.0)), 0.0),
        (bin(Binary::Le, num(1.0), num(1.0)), 1.0),
        (bin(Binary::Ne, num(1.0), num(2.0)), 1.0),
        (bin(Binary::And, num(2.0), num(-1.0)), 1.0),
        (bin(Binary::Or, num(0.0), num(0.0)), 0.0),
        (not(num(0.0)), 1.0),
        (neg(num(4.0)), -4.0),
        (CExpr::Cond(Box::new(num(2.0)), Box::new(num(7.0)), Box::new(num(8.0))), 7.0),
        (call(Fun::Min, &[2.0, 1.0]), 1.0),
        (call(Fun::Max, &[2.0, 1.0]), 2.0),
        (call(Fun::Abs, &[-2.0]), 2.0),
        (call(Fun::Floor, &[-1.5]), -2.0),
        (call(Fun::Ceil, &[1.2]), 2.0),
        (call(Fun::Sqrt, &[9.0]), 3.0),
        (call(Fun::Exp, &[0.0]), 1.0),
        (call(Fun::Ln, &[1.0]), 0.0),
        (call(Fun::Pow, &[2.0, 10.0]), 1024.0),
        (CExpr::Attr(0), 3.0),
    ];
    for (e, expected) in &cases {
        assert_eq!((value(e), unfolded(e)), (*expected, *expected), "{e:?}");
    }
    assert!(value(&call(Fun::Min, &[f64::NAN, 1.0])).is_nan());
}

/// The arm not taken, and the right side that does not matter, are not evaluated: they would draw
/// or fail.
#[test]
fn evaluation_is_lazy() {
    let bad = || CExpr::Sample(Dist::Exp, vec![num(-1.0)]);
    let zero = || bin(Binary::Sub, CExpr::Attr(0), num(3.0));
    for e in [
        bin(Binary::And, zero(), bad()),
        bin(Binary::Or, CExpr::Attr(0), bad()),
        CExpr::Cond(Box::new(zero()), Box::new(bad()), Box::new(num(1.0))),
    ] {
        value(&e);
    }
}
