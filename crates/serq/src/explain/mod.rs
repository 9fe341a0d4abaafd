//! `explain`: codes of the text, of a run, of its report, and of the JSON form.

mod faults;
mod notes;

use serq_lang::diag::{Code, closest};
use serq_lang::explain;
use serq_sim::SERIOUS;

use crate::cli::ExplainArgs;
use crate::out::{self, Done, Failure};

pub(crate) fn run(args: &ExplainArgs) -> Done {
    match &args.code {
        None => out::result(&list()),
        Some(code) => match text(code) {
            Some(text) => out::result(&text),
            None => Err(unknown(code)),
        },
    }
}

fn list() -> String {
    let mut list = String::new();
    for code in Code::ALL {
        list.push_str(&format!("{:<14}{}\n", code.as_str(), code.title()));
    }
    list.push_str("\nErrors of a run:\n");
    for fault in faults::FAULTS {
        list.push_str(&format!("{:<14}{}\n", fault.code, first_sentence(fault.text)));
    }
    for (code, text) in faults::DRIVER {
        list.push_str(&format!("{code:<14}{}\n", first_sentence(text)));
    }
    list.push_str("\nNotes of a report (* fails with --strict):\n");
    for note in notes::NOTES {
        let mark = if SERIOUS.contains(&note.code) { " *" } else { "" };
        let code = format!("{}{mark}", note.code);
        list.push_str(&format!("{code:<14}{}\n", first_sentence(note.text)));
    }
    list.push_str("\nErrors of the JSON form:\n");
    for (code, text) in faults::REPRESENTATION {
        list.push_str(&format!("{code:<14}{}\n", first_sentence(text)));
    }
    list
}

