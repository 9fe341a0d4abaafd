//! Leases that an engine minds, and bookings: what a statement about one needs elsewhere.

use super::stmt::Walk;
use super::{At, Check, Moment};
use crate::ir::{CExpr, CHold, CRef, CRenew, CStmt, CTell};

impl<'p> Check<'p> {
    /// A message that a lease can end.
    pub(super) fn tell(&mut self, walk: &Walk<'p>, tell: &'p CTell, at: &At) {
        self.is_leased(walk, &tell.pool, "telling", at);
        if let Some(on) = &tell.on {
            self.minds(walk, on, "hears that a lease can end", at);
        }
        if let Some(after) = &tell.after {
            self.expr(after, Moment::Session, true, &at.field("after"));
        }
    }

    pub(super) fn abandon(&mut self, walk: &Walk<'p>, pool: &'p CRef, at: &At) {
        if !self.is_leased(walk, pool, "abandon", at) {
            return;
        }
        let unbounded = |hold: &&CHold| matches!(&hold.lease, Some((r, CExpr::Num(f64::INFINITY))) if r == pool);
        if walk.leases_of(pool).all(|hold| unbounded(&hold)) {
            let name = walk.name(pool);
            let reason = format!("a lease of pool `{name}` without a bound is abandoned");
            let help = "only its bound ends it then: give the lease a time";
            self.error(at, "abandon", reason, help);
        }
    }

    pub(super) fn renew(&mut self, walk: &Walk<'p>, renew: &'p CRenew, at: &At) {
        let pool = &renew.pool;
        if self.is_leased(walk, pool, "renew", at)
            && walk.leases_of(pool).all(|hold| hold.lease_on.is_none())
        {
            let name = walk.name(pool);
            let reason = format!("no stage minds the bound of a lease of pool `{name}`");
            self.error(at, "lease-on", reason, "say which: lease P (seconds) on S");
        }
        self.expr(&renew.time, Moment::Session, true, &at.field("time"));
        self.expr(&renew.every, Moment::Session, true, &at.field("every"));
        if let Some(after) = &renew.after {
            self.expr(after, Moment::Session, true, &at.field("after"));
        }
        self.minds(walk, &renew.from, "renews a lease", at);
    }

    /// `lease P (t) on S`
    pub(super) fn lease_on(&mut self, walk: &Walk<'p>, hold: &'p CHold, at: &At) {
        let Some(stage) = &hold.lease_on else { return };
        let at = &at.field("lease_on");
        if hold.lease.is_none() {
            let reason = "a stage minds the lease of a hold that leases nothing";
            self.error(at, "lease-on", reason, "write the lease, or leave the stage out");
        }
        self.minds(walk, stage, "minds a lease", at);
    }

    /// What an engine does about leases it does in its iterations.
    fn minds(&mut self, walk: &Walk<'p>, stage: &'p CRef, does: &str, at: &At) {
        if let Some(index) = &stage.index {
            self.expr(index, Moment::Session, false, at);
        }
        if self.family(stage, walk.program.stages.len(), "stage", at) && !self.is_step(stage) {
            let name = &walk.program.stages[stage.base].name;
            let reason = format!("`{name}`, no step stage, {does}");
            self.error(at, "lease-on", reason, "only a step stage iterates");
        }
    }

    fn is_leased(&mut self, walk: &Walk<'p>, pool: &'p CRef, what: &str, at: &At) -> bool {
        if !self.pool_ref(pool, at) {
            return false;
        }
        let leased = walk.leases_of(pool).next().is_some();
        if !leased {
            let name = walk.name(pool);
            let reason = format!("`{what}` of pool `{name}`, which no hold leases");
            let help = "write `lease P (seconds)` behind a hold, same pool and same index";
            self.error(at, "lease-none", reason, help);
        }
        leased
    }

    /// A booking is of one hold, and a hold that is booked is booked somewhere.
    pub(super) fn booked(&mut self, walk: &Walk<'p>, number: usize, at: &At) {
        let holds = walk.holds.iter().filter(|h| h.booked == Some(number)).count();
        if holds == 0 {
            let reason = format!("no hold enters booking {number}");
            self.error(at, "book", reason, "write the hold that is booked: `enter NAME if ...`");
        }
    }

    pub(super) fn enters(&mut self, walk: &Walk<'p>, number: usize, at: &At) {
        if walk.holds.iter().filter(|h| h.booked == Some(number)).count() > 1 {
            let reason = format!("two holds enter booking {number}");
            self.error(at, "enter", reason, "give each a booking of its own");
        }
        let books = walk.program.blocks.iter().flatten();
        if !books.into_iter().any(|s| *s == CStmt::Book(number)) {
            let reason = format!("a hold enters booking {number}, which nothing books");
            self.error(at, "enter", reason, "write `book NAME;` before, or `admit if` here");
        }
    }
}
