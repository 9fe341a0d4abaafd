//! An allocation that was found to fit: units, what of them is there already, and who holds them.

use crate::What;
use crate::engine::Engine;
use crate::error::{Reason, Result};
use crate::pool::cache::Entry;
use crate::pool::shared::NONE;
use crate::session::{Claim, Fed, Pending};

impl Engine<'_> {
    /// Allocates what an attempt found to fit. `waited` is the time to enter for who waited in this
    /// pool's queue.
    pub(crate) fn claim(
        &mut self,
        s: u32,
        claim: &Pending,
        reuse: Option<f64>,
        record: u64,
        waited: Option<f64>,
    ) -> Result<Claim> {
        let (now, p) = (self.w.now, claim.pool);
        let shared = self.w.pools[p as usize].shared.is_some();
        let (alloc, position, holder) = if shared {
            self.w.pools[p as usize].add_holder(now);
            self.open_shared(p, claim.units)?
        } else {
            let position = self.consume(s, p, reuse);
            self.make_room(p, claim.units)?;
            let pool = &mut self.w.pools[p as usize];
            pool.add_holder(now);
            pool.allocate(now, claim.units);
            (claim.units, position, NONE)
        };
        let pool = &mut self.w.pools[p as usize];
        pool.stats.admissions += 1;
        if let (Some(waited), true) = (waited, self.warm) {
            pool.stats.wait.add(waited);
        }
        self.tell(s, What::Admitted { pool: p as usize, cached: position });
        Ok(Claim {
            pool: p,
            alloc,
            position,
            record,
            since: now,
            active: true,
            holder,
            decided: position,
            fed: Fed::default(),
        })
    }

    /// Takes the blocks of the attempt's hit and blank ones: units, those found, and their holder.
    fn open_shared(&mut self, p: u32, units: f64) -> Result<(f64, f64, u32)> {
        let now = self.w.now;
        let hit = self.w.hits.iter().position(|(of, _)| *of == p);
        let pool = &mut self.w.pools[p as usize];
        let opened = hit.zip(pool.shared.as_mut()).and_then(|(k, shared)| {
            let (_, hit) = self.w.hits.swap_remove(k);
            let found = hit.tokens() as f64;
            let holder = shared.open(hit, units)?;
            Some((shared.alloc(holder), found, holder))
        });
        pool.note_shared(now);
        opened.ok_or_else(|| {
            Reason::new(
                "shared",
                format!("pool `{}` has less than it had", self.c.pool_name(p as usize)),
                "this is a mistake of the simulator: please report it",
            )
        })
    }

    /// Takes the session's own prefix out of the cache; what may not be reused of it stays, dead.
    /// Returns the units reused.
    pub(crate) fn consume(&mut self, s: u32, p: u32, reuse: Option<f64>) -> f64 {
        let now = self.w.now;
        let Some(at) = self.w.sessions[s as usize].own_entry(p) else { return 0.0 };
        self.w.sessions[s as usize].forget_entry(p);
        let snapshot = self.snapshot(s);
        let pool = &mut self.w.pools[p as usize];
        let own = pool.cache.remove(at);
        let taken = reuse.map_or(own.size, |r| own.size.min(pool.round_down(r)));
        if own.size > taken && pool.cap == f64::INFINITY {
            pool.cache.add_anonymous(own.size - taken);
        } else if own.size > taken {
            let mut dead = Entry::new(own.size - taken, own.last, own.release);
            dead.attrs = snapshot;
            pool.cache.insert(dead);
        }
        pool.note_cached(now);
        taken
    }
}
