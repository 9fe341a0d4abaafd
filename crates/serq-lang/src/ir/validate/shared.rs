//! Shared pools, and runs over several stages: what the whole program must say about them.

use super::{At, Check};
use crate::ir::{CArg, CEvict, CExpr, CHold, CRef, CRun, CStageKind, Fun, RunMode};

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

    /// What a hold leaves cached in shared pools is not its choice.
    pub(super) fn hold_shared(&mut self, hold: &CHold, at: &At) {
        if hold.cache.is_some() && hold.pools.iter().all(|c| self.is_shared(&c.0)) {
            let reason = "a hold of shared pools alone says what stays cached";
            let help = "everything computed stays until its block is reused: leave the clause out";
            self.error(at, "keep-shared", reason, help);
        }
    }

    /// A prefix that others may share is nobody's to give up.
    pub(super) fn drop_shared(&mut self, pool: &CRef, at: &At) {
        if self.is_shared(pool) {
            let name = &self.program.pools[pool.base].name;
            let reason = format!("`drop` of shared pool `{name}`");
            let help = "what is cached there belongs to everybody, and goes as blocks are reused";
            self.error(at, "drop-shared", reason, help);
        }
    }

    fn is_shared(&self, r: &CRef) -> bool {
        let members = self.program.pools.get(r.base..r.base.saturating_add(r.count));
        members.is_some_and(|m| m.iter().any(|p| p.shared))
    }

    /// `taking` is about pools that the hold claims.
    pub(super) fn takes_claimed(&mut self, hold: &CHold, at: &At) {
        let mut foreign = None;
        let claims = hold.pools.iter().flat_map(|c| [Some(&c.1), c.2.as_ref()]).flatten();
        let binds = hold.binds.iter().map(|b| &b.1);
        for e in claims.chain(&hold.reuse).chain(&hold.when).chain(binds) {
            e.walk(&mut |e| {
                if let CExpr::Call(Fun::Taking, args) = e
                    && let Some(CArg::Pool(r)) = args.first()
                    && !hold.pools.iter().any(|c| c.0 == *r)
                {
                    foreign = Some(r);
                }
            });
        }
        if let Some(pool) = foreign.and_then(|r| self.program.pools.get(r.base)) {
            let reason =
                format!("a hold asks what it is taking of pool `{}`, not its own", pool.name);
            self.error(at, "taking", reason, "name a pool that it claims, with the same index");
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
