//! From the text of a deployment to its intermediate representation.
//!
//! [`compile`] is the whole way: characters to tokens ([`lex`]), tokens to a tree ([`parse`]),
//! definitions and used files put in, the tree to [`ir::Program`]. Every phase goes on after an error and adds to one list of
//! [`diag::Diagnostic`]s. Nothing here reads a file, prints or panics; the `serq` command does the
//! first two.
//!
//! [`ir`] is the seam to the simulator, which knows nothing else of this crate.

#![forbid(unsafe_code)]

pub mod ast;
pub mod diag;
mod expand;
pub mod explain;
pub mod fmt;
pub mod ir;
pub mod lex;
pub mod library;
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
    /// Names of the constants, those of used files and of definitions included: what overrides can
    /// change. Empty if the text could not be read.
    pub constants: Vec<String>,
}

/// A file that a program uses.
#[derive(Clone, Debug)]
pub struct Used {
    /// What it is called in messages. Two uses of one file have one name.
    pub name: String,
    pub text: Vec<u8>,
}

/// Finds the file a `use` names: called with the name of the text it stands in and the path as
/// written. The error is the reason, for people.
pub type Loader<'l> = dyn FnMut(&str, &str) -> Result<Used, String> + 'l;

/// Compiles a program of one file.
///
/// `name` is what the file is called in messages. Each override is `name=expression` and takes the
/// place of the value of that `let`. What is in [`library`] can be used; other files cannot.
pub fn compile(name: &str, text: &[u8], overrides: &[String]) -> Compiled {
    let mut none = |_: &str, _: &str| Err("no files are read here".to_owned());
    compile_with(name, text, overrides, &mut none)
}

/// The same, of several files.
pub fn compile_with(
    name: &str,
    text: &[u8],
    overrides: &[String],
    load: &mut Loader<'_>,
) -> Compiled {
    let mut diags = Diagnostics::default();
    let mut sources = Sources::default();
    let text = decode(text, 0, &mut diags);
    sources.add(Source::new(name, text));
    let (mut program, mut constants) = (None, Vec::new());
    if diags.is_empty() {
        let mut given = Vec::new();
        for text in overrides {
            let source = Source::new(OVERRIDE, text.as_str());
            let number = sources.add(source.clone());
            given.extend(parse::parse_override(&source, number, &mut diags));
        }
        let read = expand::read(&mut sources, load, &mut diags);
        // With a declaration missing because it could not be read, what follows would be noise.
        if !diags.has_errors() {
            let tree = expand::expand(read, &mut sources, &mut diags);
            constants = tree.lets.iter().map(|l| l.name.text.clone()).collect();
            if !diags.has_errors() {
                parse::check_structure(&tree, &mut diags);
                program = link::link(&tree, &given, &sources, &mut diags);
            }
        }
    }
    Compiled { program, diagnostics: expand::placed(diags, &sources), sources, constants }
}

/// What the text of an override is called in messages.
pub const OVERRIDE: &str = "--set";

/// The text of a file, or a finding and an empty text.
fn decode(bytes: &[u8], source: u32, diags: &mut Diagnostics) -> String {
    if bytes.len() > MAX_SOURCE_BYTES {
        let message = format!("the file has more than {} MiB", MAX_SOURCE_BYTES >> 20);
        diags.push(Diagnostic::new(Code::E0002, Span { source, ..Span::default() }, message));
        return String::new();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(e) => {
            let good = e.valid_up_to();
            // The part before the bad byte is shown, so that there is a line to point at.
            let shown = String::from_utf8_lossy(&bytes[..good]).into_owned();
            let span = Span { source, start: good as u32, end: good as u32 };
            let d = Diagnostic::new(Code::E0001, span, "the file is not UTF-8 text")
                .at("the first byte that is none follows here")
                .help("save it as UTF-8; most of a program needs ASCII only");
            diags.push(d);
            shown
        }
    }
}
