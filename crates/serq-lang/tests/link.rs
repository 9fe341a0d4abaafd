//! What text means: sugar equals what it stands for, names resolve as they should, constants fold,
//! families pair, overrides override.

mod common;

use common::{linked, without_spans};
use serq_lang::compile;
use serq_lang::diag::{render_all, to_json};
use serq_lang::ir::{
    Arrival, Binary, CArg, CExpr, CRef, CServe, CStageKind, CStmt, Ctx, Dist, Fun, Program, Trace,
    Unary,
};

/// Two programs that must have the same representation.
fn same(a: &str, b: &str) {
    assert_eq!(without_spans(linked("a.sq", a)), without_spans(linked("b.sq", b)), "{a}\nand\n{b}");
}

const POOLS: &str = "\
pool a { cap 100; }
pool kv[2] { cap 100; admit via e; }
pool slots { cap 4; admit via e; }
stage e : step { budget 10; cost 1; memory a; }
stage link[2] : ps(1);
stage tool : delay;
";

/// A client and a server with this body.
fn server(body: &str) -> String {
    format!(
        "{POOLS}workload {{ arrive poisson(1); session {{ turn; request; }} }}\n\
         server {{ {body} }}\nrun {{ horizon 10; }}\n"
    )
}

/// A session with this body.
fn session(body: &str) -> String {
    format!(
        "{POOLS}workload {{ arrive poisson(1); }}\nsession {{ {body} }}\nrun {{ horizon 10; }}\n"
    )
}

#[test]
fn sugar_is_what_it_stands_for() {
    let pairs = [
        // enter and admit are hold; keep is cache.
        ("enter a (3) { run tool (1); } keep (2);", "hold a (3) { run tool (1); } cache (2)"),
        ("hold a (3) { run tool (1); } keep (2);", "hold a (3) { run tool (1); } cache (2);"),
        // Bindings are put in, later ones with earlier ones in them.
        (
            "hold a (u) reserve (v) reuse (u) at admission (u = serial + 1, v = u * 2) { run tool (1); } cache (v)",
            "hold a (serial + 1) reserve ((serial + 1) * 2) reuse (serial + 1) { run tool (1); } cache ((serial + 1) * 2)",
        ),
        // A binding hides an attribute of its name in the header, and not in the body.
        (
            "set u = 5; hold a (u) at admission (u = u + 1) { run tool (u); }",
            "set u = 5; hold a (u + 1) { run tool (u); }",
        ),
        // Roles.
        ("prefill 5;", "run e prefill (5);"),
        ("decode 5;", "run e decode (5);"),
        ("decode on e (5);", "run e decode (5);"),
        ("tool ~exp(3);", "run tool (~exp(3));"),
        ("transfer[1] 5;", "run link[1] (5);"),
        ("set j = 1; transfer on link[j] (5);", "set j = 1; run link[j] (5);"),
        ("hold a (9) { prefill (5) growing a; }", "hold a (9) { run e prefill (5) growing a; }"),
        (
            "set j = 0; hold a (5) { run tool (1); } lease a (9); hold kv[j] (7) { transfer[j] (1) from a to kv[j] (4); }",
            "set j = 0; hold a (5) { run tool (1); } lease a (9); hold kv[j] (7) { run link[j] (1); load kv[j] (4); release a; }",
        ),
        (
            "branch with (0.25) { run tool (1); }",
            "branch (~bernoulli(0.25)) { run tool (1); } else { }",
        ),
        // A member by a constant is that member, and a single pool is a family of one.
        (
            "hold a[0] (5) { run tool (1); load a (2); }",
            "hold a (5) { run tool (1); load a[1 - 1] (2); }",
        ),
        ("run tool (1.0e1);", "run tool (10);"),
    ];
    for (sugar, kernel) in pairs {
        let close = |s: &str| if s.ends_with([';', '}']) { s.to_owned() } else { format!("{s};") };
        let (sugar, kernel) = (close(sugar), close(kernel));
        same(&session(&sugar), &session(&kernel));
    }
    let clients = [(
        "admit if slots (1), kv[0] (u) reserve (9) fit reuse (4) where u = 2 { run e prefill (1); } keep (3) lease kv[0] (inf);",
        "hold slots (1), kv[0] (2) reserve (9) reuse (4) { run e prefill (1); } cache (3) lease kv[0] (inf);",
    )];
    for (sugar, kernel) in clients {
        same(&server(sugar), &server(kernel));
    }
}

