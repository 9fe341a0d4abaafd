//! The report for reading: aligned tables in the order run, observes, stages, pools, notes.

use std::fmt::Write as _;

use super::Report;
use crate::program::label;

/// Numbers to five significant digits, without noise.
fn number(x: f64) -> String {
    if !x.is_finite() {
        return "-".to_owned();
    }
    if x == 0.0 {
        return "0".to_owned();
    }
    let size = x.abs();
    if size >= 1e6 || size < 1e-4 {
        return format!("{x:.4e}");
    }
    let digits = 4 - libm::floor(libm::log10(size)) as i32;
    let text = format!("{x:.*}", digits.max(0) as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Left-aligned first column, right-aligned others.
fn table(out: &mut String, head: &[&str], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let width = |k: usize| {
        rows.iter().map(|r| r[k].chars().count()).chain([head[k].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (k, cell) in cells.into_iter().enumerate() {
            let w = widths[k];
            let _ = if k == 0 { write!(text, "{cell:<w$}") } else { write!(text, "  {cell:>w$}") };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    };
    line(head.to_vec());
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
    out.push('\n');
}

pub(super) fn tables(r: &Report) -> String {
    let mut out = String::new();
    let run = &r.run;
    let _ = writeln!(
        out,
        "horizon {} s, warm-up {} s, seed {}: {} events, {} sessions came, {} ended with {} \
         turns, {} alive on average\n",
        number(run.horizon),
        number(run.warmup),
        run.seed,
        run.events,
        run.arrivals,
        run.ended,
        run.turns,
        number(run.mean_live),
    );
    let extra: Vec<String> = r.observes.first().map_or(Vec::new(), |o| {
        o.quantiles.iter().map(|q| format!("p{}", number(q.q * 100.0))).collect()
    });
    let mut head = vec!["observe", "count", "mean", "+-95%", "cv2", "p50", "p90", "p99"];
    head.extend(extra.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = r
        .observes
        .iter()
        .map(|o| {
            let values = [o.mean, o.half_width, o.cv2, o.p50, o.p90, o.p99];
            let mut row = vec![o.name.clone(), o.count.to_string()];
            row.extend(
                values.iter().chain(o.quantiles.iter().map(|q| &q.value)).map(|x| number(*x)),
            );
            row
        })
        .collect();
    table(&mut out, &head, &rows);
    let rows: Vec<Vec<String>> = r
        .gauges
        .iter()
        .map(|g| {
            let mut row = vec![g.name.clone()];
            row.extend([g.mean, g.half_width, g.min, g.max].map(number));
            row
        })
        .collect();
    table(&mut out, &["gauge", "mean", "+-95%", "min", "max"], &rows);
    let head =
        ["stage", "kind", "present", "busy", "done", "per s", "wait", "service", "iterations"];
    let rows: Vec<Vec<String>> = r
        .stages
        .iter()
        .map(|s| {
            vec![
                label(&s.name, s.member),
                s.kind.to_owned(),
                number(s.mean_present),
                number(s.utilisation),
                s.completed.to_string(),
                number(s.throughput),
                number(s.mean_wait),
                number(s.mean_service),
                if s.kind == "step" { s.iterations.to_string() } else { "-".to_owned() },
            ]
        })
        .collect();
    table(&mut out, &head, &rows);
    let head = [
        "pool",
        "cap",
        "used",
        "cached",
        "queue",
        "holders",
        "wait",
        "admitted",
        "evicted",
        "preempted",
        "spilled",
        "rejected",
        "stuck",
    ];
    let rows: Vec<Vec<String>> = r
        .pools
        .iter()
        .map(|p| {
            vec![
                label(&p.name, p.member),
                if p.cap.is_finite() { number(p.cap) } else { "inf".to_owned() },
                number(p.mean_used),
                number(p.mean_cached),
                number(p.mean_queue),
                number(p.mean_holders),
                number(p.mean_wait),
                p.admissions.to_string(),
                number(p.evicted_units),
                p.preemptions.to_string(),
                p.spills.to_string(),
                p.rejected.to_string(),
                p.stuck.to_string(),
            ]
        })
        .collect();
    table(&mut out, &head, &rows);
    for note in &r.notes {
        let _ = writeln!(out, "{}: {}", note.code, note.text);
    }
    out
}
