//! Shared pools, and runs over several stages: what the whole program must say about them.

use super::{At, Check};
use crate::ir::{CEvict, CExpr, CHold, CRef, CRun, CStageKind, RunMode};

/// Most tokens in a block of a shared pool, and most blocks in one.
const MOST: f64 = 4_294_967_294.0;

impl Check<'_> {
    /// A shared pool is made of whole blocks and evicts by itself.
    pub(super) fn shared_pool(&mut self, i: usize, at: &At) {
        let pool = &self.program.pools[i];
        let name = &pool.name;
        match pool.block {
            None => {
                let reason = format!("shared pool `{name}` has no blocks");
                self.error(
                    at,
                    "pool-shared",
                    reason,
                    "what is shared is whole blocks: say `block`",
                );
            }
            Some(block) => {
                let whole = block.fract() == 0.0 && (1.0..=MOST).contains(&block);
                if !whole || !(pool.cap / block <= MOST) {
                    let reason =
                        format!("shared pool `{name}` has {} units in blocks of {block}", pool.cap);
                    let help = "a finite cap, and blocks of a whole number of units";
                    self.error(at, "pool-shared", reason, help);
                }
            }
        }
        if pool.evict != CEvict::Lru || pool.spill.is_some() {
            let reason = format!("shared pool `{name}` has an eviction or spill clause");
            let help = "it gives up the blocks unused for longest, the end of a chain first";
            self.error(at, "pool-shared", reason, help);
        }
    }

    /// `names` is about shared pools.
    pub(super) fn hold_names(&mut self, hold: &CHold, at: &At) {
        if hold.names.is_empty() {
            return;
        }
        let shared = |r: &CRef| {
            let members = self.program.pools.get(r.base..r.base.saturating_add(r.count));
            members.is_some_and(|m| m.iter().any(|p| p.shared))
        };
        if !hold.pools.iter().any(|c| shared(&c.0)) {
            let reason = "a hold names its content, but none of its pools is shared";
            self.error(at, "names", reason, "write `shared;` in the pool, or leave the names out");
        }
    }

    /// A run over several stages: each shared by capacity that does not change, by one rule.
    pub(super) fn flow(&mut self, run: &CRun, at: &At) {
        if run.also.is_empty() {
            return;
        }
        let stages = self.program.stages.len();
        if self.program.share.is_none() {
            let reason = "a run goes over several stages, but nothing says how they are shared";
            self.error(at, "share", reason, "write `share maxmin;` or `share bottleneck;`");
        }
        for (k, r) in std::iter::once(&run.stage).chain(&run.also).enumerate() {
            if k > 0 && !self.family(r, stages, "stage", at) {
                continue;
            }
            for stage in &self.program.stages[r.base..r.base + r.count] {
                let constant = matches!(&stage.kind, CStageKind::Ps(CExpr::Num(c))
                    if c.is_finite() && *c > 0.0);
                if !constant {
                    let reason = format!("a run over several stages names `{}`", stage.name);
                    let help = "each must be `ps` with a constant capacity above 0";
                    self.error(at, "run-flow", reason, help);
                }
            }
            let before = std::iter::once(&run.stage).chain(&run.also).take(k);
            if before.into_iter().any(|other| other == r) {
                let reason = "a run names a stage twice";
                self.error(at, "run-flow", reason, "name each stage once");
            }
        }
        if run.mode != RunMode::Plain {
            let reason = "a run over several stages says prefill or decode";
            self.error(at, "run-mode", reason, "only a run on one step stage has a mode");
        }
    }
}
