//! Definitions and used files: what they stand for, and where a mistake in one is shown.

mod common;

use common::{linked, without_spans};
use serq_lang::diag::{Diagnostic, render_all};
use serq_lang::{Compiled, Used, compile, compile_with};

const TAIL: &str = "workload { arrive poisson(1); }\nrun { horizon 10; }\n";

/// A program with definitions means what the same one written out means.
fn check(defined: &str, written: &str) {
    let a = without_spans(linked("a.sq", &format!("{defined}\n{TAIL}")));
    let b = without_spans(linked("b.sq", &format!("{written}\n{TAIL}")));
    assert_eq!(a, b, "{defined}");
}

#[test]
fn calls_stand_for_what_is_defined() {
    check(
        "def area(a, b) = a * (b + 1);\nlet k = area(2, 3);\nstage s : fifo;\nsession { run s (area(k, now)); }",
        "let k = 8;\nstage s : fifo;\nsession { run s (k * (now + 1)); }",
    );
    // An argument is one operand, however it is written.
    check(
        "def twice(a) = a * 2;\nstage s : fifo;\nsession { run s (twice(now + 1)); }",
        "stage s : fifo;\nsession { run s ((now + 1) * 2); }",
    );
    // Definitions call definitions, in any order; one with only calls serves at the top too.
    check(
        "pair(A, B);\ndef pair(x, y) { one(x, 1); one(y, 2); }\ndef one(E, n) { pool E.kv[n] { cap n; } stage E[n] : fifo(n); }
         session { hold A.kv (1) { run B[1] (1); } }",
        "pool A.kv[1] { cap 1; } stage A[1] : fifo(1);\npool B.kv[2] { cap 2; } stage B[2] : fifo(2);
         session { hold A.kv (1) { run B[1] (1); } }",
    );
    // The member of a family carries its index to all that is named after it.
    check(
        "pool P.kv[2] { cap 4; } stage P[2] : fifo;\ndef at(E, n) { hold E.kv (n) { run E (n * 2); } }
         session { choose i in 2 by (used(P.kv[i])); at(P[i], 3); }",
        "pool P.kv[2] { cap 4; } stage P[2] : fifo;
         session { choose i in 2 by (used(P.kv[i])); hold P.kv[i] (3) { run P[i] (3 * 2); } }",
    );
    // A name may be given a value.
    check(
        "def pick(v, n) { choose v in n by (v); }\nstage s : fifo;\nsession { pick(j, 2); run s (j + 1); }",
        "stage s : fifo;\nsession { choose j in 2 by (j); run s (j + 1); }",
    );
    // A draw that is used once, and a draw inside of a definition.
    check(
        "def wait(t) { run s (t); run s (~exp(2)); }\nstage s : fifo;\nsession { wait(~exp(1)); }",
        "stage s : fifo;\nsession { run s (~exp(1)); run s (~exp(2)); }",
    );
}

#[test]
fn sections_can_be_defined() {
    let defined = "
        stage s : fifo;
        def client(rate, K) {
          workload {
            arrive poisson(rate);
            init { set K = 0; }
            turn { marks(K); }
            session { loop { turn; request; branch with (0.5) { end; } } }
          }
        }
        def marks(K) { set K = K + 1; }
        client(2, n);
        server { run s (n); }
        run { horizon 10; }";
    let written = "
        stage s : fifo;
        workload {
          arrive poisson(2);
          init { set n = 0; }
          turn { set n = n + 1; }
          session { loop { turn; request; branch with (0.5) { end; } } }
        }
        server { run s (n); }
        run { horizon 10; }";
    assert_eq!(without_spans(linked("a.sq", defined)), without_spans(linked("b.sq", written)));
}

/// Lines of the finding: where it is, and the calls that lead there.
fn places(compiled: &Compiled, d: &Diagnostic) -> Vec<String> {
    let place = |span| {
        let at = compiled.sources.start(span);
        let file = compiled.sources.get(span.source).map_or("", |s| s.name());
        format!("{file}:{}", at.line)
    };
    std::iter::once(&d.primary).chain(&d.labels).map(|l| place(l.span)).collect()
}

#[test]
fn mistakes_inside_are_shown_once_with_their_call() {
    let text = "stage s : fifo;\ndef bad(x) {\n  run t (x);\n}\ndef outer() { bad(1); }\nsession {\n  outer();\n  bad(2);\n}\nworkload { arrive poisson(1); }\nrun { horizon 10; }";
    let compiled = compile("a.sq", text.as_bytes(), &[]);
    let [d] = &compiled.diagnostics[..] else {
        panic!("{}", render_all(&compiled.diagnostics, &compiled.sources))
    };
    assert_eq!(places(&compiled, d), ["a.sq:3", "a.sq:5", "a.sq:7"]);
}

