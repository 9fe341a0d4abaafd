//! From where a request can still get tokens.

use super::{Op, RunPlan};

/// Per instruction: whether a prefill or decode run can follow, itself included, before the
/// session's next turn or its end. Preemptions are not followed.
pub(super) fn ahead(ops: &[Op], runs: &[RunPlan]) -> Vec<bool> {
    let mut ahead = vec![false; ops.len() + 1];
    // Backwards, so that only loops need another round.
    let mut changed = true;
    while changed {
        changed = false;
        for (pc, op) in ops.iter().enumerate().rev() {
            let here = match op {
                Op::Turn | Op::End | Op::Return => false,
                Op::Run(k) => runs[*k as usize].mode.computes() || ahead[pc + 1],
                Op::Branch(_, to) | Op::Until(_, to) => ahead[pc + 1] || ahead[*to as usize],
                Op::Jump(to) => ahead[*to as usize],
                _ => ahead[pc + 1],
            };
            changed |= here != ahead[pc];
            ahead[pc] = here;
        }
    }
    ahead
}
