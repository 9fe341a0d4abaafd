//! Which sections a program must have, and which exclude each other.
//!
//! What a deployment does is written in one of two ways: a `session` that does everything (the
//! kernel form), or a client, the `session` inside the workload, and a `server` that handles what
//! it requests.

use super::Parser;
use crate::ast::{Block, Program, Stmt, StmtKind};
use crate::diag::{Code, Diagnostic};
use crate::source::Span;

impl Parser<'_> {
    pub(super) fn check_structure(&mut self, program: &Program) {
        // With a declaration missing because it could not be read, all of this would be noise.
        if self.diags.has_errors() {
            return;
        }
        let end = Span { start: program.span.end, ..program.span };
        let Some(workload) = &program.workload else {
            let d = Diagnostic::new(Code::E0214, end, "the program has no workload")
                .help("add `workload { arrive poisson(1); }`");
            self.report(d);
            return;
        };
        if workload.arrive.is_none() {
            let d = Diagnostic::new(Code::E0214, workload.span, "the workload has no arrivals")
                .help("add `arrive poisson(rate);`, `closed(n)`, `batch(n)` or `none`");
            self.report(d);
        }
        let (client, server) = (workload.session.as_ref(), program.server.as_ref());
        match (client, server) {
            (Some(client), None) => {
                let d = Diagnostic::new(
                    Code::E0208,
                    client.word,
                    "the workload has a session, and there is no server",
                )
                .help("add `server { ... }`, which handles each `request;`")
                .help("or move the session out of the workload, if it does everything itself");
                self.report(d);
            }
            (None, Some(server)) => {
                let d = Diagnostic::new(
                    Code::E0209,
                    server.word,
                    "there is a server, and no session in the workload that requests it",
                )
                .help("add `session { turn; request; }` to the workload");
                self.report(d);
            }
            (Some(client), Some(_)) if !requests(&client.body) => {
                let d = Diagnostic::new(
                    Code::E0210,
                    client.word,
                    "this session never requests the server",
                )
                .help("write `request;` where the client sends its request");
                self.report(d);
            }
            _ => {}
        }
        match &program.session {
            Some(kernel) if client.is_some() || server.is_some() => {
                let other = client.or(server).map_or(kernel.word, |s| s.word);
                let d = Diagnostic::new(
                    Code::E0211,
                    kernel.word,
                    "a session of its own beside a client and a server",
                )
                .label(other, "the other form begins here")
                .help("keep either this `session` or the pair, not both");
                self.report(d);
            }
            None if client.is_none() && server.is_none() => {
                let d = Diagnostic::new(Code::E0213, end, "the program has no session")
                    .help("add `session { ... }`: what each arrival does");
                self.report(d);
            }
            _ => {}
        }
    }
}

/// Whether a block requests the server somewhere.
fn requests(block: &Block) -> bool {
    block.iter().any(|stmt: &Stmt| match &stmt.kind {
        StmtKind::Request => true,
        StmtKind::Hold(hold) => requests(&hold.body),
        StmtKind::Branch(branch) => requests(&branch.then) || requests(&branch.other),
        StmtKind::Loop(body) => requests(body),
        _ => false,
    })
}
