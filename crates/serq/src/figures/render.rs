//! A table as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Figures, Miss};

/// Four digits, as many as the references have at most.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "-".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    format!("{value:.*}", usize::try_from(digits.clamp(0, 6)).unwrap_or(0))
}

/// The table, each cell as `ours (reference, what we are off)`, and what is too far off.
pub fn markdown(figures: &Figures) -> String {
    let table = figures.table;
    let mut text = format!("## {}\n\n{}\n\n|", table.title, table.about);
    let mut rule = String::from("|---|");
    let _ = write!(text, " {} |", table.program.0);
    for column in table.columns {
        let _ = write!(text, " {} |", column.name);
        rule.push_str("---|");
    }
    let _ = write!(text, "\n{rule}\n");
    for (at, row) in table.rows.iter().enumerate() {
        let _ = write!(text, "| {} |", row.label);
        for (column, reference) in row.reference.iter().enumerate() {
            let ours = number(figures.cells[at][column]);
            let _ = match figures.off(at, column) {
                None => write!(text, " {ours} |"),
                Some(_) if *reference == 0.0 => write!(text, " {ours} (0) |"),
                Some(off) => {
                    write!(text, " {ours} ({}, {:+.1}%) |", number(*reference), 100.0 * off)
                }
            };
        }
        text.push('\n');
    }
    for miss in figures.misses() {
        let _ = writeln!(text, "\n{}", words(figures, &miss));
    }
    text
}

fn words(figures: &Figures, miss: &Miss) -> String {
    let table = figures.table;
    match *miss {
        Miss::Far { row, column } => {
            let (row, column, off) =
                (&table.rows[row], &table.columns[column], figures.off(row, column));
            format!(
                "Too far off: {}, {}: {:+.1}% of {:.1}% allowed",
                row.label,
                column.name,
                100.0 * off.unwrap_or(f64::NAN),
                100.0 * column.within.unwrap_or(f64::NAN),
            )
        }
        Miss::Order { column, first, second } => format!(
            "Another order: {} should be smaller for {} than for {}",
            table.columns[column].name, table.rows[first].label, table.rows[second].label,
        ),
    }
}

/// The same for scripts. Numbers that are none are null.
pub fn to_json(figures: &Figures) -> Value {
    let table = figures.table;
    let rows: Vec<Value> = table
        .rows
        .iter()
        .zip(&figures.cells)
        .map(|(row, cells)| {
            let cells: Vec<Value> = table
                .columns
                .iter()
                .zip(cells)
                .zip(row.reference)
                .map(|((column, value), reference)| {
                    json!({"name": column.name, "value": value, "reference": reference,
                           "within": column.within})
                })
                .collect();
            json!({"label": row.label, "set": row.sets, "cells": cells})
        })
        .collect();
    let misses: Vec<String> = figures.misses().iter().map(|miss| words(figures, miss)).collect();
    json!({"name": table.name, "program": table.program.0, "rows": rows, "misses": misses})
}
