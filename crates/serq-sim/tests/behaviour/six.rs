//! What version 6 of the form adds, at run time.

use crate::support::{Run, compile, run, run_program};
use serq_lang::ir::{Binary, Bind, CExpr, CQueue, CStmt, Ctx, Program, VERSION_6};
use serq_sim::Options;

/// A program of version 5, changed into one of version 6.
#[track_caller]
pub(crate) fn six(text: &str, change: impl FnOnce(&mut Program)) -> Run {
    run_program(&program(text, change), &Options::default())
}

#[track_caller]
pub(crate) fn program(text: &str, change: impl FnOnce(&mut Program)) -> Program {
    let mut program = compile(text);
    program.version = VERSION_6;
    change(&mut program);
    program
}

pub(crate) fn num(v: f64) -> CExpr {
    CExpr::Num(v)
}

pub(crate) fn binary(op: Binary, a: CExpr, b: CExpr) -> CExpr {
    CExpr::Binary(op, Box::new(a), Box::new(b))
}

/// An attribute by its name.
#[track_caller]
pub(crate) fn slot(p: &Program, name: &str) -> usize {
    p.attrs.iter().position(|a| a == name).expect(name)
}

/// Each session waits until the one before it is done; a binding is what it was at admission, and
/// was again when the hold was done again.
#[test]
fn a_binding_is_of_the_moment_of_admission() {
    let run = six(
        "
        pool P { cap 1; }
        stage clock : delay;
        workload { arrive batch (3); init { set found = 0; } }
        session { hold P (1) { run clock (2); observe found = found; observe twice = found * 2; } }
        run { horizon 100; }",
        |p| {
            let found = slot(p, "found");
            let hold = p.blocks.iter_mut().flatten().find_map(|s| match s {
                CStmt::Hold(hold) => Some(hold),
                _ => None,
            });
            hold.unwrap().binds = vec![
                Bind(found, binary(Binary::Add, CExpr::Ctx(Ctx::Now), num(1.0))),
                Bind(found, binary(Binary::Mul, CExpr::Attr(found), num(10.0))),
            ];
        },
    );
    assert_eq!(run.values("found"), [10., 30., 50.]);
    assert_eq!(run.values("twice"), [20., 60., 100.]);
}

/// The guard is looked at before each round: no round at all for the first session.
#[test]
fn while_repeats_as_long_as_its_guard_is_1() {
    let text = "
        stage clock : delay;
        workload { arrive batch (4); init { set left = serial; } }
        session {
          loop { set left = left - 1; run clock (1); }
        }
        run { horizon 100; }";
    let repeat = |guard: fn(CExpr) -> CExpr| {
        program(text, |p| {
            let left = CExpr::Attr(slot(p, "left"));
            let session = p.session;
            p.observes.push("end".into());
            let CStmt::Loop(body) = p.blocks[session][0] else { panic!("no loop") };
            p.blocks[session] =
                vec![CStmt::While(guard(left), body), CStmt::Observe(0, CExpr::Ctx(Ctx::Now))];
        })
    };
    let good = repeat(|left| binary(Binary::Gt, left, num(0.0)));
    let run = run_program(&good, &Options::default());
    assert_eq!(run.by_session("end"), [0., 1., 2., 3.]);
    let bad = repeat(|left| left);
    let error = serq_sim::run(&bad, &Options::default(), &mut serq_sim::NoObserver).unwrap_err();
    assert!(error.to_string().contains("[guard]"), "{error}");
}

/// Six sessions for a pool that admits one at a time, the smallest first: 2 and 3 come late, and
/// each has a size. A second waited counts as much as `aging` of size.
const SELECTION: &str = "
    pool P { cap 1; queue by (size); }
    stage clock : delay;
    workload {
      arrive batch (6);
      init {
        set size = serial == 0 ? 0 : serial == 4 ? 1 : serial == 2 ? 2 : serial == 3 ? 3
          : serial == 1 ? 4 : 5;
      }
    }
    session {
      run clock (serial == 2 || serial == 3 ? 2 : 0);
      hold P (1) { observe order = serial; run clock (3); }
    }
    run { horizon 100; }";

#[test]
fn live_keys_are_evaluated_at_every_selection() {
    assert_eq!(run(SELECTION).values("order"), [0., 4., 2., 3., 1., 5.]);
    let with = |live: bool, keys: fn(usize) -> Vec<CExpr>| {
        six(SELECTION, |p| {
            let keys = keys(slot(p, "size"));
            p.pools[0].queue = Some(CQueue::Keys { keys, live });
        })
        .values("order")
    };
    let aging = |size: usize| {
        let credit = binary(Binary::Mul, num(3.0), CExpr::Ctx(Ctx::Waited));
        vec![binary(Binary::Sub, CExpr::Attr(size), credit)]
    };
    assert_eq!(with(true, aging), [0., 4., 1., 5., 2., 3.]);
    // Two keys: odd sizes last; a list frozen at joining orders alike.
    let parity = |size: usize| {
        let half = binary(Binary::Div, CExpr::Attr(size), num(2.0));
        let floor = serq_lang::ir::Fun::Floor;
        let whole = CExpr::Call(floor, vec![serq_lang::ir::CArg::Expr(half.clone())]);
        vec![binary(Binary::Ne, half, whole), CExpr::Attr(size)]
    };
    for live in [false, true] {
        assert_eq!(with(live, parity), [0., 2., 1., 4., 3., 5.], "live {live}");
    }
}
