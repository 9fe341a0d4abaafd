//! Findings about the whole program, brought back to the text.
//!
//! [`crate::ir::validate`] names a place in the representation, `blocks[3][1].units`; the linker
//! knows which text that came from.

use super::Linker;
use crate::ast;
use crate::diag::{Code, Diagnostic};
use crate::ir::IrError;
use crate::source::Span;

impl Linker<'_> {
    pub(super) fn checked(&self, error: &IrError, tree: &ast::Program) -> Diagnostic {
        let code = match error.code {
            "expr-depth" | "block-depth" => Code::E0109,
            "hold-cap" => Code::E0412,
            "hold-negative" => Code::E0413,
            "outside-hold" => Code::E0418,
            "hold-twice" => Code::E0422,
            "guard" => Code::E0502,
            "loop-instant" => Code::E0503,
            "index-changed" => Code::E0505,
            "hidden" => Code::E0509,
            "share" => Code::E0429,
            "run-flow" => Code::E0430,
            "run-mode" => Code::E0415,
            "enter" => Code::E0431,
            "pool-shared" | "keep-shared" | "drop-shared" => Code::E0432,
            "book" => Code::E0433,
            "content" => Code::E0434,
            "taking" => Code::E0435,
            "lease-none" => Code::E0436,
            "lease-on" => Code::E0437,
            "abandon" => Code::E0438,
            "run-then" | "run-answers" | "run-steps" => Code::E0439,
            "step-fenced" => Code::E0440,
            "slo" => Code::E0441,
            "gauge" => Code::E0428,
            "table" => Code::E0610,
            "gap" => Code::E0408,
            "lease-pool" => Code::E0417,
            "arrival" => Code::E0408,
            _ => Code::E0699,
        };
        let mut d = Diagnostic::new(code, self.place(&error.path, tree), error.reason.clone())
            .help(error.help.clone());
        if code == Code::E0699 {
            d = d.at(format!("{} at {}", error.code, error.path));
        }
        d
    }

    fn place(&self, path: &str, tree: &ast::Program) -> Span {
        let start = Span { end: tree.span.start, ..tree.span };
        let numbers = |rest: &str| -> Vec<usize> {
            rest.split(['[', ']']).filter_map(|part| part.parse().ok()).collect()
        };
        let (kind, rest) = path.split_once('[').unwrap_or((path, ""));
        let at = numbers(rest);
        let found = match (kind, &at[..]) {
            ("blocks", &[block, stmt, ..]) => {
                self.infos.get(block).and_then(|b| b.get(stmt)).map(|info| info.head)
            }
            ("pools", &[member, ..]) => member_span(&self.pools, member),
            ("stages", &[member, ..]) => member_span(&self.stages, member),
            ("arrival", _) => {
                tree.workload.as_ref().and_then(|w| w.arrive.as_ref()).map(|a| a.span)
            }
            ("tables", &[at, ..]) => tree.tables.get(at).map(|t| t.name.span),
            ("gauges", &[at, ..]) => tree.gauges.get(at).map(|g| g.name.span),
            _ => None,
        };
        found.unwrap_or(start)
    }
}

fn member_span(families: &super::Families, member: usize) -> Option<Span> {
    let family = families.list.iter().find(|f| (f.base..f.base + f.count).contains(&member))?;
    Some(family.span)
}
