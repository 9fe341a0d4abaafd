//! What version 6 of the form adds, at run time.

use crate::support::{Run, compile, run, run_program};
use serq_lang::ir::{
    Arrival, Binary, Bind, CArg, CExpr, CGauge, CQueue, CRef, CShare, CStageKind, CStmt, Ctx, Fun,
    Program, Rate, Trace, TraceTurn, VERSION_6,
};
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

const COMING: &str = "
    pool P { cap 1; }
    stage clock : delay;
    workload { arrive batch (1); }
    session { observe came = now; hold P (1) { run clock (1); } observe left = now; }
    run { horizon 1000; }";

#[track_caller]
fn coming(arrival: Arrival, limit: Option<u64>, horizon: f64) -> Run {
    six(COMING, |p| {
        p.arrival = arrival;
        p.limit = limit;
        p.horizon = horizon;
    })
}

/// Renewal arrivals begin with a gap; a run without a horizon ends with its last session.
#[test]
fn arrivals_come_when_their_law_says() {
    let all = coming(Arrival::Renewal(num(2.0)), Some(3), f64::INFINITY);
    assert_eq!(all.values("came"), [2., 4., 6.]);
    assert_eq!((all.report.run.horizon, all.report.run.live), (7.0, 0));
    // Used from 2 to 3, 4 to 5, 6 to 7.
    assert!((all.report.pool("P").unwrap().mean_used - 3.0 / 7.0).abs() < 1e-12);
    let cut = coming(Arrival::Renewal(num(2.0)), None, 9.0);
    assert_eq!(cut.values("came"), [2., 4., 6., 8.]);
    let listed = coming(Arrival::Times(vec![0.0, 0.5, 0.5, 9.0]), None, f64::INFINITY);
    assert_eq!(listed.values("came"), [0., 0.5, 0.5, 9.]);
    assert_eq!(listed.values("left"), [1., 2., 3., 10.]);
    assert_eq!(listed.report.run.horizon, 10.0);
    let first = coming(Arrival::Poisson(2.0), Some(5), f64::INFINITY);
    assert_eq!((first.report.run.arrivals, first.values("came")[0]), (5, 0.0));
    let open = coming(Arrival::Poisson(2.0), None, 1000.0);
    assert_eq!(first.values("came"), open.values("came")[..5], "a limit changes no arrival");
    let batch = coming(Arrival::Batch(4), None, f64::INFINITY);
    assert_eq!((batch.report.run.horizon, batch.report.run.ended), (4.0, 4));
}

/// The number of arrivals under each rate is Poisson: within four standard deviations of its mean.
#[test]
fn rates_are_exact() {
    let rates = vec![Rate(0.0, 0.0), Rate(3.0, 1000.0), Rate(0.0, 3000.0), Rate(0.5, 5000.0)];
    let run = coming(Arrival::Rates(rates), None, 9000.0);
    let came = run.values("came");
    let within = |from: f64, to: f64| came.iter().filter(|t| (from..to).contains(*t)).count();
    for (from, to, mean) in [
        (0.0, 1000.0, 0.0),
        (1000.0, 3000.0, 6000.0),
        (3000.0, 5000.0, 0.0),
        (5000.0, 9000.0, 2000.0f64),
    ] {
        let n = within(from, to) as f64;
        assert!((n - mean).abs() <= 4.0 * mean.sqrt(), "{n} from {from} to {to}");
    }
}

#[test]
fn a_trace_brings_its_times() {
    let turn = |new: f64| vec![TraceTurn(new, 0.0, 0.0, 0.0)];
    let run = six(
        "stage clock : delay;
         workload { arrive batch (1); }
         session { turn; observe came = now; observe new = new; run clock (3); }
         run { horizon 100; }",
        |p| {
            p.arrival = Arrival::Trace;
            p.trace = Some(Trace::Inline(vec![turn(5.0), turn(7.0)]));
            p.trace_times = vec![1.5, 4.0];
            p.horizon = f64::INFINITY;
        },
    );
    assert_eq!((run.values("came"), run.values("new")), (vec![1.5, 4.0], vec![5.0, 7.0]));
    assert_eq!(run.report.run.horizon, 7.0);
}

/// Arrivals that never get anywhere, and runs that end before they measure, are errors.
#[test]
fn runs_without_sense_are_refused() {
    let error = |change: fn(&mut Program)| {
        let p = program(COMING, change);
        serq_sim::run(&p, &Options::default(), &mut serq_sim::NoObserver).unwrap_err().to_string()
    };
    let crowd = error(|p| p.arrival = Arrival::Renewal(num(0.0)));
    assert!(crowd.contains("[instant-loop]"), "{crowd}");
    let short = error(|p| {
        p.horizon = f64::INFINITY;
        p.warmup = 50.0;
    });
    assert!(short.contains("before the warm-up"), "{short}");
    let negative = error(|p| p.arrival = Arrival::Renewal(num(-1.0)));
    assert!(negative.contains("gap between arrivals is -1"), "{negative}");
}

/// Two sessions one after the other, from 0 to 2, and from 10 on a third.
#[test]
fn a_gauge_averages_the_state() {
    let run = six(COMING, |p| {
        p.arrival = Arrival::Times(vec![0.0, 0.0, 10.0]);
        p.horizon = 20.0;
        p.warmup = 1.5;
        let pool = |fun| CExpr::Call(fun, vec![CArg::Pool(CRef::one(0))]);
        p.gauges = vec![
            CGauge { name: "waiting".into(), value: pool(Fun::Queued) },
            CGauge { name: "twice".into(), value: binary(Binary::Mul, num(2.0), pool(Fun::Used)) },
        ];
    });
    let twice = run.report.gauge("twice").unwrap();
    assert!((twice.mean - 3.0 / 18.5).abs() < 1e-12);
    assert_eq!((twice.min, twice.max), (0.0, 2.0));
    assert!(twice.half_width > 0.0);
    assert_eq!(run.report.gauge("waiting").unwrap().max, 0.0);
    assert!(run.report.to_json().contains("\"gauges\": {\n    \"waiting\": {"));
    assert!(run.report.to_text().contains("\ngauge "));
}

