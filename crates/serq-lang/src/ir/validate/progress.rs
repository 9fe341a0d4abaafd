//! Every way through a loop must let time pass.
//!
//! A loop that comes back to its start at the instant it began would spin for ever. What the
//! check can see: a run takes time unless its work is a constant 0, a hold takes what its body
//! takes, a branch what its faster arm takes, and `end` never comes back. Work that is computed
//! to be 0 is found during the run.

use super::{At, Check};
use crate::ir::{BlockId, CExpr, CStmt};

impl Check<'_> {
    pub(super) fn loops_take_time(&mut self) {
        let blocks = &self.program.blocks;
        for (id, block) in blocks.iter().enumerate() {
            for (i, stmt) in block.iter().enumerate() {
                if let CStmt::Loop(body) | CStmt::While(_, body) = stmt
                    && !matches!(stmt, CStmt::While(CExpr::Num(0.0), _))
                    && self.may_be_instant(*body)
                {
                    let place = self.spans(|s| s.statement(id, i));
                    let at = At { path: format!("blocks[{id}][{i}]"), place };
                    self.error(
                        &at,
                        "loop-instant",
                        "a way through the loop takes no time",
                        "give every way through it a `run`, or an `end`",
                    );
                }
            }
        }
    }

    /// Whether a block can come to its end without time passing. Recursion is bounded: the block
    /// structure was checked before.
    fn may_be_instant(&self, id: BlockId) -> bool {
        let Some(block) = self.program.blocks.get(id) else { return true };
        block.iter().all(|stmt| match stmt {
            CStmt::Run(run) => run.work.as_num().is_some_and(|w| w <= 0.0),
            CStmt::Hold(hold) => self.may_be_instant(hold.body),
            CStmt::Branch(CExpr::Num(v), then, other) => {
                self.may_be_instant(if *v == 0.0 { *other } else { *then })
            }
            CStmt::Branch(_, then, other) => {
                self.may_be_instant(*then) || self.may_be_instant(*other)
            }
            CStmt::Shield(body) => self.may_be_instant(*body),
            // What a deadline that has always passed leaves is found during the run.
            CStmt::Until(_, body, _) => self.may_be_instant(*body),
            CStmt::Loop(_) | CStmt::End => false,
            CStmt::While(guard, _) => guard.as_num() != Some(1.0),
            _ => true,
        })
    }
}
