//! Version 6: what it adds survives JSON, is refused where it means nothing, and a program that
//! uses none of it is written as before.

use super::*;

fn num(v: f64) -> CExpr {
    CExpr::Num(v)
}

/// Two links, a shared pool, a booked pool and an engine; the session loops over everything new.
fn rich() -> Program {
    let mut p = Program { version: VERSION_6, ..Program::empty() };
    p.attrs.push("k".into());
    p.pools.push(CPool { block: Some(16.0), shared: true, ..CPool::new("kv", 160.0) });
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
            cost: num(1.0),
            chunk: num(0.0),
            serve: CServe::By(Vec::new()),
            memory: Some(0),
            integral: true,
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
            CStmt::Book(vec![Claim(CRef::one(1), num(10.0), None)]),
            CStmt::Hold(CHold {
                pools: vec![Claim(CRef::one(0), CExpr::Attr(9), None)],
                reuse: None,
                body: 4,
                cache: None,
                lease: None,
                binds: vec![Bind(9, num(32.0))],
                names: vec![CSegment(num(1.0), num(16.0)), CSegment(num(7.0), num(64.0))],
            }),
            CStmt::Enter(CEnter {
                pool: CRef::one(1),
                reuse: None,
                body: 5,
                cache: None,
                lease: None,
            }),
        ],
        vec![],
        vec![
            CStmt::Run(CRun {
                stage: CRef::one(0),
                mode: RunMode::Plain,
                work: num(3.0),
                growing: None,
                also: vec![CRef::one(1)],
            }),
            CStmt::Load(CRef::one(1), num(4.0)),
        ],
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
        }
        assert_eq!(from_json(&to_json(&p)).unwrap(), p);
    }
    let text = serde_json::to_string(&rich()).unwrap();
    for part in [
        r#""version":6"#,
        r#""queue":{"keys":[{"Unary":["Neg",{"Ctx":"Waited"}]},{"Num":1.0}],"live":true}"#,
        r#""arrival":{"Rates":[[0.5,0.0],[0.0,10.0],[1.0,20.0]]},"limit":10"#,
        r#""binds":[[9,{"Num":32.0}]],"names":[[{"Num":1.0},{"Num":16.0}],[{"Num":7.0},{"Num":64.0}]]"#,
        r#""also":[{"base":1,"count":1,"index":null}]"#,
        r#""horizon":"inf""#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
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
    for word in ["shared", "limit", "gauges", "share", "trace_times", "binds", "names", "also"] {
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
    check(|p| p.pools[0].shared = false, &["names"]);
    check(|p| p.pools[1].queue = Some(CQueue::Key(CExpr::Ctx(Ctx::Waited))), &["moment-ctx"]);
    check(|p| p.blocks[3][0] = CStmt::Book(vec![]), &["hold-empty", "enter"]);
    check(
        |p| p.blocks[3][0] = CStmt::Book(vec![Claim(CRef::one(0), num(1.0), None)]),
        &["book-shared", "enter"],
    );
    check(|p| p.blocks[2][0] = CStmt::While(num(0.5), 3), &["guard"]);
    check(
        |p| {
            p.blocks[5].remove(0);
        },
        &["loop-instant"],
    );
    check(
        |p| {
            if let CStmt::Hold(h) = &mut p.blocks[3][1] {
                h.binds[0].0 = 3;
            }
        },
        &["bind"],
    );
}
