//! `fmt`.

use std::io::{self, Read as _};
use std::path::Path;

use serq_lang::diag::render_all;
use serq_lang::fmt::format;
use serq_lang::source::MAX_SOURCE_BYTES;

use crate::cli::FmtArgs;
use crate::out::{self, Done, Failure};

pub(crate) fn run(args: &FmtArgs) -> Done {
    let mut failed = 0u8;
    let mut would_change = String::new();
    for path in &args.files {
        match one(path, args.check) {
            Ok(false) => {}
            Ok(true) if args.check => {
                would_change.push_str(&format!("{}\n", path.display()));
                failed = failed.max(1);
            }
            Ok(true) => {}
            Err(failure) => {
                out::note(failure.text.trim_end());
                failed = failed.max(failure.code);
            }
        }
    }
    out::result(&would_change)?;
    match failed {
        0 => Ok(()),
        code => Err(Failure { code, text: String::new(), json: None }),
    }
}

/// Formats one file; whether it was, or would be, changed.
fn one(path: &Path, check: bool) -> Done<bool> {
    let cannot = |what: &str, e: io::Error| {
        Failure::program(format!("error: cannot {what} {}: {e}", path.display()))
    };
    let stdin = path == Path::new("-");
    let mut bytes = Vec::new();
    if stdin {
        io::stdin().lock().read_to_end(&mut bytes).map_err(|e| cannot("read", e))?;
    } else {
        bytes = std::fs::read(path).map_err(|e| cannot("read", e))?;
    }
    if bytes.len() > MAX_SOURCE_BYTES {
        let text =
            format!("error: {} has more than {} MiB", path.display(), MAX_SOURCE_BYTES >> 20);
        return Err(Failure::program(text));
    }
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(Failure::program(format!("error: {} is not UTF-8 text", path.display())));
    };
    let formatted = format(&path.display().to_string(), &text)
        .map_err(|(findings, sources)| Failure::program(render_all(&findings, &sources)))?;
    let changed = formatted != text;
    if stdin && !check {
        out::result(&formatted)?;
    } else if changed && !check {
        replace(path, &formatted).map_err(|e| cannot("write", e))?;
    }
    Ok(changed)
}

/// Puts a whole new file in the place of the old one, so that nothing is ever half written.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = std::fs::canonicalize(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = std::fs::write(&temporary, text)
        .and_then(|()| std::fs::metadata(&path))
        .and_then(|old| std::fs::set_permissions(&temporary, old.permissions()))
        .and_then(|()| std::fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
