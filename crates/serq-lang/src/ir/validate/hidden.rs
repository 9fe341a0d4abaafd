//! Hidden attributes: what only the client knows, no policy of the deployment may read.

use super::{At, Check};
use crate::ir::{Arrival, CEvict, CExpr, CPreempt, CServe, CStageKind, CStmt, Slot};

impl Check<'_> {
    /// The list itself: existing attributes, once each, that the client assigns.
    pub(super) fn hidden_list(&mut self) {
        let p = self.program;
        for (i, &slot) in p.hidden.iter().enumerate() {
            let place = self.spans(|s| s.resolve(*s.hidden.get(i)?));
            let at = At { path: format!("hidden[{i}]"), place };
            let Some(name) = p.attrs.get(slot) else {
                self.missing(&at, "attribute", slot);
                continue;
            };
            if p.hidden[..i].contains(&slot) {
                let reason = format!("`{name}` is hidden twice");
                self.error(&at, "hidden", reason, "list it once");
            }
            if slot == p.slots.cached || slot == p.slots.computed {
                let reason = format!("`{name}` is hidden, but the deployment sets it");
                self.error(&at, "hidden", reason, "hide attributes that the client sets");
            } else if !self.is_set(slot) {
                let reason = format!("`{name}` is hidden, but nothing sets it");
                self.error(&at, "hidden", reason, "set it in `init` or `turn`, or take it out");
            }
        }
    }

    fn is_set(&self, slot: Slot) -> bool {
        let p = self.program;
        let slots = p.slots;
        let built_in = [
            slots.serial,
            slots.turn_no,
            slots.new,
            slots.out,
            slots.think,
            slots.more,
            slots.forced,
        ]
        .contains(&slot);
        let by_statement = p.blocks.iter().flatten().any(|s| match s {
            CStmt::Set(s, _) | CStmt::Choose { var: s, .. } => *s == slot,
            CStmt::Run(run) => run.answers == Some(slot) || run.first == Some(slot),
            _ => false,
        });
        let by_data = match &p.arrival {
            Arrival::Sessions(sessions) => sessions.iter().any(|s| {
                s.attrs.iter().chain(s.turns.iter().flatten()).any(|preset| preset.0 == slot)
            }),
            _ => false,
        };
        built_in || by_statement || by_data
    }

    /// Every place where the deployment decides.
    pub(super) fn hidden_reads(&mut self) {
        let p = self.program;
        if p.hidden.is_empty() {
            return;
        }
        for (i, pool) in p.pools.iter().enumerate() {
            let at = At { path: format!("pools[{i}]"), place: self.spans(|s| s.pool(i)) };
            let evict: &[CExpr] = match &pool.evict {
                CEvict::By(keys) => keys,
                CEvict::Lru => &[],
            };
            let spill = pool.spill.iter().flat_map(|s| [&s.work, &s.when]);
            let queue = pool.queue.iter().flat_map(|q| q.keys());
            let (keys, requeue): (&[CExpr], _) = match &pool.preempt {
                CPreempt::By { keys, requeue } => (keys, Some(requeue)),
                CPreempt::None | CPreempt::Lifo => (&[], None),
            };
            for e in evict.iter().chain(queue).chain(spill).chain(keys).chain(requeue) {
                self.no_hidden(e, &format!("a policy of pool `{}`", pool.name), &at);
            }
        }
        for (i, stage) in p.stages.iter().enumerate() {
            let CStageKind::Step(step) = &stage.kind else { continue };
            let CServe::By(keys) = &step.serve else { continue };
            let at = At { path: format!("stages[{i}]"), place: self.spans(|s| s.stage(i)) };
            for e in keys {
                self.no_hidden(e, &format!("a serving key of stage `{}`", stage.name), &at);
            }
        }
        for (id, block) in p.blocks.iter().enumerate() {
            for (i, stmt) in block.iter().enumerate() {
                let CStmt::Hold(hold) = stmt else { continue };
                let at = At {
                    path: format!("blocks[{id}][{i}]"),
                    place: self.spans(|s| s.statement(id, i)),
                };
                let claims = hold.pools.iter().flat_map(|c| [Some(&c.1), c.2.as_ref()]).flatten();
                let binds = hold.binds.iter().map(|b| &b.1);
                for e in claims.chain(&hold.reuse).chain(&hold.when).chain(binds) {
                    self.no_hidden(e, "the header of a hold", &at);
                }
            }
        }
    }

    fn no_hidden(&mut self, e: &CExpr, what: &str, at: &At) {
        let p = self.program;
        let mut found = None;
        e.walk(&mut |e| {
            if let CExpr::Attr(slot) = e
                && p.hidden.contains(slot)
            {
                found = Some(*slot);
            }
        });
        if let Some(name) = found.and_then(|slot| p.attrs.get(slot)) {
            let reason = format!("hidden attribute `{name}` is read in {what}");
            self.error(at, "hidden", reason, "a real deployment cannot see it: use an estimate");
        }
    }
}
