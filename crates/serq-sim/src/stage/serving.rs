//! Which resident an iteration serves next.
//!
//! The order is that of the serving keys, evaluated anew for every choice, then of admission.
//! Residents are kept in order of admission, so without keys a cursor suffices: it goes forward
//! over those served and back when somebody joins or leaves in front of it. Keys that cannot
//! change while an iteration is put together are evaluated once per resident; only keys that read
//! pools or stages are evaluated again for every choice.

use serq_lang::ir::Ctx;

use super::Kind;
use crate::engine::Engine;
use crate::error::{Reason, Result, Subject};
use crate::expr::{Env, Vars};

/// Residents not yet served in this iteration, smallest keys first, for keys that keep still.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Keys, admission, job; sorted in reverse, so that the next is last.
    sorted: Vec<(Box<[f64]>, u64, u32)>,
    /// Which membership it was made for.
    version: Option<u64>,
}

impl Order {
    pub(crate) fn forget(&mut self) {
        self.version = None;
    }
}

impl Engine<'_> {
    /// The next resident not yet considered in this iteration.
    pub(super) fn next_resident(&mut self, stage: u32, snapshot: &Vars) -> Result<Option<u32>> {
        let at = stage as usize;
        let Some(plan) = &self.w.plans[at] else { return Ok(None) };
        if plan.serve.is_empty() {
            let Kind::Step(step) = &mut self.w.stages[at].kind else { return Ok(None) };
            while let Some(&id) = step.residents.get(step.cursor) {
                step.cursor += 1;
                if self.w.jobs[id as usize].served != step.number {
                    return Ok(Some(id));
                }
            }
            return Ok(None);
        }
        if !plan.steady_keys {
            let mut all = self.keyed_residents(stage, snapshot)?;
            return Ok(all.pop().map(|(_, _, id)| id));
        }
        let Kind::Step(step) = &self.w.stages[at].kind else { return Ok(None) };
        if step.order.version != Some(step.membership) {
            let version = Some(step.membership);
            let sorted = self.keyed_residents(stage, snapshot)?;
            if let Kind::Step(step) = &mut self.w.stages[at].kind {
                step.order = Order { sorted, version };
            }
        }
        let Kind::Step(step) = &mut self.w.stages[at].kind else { return Ok(None) };
        Ok(step.order.sorted.pop().map(|(_, _, id)| id))
    }

    /// Unserved residents with their keys, in reverse order of service.
    fn keyed_residents(
        &mut self,
        stage: u32,
        snapshot: &Vars,
    ) -> Result<Vec<(Box<[f64]>, u64, u32)>> {
        let Engine { w, c, stage_rng, .. } = self;
        let Kind::Step(step) = &w.stages[stage as usize].kind else { return Ok(Vec::new()) };
        let Some(plan) = &w.plans[stage as usize] else { return Ok(Vec::new()) };
        let mut vars = *snapshot;
        let mut all = Vec::new();
        for &id in &step.residents {
            let job = &w.jobs[id as usize];
            if job.served == step.number {
                continue;
            }
            vars[Ctx::Decoding as usize] = f64::from(job.decodes());
            vars[Ctx::Admission as usize] = job.admission as f64;
            vars[Ctx::Remaining as usize] = job.left();
            let mut env = Env::stage(&vars);
            if let Some(s) = job.session {
                env.attrs = w.attrs(s);
                env.session = Some(s);
            }
            let rng = &mut stage_rng[stage as usize];
            let mut keys = Vec::with_capacity(plan.serve.len());
            for &key in &plan.serve {
                let value = c.code.eval(key, w, &env, rng)?;
                if value.is_nan() {
                    return Err(Reason::new(
                        "key",
                        "a serving key is not a number".into(),
                        "check the expression for a division by zero",
                    )
                    .about(Subject::Stage(stage)));
                }
                keys.push(value + 0.0);
            }
            all.push((keys.into_boxed_slice(), job.admission, id));
        }
        all.sort_by(|a, b| {
            let keys = a.0.iter().zip(&b.0).map(|(x, y)| y.total_cmp(x));
            keys.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then).then(b.1.cmp(&a.1))
        });
        Ok(all)
    }
}
