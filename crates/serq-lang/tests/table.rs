//! Tables: from points in the text and from files of others to the points of the program; what is wrong in
//! a file is refused at its place in the file.

mod common;

use common::linked;
use serq_lang::diag::render_all;
use serq_lang::fmt::format;
use serq_lang::ir::{self, CExpr, CStageKind, CStmt, CTable, Outside, VERSION_6};
use serq_lang::{Compiled, Used, compile_with};

const REST: &str = "
stage s : fifo;
workload { arrive poisson(1); }
session { run s (1); }
run { horizon 10; }
";

fn with_file(table: &str, file: &'static str) -> Compiled {
    let mut reads = 0;
    let compiled =
        compile_with("p.sq", format!("{table}{REST}").as_bytes(), &[], &mut |from, path| {
            assert_eq!((from, path), ("p.sq", "k.csv"));
            reads += 1;
            Ok(Used { name: "k.csv".to_owned(), text: file.into() })
        });
    assert_eq!(reads, 1, "a file is read once");
    compiled
}

fn tables(compiled: Compiled) -> Vec<CTable> {
    let shown = render_all(&compiled.diagnostics, &compiled.sources);
    compiled.program.unwrap_or_else(|| panic!("{shown}")).tables
}

const KERNELS: &str = "\
layer,batch, tokens ,time_us,note
qkv,1,16,30,x
mlp,1,16,100,x
qkv,1,1,10,-
qkv,2,16,60,x\r

mlp,1,1,50,x
";

#[test]
fn columns_rows_and_units_are_chosen() {
    let text = r#"table qkv(batch, tokens) from "k.csv" value time_us in us where layer = "qkv" outside clamp;
table one(tokens) from "k.csv" value time_us where layer = "mlp", batch = 1;"#;
    let [qkv, one] = &tables(with_file(text, KERNELS))[..] else { panic!("two tables") };
    let points = [[1.0, 1.0, 10.0 / 1e6], [1.0, 16.0, 30.0 / 1e6], [2.0, 16.0, 60.0 / 1e6]];
    assert_eq!(qkv.points, points);
    assert_eq!(
        (&qkv.axes[..], qkv.outside),
        (&["batch".to_owned(), "tokens".to_owned()][..], Outside::Clamp)
    );
    assert_eq!(one.points, [[1.0, 50.0], [16.0, 100.0]]);
}

#[test]
fn what_is_wrong_in_a_file_has_a_place() {
    const T: &str = r#"table t(tokens) from "k.csv" value time_us where layer = "qkv";"#;
    let check = |table: &str, file: &'static str, place: &str, words: &str| {
        let compiled = with_file(table, file);
        let shown = render_all(&compiled.diagnostics, &compiled.sources);
        assert!(compiled.program.is_none());
        assert!(shown.contains(place) && shown.contains(words), "{shown}");
    };
    check(T, "layer,tokens,time_us\nqkv,1,nan\n", "k.csv:2:7", "`nan` as `time_us`");
    check(T, "layer,tokens,time_us\nqkv,1,\n", "k.csv:2:7", "`` as `time_us`");
    check(T, "layer,tokens,time_us\nqkv,1,2\nqkv,inf,3\n", "k.csv:3:5", "`inf` as `tokens`");
    check(T, "layer,tokens,time_us\nqkv,1\n", "k.csv:2:1", "a row of 2 fields");
    check(T, "layer,tokens,time_us\nqkv,1,2\nqkv,1.0,3\n", "k.csv:3:1", "a second point (1)");
    check(T, "layer,tokens,time_ms\nqkv,1,2\n", "p.sq:1:36", "no column `time_us`");
    check(T, "layer,tokens,time_us\nmlp,1,2\n", "p.sq:1:22", "`layer` is one of: mlp");
    check(T, "", "p.sq:1:9", "no column `tokens`");
}

/// Five lines that are wrong are enough to see it.
#[test]
fn a_wrong_column_is_no_flood() {
    let mut file = String::from("tokens,time_us\n");
    (0..100).for_each(|k| file.push_str(&format!("{k},x\n")));
    let compiled = with_file(
        r#"table t(tokens) from "k.csv" value time_us;"#,
        Box::leak(file.into_boxed_str()),
    );
    assert_eq!(compiled.diagnostics.len(), 5);
}

const HERE: &str = "
table dense(tokens) in ms { 512: 3.5, 1: 0.5, 16: 1 }
table two(a, b) { (1, -1): 2, (1, 1): 4 }
let base = dense(1) + two(1, 0);
stage e : step { cost dense(ntok) + base; };
workload { arrive poisson(1); }
session { run e decode (3); }
run { horizon 10; }
";

#[test]
fn points_stand_in_the_text_and_calls_in_expressions() {
    let program = linked("t.sq", HERE);
    assert_eq!(program.version, VERSION_6);
    assert_eq!(program.tables[0].points, [[1.0, 0.5e-3], [16.0, 1e-3], [512.0, 3.5e-3]]);
    let CStageKind::Step(step) = &program.stages[0].kind else { panic!("an engine") };
    let CExpr::Binary(_, call, base) = &step.cost else { panic!("{:?}", step.cost) };
    assert!(matches!(&**call, CExpr::Table(0, args) if args.len() == 1), "{call:?}");
    assert_eq!(base.as_num(), Some(0.5e-3 + 3.0), "constants fold");
    assert!(matches!(program.blocks[2][0], CStmt::Run(_)));
    let again = ir::from_json(&ir::to_json(&program)).expect("it reads what it writes");
    assert_eq!(again, program);
}

#[test]
fn layout_keeps_tables() {
    let once = format("t.sq", HERE).expect("it parses");
    assert_eq!(format("t.sq", &once).expect("again"), once);
    assert!(once.contains("table dense(tokens) in ms { 512: 3.5, 1: 0.5, 16: 1 }"), "{once}");
    assert!(once.contains("table two(a, b) { (1, -1): 2, (1, 1): 4 }"), "{once}");
    assert_eq!(linked("t.sq", &once).tables, linked("t.sq", HERE).tables);
}

#[test]
fn representations_written_by_hand_are_checked() {
    let check = |change: &dyn Fn(&mut ir::Program), code: &str| {
        let mut program = linked("t.sq", HERE);
        program.spans = None;
        change(&mut program);
        let errors = ir::validate(&program).expect_err(code);
        assert!(errors.iter().any(|e| e.code == code), "{errors:?}");
    };
    check(&|p| p.tables[0].points.swap(0, 1), "table");
    check(&|p| p.tables[0].points.clear(), "table");
    check(&|p| p.tables[1].axes.clear(), "table");
    check(&|p| drop(p.tables.drain(..)), "ir-index");
    check(&|p| p.tables[0].axes.push("more".into()), "arity");
}
