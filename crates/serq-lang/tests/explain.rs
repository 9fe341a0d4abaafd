//! Every code has an entry, and every entry's example gives its code and nothing else.

use serq_lang::compile;
use serq_lang::diag::{Code, Diagnostics, render_all};
use serq_lang::explain::{Example, entries, entry, render};

fn codes(example: Example) -> Option<(Vec<Code>, String)> {
    let (text, sets): (&str, &[&str]) = match example {
        Example::Words => return None,
        Example::Program(text) => (text, &[]),
        Example::Overridden(text, sets) => (text, sets),
        Example::Trace(text) => {
            let mut diags = Diagnostics::default();
            serq_lang::trace::read_sessions(text, 0, &mut diags);
            let found = diags.into_sorted();
            return Some((found.iter().map(|d| d.code).collect(), String::new()));
        }
    };
    let sets: Vec<String> = sets.iter().map(|&s| s.to_owned()).collect();
    let compiled = compile("example.sq", text.as_bytes(), &sets);
    let shown = render_all(&compiled.diagnostics, &compiled.sources);
    Some((compiled.diagnostics.iter().map(|d| d.code).collect(), shown))
}

#[test]
fn examples_give_their_code_alone() {
    let mut wrong = String::new();
    for entry in entries() {
        if let Some((found, shown)) = codes(entry.example) {
            if found != [entry.code] {
                wrong.push_str(&format!("{} gave {found:?}\n{shown}\n", entry.code.as_str()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_code_has_one_entry_in_order() {
    let listed: Vec<Code> = entries().map(|e| e.code).collect();
    assert_eq!(listed, Code::ALL);
    for &code in Code::ALL {
        let text = render(entry(code).expect("listed"));
        assert!(text.starts_with(code.as_str()), "{text}");
        assert_eq!(Code::parse(&code.as_str().to_lowercase()), Some(code));
    }
}

/// Examples of errors do not link; examples of warnings do.
#[test]
fn severity_decides_whether_a_program_links() {
    for entry in entries() {
        if let Example::Program(text) = entry.example {
            let compiled = compile("example.sq", text.as_bytes(), &[]);
            let warning = entry.code.as_str().starts_with('W');
            assert_eq!(compiled.program.is_some(), warning, "{}", entry.code.as_str());
        }
    }
}
