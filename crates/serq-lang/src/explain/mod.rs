//! What each code means, with the smallest program that gives it.
//!
//! One table, in five files. A test compiles every example and compares the code.

mod deployment;
mod engine;
mod grammar;
mod names;
mod values;

use crate::diag::Code;

/// The long form of a code.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub code: Code,
    /// What is wrong, why it is refused, what to do.
    pub text: &'static str,
    pub example: Example,
}

/// Input that gives the code.
#[derive(Clone, Copy, Debug)]
pub enum Example {
    /// A program.
    Program(&'static str),
    /// A program, and overrides of its constants.
    Overridden(&'static str, &'static [&'static str]),
    /// A trace.
    Trace(&'static str),
    /// Nothing that fits on a page; the text says what it would be.
    Words,
}

/// Every entry, in the order of the codes.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    let tables =
        [grammar::ENTRIES, names::ENTRIES, values::ENTRIES, engine::ENTRIES, deployment::ENTRIES];
    tables.into_iter().flatten()
}

/// The entry of a code.
pub fn entry(code: Code) -> Option<&'static Entry> {
    entries().find(|e| e.code == code)
}

/// An entry as text for a terminal.
pub fn render(entry: &Entry) -> String {
    let mut out =
        format!("{}: {}\n\n{}\n", entry.code.as_str(), entry.code.title(), entry.text.trim());
    let (what, text, sets): (&str, &str, &[&str]) = match entry.example {
        Example::Program(text) => ("This program gives it:", text, &[]),
        Example::Overridden(text, sets) => ("This program gives it with", text, sets),
        Example::Trace(text) => ("This trace gives it:", text, &[]),
        Example::Words => return out,
    };
    out.push('\n');
    out.push_str(what);
    for set in sets {
        out.push_str(&format!(" --set {set}"));
    }
    out.push_str(if sets.is_empty() { "\n\n" } else { ":\n\n" });
    for line in text.trim_matches('\n').lines() {
        out.push_str(if line.is_empty() { "" } else { "    " });
        out.push_str(line);
        out.push('\n');
    }
    out
}
