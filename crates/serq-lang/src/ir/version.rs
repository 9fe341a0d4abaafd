//! Which version a program needs.
//!
//! Version 6 adds meanings and takes none away, so a program that uses none of them stays at
//! version 5 and every reader of version 5 understands it.

use super::expr::{CExpr, Ctx, Fun};
use super::program::{Arrival, CPreempt, CQueue, CServe, CStageKind, Program};
use super::stmt::{CStmt, RunMode};
use super::validate::Moment;
use super::{VERSION, VERSION_6};

/// The smallest version that has everything the program uses.
pub fn version_needed(program: &Program) -> u32 {
    if uses_six(program) { VERSION_6 } else { VERSION }
}

fn uses_six(p: &Program) -> bool {
    let arrival = match &p.arrival {
        Arrival::Renewal(_) | Arrival::Rates(_) | Arrival::Times(_) | Arrival::Trace => true,
        Arrival::Sessions(all) => all.iter().any(|s| s.at != 0.0 || !s.content.is_empty()),
        _ => false,
    };
    let pool = p.pools.iter().any(|p| {
        p.shared
            || matches!(p.queue, Some(CQueue::Keys { .. }))
            || matches!(p.preempt, CPreempt::By { .. })
    });
    let stage = p.stages.iter().any(|s| {
        matches!(&s.kind, CStageKind::Step(s)
            if s.serve == CServe::PrefillAlone || s.integral || s.ahead || s.fenced || s.stops.is_some())
    });
    let stmt = p.blocks.iter().flatten().any(|s| match s {
        CStmt::While(..)
        | CStmt::Book(_)
        | CStmt::Content { .. }
        | CStmt::Tell(_)
        | CStmt::Abandon(_)
        | CStmt::Renew(_)
        | CStmt::Until(..)
        | CStmt::Shield(_) => true,
        CStmt::Hold(hold) => {
            !hold.binds.is_empty()
                || hold.when.is_some()
                || hold.lease_on.is_some()
                || hold.booked.is_some()
        }
        CStmt::Run(run) => {
            !run.also.is_empty()
                || run.mode == RunMode::Steps
                || run.then.is_some()
                || run.answers.is_some()
                || run.first.is_some()
        }
        _ => false,
    });
    arrival
        || pool
        || stage
        || stmt
        || p.limit.is_some()
        || p.share.is_some()
        || p.slo.is_some()
        || !p.gauges.is_empty()
        || !p.tables.is_empty()
        || (p.horizon == f64::INFINITY && p.is_finite())
        || reads_six(p)
}

/// Whether an expression reads what version 5 does not know, or does not know there.
fn reads_six(p: &Program) -> bool {
    let mut found = false;
    p.each_expr(&mut |moment, e| {
        e.walk(&mut |e| {
            found |= match e {
                CExpr::Call(fun, _) => {
                    matches!(fun, Fun::Taking | Fun::Owed | Fun::Mine | Fun::Share)
                }
                CExpr::Ctx(Ctx::Admission) => moment != Moment::Serve,
                CExpr::Ctx(var) => matches!(var, Ctx::Ctxb | Ctx::Ctxp | Ctx::Nchunk),
                _ => false,
            };
        });
    });
    found
}
