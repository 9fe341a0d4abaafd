//! The manual in `docs/serq`: every program there links and runs, every refused one is refused with
//! the code it says, and every figure in the text is what a run gives.
//!
//! In a page, a block marked `sq` is a whole program and one marked `sq refused CODE` gives exactly
//! that code. Comments right behind a program check its figures:
//! `<!-- check NAME.FIELD VALUE TOLERANCE% [let=value ...] -->`.

use std::fs;
use std::path::{Path, PathBuf};

use serq_lang::diag::render_all;
use serq_lang::fmt::format;
use serq_lang::{compile, ir};
use serq_sim::{NoObserver, Options, run};

/// One thing a page shows.
enum Shown {
    Program { line: usize, text: String, checks: Vec<Check> },
    Refused { line: usize, text: String, code: String },
}

struct Check {
    line: usize,
    path: String,
    value: f64,
    /// Relative.
    tolerance: f64,
    sets: Vec<String>,
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serq");
    let mut pages: Vec<_> = fs::read_dir(root)
        .expect("docs/serq")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "md"))
        .collect();
    pages.sort();
    pages
}

fn read(page: &str) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if let Some(info) = line.strip_prefix("```sq") {
            let body: Vec<&str> =
                lines.by_ref().map(|(_, l)| l).take_while(|l| *l != "```").collect();
            let text = body.join("\n") + "\n";
            let line = at + 1;
            shown.push(match info.trim().split_once(' ') {
                Some(("refused", code)) => Shown::Refused { line, text, code: code.to_owned() },
                None if info.trim().is_empty() => Shown::Program { line, text, checks: Vec::new() },
                _ => panic!("line {line}: a block is `sq` or `sq refused CODE`, not `sq{info}`"),
            });
        } else if let Some(check) = line.strip_prefix("<!-- check ") {
            let check = parse_check(at + 1, check.trim_end_matches("-->").trim());
            match shown.last_mut() {
                Some(Shown::Program { checks, .. }) => checks.push(check),
                _ => panic!("line {}: a check follows a program", at + 1),
            }
        }
    }
    shown
}

fn parse_check(line: usize, text: &str) -> Check {
    let mut words = text.split_whitespace();
    let mut next = || words.next().unwrap_or_else(|| panic!("line {line}: NAME VALUE TOLERANCE%"));
    let (path, value, tolerance) = (next().to_owned(), next(), next());
    let number = |w: &str| w.parse::<f64>().unwrap_or_else(|e| panic!("line {line}: {w}: {e}"));
    let tolerance =
        tolerance.strip_suffix('%').unwrap_or_else(|| panic!("line {line}: a percentage"));
    Check {
        line,
        path,
        value: number(value),
        tolerance: number(tolerance) / 100.0,
        sets: words.map(str::to_owned).collect(),
    }
}

fn program(page: &str, line: usize, text: &str, sets: &[String]) -> ir::Program {
    let name = format!("{page}:{line}");
    let compiled = compile(&name, text.as_bytes(), sets);
    let findings = render_all(&compiled.diagnostics, &compiled.sources);
    assert!(compiled.diagnostics.is_empty(), "{name}\n{findings}");
    compiled.program.expect("no finding, so a program")
}

fn report(page: &str, line: usize, program: &ir::Program) -> serde_json::Value {
    let report = run(program, &Options::default(), &mut NoObserver)
        .unwrap_or_else(|e| panic!("{page}:{line}: {e}"));
    serde_json::from_str(&report.to_json()).expect("a report is JSON")
}

/// `NAME.FIELD` of an observe, a pool or a stage.
fn find(report: &serde_json::Value, path: &str) -> Option<f64> {
    let (name, field) = path.rsplit_once('.')?;
    if let Some(observe) = report["observes"].get(name) {
        return observe[field].as_f64();
    }
    ["pools", "stages"].iter().find_map(|part| {
        let of = report[*part].as_array()?.iter().find(|x| x["name"] == name)?;
        of[field].as_f64()
    })
}

/// What is wrong with one thing of a page.
fn wrong(page: &str, shown: &Shown) -> Vec<String> {
    match shown {
        Shown::Program { line, text, checks } => {
            let mut wrong = Vec::new();
            if format(page, text).ok().as_deref() != Some(text) {
                wrong.push(format!("{page}:{line} is not in the common layout"));
            }
            let plain = report(page, *line, &program(page, *line, text, &[]));
            wrong.extend(checks.iter().filter_map(|check| {
                let found = if check.sets.is_empty() {
                    find(&plain, &check.path)
                } else {
                    find(
                        &report(page, *line, &program(page, *line, text, &check.sets)),
                        &check.path,
                    )
                };
                let fits = |x: f64| (x - check.value).abs() <= check.tolerance * check.value.abs();
                let says =
                    format!("{page}:{}: the text says {} {}", check.line, check.path, check.value);
                (!found.is_some_and(fits)).then(|| format!("{says}, the run {found:?}"))
            }));
            wrong
        }
        Shown::Refused { line, text, code } => {
            let compiled = compile(page, text.as_bytes(), &[]);
            let codes: Vec<_> = compiled.diagnostics.iter().map(|d| d.code.as_str()).collect();
            if codes == [code] {
                vec![]
            } else {
                vec![format!("{page}:{line}: {code}, not {codes:?}")]
            }
        }
    }
}

#[test]
fn the_manual_says_what_its_programs_do() {
    let (mut found, mut programs) = (Vec::new(), 0);
    for path in pages() {
        let page = path.file_name().expect("a name").to_string_lossy().into_owned();
        let shown = read(&fs::read_to_string(&path).expect("a page"));
        programs += shown.len();
        found.extend(shown.iter().flat_map(|s| wrong(&page, s)));
    }
    assert!(programs > 10, "only {programs} programs: are the pages there?");
    assert!(found.is_empty(), "{}", found.join("\n"));
}
