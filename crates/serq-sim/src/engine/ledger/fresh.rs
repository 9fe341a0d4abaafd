//! An account made at once, to compare with.

use super::{Ledger, OfPool};
use crate::world::World;

impl Ledger {
    /// The account of a world, everything counted.
    pub(super) fn of(w: &World) -> Self {
        let mut ledger = Self::default();
        ledger.resize(w);
        for (p, pool) in (0..).zip(&w.pools) {
            pool.queue.iter().for_each(|who| ledger.moved(p, who, true));
            let entries = pool.cache.iter().map(|(at, e)| (at, Some(e.size))).collect();
            ledger.pools[p as usize].keep(entries);
        }
        (0..).zip(&w.sessions).for_each(|(s, of)| ledger.take_session(of, s));
        (0..).zip(&w.jobs).for_each(|(j, of)| ledger.take_job(of, j));
        (0..w.stages.len() as u32).for_each(|i| ledger.take_stage(w, i));
        ledger.take_abandoned(&w.abandoned);
        ledger
    }

    /// Where an account made at once differs, if anywhere.
    pub(in crate::engine) fn differs(&self, w: &World) -> Option<String> {
        let fresh = Self::of(w);
        let sorted = |of: &[u32]| {
            let mut of = of.to_vec();
            of.sort_unstable();
            of
        };
        for (s, (a, b)) in self.sessions.iter().zip(&fresh.sessions).enumerate() {
            if (&a.stands, &a.steps, &a.minders) == (&b.stands, &b.steps, &b.minders) {
                continue;
            }
            let (mut places, mut theirs) = (a.stands.clone(), b.stands.clone());
            places.sort_unstable();
            theirs.sort_unstable();
            let (steps, minders) = (sorted(&a.steps), sorted(&a.minders));
            if places != theirs || (steps, minders) != (sorted(&b.steps), sorted(&b.minders)) {
                return Some(format!("session slot {s}: {a:?} and {b:?}"));
            }
        }
        for (j, (a, b)) in self.jobs.iter().zip(&fresh.jobs).enumerate() {
            if a.rows != b.rows || !a.under_way.is_close(b.under_way) {
                return Some(format!("job {j}: {a:?} and {b:?}"));
            }
        }
        for (i, (a, b)) in self.stages.iter().zip(&fresh.stages).enumerate() {
            if a.population != b.population {
                return Some(format!("stage {i}: {a:?} and {b:?}"));
            }
        }
        for (p, (a, b)) in self.pools.iter().zip(&fresh.pools).enumerate() {
            let counts = |of: &OfPool| (of.holders, of.standing, of.count);
            let owned = |of: &OfPool, h: usize| of.owners.get(h).copied().unwrap_or_default();
            let numbers = a.owners.len().max(b.owners.len());
            if counts(a) != counts(b)
                || !a.held.is_close(b.held)
                || !a.cached.is_close(b.cached)
                || (0..numbers).any(|h| owned(a, h) != owned(b, h))
            {
                return Some(format!("pool {p}: {a:?} and {b:?}"));
            }
        }
        let blocks = w.pools.iter().filter_map(|p| p.shared.as_ref());
        let mut blocks = blocks.filter_map(|shared| shared.differs());
        let bounds = || (self.bounds != fresh.bounds).then(|| format!("{:?}", self.bounds));
        blocks.next().or_else(bounds)
    }
}
