//! What programs of real schedulers are written with, from text to representation: shared memory,
//! conditions, victims, two-part runs, waiting for iterations, leases that engines mind, deadlines,
//! engines a step ahead, bookings.

mod common;

use common::linked;
use serq_lang::fmt::format;
use serq_lang::ir::{
    CArg, CExpr, CHold, CPreempt, CQueue, CRef, CRenew, CRun, CSegment, CStageKind, CStmt, CTell,
    Ctx, Fun, Program, RunMode, VERSION, VERSION_6, from_json, to_json,
};

const HEAD: &str = "\
pool slots { cap 4; }
pool kv {
  cap 160;
  block 16;
  shared;
}
stage E : step {
  cost 1;
  memory kv;
};
workload {
  arrive poisson(1);
  session { request; }
}
run { horizon 10; }
";

/// A server whose text is in the common layout, survives JSON and needs version 6.
#[track_caller]
fn server(body: &str) -> Program {
    let text = format!("{HEAD}server {{\n{body}}}\n");
    assert_eq!(format("a.sq", &text).expect("it parses"), text, "the common layout");
    let p = linked("a.sq", &text);
    assert_eq!(p.version, VERSION_6);
    assert_eq!(from_json(&to_json(&p)).expect("it reads"), p);
    p
}

fn statements(p: &Program) -> Vec<&CStmt> {
    p.blocks.iter().flatten().collect()
}

fn hold(p: &Program) -> &CHold {
    let holds = statements(p).into_iter().find_map(|s| match s {
        CStmt::Hold(hold) => Some(hold),
        _ => None,
    });
    holds.expect("a hold")
}

fn run(p: &Program) -> &CRun {
    let runs = statements(p).into_iter().find_map(|s| match s {
        CStmt::Run(run) => Some(run),
        _ => None,
    });
    runs.expect("a run")
}

fn slot(p: &Program, name: &str) -> usize {
    p.attrs.iter().position(|a| a == name).expect("an attribute")
}

fn kv() -> CRef {
    CRef::one(1)
}

#[test]
fn content_is_a_chain_of_segments() {
    let p = server(
        "  content (1: 400, serial: inf);\n  content add (2 * serial: 16);\n  run E decode (1);\n",
    );
    let found: Vec<(bool, usize)> = statements(&p)
        .iter()
        .filter_map(|s| match s {
            CStmt::Content { add, parts } => Some((*add, parts.len())),
            _ => None,
        })
        .collect();
    assert_eq!(found, [(false, 2), (true, 1)]);
    let num = CExpr::Num;
    let first = CStmt::Content {
        add: false,
        parts: vec![
            CSegment(num(1.0), num(400.0)),
            CSegment(CExpr::Attr(p.slots.serial), num(f64::INFINITY)),
        ],
    };
    assert!(statements(&p).contains(&&first));
}

#[test]
fn a_condition_and_what_an_attempt_asks() {
    let p = server(
        "  admit if kv (hit + part) fit when (free(kv) - taking(kv, hit + part) >= owed(kv))
      where hit = cachedin(kv), part = share(E, 100 - hit) {
    run E prefill (100 - cached) growing kv;
  }
",
    );
    let when = hold(&p).when.as_ref().expect("a condition");
    let mut calls = Vec::new();
    when.walk(&mut |e| {
        if let CExpr::Call(fun, args) = e {
            calls.push((*fun, args.len()));
        }
    });
    let has = |fun: Fun, args: usize| calls.contains(&(fun, args));
    assert!(has(Fun::Taking, 2) && has(Fun::Owed, 1) && has(Fun::Share, 2), "{calls:?}");
    // Bindings are put in wherever they stand.
    let CExpr::Binary(_, _, units) = &hold(&p).pools[0].1 else { panic!("hit + part") };
    assert!(matches!(&**units, CExpr::Call(Fun::Share, a) if a[0] == CArg::Stage(CRef::one(0))));
}

