//! Reading and writing the JSON form.

use serde::Deserialize;

use super::program::Program;
use super::validate::{IrError, validate};
use super::{FORMAT, MAX_EXPR_DEPTH, VERSION, VERSION_6};

/// Nesting of brackets a program within [`MAX_EXPR_DEPTH`] can need: a call takes four levels of
/// JSON per level of expression, the rest is the way down from the program.
const MAX_JSON_DEPTH: usize = 4 * MAX_EXPR_DEPTH + 32;

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    format: Option<String>,
    #[serde(default)]
    version: Option<u64>,
}

/// Reads a program and validates it.
///
/// Errors: what is wrong with the JSON (one error, with its line and column), or everything that
/// [`validate`] finds.
pub fn from_json(text: &str) -> Result<Program, Vec<IrError>> {
    check_depth(text).map_err(|e| vec![e])?;
    let header: Header = read(text).map_err(|e| vec![e])?;
    if header.format.as_deref() != Some(FORMAT) {
        let found = header.format.map_or("none".to_owned(), |f| format!("\"{f}\""));
        return Err(vec![IrError::new(
            "ir-format",
            "format",
            format!("the file's format is {found}, not \"{FORMAT}\""),
            "give the file the field \"format\": \"serq-tl\" if it follows this project's form",
        )]);
    }
    if ![VERSION, VERSION_6].iter().any(|v| header.version == Some(u64::from(*v))) {
        let found = header.version.map_or("none".to_owned(), |v| v.to_string());
        return Err(vec![IrError::new(
            "ir-version",
            "version",
            format!(
                "the file's version is {found}; this program reads versions {VERSION} and {VERSION_6}"
            ),
            "write it again from the program's text with `serq ir`",
        )]);
    }
    let program: Program = read(text).map_err(|e| vec![e])?;
    validate(&program)?;
    Ok(program)
}

/// Writes a program, indented.
pub fn to_json(program: &Program) -> String {
    let mut text = serde_json::to_string_pretty(program)
        .unwrap_or_else(|e| unreachable!("plain data always has a JSON form: {e}"));
    text.push('\n');
    text
}

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, IrError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    // The depth was checked by `check_depth`, against a limit of our own.
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader).map_err(|e| json_error(&e))?;
    reader.end().map_err(|e| json_error(&e))?;
    Ok(value)
}

fn json_error(e: &serde_json::Error) -> IrError {
    let full = e.to_string();
    let reason = full.split(" at line ").next().unwrap_or(&full).to_owned();
    IrError::new(
        "ir-json",
        format!("line {} column {}", e.line(), e.column()),
        reason,
        "compare with what `serq ir` writes for a program with this construct",
    )
}

/// Refuses text nested deeper than any valid program, before anything recurses over it.
fn check_depth(text: &str) -> Result<(), IrError> {
    let (mut depth, mut line, mut in_string, mut escaped) = (0usize, 1usize, false, false);
    for byte in text.bytes() {
        line += usize::from(byte == b'\n');
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_JSON_DEPTH {
            return Err(IrError::new(
                "ir-depth",
                format!("line {line}"),
                format!("brackets are nested more than {MAX_JSON_DEPTH} deep"),
                "split the expression with `set`",
            ));
        }
    }
    Ok(())
}
