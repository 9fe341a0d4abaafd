//! Checks of tables and of calls of them.

use super::{At, Check};
use crate::ir::CExpr;

impl Check<'_> {
    /// Every table, in order.
    pub(super) fn tables(&mut self) {
        for (k, table) in self.program.tables.iter().enumerate() {
            if let Some(fault) = table.fault() {
                let at = At { path: format!("tables[{k}]"), place: None };
                let reason = format!("the table `{}`: {fault}", table.name);
                let help =
                    "give each point its coordinates and its value, smallest coordinates first";
                self.error(&at, "table", reason, help);
            }
        }
    }

    /// A call of one.
    pub(super) fn table(&mut self, table: usize, args: &[CExpr], at: &At) {
        let Some(called) = self.program.tables.get(table) else {
            self.missing(at, "table", table);
            return;
        };
        let (want, got) = (called.axes.len(), args.len());
        if want != got {
            let reason = format!("`{}` takes {want} argument(s), not {got}", called.name);
            self.error(at, "arity", reason, "one argument for each axis");
        }
    }
}