#[test]
fn who_gives_way() {
    let text = |clause: &str| {
        format!("pool kv {{ cap 9; preempt {clause}; queue by (a, admission); }} stage s : fifo;
                 workload {{ arrive poisson(1); }} session {{ set a = admission; hold kv (1) {{ run s (1); }} }}
                 run {{ horizon 1; }}")
    };
    let preempt = |clause: &str| linked("a.sq", &text(clause)).pools[0].preempt.clone();
    assert_eq!(preempt("none"), CPreempt::None);
    assert_eq!(preempt("lifo"), CPreempt::Lifo);
    let CPreempt::By { keys, requeue } = preempt("by (a, -admission, decoding) requeue (a > 0)")
    else {
        panic!("by")
    };
    assert_eq!((keys.len(), &keys[0]), (3, &CExpr::Attr(9)));
    assert!(matches!(requeue, CExpr::Binary(..)));
    let CPreempt::By { requeue, .. } = preempt("by (admission)") else { panic!("by") };
    assert_eq!(requeue, CExpr::Num(0.0));
    let p = linked("a.sq", &text("lifo"));
    let admission = CExpr::Ctx(Ctx::Admission);
    assert!(
        matches!(&p.pools[0].queue, Some(CQueue::Keys { keys, live: false }) if keys[1] == admission)
    );
    assert!(statements(&p).contains(&&CStmt::Set(9, admission)));
}

/// Version 5 knows `admission` in serving keys only, and programs with such an attribute stay as they are.
#[test]
fn an_attribute_may_be_called_admission() {
    let text = "stage s : fifo; workload { arrive poisson(1); }
        session { set admission = 2; run s (admission); } run { horizon 1; }";
    let p = linked("a.sq", text);
    assert_eq!((p.version, &run(&p).work), (VERSION, &CExpr::Attr(9)));
}

#[test]
fn prefill_and_answer_in_one_run() {
    let p = server(
        "  admit if kv (16) fit { run E prefill (10) decode (o - a - 1) growing kv answers a first t1; }\n  set o = 3;\n",
    );
    let run = run(&p);
    assert_eq!((run.mode, &run.growing), (RunMode::Prefill, &Some(kv())));
    assert!(run.then.is_some());
    assert_eq!((run.answers, run.first), (Some(slot(&p, "a")), Some(slot(&p, "t1"))));
}

#[test]
fn leases_that_an_engine_minds() {
    let p = server(
        "  admit if kv (16) fit { run E prefill (10) growing kv; } lease kv (30) on E;
  renew kv (20) every (5) from E after (1);
  run E steps (3) telling kv on E after (2);
  run E steps (1) telling kv;
  release kv on E;
  set units = mine(kv);
  abandon kv;
  release kv;
",
    );
    assert_eq!(hold(&p).lease_on, Some(CRef::one(0)));
    let num = CExpr::Num;
    let on = Some(CRef::one(0));
    let tell = |on, after: Option<f64>| CTell { pool: kv(), on, after: after.map(num) };
    let steps = |k: f64, telling| {
        let run = CRun::new(CRef::one(0), RunMode::Steps, num(k));
        CStmt::Run(CRun { telling: Some(telling), ..run })
    };
    let wanted = [
        CStmt::Renew(CRenew {
            pool: kv(),
            time: num(20.0),
            every: num(5.0),
            from: CRef::one(0),
            after: Some(num(1.0)),
        }),
        steps(3.0, tell(on.clone(), Some(2.0))),
        steps(1.0, tell(None, None)),
        CStmt::Tell(tell(on, None)),
        CStmt::Abandon(kv()),
        CStmt::Release(kv()),
    ];
    let all = statements(&p);
    for stmt in &wanted {
        assert!(all.contains(&stmt), "{stmt:?} in {all:?}");
    }
}

#[test]
fn deadlines_and_shields() {
    let p = server(
        "  until (now + 5) {
    shield { run E steps (2); }
  } else {
    run E decode (1);
  }
  until (inf) { run E decode (2); }
",
    );
    let all = statements(&p);
    let (mut untils, mut shields) = (Vec::new(), 0);
    for stmt in all {
        match stmt {
            CStmt::Until(e, body, other) => {
                untils.push((e.as_num(), p.blocks[*body].len(), p.blocks[*other].len()));
            }
            CStmt::Shield(body) => shields += p.blocks[*body].len(),
            _ => {}
        }
    }
    assert_eq!((untils, shields), (vec![(None, 1, 1), (Some(f64::INFINITY), 1, 0)], 1));
}

#[test]
fn an_engine_a_step_ahead() {
    let step = |options: &str| {
        let text = format!(
            "let async = 1; stage e : step {{ cost 1; {options} }};
             workload {{ arrive poisson(1); }} session {{ run e decode (async); }} run {{ horizon 1; }}"
        );
        let p = linked("a.sq", &text);
        let CStageKind::Step(step) = &p.stages[0].kind else { panic!("a step stage") };
        (step.ahead, step.fenced, step.stops, p.version)
    };
    assert_eq!(
        step("ahead (async); fenced (async); stops (7);"),
        (true, true, Some(7.0), VERSION_6)
    );
    assert_eq!(step("ahead (1 - async); fenced (0);"), (false, false, None, VERSION));
}

/// Every request books for itself, also if a server is there twice.
#[test]
fn a_booking_is_of_one_hold() {
    let text = "pool kv { cap 9; } stage s : fifo;
        workload { arrive poisson(1); session { request; request; } }
        server {
          book room;
          run s (1);
          enter room if kv (3) reserve (4) fit reuse (0) where u = 3 { run s (u); } keep (2)
        }
        run { horizon 10; }";
    let p = linked("a.sq", text);
    let (mut books, mut enters) = (Vec::new(), Vec::new());
    for stmt in statements(&p) {
        match stmt {
            CStmt::Book(number) => books.push(*number),
            CStmt::Hold(hold) => {
                assert_eq!((hold.binds.len(), hold.cache.is_some()), (1, true));
                enters.extend(hold.booked);
            }
            _ => {}
        }
    }
    assert_eq!((books, enters), (vec![0, 1], vec![0, 1]));
}
