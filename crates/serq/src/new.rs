//! `new`.

use std::io::Write as _;

use crate::cli::NewArgs;
use crate::out::{self, Done, Failure};

/// What a new program begins as: one engine, its memory, its clients.
const STARTER: &str = include_str!("starter.sq");

pub(crate) fn run(args: &NewArgs) -> Done {
    let mut path = args.name.clone();
    if path.file_name().is_none() {
        return Err(Failure::usage(format!("error: `{}` names no file", path.display())));
    }
    if path.extension().is_none() {
        path.set_extension("sq");
    }
    let cannot =
        |why: String| Failure::program(format!("error: cannot write {}: {why}", path.display()));
    let mut file = std::fs::File::create_new(&path).map_err(|e| {
        cannot(if e.kind() == std::io::ErrorKind::AlreadyExists {
            "it exists already".to_owned()
        } else {
            e.to_string()
        })
    })?;
    file.write_all(STARTER.as_bytes()).map_err(|e| cannot(e.to_string()))?;
    out::result(&format!("wrote {0}; try: serq run {0}\n", path.display()))
}
