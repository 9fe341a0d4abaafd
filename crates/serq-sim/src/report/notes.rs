//! What the reader of a report should know before the numbers.

use serq_lang::ir::Arrival;

use super::{Note, Report};
use crate::engine::Engine;
use crate::program::label;
use crate::stats::trend::{WINDOWS, line};

/// Fewest sessions after the warm-up from which a trend is read.
const FEWEST: u64 = 40;
/// Smallest change over the run, relative to the mean, that is called one.
const CHANGE: f64 = 0.2;

/// Codes of notes that say the run is not what its numbers pretend.
pub const SERIOUS: [&str; 6] =
    ["rejected", "stuck", "unfinished", "deadlock", "overloaded", "not-steady"];

pub(super) fn notes(e: &Engine<'_>, r: &Report) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |code, text| notes.push(Note { code, text });
    for p in &r.pools {
        let name = label(&p.name, p.member);
        if p.rejected > 0 {
            let text =
                format!("pool {name}: {} session(s) asked for more than its cap", p.rejected);
            note("rejected", text);
        }
        if p.stuck > 0 {
            let text =
                format!("pool {name}: {} session(s) preempted again without progress", p.stuck);
            note("stuck", text);
        }
    }
    for o in &r.observes {
        if o.count > 0 && o.min == o.max {
            note("constant", format!("observe {} is {} in all {} samples", o.name, o.min, o.count));
        }
        if o.count == 0 {
            note("no-samples", format!("observe {} has no samples", o.name));
        }
    }
    if let Some((code, text)) = settled(e, r) {
        note(code, text);
    }
    if e.c.ir.is_finite() && r.run.live > 0 {
        let text = format!("{} of {} sessions had not ended", r.run.live, r.run.arrivals);
        note("unfinished", text);
    }
    if let Some(deadlock) = &r.deadlock {
        note("deadlock", deadlock.summary());
    }
    notes
}

/// Whether the load is more than is served, or else whether there is a trend.
///
/// Overload is a backlog that grows beyond chance, by most of the difference between the sessions
/// that came and those that ended, if that difference is more than the scatter of the former's
/// number. Sessions that think do not count: their number grows for a while in every run.
fn settled(e: &Engine<'_>, r: &Report) -> Option<(&'static str, String)> {
    let open = !matches!(
        e.c.ir.arrival,
        Arrival::None | Arrival::Closed(_) | Arrival::Batch(_) | Arrival::Sessions(_)
    );
    let came = e.arrived - e.arrived_before;
    if !open || came < FEWEST || !e.trend.is_complete() {
        return None;
    }
    let (alive, backlog) = (e.trend.windows(0), e.trend.windows(1));
    let span = r.run.horizon - r.run.warmup;
    let excess = came as f64 - r.run.ended as f64;
    let trend = line(backlog);
    let growth = backlog[WINDOWS - 1] - backlog[0];
    if trend.certain && excess > 2.0 * (came as f64).sqrt() && growth > excess / 2.0 {
        let text = format!(
            "{:.4} sessions came per second and {:.4} ended; {:.0} were in the deployment in the \
             first tenth of the run, {:.0} in the last{}",
            came as f64 / span,
            r.run.ended as f64 / span,
            backlog[0],
            backlog[WINDOWS - 1],
            fastest(e)
        );
        return Some(("overloaded", text));
    }
    [("alive", alive), ("in the deployment", backlog)].into_iter().find_map(|(what, windows)| {
        let line = line(windows);
        let change = line.slope * (WINDOWS - 1) as f64;
        let large = change.abs() > CHANGE * line.mean && change.abs() > 1.0;
        (line.certain && large).then(|| {
            let text = format!(
                "the number of sessions {what} {} from {:.1} to {:.1} over the run: take a longer \
                 warm-up and run",
                if change > 0.0 { "grew" } else { "fell" },
                line.mean - change / 2.0,
                line.mean + change / 2.0,
            );
            ("not-steady", text)
        })
    })
}

/// Where the backlog grows fastest.
fn fastest(e: &Engine<'_>) -> String {
    let stages = e.w.stages.len();
    let mut most: Option<(f64, String)> = None;
    for k in 0..stages + e.w.pools.len() {
        let windows = e.trend.windows(2 + k);
        let growth = windows[WINDOWS - 1] - windows[0];
        if growth > most.as_ref().map_or(0.0, |m| m.0) {
            let name = if k < stages {
                format!("stage {}", e.c.stage_name(k))
            } else {
                format!("the queue of pool {}", e.c.pool_name(k - stages))
            };
            most = Some((growth, name));
        }
    }
    most.map_or(String::new(), |(_, name)| format!("; {name} grew most"))
}
