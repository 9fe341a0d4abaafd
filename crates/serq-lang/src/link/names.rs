//! What a name in an expression means.
//!
//! In this order: a binding of the header it stands in, an attribute, a constant, a variable of
//! the moment.

use std::collections::BTreeMap;

use super::place::Place;
use super::{Linker, place};
use crate::ast::{self, StmtKind};
use crate::diag::{Code, Diagnostic, closest};
use crate::ir::{Bind, CExpr, Ctx, Moment, Slot, Slots};
use crate::source::Span;

/// Attributes, and which of them are hidden.
#[derive(Default)]
pub(super) struct Names {
    slots: BTreeMap<String, Slot>,
    /// Where each was first assigned; none for the built-in ones.
    assigned: BTreeMap<Slot, Span>,
    pub(super) hidden: BTreeMap<Slot, Span>,
    observes: BTreeMap<String, usize>,
    /// Attributes that keep what a binding was at admission, by the binding's place.
    bound: BTreeMap<Span, Slot>,
}

/// The bindings of a hold whose body is being linked.
pub(super) struct Body<'a> {
    list: &'a [ast::Bind],
    /// The attribute of each that the body reads.
    read: Vec<Option<Slot>>,
}

impl<'a> Body<'a> {
    pub(super) fn new(list: &'a [ast::Bind]) -> Self {
        Body { list, read: vec![None; list.len()] }
    }
}

impl Names {
    pub(super) fn slot(&self, name: &str) -> Option<Slot> {
        self.slots.get(name).copied()
    }

    pub(super) fn observe(&mut self, name: &str, list: &mut Vec<String>) -> usize {
        let next = self.observes.len();
        *self.observes.entry(name.to_owned()).or_insert_with(|| {
            list.push(name.to_owned());
            next
        })
    }
}

/// The bindings of one hold.
pub(super) struct Binds<'a> {
    pub(super) list: &'a [ast::Bind],
    /// How many of them are visible: later ones see earlier ones.
    pub(super) visible: usize,
    /// Linked for the header and for the clauses behind the body.
    pub(super) done: Vec<[Option<(CExpr, usize)>; 2]>,
}

/// How often a name is assigned where.
fn assigned<'t>(block: &'t ast::Block, f: &mut dyn FnMut(&'t ast::Name)) {
    for stmt in block {
        match &stmt.kind {
            StmtKind::Set(name, _) => f(name),
            StmtKind::Choose(choose) => f(&choose.var),
            StmtKind::Hold(hold) => assigned(&hold.body, f),
            StmtKind::Run(run) => run.answers.iter().chain(&run.first).for_each(&mut *f),
            StmtKind::Loop(body) | StmtKind::While(_, body) | StmtKind::Shield(body) => {
                assigned(body, f);
            }
            StmtKind::Until(until) => {
                assigned(&until.body, f);
                assigned(&until.other, f);
            }
            StmtKind::Branch(branch) => {
                assigned(&branch.then, f);
                assigned(&branch.other, f);
            }
            _ => {}
        }
    }
}

impl<'a> Linker<'a> {
    /// Collects what `set` and `choose` assign, and the hidden ones among it.
    pub(super) fn attributes(&mut self, tree: &'a ast::Program) {
        for (slot, name) in Slots::NAMES.iter().enumerate() {
            self.names.slots.insert((*name).to_owned(), slot);
        }
        let workload = tree.workload.as_ref();
        let sections = [
            workload.and_then(|w| w.init.as_ref()),
            workload.and_then(|w| w.turn.as_ref()),
            workload.and_then(|w| w.session.as_ref()),
            tree.session.as_ref(),
            tree.server.as_ref(),
        ];
        let mut found: Vec<&ast::Name> = Vec::new();
        for section in sections.into_iter().flatten() {
            assigned(&section.body, &mut |name| found.push(name));
        }
        for name in found {
            if name.text == "inf" {
                let d =
                    Diagnostic::new(Code::E0308, name.span, "`inf` is no name for an attribute")
                        .at("it is the infinite amount");
                self.report(d);
            }
            let slot = *self.names.slots.entry(name.text.clone()).or_insert_with(|| {
                self.program.attrs.push(name.text.clone());
                self.program.attrs.len() - 1
            });
            self.names.assigned.entry(slot).or_insert(name.span);
        }
        self.hidden(workload.map_or(&[], |w| &w.hidden));
    }

    /// Reports constants that are attributes too.
    pub(super) fn clashes(&mut self) {
        let clashes: Vec<_> = self
            .consts
            .iter()
            .filter_map(|(name, c)| Some((name.clone(), c.span, self.slot(name)?)))
            .collect();
        for (name, span, slot) in clashes {
            let mut d = Diagnostic::new(
                Code::E0307,
                span,
                format!("`{name}` is a constant here, and an attribute elsewhere"),
            )
            .help("give one of the two another name");
            d = match self.names.assigned.get(&slot) {
                Some(&at) => d.label(at, "assigned here"),
                None => d.at("every session has an attribute of this name"),
            };
            self.report(d);
        }
    }

