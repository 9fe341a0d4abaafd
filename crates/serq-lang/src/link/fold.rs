//! Arithmetic on constants, as a run does it.
//!
//! Whatever is constant becomes a number when the program is linked. The operations are those of
//! the interpreter, on `f64` and with `libm` for the transcendental ones, so that folding never
//! changes a result and is the same on every machine.

use crate::ir::{Binary, CArg, CExpr, Fun, Unary};

/// The value of an operation on constants.
pub(super) fn binary(op: Binary, a: f64, b: f64) -> f64 {
    let truth = |t: bool| if t { 1.0 } else { 0.0 };
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Pow => libm::pow(a, b),
        Binary::Lt => truth(a < b),
        Binary::Le => truth(a <= b),
        Binary::Gt => truth(a > b),
        Binary::Ge => truth(a >= b),
        Binary::Eq => truth(a == b),
        Binary::Ne => truth(a != b),
        Binary::And => truth(a != 0.0 && b != 0.0),
        Binary::Or => truth(a != 0.0 || b != 0.0),
    }
}

pub(super) fn unary(op: Unary, a: f64) -> f64 {
    match op {
        Unary::Neg => -a,
        Unary::Not => {
            if a == 0.0 {
                1.0
            } else {
                0.0
            }
        }
    }
}

/// The value of a call if all its arguments are constants and it depends on nothing else.
pub(super) fn call(fun: Fun, args: &[CArg]) -> Option<f64> {
    let num = |k: usize| match args.get(k) {
        Some(CArg::Expr(CExpr::Num(v))) => Some(*v),
        _ => None,
    };
    let a = num(0)?;
    Some(match fun {
        Fun::Min => {
            let b = num(1)?;
            if b < a { b } else { a }
        }
        Fun::Max => {
            let b = num(1)?;
            if b > a { b } else { a }
        }
        Fun::Pow => libm::pow(a, num(1)?),
        Fun::Abs => a.abs(),
        Fun::Floor => libm::floor(a),
        Fun::Ceil => libm::ceil(a),
        Fun::Sqrt => libm::sqrt(a),
        Fun::Exp => libm::exp(a),
        Fun::Ln => libm::log(a),
        _ => return None,
    })
}
