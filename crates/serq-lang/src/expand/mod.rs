//! Files put together and definitions put in, before names mean anything.
//!
//! A call is replaced by a copy of what the definition stands for, with the arguments in the place
//! of the parameters. Every copy has places of its own that lead to the definition and to the call
//! ([`Sources::expand`]). A definition may not lead back to itself, so the copying ends; how much
//! it makes is bounded by [`MAX_EXPANSIONS`], [`MAX_PARTS`] and [`MAX_DEPTH`].

mod argument;
mod body;
mod decl;
mod defs;
mod files;

pub(crate) use files::read;

use std::collections::BTreeMap;

use crate::ast::{Arg, Call, Def, DefBody, Item, Name, Program};
use crate::diag::{Code, Diagnostic, Diagnostics, closest, plural};
use crate::parse::described_twice;
use crate::source::{Sources, Span};

/// Most calls of one program, those inside of definitions counted every time.
const MAX_EXPANSIONS: usize = 20_000;

/// Most statements, declarations and parts of expressions that calls make.
const MAX_PARTS: usize = 1_000_000;

/// Most definitions that call each other in a row.
const MAX_DEPTH: usize = 32;

/// The declarations of all files in order, each file where it is first used.
pub(crate) struct Read {
    pub(crate) items: Vec<Item>,
    /// The whole text of the program's own file.
    pub(crate) span: Span,
}

/// Puts all definitions in.
pub(crate) fn expand(read: Read, sources: &mut Sources, diags: &mut Diagnostics) -> Program {
    let mut defs = BTreeMap::new();
    let mut items = Vec::with_capacity(read.items.len());
    for item in read.items {
        match item {
            Item::Def(def) => defs::define(*def, &mut defs, diags),
            item => items.push(item),
        }
    }
    let mut program = Program { span: read.span, ..Program::default() };
    if !defs::acyclic(&mut defs, diags) {
        return program;
    }
    let mut expander =
        Expander { defs: &defs, sources, diags, made: 0, calls: 0, order: 0, deep: 0 };
    for item in &items {
        expander.item(item, &Scope::default(), &mut program);
    }
    program
}

/// The findings, each at its place in a file, with the calls that lead there.
pub(crate) fn placed(diags: Diagnostics, sources: &Sources) -> Vec<Diagnostic> {
    /// Calls that are shown of one finding.
    const SHOWN: usize = 3;
    let mut all = Diagnostics::default();
    for mut d in diags.into_sorted() {
        let calls = sources.calls(d.primary.span);
        for label in std::iter::once(&mut d.primary).chain(&mut d.labels) {
            label.span = sources.written(label.span);
        }
        if let Some(suggestion) = &mut d.suggestion {
            suggestion.span = sources.written(suggestion.span);
        }
        for call in calls.into_iter().take(SHOWN) {
            d = d.label(call, "called here");
        }
        all.push(d);
    }
    all.into_sorted()
}

/// What names mean inside of one copy.
#[derive(Default)]
struct Scope<'d> {
    /// Parameters and their arguments, which belong to the caller and are put in as they are.
    args: Vec<(&'d str, Arg)>,
    /// The text number of the copy; none outside of all definitions.
    copy: Option<u32>,
    depth: usize,
}

impl Scope<'_> {
    fn arg(&self, name: &str) -> Option<&Arg> {
        self.args.iter().find(|(param, _)| *param == name).map(|(_, arg)| arg)
    }

    fn span(&self, span: Span) -> Span {
        match self.copy {
            Some(source) => Span { source, ..span },
            None => span,
        }
    }
}

struct Expander<'d, 's> {
    defs: &'d BTreeMap<String, Def>,
    sources: &'s mut Sources,
    diags: &'s mut Diagnostics,
    /// Parts made so far by calls.
    made: usize,
    calls: usize,
    /// Declarations so far.
    order: usize,
    /// Expressions around the one being copied.
    deep: usize,
}