/// On one line.
fn first_sentence(text: &str) -> String {
    let sentence = text.trim().split(['.', ':']).next().unwrap_or("");
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn indented(program: &str) -> String {
    program.trim_matches('\n').lines().map(|l| format!("    {l}\n")).collect()
}

fn text(code: &str) -> Option<String> {
    if let Some(entry) = Code::parse(code).and_then(explain::entry) {
        return Some(explain::render(entry));
    }
    let mut parts = Vec::new();
    if let Some(fault) = faults::FAULTS.iter().find(|f| f.code == code) {
        parts.push(format!(
            "{code}, an error of a run\n\n{}\n\nThis program gives it:\n\n{}",
            fault.text.trim(),
            indented(fault.program)
        ));
    }
    if let Some((_, text)) = faults::DRIVER.iter().find(|(c, _)| *c == code) {
        parts.push(format!("{code}, an error of a run\n\n{}\n", text.trim()));
    }
    if let Some(note) = notes::NOTES.iter().find(|n| n.code == code) {
        let serious =
            if SERIOUS.contains(&note.code) { "\n\n`serq run --strict` fails on it." } else { "" };
        parts.push(format!(
            "{code}, a note of a report\n\n{}{serious}\n\nThe report of this program has it:\n\n{}",
            note.text.trim(),
            indented(note.program)
        ));
    }
    if let Some((_, text)) = faults::REPRESENTATION.iter().find(|(c, _)| *c == code) {
        parts.push(format!("{code}, an error of the JSON form\n\n{}\n", text.trim()));
    }
    if let Some((_, as_text)) = faults::SAME_AS.iter().find(|(c, _)| *c == code) {
        let entry = Code::parse(as_text).and_then(explain::entry).map(explain::render);
        parts.push(format!(
            "{code}, an error of the JSON form; of a program's text it is\n\n{}",
            entry.unwrap_or_default()
        ));
    }
    (!parts.is_empty()).then(|| parts.join("\n"))
}

fn unknown(code: &str) -> Failure {
    let upper = code.to_ascii_uppercase();
    let near = closest(&upper, Code::ALL.iter().map(|c| c.as_str())).or_else(|| {
        let lists = faults::DRIVER.iter().chain(faults::REPRESENTATION).chain(faults::SAME_AS);
        let others = faults::FAULTS.iter().map(|f| f.code);
        let notes = notes::NOTES.iter().map(|n| n.code);
        closest(code, others.chain(notes).chain(lists.map(|s| s.0)))
    });
    let help = near.map_or_else(
        || "`serq explain` lists them all".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    Failure::usage(format!("error: there is no code `{code}`\n  = help: {help}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serq_lang::compile;
    use serq_lang::diag::{Code, render_all};
    use serq_sim::{NoObserver, Options, RunError, SERIOUS};

    use super::{faults, list, notes, text};

    #[test]
    fn each_program_fails_as_it_says() {
        for fault in faults::FAULTS {
            let compiled = compile("fault.sq", fault.program.as_bytes(), &[]);
            let shown = render_all(&compiled.diagnostics, &compiled.sources);
            let program = compiled.program.unwrap_or_else(|| panic!("{}: {shown}", fault.code));
            match serq_sim::run(&program, &Options::default(), &mut NoObserver) {
                Err(RunError::Fault(found)) => {
                    assert_eq!(found.code, fault.code);
                    assert!(found.place.is_some(), "{} has no place", fault.code);
                }
                other => panic!("{}: {other:?}", fault.code),
            }
        }
    }

    #[test]
    fn each_report_has_its_note() {
        for note in notes::NOTES {
            let compiled = compile("note.sq", note.program.as_bytes(), &[]);
            let shown = render_all(&compiled.diagnostics, &compiled.sources);
            let program = compiled.program.unwrap_or_else(|| panic!("{}: {shown}", note.code));
            let report = serq_sim::run(&program, &Options::default(), &mut NoObserver)
                .unwrap_or_else(|e| panic!("{}: {e}", note.code));
            let found: Vec<_> = report.notes.iter().map(|n| n.code).collect();
            assert!(found.contains(&note.code), "{}: {found:?}", note.code);
            assert!(text(note.code).expect("known").contains("a note of a report"));
        }
    }

    fn source(path: &str) -> String {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        std::fs::read_to_string(format!("{root}/{path}")).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// Every code that the simulator's text gives a note, those of the manual, and no other.
    #[test]
    fn every_note_is_explained() {
        let explained: BTreeSet<String> = notes::NOTES.iter().map(|n| n.code.to_owned()).collect();
        let notes = source("crates/serq-sim/src/report/notes.rs");
        // A code stands before the note's text: `note("stuck", text)`, `("overloaded", text)`.
        let given: BTreeSet<String> = notes
            .match_indices("\", ")
            .filter(|(at, _)| {
                let rest = &notes[at + 3..];
                ["text)", "format!", "deadlock."].iter().any(|text| rest.starts_with(text))
            })
            .filter_map(|(at, _)| notes[..at].rsplit('"').next().map(str::to_owned))
            .collect();
        assert_eq!(given, explained);
        assert!(SERIOUS.iter().all(|code| explained.contains(*code)));
        let manual = source("docs/language/report.md");
        let table = manual.split("## `notes`").nth(1).and_then(|m| m.split("\n## ").next());
        let documented: BTreeSet<String> = table
            .expect("a chapter")
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('|').next().map(str::to_owned))
            .flat_map(|cell| {
                let words = cell.split(['`', ',', '*', ' ']).filter(|w| !w.is_empty());
                words.map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(documented, explained);
    }

    /// Every code that the simulator's text gives an error of a run.
    #[test]
    fn every_fault_is_explained() {
        let mut folders = vec![format!("{}/../serq-sim/src", env!("CARGO_MANIFEST_DIR"))];
        let mut codes = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path.display().to_string());
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("a text");
                let calls = text.split("Reason::new(").skip(1);
                codes.extend(calls.filter_map(|call| {
                    Some(call.trim_start().strip_prefix('"')?.split_once('"')?.0.to_owned())
                }));
            }
        }
        assert!(codes.len() > 25, "{codes:?}");
        for code in codes {
            assert!(text(&code).is_some_and(|t| t.contains("an error of a run")), "{code}");
            assert!(list().lines().any(|l| l.starts_with(&code)), "{code}");
        }
    }

    #[test]
    fn other_codes_lead_somewhere() {
        for (code, as_text) in faults::SAME_AS {
            assert!(Code::parse(as_text).is_some(), "{code}");
            assert!(text(code).expect("known").contains(as_text));
        }
        assert!(text("draw").expect("known").contains("an error of a run"));
        assert!(text("nothing").is_none());
    }
}
