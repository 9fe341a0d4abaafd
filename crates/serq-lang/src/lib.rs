//! From the text of a deployment to its intermediate representation.
//!
//! [`compile`] is the whole way: characters to tokens ([`lex`]), tokens to a tree ([`parse`]), the
//! tree to [`ir::Program`]. Every phase goes on after an error and adds to one list of
//! [`diag::Diagnostic`]s. Nothing here reads a file, prints or panics; the `serq` command does the
//! first two.
//!
//! [`ir`] is the seam to the simulator, which knows nothing else of this crate.

#![forbid(unsafe_code)]

pub mod ast;
pub mod diag;
pub mod explain;
pub mod fmt;
pub mod ir;
pub mod lex;
mod link;
pub mod parse;
pub mod source;
pub mod trace;

use diag::{Code, Diagnostic, Diagnostics};
use source::{MAX_SOURCE_BYTES, Source, Sources, Span};

/// What became of a text.
#[derive(Debug)]
pub struct Compiled {
    /// `None` if some diagnostic is an error.
    pub program: Option<ir::Program>,
    /// In the order of their places.
    pub diagnostics: Vec<Diagnostic>,
    /// What the diagnostics point into.
    pub sources: Sources,
}

/// Compiles a program.
///
/// `name` is what the file is called in messages. Each override is `name=expression` and takes the
/// place of the value of that `let`.
pub fn compile(name: &str, text: &[u8], overrides: &[String]) -> Compiled {
    let mut diags = Diagnostics::default();
    let mut sources = Sources::default();
    let text = decode(text, &mut diags);
    sources.add(Source::new(name, text));
    let mut program = None;
    if diags.is_empty() {
        let mut given = Vec::new();
        for text in overrides {
            let source = Source::new("--set", text.as_str());
            let number = sources.add(source.clone());
            given.extend(parse::parse_override(&source, number, &mut diags));
        }
        if let Some(source) = sources.get(0) {
            let parsed = parse::parse(source, 0, &mut diags);
            // With a declaration missing because it could not be read, what follows would be noise.
            if !diags.has_errors() {
                parse::check_structure(&parsed.program, &mut diags);
                program = link::link(&parsed.program, &given, &sources, &mut diags);
            }
        }
    }
    Compiled { program, diagnostics: diags.into_sorted(), sources }
}

/// The text of a file, or a finding and an empty text.
fn decode(bytes: &[u8], diags: &mut Diagnostics) -> String {
    if bytes.len() > MAX_SOURCE_BYTES {
        let message = format!("the file has more than {} MiB", MAX_SOURCE_BYTES >> 20);
        diags.push(Diagnostic::new(Code::E0002, Span::default(), message));
        return String::new();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(e) => {
            let good = e.valid_up_to();
            // The part before the bad byte is shown, so that there is a line to point at.
            let shown = String::from_utf8_lossy(&bytes[..good]).into_owned();
            let span = Span { source: 0, start: good as u32, end: good as u32 };
            let d = Diagnostic::new(Code::E0001, span, "the file is not UTF-8 text")
                .at("the first byte that is none follows here")
                .help("save it as UTF-8; most of a program needs ASCII only");
            diags.push(d);
            shown
        }
    }
}
