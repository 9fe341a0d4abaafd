//! What the language has and this interpreter does not run yet.
//!
//! The form is ahead of the interpreter now and then; a program that uses what is missing is refused
//! by name instead of being run as another one. Whoever builds a part takes its line out.

use serq_lang::ir::{
    Arrival, CExpr, CPreempt, CStageKind, CStmt, Ctx, Fun, Moment, Program, RunMode,
};

/// The first part of a program that is not run yet, for a message.
pub(crate) fn missing(p: &Program) -> Option<String> {
    let shared = p.pools.iter().find(|p| p.shared).map(|p| format!("shared pool `{}`", p.name));
    let preempt = || {
        let by = p.pools.iter().find(|p| matches!(p.preempt, CPreempt::By { .. }))?;
        Some(format!("`preempt by` of pool `{}`", by.name))
    };
    let stage = || {
        p.stages.iter().find_map(|s| match &s.kind {
            CStageKind::Step(step) if step.ahead => Some(format!("`ahead` of stage `{}`", s.name)),
            CStageKind::Step(step) if step.stops.is_some() => {
                Some(format!("`stops` of stage `{}`", s.name))
            }
            _ => None,
        })
    };
    let sessions = || match &p.arrival {
        Arrival::Sessions(all) if all.iter().any(|s| s.at != 0.0 || !s.content.is_empty()) => {
            Some("sessions with a time or a content".to_owned())
        }
        _ => None,
    };
    let statement = || p.blocks.iter().flatten().find_map(|s| stmt(s).map(str::to_owned));
    shared.or_else(preempt).or_else(stage).or_else(sessions).or_else(statement).or_else(|| reads(p))
}

fn stmt(s: &CStmt) -> Option<&'static str> {
    match s {
        CStmt::Content { .. } => Some("`content`"),
        CStmt::Tell(_) => Some("`release on`"),
        CStmt::Abandon(_) => Some("`abandon`"),
        CStmt::Renew(_) => Some("`renew`"),
        CStmt::Until(..) => Some("`until`"),
        CStmt::Shield(_) => Some("`shield`"),
        CStmt::Hold(hold) if hold.when.is_some() => Some("`when` of a hold"),
        CStmt::Hold(hold) if hold.lease_on.is_some() => Some("`lease on`"),
        CStmt::Hold(hold) if hold.booked.is_some() && !hold.binds.is_empty() => {
            Some("bindings of a booked hold")
        }
        CStmt::Run(run) if run.mode == RunMode::Steps => Some("`run steps`"),
        CStmt::Run(run) if run.then.is_some() => Some("`run prefill decode`"),
        CStmt::Run(run) if run.answers.is_some() => Some("`answers`"),
        CStmt::Run(run) if run.first.is_some() => Some("`first`"),
        _ => None,
    }
}

fn reads(p: &Program) -> Option<String> {
    let mut found = None;
    p.each_expr(&mut |moment, e| {
        e.walk(&mut |e| match e {
            CExpr::Call(fun @ (Fun::Taking | Fun::Owed | Fun::Share), _) => {
                found = Some(format!("`{}`", fun.name()));
            }
            CExpr::Ctx(Ctx::Admission) if moment != Moment::Serve => {
                found = Some("`admission` outside a serving key".to_owned());
            }
            _ => {}
        });
    });
    found
}
