//! Tables: from rows of text to points in order.
//!
//! A row that cannot be meant is refused with its place, in the table's file as much as in the program:
//! a measurement that is silently left out is a cost that is silently wrong.

use super::Linker;
use super::csv::{self, Sheet};
use super::place::Place;
use crate::ast::{self, Arg, Name, Ref, Rows, TableFile};
use crate::diag::{Code, Diagnostic, closest, plural};
use crate::ir::table::{MAX_AXES, MAX_POINTS};
use crate::ir::{CExpr, CTable, Ctx, Dist, Fun, Grid};
use crate::source::{Sources, Span};

/// Units a column may be in, and how many of them are a second.
const UNITS: [(&str, f64); 4] = [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)];

/// Most findings about the rows of one table: a wrong column makes every row wrong.
const MAX_FINDINGS: usize = 5;

/// A table that can be called.
pub(super) struct Known {
    name: String,
    span: Span,
    axes: Vec<String>,
    /// Number among the program's, and what to read; `None` if it was wrong.
    ready: Option<(usize, Grid)>,
}

/// A point as read, with its place.
struct Point {
    /// Coordinates and value.
    row: Vec<f64>,
    span: Span,
}

impl<'a> Linker<'a> {
    pub(super) fn table_list(&mut self, tables: &'a [ast::Table], sources: &Sources) {
        for table in tables {
            if !self.table_names(table) {
                continue;
            }
            let before = self.diags.len();
            let points = match &table.rows {
                Rows::Here(rows) => self.rows_here(table, rows),
                Rows::File(file) => self.rows_of_file(table, file, sources),
            };
            let linked = self.table_of(table, points);
            let ready = linked.filter(|_| self.diags.len() == before).map(|linked| {
                let grid = Grid::new(&linked);
                self.program.tables.push(linked);
                (self.program.tables.len() - 1, grid)
            });
            self.tables.push(Known {
                name: table.name.text.clone(),
                span: table.name.span,
                axes: table.axes.iter().map(|a| a.text.clone()).collect(),
                ready,
            });
        }
    }

    /// Whether the names of a table can be what they are; it is no use reading it otherwise.
    fn table_names(&mut self, table: &'a ast::Table) -> bool {
        let name = &table.name;
        let taken = Fun::ALL.into_iter().any(|f| f.name() == name.text)
            || Dist::ALL.into_iter().any(|d| d.name() == name.text)
            || Ctx::ALL.into_iter().any(|c| c.name() == name.text);
        if taken {
            let message = format!("`{}` is no name for a table", name.text);
            let d = Diagnostic::new(Code::E0308, name.span, message)
                .at("the language gives it a meaning of its own");
            self.report(d);
            return false;
        }
        if let Some(first) = self.tables.iter().find(|t| t.name == name.text) {
            let d = twice("table", name, first.span);
            self.report(d);
            return false;
        }
        for (at, axis) in table.axes.iter().enumerate() {
            if let Some(first) = table.axes[..at].iter().find(|a| a.text == axis.text) {
                let d = twice("axis", axis, first.span);
                self.report(d);
                return false;
            }
        }
        if table.axes.len() > MAX_AXES {
            let message = format!("a table of {} axes", table.axes.len());
            let d = Diagnostic::new(Code::E0405, table.axes[MAX_AXES].span, message)
                .help(format!("a table has at most {MAX_AXES}"));
            self.report(d);
            return false;
        }
        true
    }

    /// How much of a second the values are counted in.
    fn unit(&mut self, table: &'a ast::Table) -> f64 {
        let Some(unit) = &table.unit else { return 1.0 };
        if let Some((_, per)) = UNITS.into_iter().find(|(name, _)| *name == unit.text) {
            return per;
        }
        let names = UNITS.map(|(name, _)| name);
        let message = format!("unknown unit `{}`", unit.text);
        let d = Diagnostic::new(Code::E0611, unit.span, message)
            .did_you_mean(closest(&unit.text, names))
            .help(format!("known: {}; the table's values are then seconds", names.join(", ")))
            .help("without `in`, values are what the table has");
        self.report(d);
        1.0
    }

