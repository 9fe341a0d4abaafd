use super::*;

/// One pool, one stage of each kind, every statement.
fn rich() -> Program {
    let num = CExpr::Num;
    let mut p = Program::empty();
    p.attrs.push("k".into());
    p.observes.push("x".into());
    p.pools.push(CPool { block: Some(16.0), ..CPool::new("kv", 160.0) });
    p.pools.push(CPool { admit_via: Some(0), ..CPool::new("slots", f64::INFINITY) });
    p.stages.push(CStage {
        name: "engine".into(),
        kind: CStageKind::Step(CStep {
            budget: num(100.0),
            serve: CServe::By(vec![CExpr::Ctx(Ctx::Decoding)]),
            memory: Some(0),
            ..CStep::new(CExpr::Binary(
                Binary::Add,
                Box::new(num(1.0)),
                Box::new(CExpr::Ctx(Ctx::Ntok)),
            ))
        }),
    });
    p.stages.push(CStage { name: "tool".into(), kind: CStageKind::Delay });
    p.arrival = Arrival::Poisson(0.5);
    p.blocks = vec![
        vec![CStmt::Set(9, CExpr::Sample(Dist::Exp, vec![num(3.0)]))],
        vec![],
        vec![CStmt::Loop(3)],
        vec![
            CStmt::Turn,
            CStmt::Hold(CHold {
                reuse: Some(num(16.0)),
                cache: Some(num(48.0)),
                lease: Some((CRef::one(0), num(f64::INFINITY))),
                ..CHold::new(
                    vec![
                        Claim(CRef::one(1), num(1.0), None),
                        Claim(CRef::one(0), CExpr::Attr(9), Some(num(32.0))),
                    ],
                    4,
                )
            }),
            CStmt::Release(CRef::one(0)),
            CStmt::Branch(CExpr::Attr(6), 5, 6),
        ],
        vec![
            CStmt::Run(CRun {
                growing: Some(CRef::one(0)),
                ..CRun::new(
                    CRef::one(0),
                    RunMode::Prefill,
                    CExpr::Call(Fun::Max, vec![CArg::Expr(num(1.0)), CArg::Expr(CExpr::Attr(9))]),
                )
            }),
            CStmt::Load(CRef::one(0), num(0.0)),
        ],
        vec![CStmt::Run(CRun::new(CRef::one(1), RunMode::Plain, num(2.0)))],
        vec![CStmt::End],
    ];
    p.horizon = 10.0;
    p
}

