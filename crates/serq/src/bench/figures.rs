//! `bench figures`: tables of published figures, simulated again.

use serde_json::{Value, json};
use serq::figures::{self, Less, Table, tables};

use super::Found;
use super::sheet::Sheet;
use crate::cli::FiguresArgs;
use crate::out::{self, Done, Failure};
use crate::run;

pub(super) fn run(args: &FiguresArgs) -> Done<Found> {
    let chosen: Vec<&'static Table> = if args.names.is_empty() {
        tables::ALL.to_vec()
    } else {
        args.names.iter().map(|name| named(name)).collect::<Done<_>>()?
    };
    let less = Less { seeds: args.seeds, horizon: args.horizon };
    let mut found = Found { sheets: Vec::new(), data: Value::Null, broken: Vec::new() };
    let mut data = Vec::new();
    for table in chosen {
        // Long ones take minutes.
        out::note(&format!("{}: {} settings", table.name, table.rows.len()));
        let bar = run::bar(0);
        let done = |finished: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(finished as u64);
        };
        let made = figures::run(table, less, &done)
            .map_err(|e| Failure::program(format!("error: {}: {e}", table.name)))?;
        bar.finish_and_clear();
        let misses = figures::misses(&made);
        found.sheets.push(Sheet {
            title: table.title.to_owned(),
            columns: figures::columns(&made),
            rows: figures::rows(&made),
            notes: std::iter::once(table.about.to_owned()).chain(misses.clone()).collect(),
        });
        data.push(figures::to_json(&made));
        // With less of everything the figures are others.
        if less == Less::default() {
            found.broken.extend(misses.into_iter().map(|miss| format!("{}: {miss}", table.name)));
        }
    }
    found.data = json!(data);
    Ok(found)
}

fn named(name: &str) -> Done<&'static Table> {
    tables::ALL.into_iter().find(|t| t.name == name).ok_or_else(|| {
        let names: Vec<&str> = tables::ALL.iter().map(|t| t.name).collect();
        let known = names.join(", ");
        Failure::usage(format!("error: there are no figures `{name}`\n  = help: there are {known}"))
    })
}