    fn rows_here(&mut self, table: &'a ast::Table, rows: &'a [ast::Row]) -> Vec<Point> {
        let mut points = Vec::with_capacity(rows.len());
        for row in rows {
            if row.at.len() != table.axes.len() {
                let want = plural(table.axes.len(), "coordinate");
                let message = format!("a point of `{}` has {want}", table.name.text);
                let mut d = Diagnostic::new(Code::E0608, row.span, message)
                    .at(format!("this one has {}", row.at.len()));
                if table.axes.len() > 1 {
                    d = d.help("several coordinates stand in parentheses: (1, 16): 0.2");
                }
                self.report(d);
                continue;
            }
            let mut all = row.at.clone();
            all.push(row.value);
            points.push(Point { row: all, span: row.span });
        }
        points
    }

    fn rows_of_file(
        &mut self,
        table: &'a ast::Table,
        file: &'a TableFile,
        sources: &Sources,
    ) -> Vec<Point> {
        // A file that could not be read has been reported.
        let Some((number, source)) = file.source.and_then(|n| Some((n, sources.get(n)?))) else {
            return Vec::new();
        };
        let sheet = Sheet::of(source.text(), number);
        let columns: Vec<Option<usize>> = table
            .axes
            .iter()
            .chain([&file.value])
            .chain(file.only.iter().map(|o| &o.column))
            .map(|name| self.column(&sheet, name, file))
            .collect();
        let Some(columns) = columns.into_iter().collect::<Option<Vec<usize>>>() else {
            return Vec::new();
        };
        let (wanted, only) = columns.split_at(table.axes.len() + 1);
        let mut points = Vec::new();
        let mut wrong = 0;
        for row in sheet.rows() {
            if wrong == MAX_FINDINGS {
                break;
            }
            if row.fields.len() != sheet.header.len() {
                let (want, got) = (sheet.header.len(), row.fields.len());
                let message = format!("a row of {}", plural(got, "field"));
                let d = Diagnostic::new(Code::E0608, row.span, message)
                    .label(table.name.span, "of this table")
                    .help(format!("the first line names {}", plural(want, "column")));
                self.report(d);
                wrong += 1;
                continue;
            }
            let counts = only.iter().zip(&file.only).all(|(c, o)| row.fields[*c].text == o.text);
            if !counts {
                continue;
            }
            let mut numbers = Vec::with_capacity(wanted.len());
            for &column in wanted {
                let field = &row.fields[column];
                match csv::number(field.text) {
                    Some(v) => numbers.push(v),
                    None => {
                        let column = sheet.header[column].text;
                        let message = format!("`{}` as `{column}`", field.text.escape_debug());
                        let d = Diagnostic::new(Code::E0608, field.span, message)
                            .label(table.name.span, "of this table")
                            .help("every point of a table is made of finite numbers");
                        self.report(d);
                        wrong += 1;
                    }
                }
            }
            if numbers.len() == wanted.len() {
                points.push(Point { row: numbers, span: row.span });
            }
        }
        if points.is_empty() && wrong == 0 {
            let which = if file.only.is_empty() { "" } else { " with what `where` asks for" };
            let message = format!("`{}` has no row{which}", source.name());
            let mut d = Diagnostic::new(Code::E0610, file.path_span, message);
            if let (Some(o), Some(&c)) = (file.only.first(), only.first()) {
                let mut seen: Vec<&str> = Vec::new();
                for row in sheet.rows() {
                    let text = row.fields.get(c).map_or("", |f| f.text);
                    if !seen.contains(&text) && seen.len() < 12 {
                        seen.push(text);
                    }
                }
                d = d.did_you_mean(None).help(format!(
                    "`{}` is one of: {}",
                    o.column.text,
                    seen.join(", ")
                ));
            }
            self.report(d);
        }
        points
    }

    fn column(&mut self, sheet: &Sheet<'_>, name: &Name, file: &TableFile) -> Option<usize> {
        let found = sheet.header.iter().position(|h| h.text == name.text);
        if found.is_none() {
            let names: Vec<&str> = sheet.header.iter().map(|h| h.text).collect();
            let message = format!("`{}` has no column `{}`", file.path, name.text);
            let d = Diagnostic::new(Code::E0607, name.span, message)
                .did_you_mean(closest(&name.text, names.iter().copied()))
                .help(format!("it has {}", names.join(", ")));
            self.report(d);
        }
        found
    }

