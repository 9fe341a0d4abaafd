//! Which sections a program must have, and which exclude each other.
//!
//! What a deployment does is written in one of two ways: a `session` that does everything (the
//! kernel form), or a client, the `session` inside the workload, and a `server` that handles what
//! it requests.

use crate::ast::{Block, Program, Stmt, StmtKind};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::Span;

/// Reports sections that are missing or one too many, in a program that was read without errors.
pub(crate) fn check_structure(program: &Program, diags: &mut Diagnostics) {
    let end = Span { start: program.span.end, ..program.span };
    let Some(workload) = &program.workload else {
        let d = Diagnostic::new(Code::E0214, end, "the program has no workload")
            .help("add `workload { arrive poisson(1); }`");
        diags.push(d);
        return;
    };
    if workload.arrive.is_none() {
        let d = Diagnostic::new(Code::E0214, workload.span, "the workload has no arrivals")
            .help("add `arrive poisson(rate);`, `closed(n)`, `batch(n)`, `none` and others");
        diags.push(d);
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
            diags.push(d);
        }
        (None, Some(server)) => {
            let d = Diagnostic::new(
                Code::E0209,
                server.word,
                "there is a server, and no session in the workload that requests it",
            )
            .help("add `session { turn; request; }` to the workload");
            diags.push(d);
        }
        (Some(client), Some(_)) if !requests(&client.body) => {
            let d =
                Diagnostic::new(Code::E0210, client.word, "this session never requests the server")
                    .help("write `request;` where the client sends its request");
            diags.push(d);
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
            diags.push(d);
        }
        None if client.is_none() && server.is_none() => {
            let d = Diagnostic::new(Code::E0213, end, "the program has no session")
                .help("add `session { ... }`: what each arrival does");
            diags.push(d);
        }
        _ => {}
    }
}

/// Whether a block requests the server somewhere.
fn requests(block: &Block) -> bool {
    block.iter().any(|stmt: &Stmt| match &stmt.kind {
        StmtKind::Request => true,
        StmtKind::Hold(hold) => requests(&hold.body),
        StmtKind::Branch(branch) => requests(&branch.then) || requests(&branch.other),
        StmtKind::Loop(body) | StmtKind::While(_, body) | StmtKind::Shield(body) => requests(body),
        StmtKind::Until(until) => requests(&until.body) || requests(&until.other),
        _ => false,
    })
}
