//! From a file to a program that can run.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use serq_lang::diag::{Diagnostic, Diagnostics, render_all, to_json};
use serq_lang::ir::{self, Arrival, Program, Trace};
use serq_lang::source::{MAX_SOURCE_BYTES, Source, Sources};
use serq_lang::{Compiled, OVERRIDE, Used, compile_with, trace};

use serq::import::{self, Recorded};

use crate::cli::Input;
use crate::fault;
use crate::out::{Done, Failure};

/// Largest JSON form that is read, in bytes; it may hold a trace.
const MAX_JSON_BYTES: u64 = 1 << 30;

/// Largest trace that is read, in bytes: offsets into it are 32 bits wide.
const MAX_TRACE_BYTES: u64 = 2 << 30;

/// A program and what messages about it point into.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) program: Program,
    pub(crate) sources: Sources,
    pub(crate) warnings: Vec<Diagnostic>,
    /// Names of its `let`s.
    pub(crate) constants: Vec<String>,
}

/// Why a file is no program.
pub(crate) enum Refused {
    Failure(Failure),
    /// Findings about a text, with their sources.
    Findings(Vec<Diagnostic>, Sources),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Refused::Failure(failure)
    }
}

impl Refused {
    /// As it is shown to people. A mistake in an override is one of the command line.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Refused::Failure(failure) => failure,
            Refused::Findings(findings, sources) => {
                let override_at_fault = findings.iter().any(|d| {
                    sources.get(d.primary.span.source).is_some_and(|s| s.name() == OVERRIDE)
                });
                let code = if override_at_fault { 2 } else { 1 };
                let json = Some(to_json(&findings, &sources));
                Failure { code, text: render_all(&findings, &sources), json }
            }
        }
    }
}

/// A file's bytes, at most `limit` and one more; `-` is standard input.
fn read(path: &Path, limit: u64) -> Done<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    match read {
        Ok(_) => Ok(bytes),
        Err(e) => Err(Failure::program(format!("error: cannot read {}: {e}", path.display()))),
    }
}

/// Whether a path names the JSON form.
fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"))
}

/// Reads and links a program; a trace it names is not read.
pub(crate) fn load(path: &Path, sets: &[String]) -> Result<Loaded, Refused> {
    load_with(path, sets, None)
}

/// The same, with the files of tables somewhere else: at this prefix.
pub(crate) fn load_with(
    path: &Path,
    sets: &[String],
    tables: Option<&str>,
) -> Result<Loaded, Refused> {
    let name = path.display().to_string();
    if is_json(path) {
        if !sets.is_empty() {
            let text = "error: --set changes a `let`, and the JSON form has none: its constants \
                        are numbers already\n  = help: set it on the program's text";
            return Err(Failure::usage(text).into());
        }
        let program = from_json(&name, &read(path, MAX_JSON_BYTES)?)?;
        return Ok(Loaded {
            program,
            sources: Sources::default(),
            warnings: Vec::new(),
            constants: Vec::new(),
        });
    }
    let bytes = read(path, MAX_SOURCE_BYTES as u64)?;
    let mut find = |from: &str, path: &str| used(from, path, tables);
    let compiled = compile_with(&name, &bytes, sets, &mut find);
    match compiled.program {
        Some(program) => {
            let Compiled { sources, diagnostics: warnings, constants, .. } = compiled;
            Ok(Loaded { program, sources, warnings, constants })
        }
        None => Err(Refused::Findings(compiled.diagnostics, compiled.sources)),
    }
}

/// The file that `path` means in the text of `from`: relative to its folder. That of a table, which is
/// no program, may be at a prefix instead.
fn used(from: &str, path: &str, tables: Option<&str>) -> Result<Used, String> {
    let is_program = Path::new(path).extension().is_some_and(|e| e == "sq");
    let path = match (tables, Path::new(path).file_name().and_then(|n| n.to_str())) {
        (Some(prefix), Some(name)) if !is_program => PathBuf::from(format!("{prefix}{name}")),
        _ => beside(Path::new(from), path),
    };
    let limit = MAX_SOURCE_BYTES as u64;
    let mut text = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(limit + 1).read_to_end(&mut text))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Used { name: plain(&path).display().to_string(), text })
}

/// A path without steps that lead nowhere, so that one file has one name.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        let back = matches!(part, Component::ParentDir)
            && matches!(plain.components().next_back(), Some(Component::Normal(_)));
        if back {
            plain.pop();
        } else if part != Component::CurDir {
            plain.push(part);
        }
    }
    plain
}