fn with_files(main: &str, files: &[(&str, &str)]) -> Compiled {
    let mut load = |_: &str, path: &str| {
        let found = files.iter().find(|(name, _)| *name == path);
        found
            .map(|(name, text)| Used { name: (*name).to_owned(), text: text.as_bytes().to_vec() })
            .ok_or_else(|| "no such file".to_owned())
    };
    compile_with("main.sq", main.as_bytes(), &["k=3".to_owned()], &mut load)
}

#[test]
fn files_are_put_together() {
    let files = [
        ("a.sq", "use \"c.sq\";\nlet k = 1;\nlet unused = 2;\ndef f(x) = g(x) * k;"),
        ("b.sq", "use \"c.sq\";\nstage s : fifo;"),
        ("c.sq", "def g(x) = x + 1;"),
    ];
    let main = "use \"a.sq\";\nuse \"b.sq\";\nworkload { arrive poisson(1); }\nsession { run s (f(2)); }\nrun { horizon 10; }";
    let compiled = with_files(main, &files);
    let shown = render_all(&compiled.diagnostics, &compiled.sources);
    assert!(compiled.diagnostics.is_empty(), "{shown}");
    let program = compiled.program.expect("it links");
    assert_eq!(format!("{:?}", program.blocks[2]).matches("Num(9.0)").count(), 1);
    let spans = program.spans.expect("from a text");
    assert_eq!(spans.files, ["main.sq", "--set", "a.sq", "c.sq", "b.sq"]);
    assert_eq!(spans.stage(0).expect("known").to_string(), "b.sq:2:7");

    let mistaken = [("a.sq", "def f(x) = x +;"), files[1], files[2]];
    let compiled = with_files(main, &mistaken);
    assert_eq!(places(&compiled, &compiled.diagnostics[0]), ["a.sq:1"]);

    let circle = [files[0], files[1], ("c.sq", "use \"a.sq\";\ndef g(x) = x;")];
    let compiled = with_files(main, &circle);
    let codes: Vec<&str> = compiled.diagnostics.iter().map(|d| d.code.as_str()).collect();
    assert_eq!(codes, ["E0606"]);
    assert_eq!(places(&compiled, &compiled.diagnostics[0]), ["c.sq:1"]);
}

/// Definitions that double each other, or that follow each other without end, are bounded.
#[test]
fn growth_is_bounded() {
    let check = |defs: String, call: &str, codes: &[&str]| {
        let text = format!("stage s : fifo;\n{defs}\nsession {{ {call} }}\n{TAIL}");
        let compiled = compile("a.sq", text.as_bytes(), &[]);
        let found: Vec<&str> = compiled.diagnostics.iter().map(|d| d.code.as_str()).collect();
        assert_eq!(found, codes);
    };
    let doubling: String =
        (1..30).map(|k| format!("def f{k}(x) = f{}(x) + f{}(x);\n", k - 1, k - 1)).collect();
    check(format!("def f0(x) = x;\n{doubling}"), "run s (f29(1));", &["E0425"]);
    let doubling: String =
        (1..30).map(|k| format!("def f{k}(x) {{ f{}(x); f{}(x); }}\n", k - 1, k - 1)).collect();
    check(format!("def f0(x) {{ run s (x); }}\n{doubling}"), "f29(1);", &["E0425"]);
    let chain: String = (1..5000).map(|k| format!("def f{k}(x) = f{}(x);\n", k - 1)).collect();
    check(format!("def f0(x) = x;\n{chain}"), "run s (f4999(1));", &["E0109"]);
    let sum = vec!["x"; 150].join(" + ");
    let high: String = (1..20).map(|k| format!("def f{k}(x) = f{}({sum});\n", k - 1)).collect();
    check(format!("def f0(x) = x;\n{high}"), "run s (f19(1));", &["E0109"]);
    let deep = "loop { ".repeat(90) + "run s (x);" + &" }".repeat(90);
    let nested: String = (1..10)
        .map(|k| {
            format!(
                "def f{k}(x) {{ loop {{ {} f{}(x); {} }} }}\n",
                "loop { ".repeat(80),
                k - 1,
                "}".repeat(80)
            )
        })
        .collect();
    check(format!("def f0(x) {{ {deep} }}\n{nested}"), "f9(1);", &["E0109"]);
}

/// The library stands in the common layout, and a program can use all of it at once.
#[test]
fn the_library_reads_well() {
    let mut all = String::new();
    for (name, text) in serq_lang::library::FILES {
        assert_eq!(serq_lang::fmt::format(name, text).expect("it parses"), *text, "{name}");
        all.push_str(&format!("use \"{name}\";\n"));
    }
    let text = format!(
        "{all}engine(E, 1, 4, 100, 16, 512, serial_cost(0, 0.01, 0, 1e-5));
         single(1, 100, floor(~exp(20)) + 2);
         server {{ set sent = now; serve_local(E, prompt, o, 16, sent); }}
         run {{ horizon 10; }}"
    );
    linked("a.sq", &text);
}
