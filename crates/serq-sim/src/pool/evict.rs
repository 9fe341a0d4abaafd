//! What leaves the cache when room is needed, and where it goes.

use serq_lang::ir::Ctx;

use crate::engine::Engine;
use crate::error::{Reason, Result, Subject, amount};
use crate::expr::{Env, NO_VARS, Vars};
use crate::pool::cache::Entry;
use crate::stage::Mode;

impl Engine<'_> {
    /// Evicts until `units` more fit beside the cache. The caller knows that they fit without it.
    pub(crate) fn make_room(&mut self, p: u32, units: f64) -> Result<()> {
        while !self.w.pools[p as usize].has_room(units) {
            let Some(at) = self.next_to_evict(p).map_err(|r| r.about(Subject::Pool(p)))? else {
                break;
            };
            self.evict(p, at).map_err(|r| r.about(Subject::Pool(p)))?;
        }
        Ok(())
    }

    /// Smallest keys first, then the earliest release.
    fn next_to_evict(&mut self, p: u32) -> Result<Option<u32>> {
        let plan = &self.c.pools[p as usize];
        if plan.lru {
            return Ok(self.w.pools[p as usize].cache.oldest());
        }
        let Engine { w, c, evict_rng, .. } = self;
        let mut best: Option<(Vec<f64>, u64, u32)> = None;
        for (at, entry) in w.pools[p as usize].cache.iter() {
            let vars = entry_vars(w, entry, entry.size);
            let env = entry_env(w, entry, &vars);
            let mut keys = Vec::with_capacity(plan.evict.len());
            for &key in &plan.evict {
                let value = c.code.eval(key, w, &env, evict_rng)?;
                if value.is_nan() {
                    return Err(Reason::new(
                        "key",
                        "an eviction key is not a number".into(),
                        "check the expression for a division by zero",
                    ));
                }
                keys.push(value);
            }
            let smaller = best.as_ref().is_none_or(|(k, release, _)| match keys.partial_cmp(k) {
                Some(std::cmp::Ordering::Equal) | None => entry.release < *release,
                Some(order) => order.is_lt(),
            });
            if smaller {
                best = Some((keys, entry.release, at));
            }
        }
        Ok(best.map(|(_, _, at)| at))
    }

    /// Takes one block off the tail of an entry, or all of it in a pool without blocks.
    fn evict(&mut self, p: u32, at: u32) -> Result<()> {
        let now = self.w.now;
        let pool = &mut self.w.pools[p as usize];
        let size = pool.cache.size(at);
        let units = pool.block.map_or(size, |b| b.min(size));
        let entry = if units < size {
            let entry = pool.cache.get(at).clone();
            pool.cache.shrink(at, units);
            entry
        } else {
            pool.stats.evicted_entries += 1;
            let entry = pool.cache.remove(at);
            if let Some(owner) = entry.owner {
                self.w.sessions[owner as usize].forget_entry(p);
            } else if let Some(serial) = entry.serial {
                pool.orphans.remove(&serial);
            }
            entry
        };
        let pool = &mut self.w.pools[p as usize];
        pool.stats.evicted_units += units;
        pool.note_cached(now);
        if self.c.pools[p as usize].spill.is_some() && entry.serial.is_some() {
            self.spill(p, &entry, units)?;
        }
        Ok(())
    }

    /// Offers evicted units to the tier. In the clause, `size` is the units that move.
    fn spill(&mut self, p: u32, entry: &Entry, units: f64) -> Result<()> {
        let c = self.c;
        let Some(plan) = &c.pools[p as usize].spill else { return Ok(()) };
        let Engine { w, evict_rng, .. } = self;
        let vars = entry_vars(w, entry, units);
        let env = entry_env(w, entry, &vars);
        if c.code.eval(plan.when, w, &env, evict_rng)? == 0.0 {
            return Ok(());
        }
        let work = c.code.eval(plan.work, w, &env, evict_rng)?;
        let work = amount(work, "the work of a spill")?;
        let tier = &w.pools[plan.to as usize];
        let units = tier.round_down(units.min(tier.cap - tier.used));
        if units <= 0.0 {
            return Ok(());
        }
        // The tier has no spill path back here: the validator refuses circles.
        self.make_room(plan.to, units)?;
        self.add_to_tier(plan.to, entry, units);
        self.w.pools[p as usize].stats.spills += 1;
        if work > 0.0 {
            self.join(plan.via, None, work, Mode::Plain, None)?;
        }
        Ok(())
    }

    /// Adds to the entry the session has in the tier, as released now.
    fn add_to_tier(&mut self, tier: u32, from: &Entry, units: f64) {
        let now = self.w.now;
        let pool = &mut self.w.pools[tier as usize];
        if from.owner.is_none() && pool.cap == f64::INFINITY {
            pool.cache.add_anonymous(units);
            pool.note_cached(now);
            return;
        }
        self.releases += 1;
        let release = self.releases;
        let old = match (from.owner, from.serial) {
            (Some(s), _) => self.w.sessions[s as usize].own_entry(tier),
            (None, Some(serial)) => self.w.pools[tier as usize].orphans.get(&serial).copied(),
            (None, None) => None,
        };
        let pool = &mut self.w.pools[tier as usize];
        let before = old.map_or(0.0, |at| pool.cache.remove(at).size);
        let mut entry = Entry::new(before + units, now, release);
        entry.owner = from.owner;
        entry.serial = from.serial;
        entry.attrs = from.attrs.clone();
        let at = pool.cache.insert(entry);
        pool.note_cached(now);
        match (from.owner, from.serial) {
            (Some(s), _) => {
                let session = &mut self.w.sessions[s as usize];
                session.forget_entry(tier);
                session.cached.push((tier, at));
            }
            (None, Some(serial)) => {
                pool.orphans.insert(serial, at);
            }
            (None, None) => {}
        }
    }

    /// A copy of the session's attributes, if eviction can read them later.
    pub(crate) fn snapshot(&self, s: u32) -> Box<[f64]> {
        if self.c.snapshots { self.w.attrs(s).into() } else { Box::default() }
    }
}

fn entry_vars(w: &crate::world::World, entry: &Entry, size: f64) -> Vars {
    let mut vars = NO_VARS;
    let waits = entry.owner.is_some_and(|s| w.sessions[s as usize].status.is_queued());
    vars[Ctx::Size as usize] = size;
    vars[Ctx::Age as usize] = w.now - entry.last;
    vars[Ctx::Last as usize] = entry.last;
    vars[Ctx::Queued as usize] = f64::from(waits);
    vars
}

fn entry_env<'a>(w: &'a crate::world::World, entry: &'a Entry, vars: &'a Vars) -> Env<'a> {
    match entry.owner {
        Some(s) => Env { attrs: w.attrs(s), session: Some(s), vars },
        None => Env { attrs: &entry.attrs, session: None, vars },
    }
}
