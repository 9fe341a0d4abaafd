//! Every expression of a program, with the moment it is evaluated at.
//!
//! For questions about a program as a whole: what it reads, which version it needs, whether a
//! reader knows all that it says.

use super::expr::{CExpr, CRef};
use super::program::{Arrival, CEvict, CPreempt, CServe, CStageKind, Program};
use super::stmt::{CSegment, CStmt, CTell};
use super::validate::Moment;

impl Program {
    /// Calls `f` on each expression, in order of declaration; parts of an expression are its own
    /// affair ([`CExpr::walk`]).
    pub fn each_expr<'a>(&'a self, f: &mut dyn FnMut(Moment, &'a CExpr)) {
        for pool in &self.pools {
            if let CEvict::By(keys) = &pool.evict {
                keys.iter().for_each(|e| f(Moment::Evict, e));
            }
            if let CPreempt::By { keys, requeue } = &pool.preempt {
                keys.iter().chain([requeue]).for_each(|e| f(Moment::Victim, e));
            }
            if let Some(queue) = &pool.queue {
                let moment = if queue.is_live() { Moment::Select } else { Moment::Queue };
                queue.keys().iter().for_each(|e| f(moment, e));
            }
            if let Some(spill) = &pool.spill {
                [&spill.work, &spill.when].into_iter().for_each(|e| f(Moment::Evict, e));
            }
        }
        for stage in &self.stages {
            match &stage.kind {
                CStageKind::Ps(capacity) => f(Moment::Ps, capacity),
                CStageKind::Step(step) => {
                    f(Moment::Budget, &step.budget);
                    f(Moment::Budget, &step.chunk);
                    f(Moment::Step, &step.cost);
                    if let CServe::By(keys) = &step.serve {
                        keys.iter().for_each(|e| f(Moment::Serve, e));
                    }
                }
                CStageKind::Fifo(_) | CStageKind::Delay => {}
            }
        }
        if let Arrival::Renewal(gap) = &self.arrival {
            f(Moment::Gap, gap);
        }
        self.gauges.iter().for_each(|g| f(Moment::Gauge, &g.value));
        self.blocks.iter().flatten().for_each(|s| s.each_expr(f));
    }
}

impl CStmt {
    /// The same for one statement; not for the blocks in it.
    pub fn each_expr<'a>(&'a self, f: &mut dyn FnMut(Moment, &'a CExpr)) {
        let mut at = |r: &'a CRef| r.index.iter().for_each(|e| f(Moment::Session, e));
        match self {
            CStmt::Turn | CStmt::End | CStmt::Loop(_) | CStmt::Book(_) | CStmt::Shield(_) => {}
            CStmt::Set(_, e)
            | CStmt::Observe(_, e)
            | CStmt::Branch(e, ..)
            | CStmt::While(e, _)
            | CStmt::Until(e, ..) => f(Moment::Session, e),
            CStmt::Drop(r) | CStmt::Release(r) | CStmt::Abandon(r) => at(r),
            CStmt::Grow(r, e) | CStmt::Load(r, e) => {
                at(r);
                f(Moment::Session, e);
            }
            CStmt::Choose { count, key, .. } => {
                f(Moment::Session, count);
                f(Moment::Session, key);
            }
            CStmt::Content { parts, .. } => {
                for CSegment(key, length) in parts {
                    f(Moment::Session, key);
                    f(Moment::Session, length);
                }
            }
            CStmt::Tell(tell) => tell.each_expr(f),
            CStmt::Renew(renew) => {
                at(&renew.pool);
                at(&renew.from);
                f(Moment::Session, &renew.time);
                f(Moment::Session, &renew.every);
                renew.after.iter().for_each(|e| f(Moment::Session, e));
            }
            CStmt::Run(run) => {
                [&run.stage].into_iter().chain(&run.growing).chain(&run.also).for_each(at);
                [&run.work].into_iter().chain(&run.then).for_each(|e| f(Moment::Session, e));
                run.telling.iter().for_each(|t| t.each_expr(f));
            }
            CStmt::Hold(hold) => {
                let leased = hold.lease.iter().map(|(r, _)| r);
                hold.pools.iter().map(|c| &c.0).chain(leased).chain(&hold.lease_on).for_each(at);
                let claims = hold.pools.iter().flat_map(|c| [Some(&c.1), c.2.as_ref()]).flatten();
                let binds = hold.binds.iter().map(|b| &b.1);
                let header = claims.chain(&hold.reuse).chain(&hold.when).chain(binds);
                header.for_each(|e| f(Moment::Admit, e));
                let behind = hold.cache.iter().chain(hold.lease.iter().map(|(_, e)| e));
                behind.for_each(|e| f(Moment::Session, e));
            }
        }
    }
}

impl CTell {
    fn each_expr<'a>(&'a self, f: &mut dyn FnMut(Moment, &'a CExpr)) {
        for r in [&self.pool].into_iter().chain(&self.on) {
            r.index.iter().for_each(|e| f(Moment::Session, e));
        }
        self.after.iter().for_each(|e| f(Moment::Session, e));
    }
}
