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
    requests(&mut out, r);
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
    engines(&mut out, r);
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

fn requests(out: &mut String, r: &Report) {
    let Some(requests) = &r.requests else { return };
    let extra: Vec<String> =
        requests.ttft.quantiles.iter().map(|q| format!("p{}", number(q.q * 100.0))).collect();
    let mut head = vec!["requests", "count", "mean", "+-95%", "p50", "p90", "p95", "p99"];
    head.extend(extra.iter().map(String::as_str));
    let row = |(name, m): (&str, &super::requests::Measure)| {
        let values = [m.mean, m.half_width, m.p50, m.p90, m.p95, m.p99];
        let mut row = vec![name.replace('_', " "), m.count.to_string()];
        row.extend(values.iter().chain(m.quantiles.iter().map(|q| &q.value)).map(|x| number(*x)));
        row
    };
    table(out, &head, &requests.measures().map(row));
    // The table ends with an empty line; what follows belongs to it.
    out.pop();
    let _ = writeln!(
        out,
        "{} answered, {} per second with {} tokens per second; {} unfinished, {} rejected",
        requests.count,
        number(requests.per_second),
        number(requests.tokens_per_second),
        requests.unfinished,
        requests.rejected,
    );
    if let Some(slo) = &requests.slo {
        let bounds: Vec<String> =
            slo.bounds.bounds().map(|(name, bound)| format!("{name} {}", number(bound))).collect();
        let _ = writeln!(
            out,
            "slo {}: {} % +- {} within, goodput {} +- {} per second",
            bounds.join(" "),
            number(slo.attainment * 100.0),
            number(slo.attainment_half_width * 100.0),
            number(slo.goodput),
            number(slo.goodput_half_width),
        );
    }
    out.push('\n');
}

/// How the engines spent their time.
fn engines(out: &mut String, r: &Report) {
    let head = [
        "engine",
        "prefill",
        "decode",
        "mixed",
        "empty",
        "idle",
        "prefill tokens",
        "decode tokens",
        "decode batch",
    ];
    let rows: Vec<Vec<String>> = r
        .stages
        .iter()
        .filter_map(|s| {
            let t = s.split?;
            let values = [
                t.prefill,
                t.decode,
                t.mixed,
                t.empty,
                t.idle,
                t.prefill_tokens,
                t.decode_tokens,
                t.mean_decode_batch,
            ];
            let mut row = vec![label(&s.name, s.member)];
            row.extend(values.map(number));
            Some(row)
        })
        .collect();
    table(out, &head, &rows);
}