impl<'d> Expander<'d, '_> {
    fn report(&mut self, d: Diagnostic) {
        self.diags.push(d);
    }

    /// Counts a part of a copy; false if there are too many.
    fn count(&mut self, span: Span, scope: &Scope<'_>) -> bool {
        if scope.copy.is_none() {
            return true;
        }
        self.made += 1;
        if self.made == MAX_PARTS + 1 {
            self.too_large(span, &format!("more than {MAX_PARTS} parts come from definitions"));
        }
        self.made <= MAX_PARTS
    }

    fn too_large(&mut self, span: Span, why: &str) {
        let d = Diagnostic::new(Code::E0425, span, "the program is too large once expanded")
            .at(why)
            .help(
                "a definition that calls another twice doubles it: compute shared parts with `set`",
            );
        self.report(d);
    }

    /// A call of a definition: it, and the scope of its copy. The arguments are already expanded.
    fn enter(
        &mut self,
        call: &Call,
        args: &'d [Arg],
        scope: &Scope<'d>,
    ) -> Option<(&'d Def, Scope<'d>)> {
        let span = scope.span(call.span);
        let name_span = scope.span(call.name.span);
        let Some(def) = self.defs.get(&call.name.text) else {
            self.unknown(&call.name, name_span);
            return None;
        };
        if def.params.len() != args.len() {
            let (want, got) = (def.params.len(), args.len());
            let name = &def.name.text;
            let message = format!("`{name}` takes {}, not {got}", plural(want, "argument"));
            let list: Vec<&str> = def.params.iter().map(|p| p.text.as_str()).collect();
            let d = Diagnostic::new(Code::E0401, span, message)
                .label(def.name.span, format!("defined here as {name}({})", list.join(", ")));
            self.report(d);
            return None;
        }
        self.calls += 1;
        if self.calls > MAX_EXPANSIONS || self.made > MAX_PARTS {
            if self.calls == MAX_EXPANSIONS + 1 {
                self.too_large(span, &format!("more than {MAX_EXPANSIONS} calls"));
            }
            return None;
        }
        if scope.depth >= MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} definitions that call each other");
            self.report(Diagnostic::new(Code::E0109, span, message));
            return None;
        }
        let mut given = Vec::with_capacity(args.len());
        for (param, arg) in def.params.iter().zip(args) {
            let arg = self.arg(arg, scope)?;
            given.push((param.text.as_str(), arg));
        }
        if !self.arguments_hold(def, &given) {
            return None;
        }
        let copy = Some(self.sources.expand(def.name.span.source, span));
        Some((def, Scope { args: given, copy, depth: scope.depth + 1 }))
    }

    fn unknown(&mut self, name: &Name, span: Span) {
        let message = format!("nothing is defined as `{}`", name.text);
        let near = closest(&name.text, self.defs.keys().map(String::as_str)).map(str::to_owned);
        let mut d = Diagnostic::new(Code::E0313, span, message).did_you_mean(near.as_deref());
        let head = name.text.split('.').next().unwrap_or("");
        d = match closest(head, crate::parse::statements().iter().copied()) {
            Some(word) if near.is_none() => d.help(format!("the statement is `{word}`")),
            _ => d.help(format!(
                "write `def {}(...) {{ ... }}`, or `use` the file that has it",
                name.text
            )),
        };
        self.report(d);
    }

    /// Reports a definition that stands for something else than is needed here.
    fn other_kind(&mut self, def: &Def, span: Span, need: &str) {
        let is = match def.body {
            DefBody::Expr(_) => "an expression",
            DefBody::Block(_) => "statements",
            DefBody::Items(_) => "declarations",
        };
        let message =
            format!("`{}` stands for {is}, and this is the place of {need}", def.name.text);
        let d = Diagnostic::new(Code::E0314, span, message).label(def.name.span, "defined here");
        self.report(d);
    }

    fn once<T>(&mut self, slot: &mut Option<T>, value: T, span: Span, what: &str) {
        if slot.is_some() {
            self.report(described_twice(span, what));
        } else {
            *slot = Some(value);
        }
    }
}
