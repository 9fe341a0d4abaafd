//! Version 6: what it adds survives JSON, is refused where it means nothing, and a program that
//! uses none of it is written as before.

use super::*;

fn num(v: f64) -> CExpr {
    CExpr::Num(v)
}

/// Two links, a shared pool, a booked pool and an engine; the session loops over everything new.
fn rich() -> Program {
    let mut p = Program { version: VERSION_6, ..Program::empty() };
    p.attrs.extend(["k", "answered", "first"].map(str::to_owned));
    let admission = || CExpr::Ctx(Ctx::Admission);
    p.pools.push(CPool {
        block: Some(16.0),
        shared: true,
        preempt: CPreempt::By { keys: vec![CExpr::Attr(9), admission()], requeue: num(1.0) },
        ..CPool::new("kv", 160.0)
    });
    let keys = vec![CExpr::Unary(Unary::Neg, Box::new(CExpr::Ctx(Ctx::Waited))), num(1.0)];
    p.pools
        .push(CPool { queue: Some(CQueue::Keys { keys, live: true }), ..CPool::new("dst", 100.0) });
    for name in ["out", "in"] {
        p.stages.push(CStage { name: name.into(), kind: CStageKind::Ps(num(1.0)) });
    }
    p.stages.push(CStage {
        name: "engine".into(),
        kind: CStageKind::Step(CStep {
            budget: num(100.0),
            memory: Some(0),
            integral: true,
            ahead: true,
            fenced: true,
            stops: Some(9.0),
            ..CStep::new(num(1.0))
        }),
    });
    p.share = Some(CShare::MaxMin);
    p.gauges.push(CGauge {
        name: "held".into(),
        value: CExpr::Call(Fun::Used, vec![CArg::Pool(CRef::one(0))]),
    });
    p.arrival = Arrival::Rates(vec![Rate(0.5, 0.0), Rate(0.0, 10.0), Rate(1.0, 20.0)]);
    p.limit = Some(10);
    p.horizon = f64::INFINITY;
    p.blocks = vec![
        vec![],
        vec![],
        vec![CStmt::While(CExpr::Attr(9), 3)],
        vec![
            CStmt::Book(0),
            CStmt::Content {
                add: true,
                parts: vec![CSegment(num(1.0), num(16.0)), CSegment(num(7.0), num(f64::INFINITY))],
            },
            CStmt::Hold(CHold {
                binds: vec![Bind(9, num(32.0))],
                when: Some(CExpr::Binary(
                    Binary::Ge,
                    Box::new(CExpr::Call(Fun::Free, vec![CArg::Pool(CRef::one(0))])),
                    Box::new(CExpr::Call(
                        Fun::Taking,
                        vec![CArg::Pool(CRef::one(0)), CArg::Expr(num(16.0))],
                    )),
                )),
                lease: Some((CRef::one(0), num(30.0))),
                lease_on: Some(CRef::one(2)),
                ..CHold::new(vec![Claim(CRef::one(0), CExpr::Attr(9), None)], 4)
            }),
            CStmt::Renew(CRenew {
                pool: CRef::one(0),
                time: num(20.0),
                every: num(5.0),
                from: CRef::one(2),
                after: Some(num(2.0)),
            }),
            CStmt::Until(num(f64::INFINITY), 6, 7),
            CStmt::Hold(CHold {
                booked: Some(0),
                ..CHold::new(vec![Claim(CRef::one(1), num(10.0), None)], 5)
            }),
        ],
        vec![CStmt::Run(CRun {
            growing: Some(CRef::one(0)),
            then: Some(num(4.0)),
            answers: Some(10),
            first: Some(11),
            ..CRun::new(CRef::one(2), RunMode::Prefill, num(16.0))
        })],
        vec![
            CStmt::Run(CRun {
                also: vec![CRef::one(1)],
                ..CRun::new(CRef::one(0), RunMode::Plain, num(3.0))
            }),
            CStmt::Load(CRef::one(1), num(4.0)),
        ],
        vec![CStmt::Shield(8)],
        vec![
            CStmt::Tell(CTell {
                pool: CRef::one(0),
                on: Some(CRef::one(2)),
                after: Some(num(1.0)),
            }),
            CStmt::Abandon(CRef::one(0)),
        ],
        vec![CStmt::Run(CRun {
            telling: Some(CTell { pool: CRef::one(0), on: None, after: None }),
            ..CRun::new(CRef::one(2), RunMode::Steps, num(3.0))
        })],
    ];
    p
}