    /// The table of these points, put in order.
    fn table_of(&mut self, table: &'a ast::Table, mut points: Vec<Point>) -> Option<CTable> {
        let axes = table.axes.len();
        let per = self.unit(table);
        if points.is_empty() {
            if matches!(&table.rows, Rows::Here(rows) if rows.is_empty()) {
                let message = format!("the table `{}` has no points", table.name.text);
                self.report(Diagnostic::new(Code::E0610, table.name.span, message));
            }
            return None;
        }
        if points.len() > MAX_POINTS {
            let message = format!("more than {MAX_POINTS} points");
            self.report(Diagnostic::new(Code::E0425, table.name.span, message));
            return None;
        }
        for point in &mut points {
            // -0 and 0 are one coordinate.
            point.row[..axes].iter_mut().for_each(|v| *v += 0.0);
            point.row[axes] /= per;
        }
        points.sort_by(|a, b| {
            let pairs = a.row[..axes].iter().zip(&b.row[..axes]);
            let order = pairs.map(|(x, y)| x.total_cmp(y)).find(|o| o.is_ne());
            order.unwrap_or(std::cmp::Ordering::Equal)
        });
        let mut twice = 0;
        for pair in points.windows(2) {
            if pair[0].row[..axes] == pair[1].row[..axes] && twice < MAX_FINDINGS {
                twice += 1;
                let at: Vec<String> = pair[1].row[..axes].iter().map(f64::to_string).collect();
                let message =
                    format!("a second point ({}) of `{}`", at.join(", "), table.name.text);
                let d = Diagnostic::new(Code::E0609, pair[1].span, message)
                    .label(pair[0].span, "the first")
                    .help(
                        "keep one, or their mean; if they differ in a column, choose with `where`",
                    );
                self.report(d);
            }
        }
        let linked = CTable {
            name: table.name.text.clone(),
            axes: table.axes.iter().map(|a| a.text.clone()).collect(),
            points: points.into_iter().map(|p| p.row).collect(),
            outside: table.outside,
        };
        (linked.fault().is_none()).then_some(linked)
    }

    /// A call of a table, if the name is one's.
    pub(super) fn table_call(
        &mut self,
        name: &Name,
        args: &'a [Arg],
        span: Span,
        place: Place,
    ) -> Option<CExpr> {
        let at = self.tables.iter().position(|t| t.name == name.text)?;
        let known = &self.tables[at];
        if known.axes.len() != args.len() {
            let want = plural(known.axes.len(), "argument");
            let message = format!("`{}` takes {want}, not {}", name.text, args.len());
            let d = Diagnostic::new(Code::E0401, span, message)
                .label(known.span, format!("a table of ({})", known.axes.join(", ")));
            self.report(d);
            return Some(super::expr::WRONG);
        }
        let mut linked = Vec::with_capacity(args.len());
        for arg in args {
            let arg = match arg {
                Arg::Expr(e) => Some(self.node(e, place)),
                Arg::Ref(Ref { name, index: None, .. }) => {
                    self.nodes += 1;
                    self.resolve(&name.text, name.span, place)
                }
                Arg::Ref(r) => {
                    let message = format!("`{}` takes numbers", name.text);
                    let d = Diagnostic::new(Code::E0402, r.span, message)
                        .help("read a pool or stage through a function: used(p), queue(s)");
                    self.report(d);
                    None
                }
            };
            linked.push(arg.unwrap_or(super::expr::WRONG));
        }
        let Some((number, grid)) = &self.tables[at].ready else { return Some(super::expr::WRONG) };
        let number = *number;
        let constant: Option<Vec<f64>> = linked.iter().map(CExpr::as_num).collect();
        let Some(place) = constant else { return Some(CExpr::Table(number, linked)) };
        match grid.value(&place) {
            Ok(value) => Some(self.folded(value, span)),
            Err(unread) => {
                let why = unread.describe(&self.program.tables[number]);
                let message = format!("`{}` has no value here", name.text);
                let d = Diagnostic::new(Code::E0426, span, message).at(why);
                self.report(d);
                Some(super::expr::WRONG)
            }
        }
    }

    pub(super) fn table_names_known(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|t| t.name.as_str())
    }
}

fn twice(what: &str, name: &Name, first: Span) -> Diagnostic {
    Diagnostic::new(Code::E0306, name.span, format!("a second {what} `{}`", name.text))
        .label(first, "first declared here")
        .help("give it another name")
}