    fn hidden(&mut self, names: &[ast::Name]) {
        for name in names {
            let Some(slot) = self.slot(&name.text) else {
                let near = closest(&name.text, self.names.slots.keys().map(String::as_str));
                let d = Diagnostic::new(
                    Code::E0506,
                    name.span,
                    format!("nothing sets the hidden attribute `{}`", name.text),
                )
                .did_you_mean(near)
                .help("set it in `init` or `turn`, or take it off the list");
                self.report(d);
                continue;
            };
            if name.text == "cached" || name.text == "computed" {
                let d = Diagnostic::new(
                    Code::E0508,
                    name.span,
                    format!("`{}` is the server's own knowledge", name.text),
                )
                .help("only what the client knows can be hidden from the server");
                self.report(d);
                continue;
            }
            if let Some(&first) = self.names.hidden.get(&slot) {
                let d = Diagnostic::new(
                    Code::E0507,
                    name.span,
                    format!("`{}` is hidden twice", name.text),
                )
                .label(first, "first here")
                .help("list it once");
                self.report(d);
                continue;
            }
            self.names.hidden.insert(slot, name.span);
            self.program.hidden.push(slot);
        }
    }

    /// The meaning of `name` at a place; `None` if it has none, which is then reported.
    pub(super) fn resolve(&mut self, name: &str, span: Span, place: Place) -> Option<CExpr> {
        if let Some(bound) = self.resolve_bind(name, place) {
            return bound;
        }
        if let Some(slot) = self.slot(name) {
            return self.read_attribute(name, slot, span, place);
        }
        if let Some(constant) = self.consts.get_mut(name) {
            constant.used = true;
            return constant.value.map(CExpr::Num);
        }
        if name == "inf" {
            return Some(CExpr::Num(f64::INFINITY));
        }
        if let Some(ctx) = Ctx::ALL.into_iter().find(|c| c.name() == name) {
            return self.read_ctx(ctx, span, place);
        }
        if let Some(bound) = self.bound_around(name, place) {
            return Some(bound);
        }
        self.unknown_name(name, span, place);
        None
    }

    /// A binding of a hold around this place: what it was at the admission. Where the same name
    /// means something else, it keeps that meaning.
    fn bound_around(&mut self, name: &str, place: Place) -> Option<CExpr> {
        if !place.moment.is_some_and(Moment::has_session) {
            return None;
        }
        let body = self.bodies.iter_mut().rev().find_map(|body| {
            let at = body.list.iter().position(|b| b.name.text == name)?;
            Some((body, at))
        });
        let (body, at) = body?;
        let attrs = &mut self.program.attrs;
        let slot = *self.names.bound.entry(body.list[at].name.span).or_insert_with(|| {
            let taken = |n: &str, attrs: &[String]| attrs.iter().any(|a| a == n);
            let mut free = name.to_owned();
            let mut number = 2;
            while taken(&free, attrs) {
                free = format!("{name}.{number}");
                number += 1;
            }
            attrs.push(free);
            attrs.len() - 1
        });
        body.read[at] = Some(slot);
        Some(CExpr::Attr(slot))
    }

    /// What the body that was just linked reads of its hold's bindings, to be kept at admission.
    pub(super) fn kept(&mut self, body: &Body<'a>) -> Vec<Bind> {
        let mut kept = Vec::new();
        for (bind, slot) in body.list.iter().zip(&body.read) {
            let Some(slot) = slot else { continue };
            if let Some(Some(value)) = self.resolve_bind(&bind.name.text, place::BINDING) {
                kept.push(Bind(*slot, value));
            }
        }
        kept
    }

    /// A binding stands for its expression, linked at the place of use.
    fn resolve_bind(&mut self, name: &str, place: Place) -> Option<Option<CExpr>> {
        let binds = self.binds.as_mut()?;
        let at = binds.list[..binds.visible].iter().position(|b| b.name.text == name)?;
        let kind = usize::from(place.moment != Some(Moment::Admit));
        if binds.done[at][kind].is_none() {
            let value = &binds.list[at].value;
            let visible = std::mem::replace(&mut binds.visible, at);
            let before = self.nodes;
            let linked = self.expr(value, place);
            let (mut linked, mut size) = (linked, self.nodes - before);
            if size > super::MAX_BINDING {
                let message = format!("the binding `{name}` is too large");
                let d = Diagnostic::new(Code::E0425, value.span, message)
                    .at(format!("more than {} parts with the bindings in it", super::MAX_BINDING))
                    .help("compute shared parts with `set` before the hold");
                self.report(d);
                (linked, size) = (CExpr::Num(1.0), 1);
            }
            if let Some(binds) = &mut self.binds {
                binds.visible = visible;
                binds.done[at][kind] = Some((linked, size));
            }
            self.nodes = before;
        }
        let (linked, size) = self.binds.as_ref()?.done[at][kind].clone()?;
        self.nodes += size;
        Some(Some(linked))
    }