#[test]
fn a_program_survives_the_way_through_json() {
    let program = rich();
    let text = to_json(&program);
    assert_eq!(from_json(&text).unwrap(), program);
    for part in [
        "\"format\": \"serq-tl\"",
        "\"version\": 5",
        "\"slot_computed\": 8",
        "\"inf\"",
        "\"Lru\"",
        "\"Delay\"",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let compact = serde_json::to_string(&program.blocks[4][0]).unwrap();
    assert_eq!(
        compact,
        r#"{"Run":{"stage":{"base":0,"count":1,"index":null},"mode":"Prefill","work":{"Call":["Max",[{"Expr":{"Num":1.0}},{"Expr":{"Attr":9}}]]},"growing":{"base":0,"count":1,"index":null}}}"#
    );
    let cost = serde_json::to_string(&program.stages[0].kind).unwrap();
    assert!(cost.contains(r#"{"Binary":["Add",{"Num":1.0},{"Ctx":"Ntok"}]}"#), "{cost}");
}

/// Takes the runs out of the loop.
fn instant(p: &mut Program) {
    p.blocks[4].remove(0);
    p.blocks[5].clear();
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
fn what_is_wrong_is_named() {
    check(|_| {}, &[]);
    check(|p| p.version = 4, &["ir-version"]);
    check(|p| p.horizon = f64::INFINITY, &["run-horizon"]);
    check(|p| p.warmup = 10.0, &["run-warmup"]);
    check(|p| p.slots.computed = 99, &["ir-index"]);
    check(|p| p.slots.computed = 0, &["ir-name"]);
    check(|p| p.pools[0].cap = f64::NAN, &["pool-cap"]);
    check(|p| p.pools[0].block = Some(0.0), &["pool-block"]);
    check(|p| p.pools[1].admit_via = Some(1), &["admit-via"]);
    check(|p| p.pools[1].admit_via = Some(7), &["ir-index"]);
    check(|p| p.pools[0].queue = Some(CQueue::Key(CExpr::Ctx(Ctx::Ntok))), &["moment-ctx"]);
    check(
        |p| p.stages[0].kind = CStageKind::Ps(CExpr::Attr(0)),
        &["admit-via", "moment-attr", "run-mode", "run-growing"],
    );
}

#[test]
fn spilled_units_come_to_rest() {
    let spill = |p: &mut Program, from: usize, to: usize| {
        let work = || CExpr::Num(1.0);
        p.pools[from].spill = Some(CSpill { to, via: 1, work: work(), when: work() });
    };
    check(|p| spill(p, 0, 1), &[]);
    check(|p| spill(p, 0, 0), &["spill"]);
    check(
        |p| {
            spill(p, 0, 1);
            spill(p, 1, 0);
        },
        &["spill", "spill"],
    );
    check(
        |p| {
            spill(p, 0, 1);
            if let Some(s) = &mut p.pools[0].spill {
                s.via = 0;
            }
        },
        &["spill"],
    );
}

#[test]
fn statements_are_judged_where_they_stand() {
    check(|p| p.blocks[0].push(CStmt::End), &["workload-stmt"]);
    check(|p| p.blocks[2].push(CStmt::Loop(3)), &["block-shared"]);
    check(|p| p.blocks[4].push(CStmt::Loop(2)), &["block-shared"]);
    check(|p| p.blocks[2].insert(0, CStmt::Load(CRef::one(0), CExpr::Num(1.0))), &["outside-hold"]);
    check(|p| p.blocks[2].insert(0, CStmt::Release(CRef::one(1))), &["outside-hold"]);
    check(|p| p.blocks[2].insert(0, CStmt::Release(CRef::one(0))), &[]);
    check(|p| p.blocks[3][3] = CStmt::Branch(CExpr::Num(0.5), 5, 6), &["guard"]);
    check(|p| p.blocks[5].clear(), &[]);
    check(instant, &["loop-instant"]);
    check(|p| p.hidden = vec![9], &["hidden"]);
    check(|p| p.hidden = vec![0], &["hidden"]);
    let hold = |p: &mut Program, change: fn(&mut CHold)| {
        if let CStmt::Hold(h) = &mut p.blocks[3][1] {
            change(h);
        }
    };
    check(|p| hold(p, |h| h.pools[1].1 = CExpr::Num(161.0)), &["hold-cap"]);
    check(|p| hold(p, |h| h.pools[0].0 = CRef::one(0)), &["hold-twice"]);
    check(
        |p| hold(p, |h| h.lease = Some((CRef::one(2), CExpr::Num(1.0)))),
        &["ir-index", "outside-hold"],
    );
    check(
        |p| hold(p, |h| h.reuse = Some(CExpr::Sample(Dist::Exp, vec![CExpr::Num(1.0)]))),
        &["draw"],
    );
}

#[test]
fn an_index_keeps_its_meaning_inside_the_hold() {
    let family = |p: &mut Program, slot_set: Slot| {
        let member = CRef::member(0, 2, CExpr::Attr(9));
        if let CStmt::Hold(h) = &mut p.blocks[3][1] {
            h.pools = vec![Claim(member.clone(), CExpr::Num(1.0), None)];
            h.lease = None;
        }
        p.blocks[3].remove(2);
        p.blocks[4] =
            vec![CStmt::Set(slot_set, CExpr::Num(1.0)), CStmt::Load(member, CExpr::Num(0.0))];
    };
    check(|p| family(p, 3), &[]);
    check(|p| family(p, 9), &["index-changed"]);
}

#[test]
fn the_reader_refuses_and_never_falls() {
    let code = |text: &str| from_json(text).unwrap_err()[0].code;
    assert_eq!(code("{"), "ir-json");
    assert_eq!(code("{}"), "ir-format");
    assert_eq!(code(r#"{"format":"serq-tl"}"#), "ir-version");
    assert_eq!(code(r#"{"format":"serq-tl","version":5}"#), "ir-json");
    assert_eq!(code(&"[".repeat(1_000_000)), "ir-depth");
    let good = to_json(&rich());
    for cut in 0..good.len() {
        assert!(from_json(&good[..cut]).is_err() || cut + 1 == good.len(), "cut at {cut}");
    }
}

#[test]
fn the_deepest_expression_is_read_and_one_deeper_is_not() {
    let nested = |depth: usize| {
        let mut p = rich();
        let mut e = CExpr::Num(1.0);
        for _ in 1..depth {
            e = CExpr::Call(Fun::Min, vec![CArg::Expr(CExpr::Num(2.0)), CArg::Expr(e)]);
        }
        p.blocks[0][0] = CStmt::Set(9, e);
        p
    };
    let deepest = nested(MAX_EXPR_DEPTH);
    assert_eq!(from_json(&to_json(&deepest)).unwrap(), deepest);
    assert_eq!(validate(&nested(MAX_EXPR_DEPTH + 1)).unwrap_err()[0].code, "expr-depth");
}

#[test]
fn numbers_keep_every_bit() {
    for v in [0.1, 1.0 / 3.0, 4.9e-324, 1.797_693_134_862_315_7e308, 123_456_789.123_456_78] {
        let text = serde_json::to_string(&CExpr::Num(v)).unwrap();
        let back: CExpr = serde_json::from_str(&text).unwrap();
        assert_eq!(back, CExpr::Num(v), "{text}");
    }
}

#[test]
fn positions_name_the_source() {
    let mut p = rich();
    instant(&mut p);
    p.spans = Some(Spans {
        files: vec!["a.sq".into()],
        blocks: vec![vec![], vec![], vec![Span(0, 7, 3)]],
        ..Spans::default()
    });
    let errors = validate(&p).unwrap_err();
    assert_eq!(errors[0].place.as_ref().unwrap().to_string(), "a.sq:7:3");
}
