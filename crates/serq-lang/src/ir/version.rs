//! Which version a program needs.
//!
//! Version 6 adds meanings and takes none away, so a program that uses none of them stays at
//! version 5 and every reader of version 5 understands it.

use super::program::{Arrival, CQueue, CStageKind, Program};
use super::stmt::CStmt;
use super::{VERSION, VERSION_6};

/// The smallest version that has everything the program uses.
pub fn version_needed(program: &Program) -> u32 {
    if uses_six(program) { VERSION_6 } else { VERSION }
}

fn uses_six(p: &Program) -> bool {
    let arrival = matches!(
        p.arrival,
        Arrival::Renewal(_) | Arrival::Rates(_) | Arrival::Times(_) | Arrival::Trace
    );
    let pool = p.pools.iter().any(|p| p.shared || matches!(p.queue, Some(CQueue::Keys { .. })));
    let stage = p.stages.iter().any(|s| matches!(&s.kind, CStageKind::Step(s) if s.integral));
    let stmt = p.blocks.iter().flatten().any(|s| match s {
        CStmt::While(..) | CStmt::Book(_) | CStmt::Enter(_) => true,
        CStmt::Hold(hold) => !(hold.binds.is_empty() && hold.names.is_empty()),
        CStmt::Run(run) => !run.also.is_empty(),
        _ => false,
    });
    arrival
        || pool
        || stage
        || stmt
        || p.limit.is_some()
        || p.share.is_some()
        || !p.gauges.is_empty()
        || (p.horizon == f64::INFINITY && p.is_finite())
}
