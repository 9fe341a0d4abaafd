//! `explain`: codes of the text, of a run, and of the JSON form.

mod faults;

use serq_lang::diag::{Code, closest};
use serq_lang::explain;

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
    list.push_str("\nErrors of the JSON form:\n");
    for (code, text) in faults::REPRESENTATION {
        list.push_str(&format!("{code:<14}{}\n", first_sentence(text)));
    }
    list
}

fn first_sentence(text: &str) -> &str {
    text.trim().split(['.', ':']).next().unwrap_or("")
}

fn text(code: &str) -> Option<String> {
    if let Some(entry) = Code::parse(code).and_then(explain::entry) {
        return Some(explain::render(entry));
    }
    let mut parts = Vec::new();
    if let Some(fault) = faults::FAULTS.iter().find(|f| f.code == code) {
        let program: String =
            fault.program.trim_matches('\n').lines().map(|l| format!("    {l}\n")).collect();
        parts.push(format!(
            "{code}, an error of a run\n\n{}\n\nThis program gives it:\n\n{program}",
            fault.text.trim()
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
        let others = faults::FAULTS.iter().map(|f| f.code);
        closest(code, others.chain(faults::SAME_AS.iter().map(|s| s.0)))
    });
    let help = near.map_or_else(
        || "`serq explain` lists them all".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    Failure::usage(format!("error: there is no code `{code}`\n  = help: {help}"))
}

#[cfg(test)]
mod tests {
    use serq_lang::compile;
    use serq_lang::diag::{Code, render_all};
    use serq_sim::{NoObserver, Options, RunError};

    use super::{faults, text};

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
    fn other_codes_lead_somewhere() {
        for (code, as_text) in faults::SAME_AS {
            assert!(Code::parse(as_text).is_some(), "{code}");
            assert!(text(code).expect("known").contains(as_text));
        }
        assert!(text("draw").expect("known").contains("an error of a run"));
        assert!(text("nothing").is_none());
    }
}