#[test]
fn a_server_is_put_where_it_is_requested() {
    let head = format!("{POOLS}workload {{ arrive poisson(1); ");
    let pair = format!(
        "{head} session {{ turn; request; loop {{ turn; enter slots (1) {{ request; }} }} }} }}\n\
         server {{ set t = now; hold a (2) {{ prefill 3; }} }}\nrun {{ horizon 10; }}\n"
    );
    let flat = format!(
        "{head} }}\nsession {{ turn; set t = now; hold a (2) {{ prefill 3; }} \
         loop {{ turn; enter slots (1) {{ set t = now; hold a (2) {{ prefill 3; }} }} }} }}\n\
         run {{ horizon 10; }}\n"
    );
    same(&pair, &flat);
}

/// The value that `set x = ...` is given.
fn value(expression: &str) -> CExpr {
    let program =
        linked("e.sq", &session(&format!("set y = 1; set x = {expression}; run tool (1);")));
    match &program.blocks[program.session][1] {
        CStmt::Set(_, e) => e.clone(),
        other => panic!("{other:?}"),
    }
}

fn attr(program: &Program, name: &str) -> CExpr {
    CExpr::Attr(program.attrs.iter().position(|n| n == name).expect("an attribute"))
}

#[test]
fn precedence_and_folding() {
    let num = |text: &str, want: f64| assert_eq!(value(text), CExpr::Num(want), "{text}");
    num("1 + 2 * 3", 7.0);
    num("(1 + 2) * 3", 9.0);
    num("10 - 2 - 3", 5.0);
    num("24 / 4 / 2", 3.0);
    num("-2 ^ 2", -4.0);
    num("(-2) ^ 2", 4.0);
    num("2 ^ -1", 0.5);
    num("2 ^ 3 + 1", 9.0);
    num("!0 + 1", 2.0);
    num("1 < 2 && 2 < 1 || 1", 1.0);
    num("1 || 0 && 0", 1.0);
    num("1 + 1 == 2", 1.0);
    num("0 ? 1 : 0 ? 2 : 3", 3.0);
    num("1 ? 0 ? 4 : 5 : 6", 5.0);
    num("min(3, max(1, 2))", 2.0);
    num("floor(2.5) + ceil(2.5) + abs(-1)", 6.0);
    num("pow(2, 10) + sqrt(9) + exp(0) + ln(1)", 1028.0);
    num("1 / 0", f64::INFINITY);
    num("inf > 3", 1.0);
    num("0.1 + 0.2", 0.1 + 0.2);
    // A constant guard takes its arm, and what is not constant stays as it was written.
    let y = || {
        let program = linked("e.sq", &session("set y = 1; set x = y; run tool (1);"));
        attr(&program, "y")
    };
    assert_eq!(value("1 ? y : ~exp(1)"), y());
    let pair = |op, a, b| CExpr::Binary(op, Box::new(a), Box::new(b));
    assert_eq!(
        value("y * (2 + 3) - 1"),
        pair(Binary::Sub, pair(Binary::Mul, y(), CExpr::Num(5.0)), CExpr::Num(1.0))
    );
    assert_eq!(
        value("-y ^ 2"),
        CExpr::Unary(Unary::Neg, Box::new(pair(Binary::Pow, y(), CExpr::Num(2.0))))
    );
    assert_eq!(
        value("2 * ~uniform(0, 1 + 1)"),
        pair(
            Binary::Mul,
            CExpr::Num(2.0),
            CExpr::Sample(Dist::Uniform, vec![CExpr::Num(0.0), CExpr::Num(2.0)])
        )
    );
    assert_eq!(value("now"), CExpr::Ctx(Ctx::Now));
    assert_eq!(
        value("used(kv[y])"),
        CExpr::Call(Fun::Used, vec![CArg::Pool(CRef::member(1, 2, y()))])
    );
    assert_eq!(value("work(link[1])"), CExpr::Call(Fun::Work, vec![CArg::Stage(CRef::one(2))]));
}

