//! Several runs of one program, under different seeds.
//!
//! The runs are independent, so the spread of a mean over them gives an interval that no
//! correlation within a run can spoil: mean plus or minus Student's t times the standard deviation
//! over the root of their number.

use std::fmt::Write as _;

use serde_json::{Value, json};
use serq_sim::Report;

/// The 97.5 % point of Student's t with 1 to 30 degrees of freedom.
const T975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Student's t for a two-sided 95 % interval. Above 30 degrees of freedom by the first terms of
/// its expansion around the normal point (error below 1e-3).
fn t975(degrees: usize) -> f64 {
    match degrees {
        0 => f64::NAN,
        1..=30 => T975[degrees - 1],
        _ => {
            let z = 1.959_964;
            let n = degrees as f64;
            z + (z * z * z + z) / (4.0 * n)
        }
    }
}

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
    let half_width = t975(values.len().saturating_sub(1)) * (squares / (n - 1.0) / n).sqrt();
    Across {
        mean,
        half_width,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        runs: values.len(),
    }
}

/// Rows of the table: what, and its values over the runs.
fn rows(reports: &[Report]) -> Vec<(String, Across)> {
    let mut rows = Vec::new();
    let Some(first) = reports.first() else { return rows };
    for (k, observe) in first.observes.iter().enumerate() {
        let of = |f: fn(&serq_sim::ObserveReport) -> f64| {
            across(reports.iter().filter_map(|r| r.observes.get(k)).map(f))
        };
        rows.push((format!("{} mean", observe.name), of(|o| o.mean)));
        rows.push((format!("{} p50", observe.name), of(|o| o.p50)));
        rows.push((format!("{} p99", observe.name), of(|o| o.p99)));
    }
    let member = |name: &str, member: Option<usize>| {
        member.map_or_else(|| name.to_owned(), |i| format!("{name}[{i}]"))
    };
    for (k, stage) in first.stages.iter().enumerate() {
        let values = reports.iter().filter_map(|r| r.stages.get(k)).map(|s| s.utilisation);
        rows.push((format!("{} utilisation", member(&stage.name, stage.member)), across(values)));
    }
    for (k, pool) in first.pools.iter().enumerate() {
        let name = member(&pool.name, pool.member);
        let of = |f: fn(&serq_sim::PoolReport) -> f64| {
            across(reports.iter().filter_map(|r| r.pools.get(k)).map(f))
        };
        rows.push((format!("{name} used"), of(|p| p.mean_used)));
        rows.push((format!("{name} queue"), of(|p| p.mean_queue)));
    }
    rows
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
            let _ = writeln!(out, "note: seed {}: {}", report.run.seed, note.text);
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
    use super::{across, t975};

    #[test]
    fn intervals_over_runs() {
        // By hand: mean 3, standard deviation 1, three runs: 4.303 / sqrt(3).
        let a = across([2.0, 3.0, 4.0, f64::NAN].into_iter());
        assert_eq!((a.mean, a.min, a.max, a.runs), (3.0, 2.0, 4.0, 3));
        assert!((a.half_width - 2.4844).abs() < 1e-3, "{}", a.half_width);
        assert!(across([1.0].into_iter()).half_width.is_nan());
        // A table's value for 60 degrees of freedom.
        assert!((t975(60) - 2.000).abs() < 1e-3);
    }
}
