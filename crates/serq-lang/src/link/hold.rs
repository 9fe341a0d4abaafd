//! Holds: what is claimed, the header's bindings, the clauses behind the body.

use super::names::{Binds, Body};
use super::{Linker, place};
use crate::ast::{self, Hold, Ref};
use crate::diag::{Code, Diagnostic};
use crate::ir::{CHold, CRef, Claim};

impl<'a> Linker<'a> {
    /// What a hold claims, and whether something was wrong with it.
    fn claims(&mut self, claims: &'a [ast::Claim]) -> (Vec<Claim>, bool) {
        let mut linked = Vec::with_capacity(claims.len());
        let mut wrong = false;
        for claim in claims {
            let units = self.amount(&claim.units, place::UNITS);
            let reserve = claim.reserve.as_ref().map(|e| self.amount(e, place::RESERVE));
            let pool = self.without_binds(|l| l.pool_ref(&claim.pool, place::CLAIM_INDEX));
            match pool {
                Some(pool) => linked.push(Claim(pool, units, reserve)),
                None => wrong = true,
            }
        }
        (linked, wrong)
    }

    pub(super) fn hold(&mut self, hold: &'a Hold) -> Option<Box<CHold>> {
        let outer = self.binds.replace(Binds {
            list: &hold.binds,
            visible: hold.binds.len(),
            done: vec![[None, None]; hold.binds.len()],
        });
        let mut linked = self.header(hold);
        let header = self.binds.take();
        self.bodies.push(Body::new(&hold.binds));
        let body = self.block(&hold.body);
        let read = self.bodies.pop();
        self.binds = header;
        let binds = read.map(|read| self.kept(&read)).unwrap_or_default();
        self.binds = outer;
        if let Some(linked) = &mut linked {
            (linked.body, linked.binds) = (body, binds);
        }
        linked
    }

    /// A hold without its body and what that reads of the bindings.
    fn header(&mut self, hold: &'a Hold) -> Option<Box<CHold>> {
        let (claims, wrong) = self.claims(&hold.claims);
        let reuse = hold.reuse.as_ref().map(|e| self.amount(e, place::REUSE));
        let when = hold.when.as_ref().map(|e| self.expr(e, place::WHEN));
        let cache = hold.cache.as_ref().map(|e| self.amount(e, place::CACHE));
        let lease = hold.lease.as_ref().map(|lease| {
            let time = self.amount(&lease.time, place::LEASE);
            (self.without_binds(|l| l.pool_ref(&lease.pool, place::INDEX)), time)
        });
        let lease_on = match hold.lease.as_ref().and_then(|l| l.on.as_ref()) {
            Some(stage) => self.without_binds(|l| l.stage_ref(stage, place::INDEX)).map(Some),
            None => Some(None),
        };
        self.unused_binds();
        let lease = match lease {
            Some((None, _)) => return None,
            Some((Some(pool), time)) => {
                let names = hold.lease.as_ref().map(|l| &l.pool);
                if !wrong {
                    self.leased(&pool, &claims, names);
                }
                Some((pool, time))
            }
            None => None,
        };
        let booked = hold.booking.as_ref().and_then(|name| self.bookings.number(&name.text));
        let lease_on = lease_on?;
        (!wrong).then(|| {
            let hold = CHold::new(claims, 0);
            Box::new(CHold { reuse, cache, lease, when, lease_on, booked, ..hold })
        })
    }

    fn leased(&mut self, pool: &CRef, claims: &[Claim], written: Option<&Ref>) {
        let Some(written) = written.filter(|_| !claims.iter().any(|c| c.0 == *pool)) else {
            return;
        };
        let claimed: Vec<String> =
            claims.iter().map(|c| super::show_ref(&c.0, &self.pools)).collect();
        let message =
            format!("the hold does not claim `{}`, so it cannot lease it", written.name.text);
        let d = Diagnostic::new(Code::E0417, written.span, message).help(format!(
            "it claims {}: write one of them, with the same index",
            claimed.join(", ")
        ));
        self.report(d);
    }
}