#[test]
fn families_pair_member_by_member() {
    let text = "\
let N = 3;
pool q[N] { admit via e; spill tier via wire (1) when (1); }
pool kv[N] { }
pool tier { }
stage wire[N] : ps(1);
stage e[N] : step { cost 1; memory kv; serve decode first; }
stage one : step { cost 1; memory tier; serve exclusive prefill; }
workload { arrive closed(4); }
session { set i = 1; hold q[i] (1) { prefill on e[i] (5); } }
run { horizon 10; warmup 2; seed 7; }
";
    let program = linked("f.sq", text);
    let names: Vec<&str> = program.pools.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["q", "q", "q", "kv", "kv", "kv", "tier"]);
    for member in 0..3 {
        assert_eq!(program.pools[member].admit_via, Some(3 + member));
        let spill = program.pools[member].spill.as_ref().expect("a spill");
        assert_eq!((spill.to, spill.via), (6, member));
        let CStageKind::Step(step) = &program.stages[3 + member].kind else { panic!("a step") };
        assert_eq!(step.memory, Some(3 + member));
        let first = CExpr::Cond(
            Box::new(CExpr::Ctx(Ctx::Decoding)),
            Box::new(CExpr::Num(0.0)),
            Box::new(CExpr::Num(1.0)),
        );
        assert_eq!(step.serve, CServe::By(vec![first]));
        assert_eq!(step.budget, CExpr::Num(f64::INFINITY));
        assert_eq!(step.chunk, CExpr::Num(0.0));
    }
    let CStageKind::Step(step) = &program.stages[6].kind else { panic!("a step") };
    assert_eq!(step.serve, CServe::ExclusivePrefill);
    assert_eq!(program.arrival, Arrival::Closed(4));
    assert_eq!((program.horizon, program.warmup, program.seed), (10.0, 2.0, 7));
}

#[test]
fn names_of_the_workload() {
    let text = "\
stage s : fifo;
workload {
  arrive batch(2);
  trace \"a.csv\" ordered;
  init { set K = 0; }
  turn { set prompt = K + new; }
  hidden out, prompt;
}
session { turn; run s (prompt + out); observe b = 1; observe a = 2; observe b = 3; }
run { horizon 10; }
";
    let program = linked("w.sq", text);
    assert_eq!(program.attrs[9..], ["K", "prompt"]);
    assert_eq!(program.observes, ["b", "a"]);
    assert_eq!(program.hidden, [4, 10]);
    assert_eq!(program.trace, Some(Trace::File("a.csv".to_owned())));
    assert!(program.trace_ordered);
    let spans = program.spans.as_ref().expect("positions");
    assert_eq!(spans.statement(program.session, 1).expect("known").to_string(), "w.sq:9:17");
    assert_eq!(spans.stage(0).expect("known").to_string(), "w.sq:1:7");
}

#[test]
fn overrides_take_the_place_of_values() {
    let text = "\
let base = 2;
pool p[members] { cap base * 10; }
let members = base + 1;
stage s : fifo;
workload { arrive poisson(base); }
session { hold p[0] (1) { run s (1); } }
run { horizon members; }
";
    let with = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|&s| s.to_owned()).collect();
        let compiled = compile("o.sq", text.as_bytes(), &sets);
        let shown = render_all(&compiled.diagnostics, &compiled.sources);
        let program = compiled.program.unwrap_or_else(|| panic!("{shown}"));
        (program.pools.len(), program.pools[0].cap, program.arrival, program.horizon)
    };
    assert_eq!(with(&[]), (3, 20.0, Arrival::Poisson(2.0), 3.0));
    assert_eq!(with(&["base=4"]), (5, 40.0, Arrival::Poisson(4.0), 5.0));
    assert_eq!(with(&["members = base * 2"]), (4, 20.0, Arrival::Poisson(2.0), 4.0));
    assert_eq!(with(&["members=1", "base=1/4"]), (1, 2.5, Arrival::Poisson(0.25), 1.0));
}

