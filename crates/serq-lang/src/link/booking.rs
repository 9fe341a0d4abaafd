//! Bookings: which hold a `book` puts into its queue.
//!
//! A name belongs to one copy of the server, so that two requests of a session book separately. What
//! is booked is written once, at its `enter`.

use std::collections::BTreeMap;

use super::Linker;
use crate::ast::{self, Block, Form, StmtKind};
use crate::diag::{Code, Diagnostic, closest};
use crate::source::Span;

/// The bookings of the copy of the server that is being linked.
#[derive(Default)]
pub(super) struct Bookings {
    /// Number and the place of the `enter`, by name.
    names: BTreeMap<String, (usize, Span)>,
    /// Numbers given out so far, by all copies.
    given: usize,
}

impl Bookings {
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.names.get(name).map(|(number, _)| *number)
    }
}

impl<'a> Linker<'a> {
    /// Links a copy of the server.
    pub(super) fn request(&mut self, server: &'a ast::Section, block: usize) {
        let outer = std::mem::take(&mut self.bookings.names);
        self.name_bookings(&server.body);
        let outer_side = std::mem::replace(&mut self.deployment, true);
        self.section(server, block);
        self.deployment = outer_side;
        self.bookings.names = outer;
    }

    /// Gives every booking of a block its number; reports those that are half there.
    fn name_bookings(&mut self, server: &'a Block) {
        let (mut books, mut holds) = (Vec::new(), Vec::new());
        collect(server, &mut books, &mut holds);
        for name in &holds {
            if let Some((_, first)) = self.bookings.names.get(&name.text) {
                let message = format!("a second hold enters the booking `{}`", name.text);
                let d = Diagnostic::new(Code::E0433, name.span, message)
                    .label(*first, "the first one")
                    .help("a booking is of one hold: give this one a booking of its own");
                self.report(d);
                continue;
            }
            let number = self.bookings.given;
            self.bookings.given += 1;
            self.bookings.names.insert(name.text.clone(), (number, name.span));
            if !books.iter().any(|b| b.text == name.text) {
                let near = closest(&name.text, books.iter().map(|b| b.text.as_str()));
                let message = format!("nothing books `{}`", name.text);
                let d = Diagnostic::new(Code::E0431, name.span, message)
                    .did_you_mean(near)
                    .help(format!("write `book {};` before, or `admit if` here", name.text));
                self.report(d);
            }
        }
        for name in books {
            if self.bookings.number(&name.text).is_none() {
                let near = closest(&name.text, holds.iter().map(|h| h.text.as_str()));
                let message = format!("no hold enters the booking `{}`", name.text);
                let d = Diagnostic::new(Code::E0433, name.span, message).did_you_mean(near).help(
                    format!("write what is booked: enter {} if P (units) fit {{ ... }}", name.text),
                );
                self.report(d);
            }
        }
    }
}

/// Names that are booked, and those of the holds that enter.
fn collect<'t>(block: &'t Block, books: &mut Vec<&'t ast::Name>, holds: &mut Vec<&'t ast::Name>) {
    for stmt in block {
        match &stmt.kind {
            StmtKind::Book(name) => books.push(name),
            StmtKind::Hold(hold) => {
                if hold.form == Form::Booked {
                    holds.extend(&hold.booking);
                }
                collect(&hold.body, books, holds);
            }
            StmtKind::Loop(body) | StmtKind::While(_, body) | StmtKind::Shield(body) => {
                collect(body, books, holds);
            }
            StmtKind::Branch(branch) => {
                collect(&branch.then, books, holds);
                collect(&branch.other, books, holds);
            }
            StmtKind::Until(until) => {
                collect(&until.body, books, holds);
                collect(&until.other, books, holds);
            }
            _ => {}
        }
    }
}
