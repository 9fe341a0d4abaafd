//! Everything `tl` says to a person or a script passes through here: results on standard output, the
//! rest on standard error. A closed pipe is no reason to panic.

use std::io::{IsTerminal, Write};

/// A result: standard output.
pub(crate) fn out(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}");
    let _ = stdout.flush();
}

/// Progress and remarks: standard error.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

pub(crate) fn error(line: &str) {
    note(&format!("{} {line}", paint("error:", Colour::Red)));
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Colour {
    Red,
    Green,
    Dim,
    /// One of six colours for a part of the cluster.
    Part(usize),
}

/// Colours only where a person looks: standard error is a terminal and NO_COLOR is not set.
pub(crate) fn paint(text: &str, colour: Colour) -> String {
    if !std::io::stderr().is_terminal() || std::env::var_os("NO_COLOR").is_some() {
        return text.to_owned();
    }
    let code = match colour {
        Colour::Red => 31,
        Colour::Green => 32,
        Colour::Dim => 2,
        Colour::Part(i) => [36, 33, 35, 34, 32, 96][i % 6],
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}
