//! Standard output, standard error, and how a command fails.

use std::io::{self, Write as _};

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) code: u8,
    /// For standard error.
    pub(crate) text: String,
    /// The same for standard output, for commands that were asked for JSON.
    pub(crate) json: Option<serde_json::Value>,
}

pub(crate) type Done<T = ()> = Result<T, Failure>;

impl Failure {
    /// The program, or something it needs, is at fault.
    pub(crate) fn program(text: impl Into<String>) -> Self {
        Failure { code: 1, text: text.into(), json: None }
    }

    /// The command line is at fault.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Failure { code: 2, text: text.into(), json: None }
    }
}

/// Fails as JSON where there is a form of it: on standard output, and standard error has nothing.
pub(crate) fn failed_as_json(mut failure: Failure) -> Failure {
    let Some(json) = failure.json.take() else { return failure };
    match result(&format!("{json:#}\n")) {
        Ok(()) => Failure { text: String::new(), ..failure },
        Err(unwritten) => unwritten,
    }
}

/// Writes a result. A reader that went away (`serq ir x.sq | head`) is no failure.
pub(crate) fn result(text: &str) -> Done {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::program(format!("error: cannot write the result: {e}")))
        }
        _ => Ok(()),
    }
}

/// Says something on standard error; nothing can be done if that fails.
pub(crate) fn note(text: &str) {
    if !text.is_empty() {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}
