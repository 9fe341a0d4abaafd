//! A table in words, and as JSON.

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

/// Names of the columns, the settings' first.
pub fn columns(figures: &Figures) -> Vec<String> {
    let table = figures.table;
    let first = std::iter::once(table.program.0);
    first.chain(table.columns.iter().map(|column| column.name)).map(str::to_owned).collect()
}

/// The rows, each cell as `ours (reference, what we are off)`.
pub fn rows(figures: &Figures) -> Vec<Vec<String>> {
    let cell = |row: usize, column: usize| {
        let reference = figures.table.rows[row].reference[column];
        let ours = number(figures.cells[row][column]);
        match figures.off(row, column) {
            None => ours,
            Some(_) if reference == 0.0 => format!("{ours} (0)"),
            Some(off) => format!("{ours} ({}, {:+.1}%)", number(reference), 100.0 * off),
        }
    };
    let row = |(at, row): (usize, &super::Row)| {
        let cells = (0..figures.table.columns.len()).map(|column| cell(at, column));
        std::iter::once(row.label.to_owned()).chain(cells).collect()
    };
    figures.table.rows.iter().enumerate().map(row).collect()
}

/// What is too far off, in words.
pub fn misses(figures: &Figures) -> Vec<String> {
    figures.misses().iter().map(|miss| words(figures, miss)).collect()
}

fn words(figures: &Figures, miss: &Miss) -> String {
    let table = figures.table;
    match *miss {
        Miss::Far { row, column } => {
            let (off, within) = (figures.off(row, column), table.columns[column].within);
            format!(
                "{}, {}: {:+.1}% off, {:.1}% asked for",
                table.rows[row].label,
                table.columns[column].name,
                100.0 * off.unwrap_or(f64::NAN),
                100.0 * within.unwrap_or(f64::NAN),
            )
        }
        Miss::Order { column, first, second } => format!(
            "{} should be smaller for {} than for {}",
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
    json!({"name": table.name, "program": table.program.0, "rows": rows, "misses": misses(figures)})
}