#[test]
fn everything_new_survives_the_way_through_json() {
    for arrival in [
        rich().arrival,
        Arrival::Renewal(CExpr::Sample(Dist::Exp, vec![num(1.0)])),
        Arrival::Times(vec![0.0, 0.0, 2.5]),
        Arrival::Trace,
    ] {
        let mut p = Program { arrival, ..rich() };
        if !matches!(p.arrival, Arrival::Rates(_) | Arrival::Renewal(_)) {
            p.limit = None;
        }
        if p.arrival == Arrival::Trace {
            p.trace = Some(Trace::Inline(vec![vec![TraceTurn(1.0, 2.0, 0.0, 0.0)]]));
            p.trace_times = vec![1.5];
            p.slo = Some(Slo { ttft: Some(0.5), ..Slo::default() });
            p.trace_content = vec![vec![Content(3, 16.0), Content(4, f64::INFINITY)]];
        }
        assert_eq!(from_json(&to_json(&p)).unwrap(), p);
    }
    let text = serde_json::to_string(&rich()).unwrap();
    for part in [
        r#""version":6"#,
        r#""queue":{"keys":[{"Unary":["Neg",{"Ctx":"Waited"}]},{"Num":1.0}],"live":true}"#,
        r#""arrival":{"Rates":[[0.5,0.0],[0.0,10.0],[1.0,20.0]]},"limit":10"#,
        r#""binds":[[9,{"Num":32.0}]],"when":{"Binary":["Ge",{"Call":["Free""#,
        r#""lease_on":{"base":2,"count":1,"index":null}"#,
        r#"{"Book":0},{"Content":{"add":true,"parts":[[{"Num":1.0},{"Num":16.0}],[{"Num":7.0},{"Num":"inf"}]]}}"#,
        r#""preempt":{"By":{"keys":[{"Attr":9},{"Ctx":"Admission"}],"requeue":{"Num":1.0}}}"#,
        r#""mode":"Prefill","work":{"Num":16.0},"growing":{"base":0,"count":1,"index":null},"then":{"Num":4.0},"answers":10,"first":11"#,
        r#""mode":"Steps","work":{"Num":3.0},"growing":null,"telling":{"pool":{"base":0,"count":1,"index":null}}"#,
        r#"{"Tell":{"pool":{"base":0,"count":1,"index":null},"on":{"base":2,"count":1,"index":null},"after":{"Num":1.0}}}"#,
        r#"{"Renew":{"pool":{"base":0,"count":1,"index":null},"time":{"Num":20.0},"every":{"Num":5.0},"from":{"base":2,"count":1,"index":null},"after":{"Num":2.0}}}"#,
        r#"{"Until":[{"Num":"inf"},6,7]}"#,
        r#"{"Shield":8}"#,
        r#""ahead":true,"fenced":true,"stops":9.0"#,
        r#""booked":0"#,
        r#""also":[{"base":1,"count":1,"index":null}]"#,
        r#""horizon":"inf""#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_prefill_alone_needs_version_6() {
    let mut p = Program::empty();
    for (serve, version) in [(CServe::ExclusivePrefill, VERSION), (CServe::PrefillAlone, VERSION_6)]
    {
        let step = CStep { serve, ..CStep::new(num(1.0)) };
        p.stages = vec![CStage { name: "e".into(), kind: CStageKind::Step(step) }];
        assert_eq!(version_needed(&p), version);
    }
}

/// A queue by one key has the form of version 5.
#[test]
fn a_program_of_version_5_is_written_as_before() {
    let mut p = Program::empty();
    p.pools.push(CPool { queue: Some(CQueue::Key(num(1.0))), ..CPool::new("kv", 8.0) });
    assert_eq!(version_needed(&p), VERSION);
    let text = serde_json::to_string(&p).unwrap();
    assert!(text.contains(r#""queue":{"Num":1.0},"spill":null,"admit_via":null}"#), "{text}");
    p.stages.push(CStage { name: "e".into(), kind: CStageKind::Step(CStep::new(num(1.0))) });
    p.blocks[2] = vec![
        CStmt::Hold(CHold::new(vec![Claim(CRef::one(0), num(1.0), None)], 3)),
        CStmt::Run(CRun::new(CRef::one(0), RunMode::Decode, num(1.0))),
    ];
    p.blocks.push(Vec::new());
    p.arrival = Arrival::Sessions(vec![CSession::default()]);
    p.horizon = 10.0;
    assert_eq!(version_needed(&p), VERSION);
    let text = serde_json::to_string(&p).unwrap();
    for word in [
        "shared",
        "limit",
        "gauges",
        "share",
        "trace_times",
        "trace_content",
        "\"slo\"",
        "binds",
        "also",
        "when",
        "lease_on",
        "booked",
        "then",
        "answers",
        "first",
        "telling",
        "ahead",
        "fenced",
        "stops",
        "\"at\"",
        "content",
    ] {
        assert!(!text.contains(word), "{word} in {text}");
    }
    assert_eq!(from_json(&to_json(&p)).unwrap(), p);
}

#[track_caller]
fn check(change: impl FnOnce(&mut Program), codes: &[&str]) {
    let mut program = rich();
    change(&mut program);
    let found: Vec<_> =
        validate(&program).err().unwrap_or_default().iter().map(|e| e.code).collect();
    assert_eq!(found, codes);
}

fn hold(p: &mut Program, at: usize) -> &mut CHold {
    let CStmt::Hold(hold) = &mut p.blocks[3][at] else { panic!("no hold") };
    hold
}

fn run(p: &mut Program, block: usize) -> &mut CRun {
    let CStmt::Run(run) = &mut p.blocks[block][0] else { panic!("no run") };
    run
}

fn step(p: &mut Program) -> &mut CStep {
    let CStageKind::Step(step) = &mut p.stages[2].kind else { panic!("no step stage") };
    step
}

#[test]
fn what_means_nothing_is_refused() {
    check(|_| {}, &[]);
    check(|p| p.version = 5, &["ir-version"]);
    check(|p| p.version = 7, &["ir-version"]);
    check(|p| p.limit = Some(0), &["arrival"]);
    check(|p| p.limit = None, &["run-horizon"]);
    check(|p| p.arrival = Arrival::Batch(3), &["arrival"]);
    check(|p| p.arrival = Arrival::Rates(vec![Rate(1.0, 5.0), Rate(2.0, 5.0)]), &["arrival"]);
    check(|p| p.arrival = Arrival::Rates(vec![Rate(-1.0, 0.0)]), &["arrival"]);
    check(
        |p| {
            p.limit = None;
            p.arrival = Arrival::Times(vec![2.0, 1.0]);
        },
        &["arrival"],
    );
    check(|p| p.arrival = Arrival::Renewal(CExpr::Attr(3)), &["moment-attr"]);
    let used = || CExpr::Call(Fun::Used, vec![CArg::Pool(CRef::one(0))]);
    check(|p| p.arrival = Arrival::Renewal(used()), &["gap"]);
    check(|p| p.gauges[0].value = CExpr::Ctx(Ctx::Now), &["moment-ctx"]);
    check(
        |p| p.gauges[0].value = CExpr::Call(Fun::Work, vec![CArg::Stage(CRef::one(0))]),
        &["gauge"],
    );
    check(|p| p.gauges.push(p.gauges[0].clone()), &["ir-name"]);
    check(|p| p.share = None, &["share"]);
    check(|p| p.stages[1].kind = CStageKind::Ps(CExpr::Ctx(Ctx::N)), &["run-flow"]);
    check(|p| p.stages[1].kind = CStageKind::Delay, &["run-flow"]);
    check(|p| p.pools[0].block = None, &["pool-shared"]);
    check(|p| p.pools[0].block = Some(1.5), &["pool-shared"]);
    check(|p| p.pools[0].cap = f64::INFINITY, &["pool-shared"]);
    check(|p| p.pools[0].shared = false, &["content"]);
    check(|p| p.pools[1].queue = Some(CQueue::Key(CExpr::Ctx(Ctx::Waited))), &["moment-ctx"]);
    check(|p| p.blocks[3][0] = CStmt::Book(1), &["book", "enter"]);
    check(|p| hold(p, 2).booked = Some(0), &["enter", "enter"]);
    let content = |parts: Vec<CSegment>| {
        move |p: &mut Program| p.blocks[3][1] = CStmt::Content { add: false, parts }
    };
    check(content(vec![]), &["content"]);
    check(content(vec![CSegment(num(0.5), num(1.0))]), &["content"]);
    check(content(vec![CSegment(num(1.0), num(-1.0))]), &["content"]);
    let endless = || CSegment(num(1.0), num(f64::INFINITY));
    check(content(vec![endless(), endless()]), &["content"]);
    check(|p| hold(p, 2).cache = Some(num(1.0)), &["keep-shared"]);
    check(|p| p.blocks[8].push(CStmt::Drop(CRef::one(0))), &["drop-shared"]);
    check(|p| hold(p, 2).pools[0].0 = CRef::one(1), &["taking", "outside-hold", "lease-pool"]);
    check(
        |p| {
            let taking = hold(p, 2).when.clone().expect("a condition");
            p.blocks[8].push(CStmt::Set(9, taking));
        },
        &["taking"],
    );
    check(
        |p| hold(p, 2).lease = None,
        &["lease-on", "lease-none", "lease-none", "lease-none", "lease-none"],
    );
    check(|p| hold(p, 2).lease_on = None, &["lease-on"]);
    check(|p| hold(p, 2).lease_on = Some(CRef::one(1)), &["lease-on"]);
    check(|p| hold(p, 2).lease = Some((CRef::one(0), num(f64::INFINITY))), &["abandon"]);
    check(
        |p| {
            if let CStmt::Tell(tell) = &mut p.blocks[7][0] {
                tell.on = None;
            }
        },
        &["lease-on"],
    );
    check(|p| step(p).ahead = false, &["step-fenced"]);
    check(|p| step(p).stops = Some(-1.0), &["step-stops"]);
    check(|p| run(p, 8).mode = RunMode::Decode, &["run-steps"]);
    check(|p| run(p, 8).answers = Some(9), &["run-answers"]);
    check(|p| run(p, 4).mode = RunMode::Decode, &["run-then"]);
    check(|p| run(p, 4).first = Some(10), &["run-answers"]);
    check(|p| run(p, 4).answers = Some(4), &["run-answers"]);
    check(
        |p| p.pools[1].spill = Some(CSpill { to: 0, via: 0, work: num(1.0), when: num(1.0) }),
        &["pool-shared"],
    );
    let sessions = |all: Vec<CSession>| {
        move |p: &mut Program| {
            p.limit = None;
            p.arrival = Arrival::Sessions(all);
        }
    };
    let at = |at: f64| CSession { at, ..CSession::default() };
    check(sessions(vec![at(0.0), at(2.0), at(2.0)]), &[]);
    check(sessions(vec![at(2.0), at(1.0)]), &["arrival"]);
    check(sessions(vec![at(f64::INFINITY)]), &["arrival"]);
    let chain = |content: Vec<Content>| CSession { content, ..CSession::default() };
    check(sessions(vec![chain(vec![Content(u64::MAX, 3.0), Content(0, f64::INFINITY)])]), &[]);
    check(sessions(vec![chain(vec![Content(0, f64::INFINITY), Content(1, 1.0)])]), &["content"]);
    check(sessions(vec![chain(vec![Content(0, 1.5)])]), &["content"]);
    let recorded = |content: Vec<Vec<Content>>| {
        move |p: &mut Program| {
            p.limit = None;
            p.arrival = Arrival::Trace;
            p.trace = Some(Trace::Inline(vec![vec![TraceTurn(9.0, 1.0, 0.0, 0.0)]; 2]));
            p.trace_times = vec![0.0, 1.0];
            p.trace_content = content;
        }
    };
    let own = || vec![Content(1, f64::INFINITY)];
    check(recorded(vec![own(), vec![Content(1, 8.0), Content(2, 3.0)]]), &[]);
    check(recorded(vec![own()]), &["content"]);
    check(|p| p.slo = Some(Slo { tpot: Some(0.1), ..Slo::default() }), &[]);
    check(|p| p.slo = Some(Slo { itl: Some(f64::INFINITY), ..Slo::default() }), &["slo"]);
    check(recorded(vec![own(), vec![Content(1, 0.5)]]), &["content"]);
    check(|p| p.blocks[2][0] = CStmt::While(num(0.5), 3), &["guard"]);
    check(
        |p| {
            for block in [4, 5, 8] {
                p.blocks[block].remove(0);
            }
        },
        &["loop-instant"],
    );
    check(
        |p| {
            hold(p, 2).binds[0].0 = 3;
        },
        &["bind"],
    );
}
