//! The files of a program.

use super::Read;
use crate::ast::{Item, Rows, TableFile, Use};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::{Source, Sources, Span};
use crate::{Loader, Used, decode, library, parse};

/// Most files of one program.
const MAX_FILES: usize = 100;

/// What the names of the library's files begin with.
const LIBRARY: &str = "std/";

/// Reads the program's file, which is the first of the sources, and all that it uses.
pub(crate) fn read(sources: &mut Sources, load: &mut Loader<'_>, diags: &mut Diagnostics) -> Read {
    let parsed = match sources.get(0) {
        Some(source) => parse::parse(source, 0, diags),
        None => return Read { items: Vec::new(), span: Span::default() },
    };
    let name = sources.get(0).map_or("", |s| s.name()).to_owned();
    let mut files = Files {
        sources,
        load,
        diags,
        read: vec![(name, true)],
        tables: Vec::new(),
        items: Vec::new(),
    };
    files.take(parsed.items, 0);
    Read { items: files.items, span: parsed.span }
}

struct Files<'f, 'l> {
    sources: &'f mut Sources,
    load: &'f mut Loader<'l>,
    diags: &'f mut Diagnostics,
    /// The files that were begun, and whether they are still being read.
    read: Vec<(String, bool)>,
    /// Texts of tables, by the file and the path they are named with.
    tables: Vec<(usize, String, u32)>,
    items: Vec<Item>,
}

impl Files<'_, '_> {
    /// Adds a file's declarations; those of a file it uses stand where the `use` stands.
    fn take(&mut self, items: Vec<Item>, file: usize) {
        for item in items {
            match item {
                Item::Use(used) => self.used(&used, file),
                Item::Table(mut table) => {
                    if let Rows::File(rows) = &mut table.rows {
                        self.table(rows, file);
                    }
                    self.items.push(Item::Table(table));
                }
                item => self.items.push(item),
            }
        }
        self.read[file].1 = false;
    }

    /// Reads the file of a table, once for all tables that name it.
    fn table(&mut self, rows: &mut TableFile, file: usize) {
        if let Some((.., number)) =
            self.tables.iter().find(|(from, path, _)| *from == file && *path == rows.path)
        {
            rows.source = Some(*number);
            return;
        }
        let from = self.read[file].0.clone();
        match (self.load)(&from, &rows.path) {
            Ok(found) => {
                let number = self.sources.iter().count() as u32;
                let text = decode(&found.text, number, self.diags);
                self.sources.add(Source::new(found.name, text));
                self.tables.push((file, rows.path.clone(), number));
                rows.source = Some(number);
            }
            Err(why) => {
                let message = format!("cannot read `{}`: {why}", rows.path);
                let d = Diagnostic::new(Code::E0605, rows.path_span, message)
                    .help("a path is relative to the file it is written in");
                self.diags.push(d);
            }
        }
    }

    fn used(&mut self, used: &Use, file: usize) {
        let from = self.read[file].0.clone();
        let found = if used.path.starts_with(LIBRARY) {
            match library::text(&used.path) {
                Some(text) => Ok(Used { name: used.path.clone(), text: text.into() }),
                None => {
                    let names = library::FILES.iter().map(|(name, _)| *name);
                    let message = format!("the library has no `{}`", used.path);
                    let known: Vec<&str> = names.clone().collect();
                    let d = Diagnostic::new(Code::E0605, used.span, message)
                        .help(format!("it has {}", known.join(", ")));
                    self.diags.push(d);
                    return;
                }
            }
        } else {
            (self.load)(&from, &used.path)
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                let message = format!("cannot use `{}`: {why}", used.path);
                let d = Diagnostic::new(Code::E0605, used.span, message)
                    .help("a path is relative to the file it is written in; `std/...` comes with the language");
                self.diags.push(d);
                return;
            }
        };
        match self.read.iter().find(|(name, _)| *name == found.name) {
            // Its declarations stand where it was used first.
            Some((_, false)) => return,
            Some((_, true)) => {
                let message = format!("`{}` uses itself", found.name);
                let d = Diagnostic::new(Code::E0606, used.span, message).help(
                    "files use each other in one direction: move what both need into a third",
                );
                self.diags.push(d);
                return;
            }
            None => {}
        }
        if self.read.len() >= MAX_FILES {
            let message = format!("more than {MAX_FILES} files");
            self.diags.push(Diagnostic::new(Code::E0605, used.span, message));
            return;
        }
        let number = self.sources.iter().count() as u32;
        let text = decode(&found.text, number, self.diags);
        let source = Source::new(found.name.clone(), text);
        let parsed = parse::parse(&source, number, self.diags);
        self.sources.add(source);
        self.read.push((found.name, true));
        self.take(parsed.items, self.read.len() - 1);
    }
}
