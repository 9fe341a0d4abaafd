//! One small program per rule: what it breaks and on which line is its first line.

use std::fmt::Write as _;
use std::path::Path;

use serq_lang::compile;
use serq_lang::diag::render_all;

/// Reads `// E0303 line 4`.
fn expectation(text: &str) -> Option<(&str, u32)> {
    let mut words = text.lines().next()?.strip_prefix("// ")?.split(' ');
    let code = words.next()?;
    (words.next()? == "line").then_some(())?;
    Some((code, words.next()?.parse().ok()?))
}

#[test]
fn each_program_breaks_its_rule_and_no_other() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused");
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("the directory")
        .map(|e| e.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(paths.len() > 100, "{} programs", paths.len());
    let mut wrong = String::new();
    for path in paths {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a text");
        let (code, line) = expectation(&text).unwrap_or_else(|| panic!("first line of {name}"));
        let compiled = compile(&name, text.as_bytes(), &[]);
        let found: Vec<_> = compiled
            .diagnostics
            .iter()
            .map(|d| (d.code.as_str(), compiled.sources.start(d.primary.span).line))
            .collect();
        if found != [(code, line)] {
            let shown = render_all(&compiled.diagnostics, &compiled.sources);
            let _ =
                writeln!(wrong, "{name}: expected {code} on line {line}, got {found:?}\n{shown}");
        }
        assert_eq!(compiled.program.is_some(), code.starts_with('W'), "{name}");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Several mistakes, several findings, in the order of their places.
#[test]
fn one_pass_names_several_mistakes() {
    let text = "\
let lambda = 0.5
pool kv { cap 100; evicts lru; }
stage s : fifoo;
workload { arrive poisson(lamda); }
session { sett x = 1; run s (2 +); hold kv (1) { run s (1) } }
run { horizon 10 }
";
    let compiled = compile("many.sq", text.as_bytes(), &[]);
    let lines: Vec<u32> =
        compiled.diagnostics.iter().map(|d| compiled.sources.start(d.primary.span).line).collect();
    assert_eq!(lines, [1, 2, 3, 5, 5, 5, 6]);
    let links = "\
pool kv { cap 100; }
stage s : fifo;
workload { arrive poisson(lamda); }
session { run t (1); hold kw (x) { run s (used(s) + max(2)); } }
run { horizon 10; warmup 20; }
";
    let compiled = compile("many.sq", links.as_bytes(), &[]);
    let codes: Vec<&str> = compiled.diagnostics.iter().map(|d| d.code.as_str()).collect();
    assert_eq!(codes, ["E0303", "E0302", "E0301", "E0303", "E0402", "E0401", "E0410"]);
}