    fn read_attribute(
        &mut self,
        name: &str,
        slot: Slot,
        span: Span,
        place: Place,
    ) -> Option<CExpr> {
        let set_here = self.names.assigned.get(&slot).copied();
        let labelled = |d: Diagnostic| match set_here {
            Some(at) => d.label(at, "assigned here, which makes it an attribute"),
            None => d.at("an attribute of every session"),
        };
        let Some(moment) = place.moment else {
            let d = Diagnostic::new(
                Code::E0404,
                span,
                format!("a constant cannot read the attribute `{name}`"),
            );
            self.report(labelled(d).help("constants are computed before any session exists"));
            return None;
        };
        // Version 5 knows `admission` where engines judge only: elsewhere an attribute may have the name.
        let judged = matches!(moment, Moment::Serve | Moment::Victim);
        let hides = |c: &Ctx| c.name() == name && (*c != Ctx::Admission || judged);
        if Ctx::ALL.into_iter().any(|c| hides(&c) && moment.has(c)) {
            let d = Diagnostic::new(
                Code::E0309,
                span,
                format!("`{name}` is an attribute, and a variable of this place too"),
            );
            self.report(labelled(d).help("give the attribute another name"));
            return None;
        }
        if !moment.has_session() {
            let d = Diagnostic::new(
                Code::E0311,
                span,
                format!("`{name}` is read in {}, where there is no session", place.what),
            );
            self.report(labelled(d).help("read pools, stages or the totals that exist here"));
            return None;
        }
        if place.decides {
            if let Some(&at) = self.names.hidden.get(&slot) {
                let d = Diagnostic::new(
                    Code::E0509,
                    span,
                    format!("the hidden attribute `{name}` is read in {}", place.what),
                )
                .label(at, "hidden here")
                .help(
                    "a server cannot know it in advance: use an estimate, or take it off the list",
                );
                self.report(d);
                return None;
            }
        }
        Some(CExpr::Attr(slot))
    }

    fn read_ctx(&mut self, ctx: Ctx, span: Span, place: Place) -> Option<CExpr> {
        let exists = |c: Ctx| Moment::of(c).map(Moment::describe).collect::<Vec<_>>().join(", ");
        match place.moment {
            Some(moment) if moment.has(ctx) => Some(CExpr::Ctx(ctx)),
            Some(_) => {
                let d = Diagnostic::new(
                    Code::E0310,
                    span,
                    format!("`{}` is read in {}", ctx.name(), place.what),
                )
                .help(format!("it exists in {}", exists(ctx)));
                self.report(d);
                None
            }
            None => {
                let d = Diagnostic::new(
                    Code::E0404,
                    span,
                    format!("a constant cannot read `{}`", ctx.name()),
                )
                .help("constants are computed before the run begins");
                self.report(d);
                None
            }
        }
    }

    fn unknown_name(&mut self, name: &str, span: Span, place: Place) {
        let mut known: Vec<&str> = self.consts.keys().map(String::as_str).collect();
        known.push("inf");
        if let Some(moment) = place.moment {
            for ctx in Ctx::ALL.into_iter().filter(|c| moment.has(*c)) {
                known.push(ctx.name());
            }
            if moment.has_session() {
                known.extend(self.names.slots.keys().map(String::as_str));
            }
        }
        if let Some(binds) = &self.binds {
            for bind in &binds.list[..binds.visible] {
                known.push(&bind.name.text);
            }
        }
        let near = closest(name, known).map(str::to_owned);
        let mut d = Diagnostic::new(Code::E0303, span, format!("unknown name `{name}`"))
            .did_you_mean(near.as_deref());
        if self.pools.get(name).is_some() {
            d = d.help(format!("`{name}` is a pool: used({name}), free({name}), cachedin({name})"));
        } else if self.stages.get(name).is_some() {
            d = d.help(format!("`{name}` is a stage: queue({name}), work({name})"));
        } else if place.moment.is_some() && near.is_none() {
            d = d.help("a name is a `let`, or an attribute that some `set` assigns");
        }
        self.report(d);
    }

    /// Links what no use has linked, so that a mistake in it is found.
    pub(super) fn unused_binds(&mut self) {
        let Some(binds) = &self.binds else { return };
        for at in 0..binds.list.len() {
            let Some(binds) = &mut self.binds else { return };
            binds.visible = at + 1;
            if binds.done[at].iter().all(Option::is_none) {
                let name = &binds.list[at].name.text;
                self.resolve_bind(name, place::CACHE);
            }
        }
    }
}