/// Two reads leave one machine at a time: its link is the narrow part of both.
#[test]
fn flows_share_the_stage_they_meet_at() {
    for (share, end) in [(CShare::MaxMin, 3.0), (CShare::Bottleneck, 3.0)] {
        let run = six(
            "stage egress : ps (1);
             stage ingress[2] : ps (1);
             workload { arrive batch (2); }
             session { run egress (1.5); observe end = now; }
             run { horizon 10; }",
            |p| {
                p.share = Some(share);
                flow(p, CRef::member(1, 2, CExpr::Attr(p.slots.serial)));
            },
        );
        assert_eq!(run.values("end"), [end, end]);
        assert!((run.report.stage("egress").unwrap().utilisation - 0.3).abs() < 1e-12);
        assert!((run.report.stage("ingress").unwrap().utilisation - 0.15).abs() < 1e-12);
    }
}

/// Makes the program's first run go over a further stage.
fn flow(p: &mut Program, also: CRef) {
    let run = p.blocks.iter_mut().flatten().find_map(|s| match s {
        CStmt::Run(run) => Some(run),
        _ => None,
    });
    run.unwrap().also.push(also);
}

/// Stage A of capacity 1 carries the first two flows, B of capacity 2 the first and the third, one unit
/// each. By the bottleneck rule nobody gets what the first leaves of B.
#[test]
fn three_flows_over_two_stages() {
    for (share, ends, horizon, utilisation) in [
        (CShare::MaxMin, [2.0, 2.0, 2.0 / 3.0], 2.0 / 3.0, 1.0),
        (CShare::Bottleneck, [2.0, 2.0, 1.0], 2.0 / 3.0, 0.75),
    ] {
        let text = "
            stage A : ps (1);
            stage B : ps (2);
            workload { arrive batch (3); }
            session {
              branch (serial == 0) { run A (1); } else {
                branch (serial == 1) { run A (1); } else { run B (1); }
              }
              observe end = now;
            }
            run { horizon 10; }";
        let change = |horizon: f64| {
            move |p: &mut Program| {
                p.share = Some(share);
                p.horizon = horizon;
                flow(p, CRef::one(1));
            }
        };
        let run = six(text, change(10.0));
        for (end, expected) in run.by_session("end").into_iter().zip(ends) {
            assert!((end - expected).abs() < 1e-12, "{share:?}: {end} and not {expected}");
        }
        let cut = six(text, change(horizon));
        let carried = cut.report.stage("B").unwrap().utilisation;
        assert!((carried - utilisation).abs() < 1e-12, "{share:?}: {carried}");
    }
}

/// A flow that is preempted with its hold leaves both stages, and the others go faster.
#[test]
fn a_flow_leaves_both_its_stages() {
    let run = six(
        "pool kv { cap 10; preempt lifo; }
         stage A : ps (1);
         stage B : ps (1);
         stage clock : delay;
         workload { arrive batch (2); }
         session {
           branch (serial == 1) { hold kv (5) { run A (4); observe one = now; } }
           else { hold kv (5) { run clock (1); grow kv (5); run clock (1); } }
         }
         run { horizon 20; }",
        |p| {
            p.share = Some(CShare::MaxMin);
            flow(p, CRef::one(1));
        },
    );
    // From 0 to 1 in vain; again from 2 on.
    assert_eq!(run.values("one"), [6.]);
    for stage in ["A", "B"] {
        let stage = run.report.stage(stage).unwrap();
        assert!((stage.utilisation - 5.0 / 20.0).abs() < 1e-12);
        assert_eq!(stage.completed, 1);
    }
}

/// An integral engine refuses a part of a token wherever one could come from.
#[test]
fn an_integral_engine_counts_whole_tokens() {
    let whole = ("10", "4", "3", "5", "2");
    let run = |(budget, chunk, work, units, keep): (&str, &str, &str, &str, &str)| {
        let text = format!(
            "pool kv {{ cap 10; admit via E; }}
             stage E : step {{ budget {budget}; chunk {chunk}; cost 1; memory kv; }}
             workload {{ arrive batch (1); }}
             session {{ hold kv ({units}) {{ run E prefill ({work}) growing kv; }} keep ({keep}) }}
             run {{ horizon 10; }}"
        );
        let p = program(&text, |p| {
            if let CStageKind::Step(step) = &mut p.stages[0].kind {
                step.integral = true;
            }
        });
        match serq_sim::run(&p, &Options::default(), &mut serq_sim::NoObserver) {
            Ok(_) => "",
            Err(serq_sim::RunError::Fault(fault)) => fault.code,
            Err(e) => panic!("{e}"),
        }
    };
    assert_eq!(run(whole), "");
    for part in [
        ("9.5", whole.1, whole.2, whole.3, whole.4),
        (whole.0, "1.5", whole.2, whole.3, whole.4),
        (whole.0, whole.1, "2.5", whole.3, whole.4),
        (whole.0, whole.1, whole.2, "5.25", whole.4),
        (whole.0, whole.1, whole.2, whole.3, "0.5"),
    ] {
        assert_eq!(run(part), "integral", "{part:?}");
    }
    assert_eq!(run(("inf", whole.1, whole.2, whole.3, whole.4)), "");
}