/// A message is a text that people read: all of it, once.
#[test]
fn messages() {
    let check = |text: &str, sets: &[&str], want: &str| {
        let sets: Vec<String> = sets.iter().map(|&s| s.to_owned()).collect();
        let compiled = compile("m.sq", text.as_bytes(), &sets);
        assert_eq!(render_all(&compiled.diagnostics, &compiled.sources), want);
    };
    let good = "stage s : fifo;\nworkload { arrive poisson(1); }\nsession { run s (1); }\nrun { horizon 10; }\n";
    check(
        &good.replace("run s (1)", "run\tt (\u{e9}t\u{e9} + 1)"),
        &[],
        "\
error[E0302]: unknown stage `t`
 --> m.sq:3:15
  |
3 | session { run t (\u{e9}t\u{e9} + 1); }
  |               ^

error[E0303]: unknown name `\u{e9}t\u{e9}`
 --> m.sq:3:18
  |
3 | session { run t (\u{e9}t\u{e9} + 1); }
  |                  ^^^
  = help: a name is a `let`, or an attribute that some `set` assigns

2 errors
`serq explain E0302` says more
",
    );
    check(
        &format!("let rate = 1;\n{}", good.replace("poisson(1)", "poisson(rate)")),
        &["rate=0 - 1"],
        "\
error[E0408]: arrivals at a rate of -1
 --> m.sq:3:27
  |
3 | workload { arrive poisson(rate); }
  |                           ^^^^
  = help: the rate is in sessions per second, above 0; `arrive none;` for none

1 error
`serq explain E0408` says more
",
    );
    check(
        &format!("stage s : delay;\n{good}"),
        &[],
        "\
error[E0306]: a second stage `s`
 --> m.sq:2:7
  |
2 | stage s : fifo;
  |       ^
 ::: m.sq:1:7
  |
1 | stage s : delay;
  |       - first declared here
  = help: give it another name

1 error
`serq explain E0306` says more
",
    );
    check(
        &format!("let rate = 1;\n{}", good.replace("poisson(1)", "poisson(rate)")),
        &["rate=2 * (mu"],
        "\
error[E0105]: expected `)`, found the end of the text
 --> --set:1:13
  |
1 | rate=2 * (mu
  |             ^

1 error
`serq explain E0105` says more
",
    );
}

#[test]
fn findings_as_data() {
    let text = "stage desk : fifo;\nworkload { arrive poisson(1); }\nsession { run dsk (1); }\nrun { horizon 10; }\n";
    let compiled = compile("d.sq", text.as_bytes(), &[]);
    let json = to_json(&compiled.diagnostics, &compiled.sources);
    let want = serde_json::json!([{
        "code": "E0302",
        "severity": "error",
        "message": "unknown stage `dsk`",
        "primary": {
            "file": "d.sq", "line": 3, "column": 15, "end_line": 3, "end_column": 18,
            "offset": 65, "length": 3, "text": ""
        },
        "labels": [],
        "help": ["did you mean `desk`?"],
        "suggestion": {
            "file": "d.sq", "line": 3, "column": 15, "end_line": 3, "end_column": 18,
            "offset": 65, "length": 3, "replacement": "desk"
        }
    }]);
    assert_eq!(json, want);
}

#[test]
fn files_that_are_no_text() {
    let check = |bytes: &[u8], code: &str, line: u32| {
        let compiled = compile("f.sq", bytes, &[]);
        assert!(compiled.program.is_none());
        let d = &compiled.diagnostics[0];
        assert_eq!((d.code.as_str(), compiled.sources.start(d.primary.span).line), (code, line));
        render_all(&compiled.diagnostics, &compiled.sources);
    };
    check(b"let a = 1;\nlet b = \xff;\n", "E0001", 2);
    check(&vec![b' '; (4 << 20) + 1], "E0002", 1);
}
