//! Tables of published figures, run again: what was simulated beside what others found.
//!
//! A [`Table`] says which program, with which settings and seeds, and what is read from its reports;
//! [`run`] runs them over all cores and [`Figures`] is what came out, with the cells that are too far off.
//! Tables live in [`tables`]; every reference says where it is from and how far off one may be.

mod render;
pub mod tables;
mod traffic;

use std::sync::atomic::{AtomicUsize, Ordering};

use serq_lang::compile;
use serq_lang::diag::render_all;
use serq_sim::{NoObserver, Options, Report};

use crate::cores;

pub use render::{columns, misses, rows, to_json};
pub use traffic::Traffic;

/// One table: rows are settings, columns are what is read from their reports.
#[derive(Debug)]
pub struct Table {
    /// What the command calls it.
    pub name: &'static str,
    pub title: &'static str,
    /// Where the references are from and what is compared: a paragraph.
    pub about: &'static str,
    /// Name and text of the program.
    pub program: (&'static str, &'static str),
    /// When sessions come.
    pub traffic: Traffic,
    /// Seeds 1 to this.
    pub seeds: u64,
    /// Simulated seconds, and those of them before measuring begins.
    pub horizon: f64,
    pub warmup: f64,
    pub columns: &'static [Column],
    pub rows: &'static [Row],
}

/// One number of a row.
#[derive(Debug)]
pub struct Column {
    /// With its unit.
    pub name: &'static str,
    /// From the reports of all seeds.
    pub of: fn(&[Report]) -> f64,
    /// How far from the reference, as a part of it, is too far. `None`: shown, not judged.
    pub within: Option<f64>,
    /// The rows must come in the order of their references by this number.
    pub ordered: bool,
}

#[derive(Debug)]
pub struct Row {
    pub label: &'static str,
    /// As for `--set`.
    pub sets: &'static [&'static str],
    /// One per column; not a number where there is none.
    pub reference: &'static [f64],
}

/// A table that was run.
#[derive(Debug)]
pub struct Figures {
    pub table: &'static Table,
    /// `cells[row][column]`.
    pub cells: Vec<Vec<f64>>,
}

/// A number that is not what it should be.
#[derive(Debug, Clone, PartialEq)]
pub enum Miss {
    /// Of a cell.
    Far { row: usize, column: usize },
    /// Two rows that stand the other way round.
    Order { column: usize, first: usize, second: usize },
}

impl Figures {
    /// What a cell is off its reference, as a part of it.
    pub fn off(&self, row: usize, column: usize) -> Option<f64> {
        let reference = self.table.rows[row].reference[column];
        let value = self.cells[row][column];
        if reference.is_nan() {
            None
        } else if reference == 0.0 {
            Some(value)
        } else {
            Some(value / reference - 1.0)
        }
    }

    /// Every cell that is too far off, every order that is another one.
    pub fn misses(&self) -> Vec<Miss> {
        let rows = 0..self.table.rows.len();
        let mut misses = Vec::new();
        for (column, spec) in self.table.columns.iter().enumerate() {
            let far = |row: &usize| match (self.off(*row, column), spec.within) {
                (Some(off), Some(within)) => !(off.abs() <= within),
                _ => false,
            };
            misses.extend(rows.clone().filter(far).map(|row| Miss::Far { row, column }));
            if spec.ordered {
                let reference = |row: usize| self.table.rows[row].reference[column];
                for first in rows.clone() {
                    for second in rows.clone().filter(|s| reference(first) < reference(*s)) {
                        if !(self.cells[first][column] < self.cells[second][column]) {
                            misses.push(Miss::Order { column, first, second });
                        }
                    }
                }
            }
        }
        misses
    }
}

/// Why a table has no figures.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    #[error("{row}: the program does not link\n{findings}")]
    Program { row: &'static str, findings: String },
    #[error("{row}, seed {seed}: {error}")]
    Run { row: &'static str, seed: u64, error: serq_sim::RunError },
}

/// Less of everything, for a quick look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Less {
    /// At most so many seeds.
    pub seeds: Option<u64>,
    /// Simulated seconds; the warm-up shrinks with them.
    pub horizon: Option<f64>,
}

/// Runs every row under every seed, on all cores. `done` hears of each finished run, with how many
/// there are.
pub fn run(
    table: &'static Table,
    less: Less,
    done: &(dyn Fn(usize, usize) + Sync),
) -> Result<Figures, Stopped> {
    let mut programs = Vec::new();
    for row in table.rows {
        let sets: Vec<String> = row.sets.iter().map(|s| (*s).to_owned()).collect();
        let compiled = compile(table.program.0, table.program.1.as_bytes(), &sets);
        let Some(program) = compiled.program else {
            let findings = render_all(&compiled.diagnostics, &compiled.sources);
            return Err(Stopped::Program { row: row.label, findings });
        };
        programs.push(program);
    }
    let seeds = less.seeds.unwrap_or(u64::MAX).clamp(1, table.seeds);
    let horizon = less.horizon.unwrap_or(table.horizon);
    let warmup = table.warmup * horizon / table.horizon;
    let jobs: Vec<(usize, u64)> =
        (0..programs.len()).flat_map(|row| (1..=seeds).map(move |seed| (row, seed))).collect();
    let finished = AtomicUsize::new(0);
    let results = cores::on_all(jobs.len(), |at| {
        let (row, seed) = jobs[at];
        let options = Options {
            seed: Some(seed),
            horizon: Some(horizon),
            warmup: Some(warmup),
            ..Options::default()
        };
        let program = table.traffic.given(&programs[row], seed, horizon);
        let report = serq_sim::run(&program, &options, &mut NoObserver);
        done(finished.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        report.map_err(|error| Stopped::Run { row: table.rows[row].label, seed, error })
    });
    let mut of_rows: Vec<Vec<Report>> = table.rows.iter().map(|_| Vec::new()).collect();
    for (result, (row, _)) in results.into_iter().zip(&jobs) {
        // What was not begun has a failure before or behind it, which ends this.
        if let Some(report) = result {
            of_rows[*row].push(report?);
        }
    }
    let cells = of_rows
        .iter()
        .map(|reports| table.columns.iter().map(|column| (column.of)(reports)).collect())
        .collect();
    Ok(Figures { table, cells })
}

#[cfg(test)]
mod tests;
