//! Several runs of one program, under different seeds.
//!
//! The runs are independent, so the spread of a mean over them gives an interval that no
//! correlation within a run can spoil: mean plus or minus Student's t times the standard deviation
//! over the root of their number.

use std::fmt::Write as _;

use serde_json::{Value, json};
use serq_sim::{Measure, Quantile, Report, student_t};

/// One number over the runs.
struct Across {
    mean: f64,
    /// Of the 95 % interval of the mean.
    half_width: f64,
    min: f64,
    max: f64,
    /// Runs in which it is a number.
    runs: usize,
}

fn across(values: impl Iterator<Item = f64>) -> Across {
    let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    let t = student_t(0.975, (values.len() as u64).saturating_sub(1));
    let half_width = t * (squares / (n - 1.0) / n).sqrt();
    Across {
        mean,
        half_width,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        runs: values.len(),
    }
}

/// The numbers of one report that are followed over the runs, by name. Reports of one program
/// have the same names in the same order.
fn numbers(report: &Report) -> Vec<(String, f64)> {
    let mut numbers = Vec::new();
    for o in &report.observes {
        let quantiles = [("p50", o.p50), ("p90", o.p90), ("p99", o.p99)];
        spread(&mut numbers, &o.name, o.mean, &quantiles, &o.quantiles);
    }
    if let Some(requests) = &report.requests {
        for (name, m) in requests.measures() {
            let Measure { mean, p50, p90, p95, p99, .. } = *m;
            let quantiles = [("p50", p50), ("p90", p90), ("p95", p95), ("p99", p99)];
            spread(&mut numbers, &format!("request {name}"), mean, &quantiles, &m.quantiles);
        }
        let mut number = |name: &str, value| numbers.push((format!("requests {name}"), value));
        number("per second", requests.per_second);
        number("tokens per second", requests.tokens_per_second);
        number("unfinished", requests.unfinished as f64);
        number("rejected", requests.rejected as f64);
        if let Some(slo) = &requests.slo {
            number("attainment", slo.attainment);
            number("goodput", slo.goodput);
        }
    }
    let member = |name: &str, member: Option<usize>| {
        member.map_or_else(|| name.to_owned(), |i| format!("{name}[{i}]"))
    };
    for stage in &report.stages {
        let name = member(&stage.name, stage.member);
        numbers.push((format!("{name} utilisation"), stage.utilisation));
        numbers.push((format!("{name} present"), stage.mean_present));
    }
    for pool in &report.pools {
        let name = member(&pool.name, pool.member);
        numbers.push((format!("{name} used"), pool.mean_used));
        if pool.cap.is_finite() {
            numbers.push((format!("{name} use"), pool.mean_used / pool.cap));
        }
        numbers.push((format!("{name} queue"), pool.mean_queue));
    }
    numbers
}

fn spread(
    numbers: &mut Vec<(String, f64)>,
    name: &str,
    mean: f64,
    quantiles: &[(&str, f64)],
    extra: &[Quantile],
) {
    numbers.push((format!("{name} mean"), mean));
    for (quantile, value) in quantiles {
        numbers.push((format!("{name} {quantile}"), *value));
    }
    for Quantile { q, value } in extra {
        numbers.push((format!("{name} p{}", (q * 1e8).round() / 1e6), *value));
    }
}

/// Rows of the table: what, and its values over the runs.
fn rows(reports: &[Report]) -> Vec<(String, Across)> {
    let all: Vec<Vec<(String, f64)>> = reports.iter().map(numbers).collect();
    let Some(first) = all.first() else { return Vec::new() };
    let row = |(k, (name, _)): (usize, &(String, f64))| {
        let values = all.iter().filter_map(|run| run.get(k)).map(|(_, value)| *value);
        (name.clone(), across(values))
    };
    first.iter().enumerate().map(row).collect()
}

fn show(v: f64) -> String {
    if !v.is_finite() {
        return "-".to_owned();
    }
    if v != 0.0 && !(1e-3..1e6).contains(&v.abs()) {
        return format!("{v:.3e}");
    }
    let digits = if v.abs() >= 1000.0 { 1 } else { 4 };
    format!("{v:.digits$}")
}

/// The table for reading.
pub(crate) fn to_text(reports: &[Report]) -> String {
    let mut out = String::new();
    if let (Some(first), Some(last)) = (reports.first(), reports.last()) {
        let _ = writeln!(
            out,
            "seeds {} to {}, horizon {} s, warm-up {} s; 95 % intervals over the runs\n",
            first.run.seed, last.run.seed, first.run.horizon, first.run.warmup
        );
    }
    let rows: Vec<[String; 5]> = rows(reports)
        .into_iter()
        .map(|(name, a)| [name, show(a.mean), show(a.half_width), show(a.min), show(a.max)])
        .collect();
    let head = ["", "mean", "+-", "min", "max"].map(str::to_owned);
    let width =
        |k: usize| rows.iter().chain([&head]).map(|row| row[k].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    for row in [&head].into_iter().chain(&rows) {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for k in 1..5 {
            let _ = write!(line, "  {:>1$}", row[k], widths[k]);
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for report in reports {
        for note in &report.notes {
            let _ = writeln!(out, "{}: seed {}: {}", note.code, report.run.seed, note.text);
        }
    }
    out
}

/// `{"across": {name: {mean, half_width, min, max, runs}}, "reports": [...]}`; the reports are in the
/// form of a single run.
pub(crate) fn to_json(reports: &[Report]) -> String {
    let mut table = serde_json::Map::new();
    for (name, a) in rows(reports) {
        let values = json!({
            "mean": a.mean, "half_width": a.half_width, "min": a.min, "max": a.max, "runs": a.runs,
        });
        table.insert(name, values);
    }
    let reports: Vec<Value> =
        reports.iter().map(|r| serde_json::from_str(&r.to_json()).unwrap_or(Value::Null)).collect();
    format!("{:#}\n", json!({ "across": table, "reports": reports }))
}

#[cfg(test)]
mod tests {
    use super::across;

    #[test]
    fn intervals_over_runs() {
        // By hand: mean 3, standard deviation 1, three runs: 4.302_653 / sqrt(3).
        let a = across([2.0, 3.0, 4.0, f64::NAN].into_iter());
        assert_eq!((a.mean, a.min, a.max, a.runs), (3.0, 2.0, 4.0, 3));
        assert!((a.half_width - 2.484_14).abs() < 1e-5, "{}", a.half_width);
        assert!(across([1.0].into_iter()).half_width.is_nan());
    }
}