fn from_json(name: &str, bytes: &[u8]) -> Done<Program> {
    if bytes.len() as u64 > MAX_JSON_BYTES {
        let text = format!("error: {name} has more than {} MiB", MAX_JSON_BYTES >> 20);
        return Err(Failure::program(text));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(Failure::program(format!("error: {name} is not UTF-8 text")));
    };
    ir::from_json(text).map_err(|errors| fault::invalid(name, &errors))
}

/// Loads a program with all that the command line says about it, ready to run.
///
/// A trace of the program is looked for beside the program, one of the command line where the
/// command runs.
pub(crate) fn input(args: &Input, inline_trace: bool) -> Done<Loaded> {
    let mut loaded =
        load_with(&args.file, &args.sets, args.tables.as_deref()).map_err(Refused::failure)?;
    let program = &mut loaded.program;
    program.seed = args.seed.unwrap_or(program.seed);
    program.horizon = args.horizon.unwrap_or(program.horizon);
    program.warmup = args.warmup.unwrap_or(program.warmup);
    check_run(program)?;
    if args.rate_scale.is_some() && program.arrival != Arrival::Trace {
        let text = "error: --rate-scale changes the times of a trace, and the program does not \
                    take its arrivals from one\n  = help: write `arrive trace;` in the workload";
        return Err(Failure::usage(text));
    }
    let path = match (&args.trace, &program.trace) {
        (Some(path), _) => Some(path.clone()),
        (None, Some(Trace::File(name))) => Some(beside(&args.file, name)),
        _ => None,
    };
    match path {
        Some(path) if inline_trace => {
            let recorded = read_trace(&path, args.rate_scale)?;
            if program.arrival == Arrival::Trace {
                if recorded.times.is_empty() {
                    let text = format!(
                        "error: the program's arrivals are the trace's, and {} has no times\n  \
                         = help: give another law of arrivals, or a trace that has them",
                        path.display()
                    );
                    return Err(Failure::program(text));
                }
            }
            recorded.attach(program);
        }
        Some(path) if args.trace.is_some() => {
            program.trace = Some(Trace::File(path.display().to_string()));
        }
        _ => {}
    }
    Ok(loaded)
}

fn check_run(program: &Program) -> Done {
    let Program { horizon, warmup, .. } = *program;
    let ends = horizon.is_finite() || program.is_finite();
    if !(ends && horizon > 0.0) {
        let text =
            format!("error: a horizon of {horizon}\n  = help: give a positive number of seconds");
        return Err(Failure::usage(text));
    }
    if !(warmup >= 0.0 && warmup < horizon) {
        let text = format!(
            "error: the warm-up of {warmup} does not end before the horizon {horizon}\n  \
             = help: give --warmup as well, less than the horizon"
        );
        return Err(Failure::usage(text));
    }
    Ok(())
}

fn beside(program: &Path, name: &str) -> PathBuf {
    program.parent().unwrap_or(Path::new("")).join(name)
}

/// Whether a trace is one of requests with times, as other tools record them.
fn is_recorded_requests(text: &str) -> bool {
    let head = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("");
    head.trim_start().starts_with('{') || head.contains("TIMESTAMP")
}

/// A file of requests: each is a session of one turn.
fn read_requests(name: &str, text: &str, rate_scale: Option<f64>) -> Done<Recorded> {
    let options = import::Options { rate_scale, ..import::Options::default() };
    import::parse(name, text, &options)
        .map(|workload| workload.recorded())
        .map_err(|e| Failure::program(format!("error: {e}")))
}

fn read_trace(path: &Path, rate_scale: Option<f64>) -> Done<Recorded> {
    let cannot = |why: String| {
        Failure::program(format!("error: cannot read the trace {}: {why}", path.display()))
    };
    let size = std::fs::metadata(path).map_err(|e| cannot(e.to_string()))?.len();
    if size > MAX_TRACE_BYTES {
        return Err(cannot(format!("it has {size} bytes, and at most {MAX_TRACE_BYTES} are read")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| cannot(e.to_string()))?;
    if is_recorded_requests(&text) {
        return read_requests(&path.display().to_string(), &text, rate_scale);
    }
    let mut diags = Diagnostics::default();
    let sessions = trace::read_sessions(&text, 0, &mut diags);
    if diags.has_errors() {
        let mut sources = Sources::default();
        sources.add(Source::new(path.display().to_string(), text));
        return Err(Refused::Findings(diags.into_sorted(), sources).failure());
    }
    Ok(Recorded { sessions, ..Recorded::default() })
}
