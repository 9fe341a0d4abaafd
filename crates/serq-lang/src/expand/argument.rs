//! Arguments: what may be given, and how it takes a parameter's place.

use super::{Expander, Scope};
use crate::ast::{Arg, Def, Expr, ExprKind, Name, Ref};
use crate::diag::{Code, Diagnostic};
use crate::source::Span;

impl<'d> Expander<'d, '_> {
    /// The rules about all arguments of a call together.
    ///
    /// An argument is put in as text, so it is refused where that could mean something else than
    /// its value at the call: if it draws and stands there twice, or if the definition changes what
    /// it reads.
    pub(super) fn arguments_hold(&mut self, def: &'d Def, args: &[(&'d str, Arg)]) -> bool {
        let before = self.diags.len();
        for (at, (param, arg)) in args.iter().enumerate() {
            let span = arg_span(arg);
            if let Some(draw) = draws(arg) {
                let head = |name: &&String| name.split('.').next() == Some(*param);
                if def.facts.names.iter().filter(head).count() > 1 {
                    let message =
                        format!("an argument that draws, for `{param}`, which is used twice");
                    let d = Diagnostic::new(Code::E0427, draw, message)
                        .label(def.params[at].span, "this parameter")
                        .help("each use would draw again: draw with `set` before, and give the attribute");
                    self.report(d);
                    continue;
                }
            }
            // What the definition changes: names of its own, or what its other arguments name.
            let mut changed = def.facts.changes.iter().filter_map(|name| {
                match args.iter().position(|(p, _)| p == name) {
                    None => Some(name.as_str()),
                    Some(other) if other == at => None,
                    Some(other) => plain(&args[other].1),
                }
            });
            let read = names(arg);
            if let Some(name) = changed.find(|n| read.contains(n)) {
                let message = format!("`{name}` in an argument, and the definition changes it");
                let d = Diagnostic::new(Code::E0316, span, message)
                    .label(def.name.span, format!("this sets or binds `{name}`"))
                    .help("an argument is put in as it is written: copy the value with `set` first, under another name");
                self.report(d);
            }
        }
        self.diags.len() == before
    }

    /// An argument of a call, for a function or a definition.
    pub(super) fn arg(&mut self, arg: &'d Arg, scope: &Scope<'d>) -> Option<Arg> {
        match arg {
            Arg::Expr(e) => Some(Arg::Expr(self.expr(e, scope)?)),
            Arg::Ref(r) => match (scope.arg(&r.name.text), &r.index) {
                (Some(given), None) => Some(given.clone()),
                _ => Some(Arg::Ref(self.reference(r, scope)?)),
            },
        }
    }

    /// A name that is declared or given a value: parameters become the name that was given.
    pub(super) fn name(&mut self, name: &Name, scope: &Scope<'d>) -> Option<Name> {
        let (text, index) = self.renamed(name, scope)?;
        if let Some(index) = index {
            let d =
                Diagnostic::new(Code::E0402, index.span, "a member where a plain name is needed")
                    .label(scope.span(name.span), format!("`{}` stands here", name.text));
            self.report(d);
            return None;
        }
        Some(Name { text, span: scope.span(name.span) })
    }

    /// A pool or stage, or whatever a function takes.
    pub(super) fn reference(&mut self, r: &'d Ref, scope: &Scope<'d>) -> Option<Ref> {
        let (text, given) = self.renamed(&r.name, scope)?;
        let own = match &r.index {
            Some(e) => Some(self.expr(e, scope)?),
            None => None,
        };
        let span = scope.span(r.span);
        let index = match (own, given) {
            (Some(_), Some(given)) => {
                let message =
                    format!("`{}` has an index here, and the argument one of its own", r.name.text);
                let d = Diagnostic::new(Code::E0402, given.span, message)
                    .label(span, "used here")
                    .help("give the family's name without an index");
                self.report(d);
                return None;
            }
            (own, given) => own.or(given),
        };
        Some(Ref { name: Name { text, span: scope.span(r.name.span) }, index, span })
    }

    /// What a name becomes; `P[i]` in the place of `E` makes `P.kv[i]` of `E.kv`.
    fn renamed(&mut self, name: &Name, scope: &Scope<'d>) -> Option<(String, Option<Expr>)> {
        let (head, rest) = match name.text.split_once('.') {
            Some((head, rest)) => (head, Some(rest)),
            None => (name.text.as_str(), None),
        };
        let Some(arg) = scope.arg(head) else { return Some((name.text.clone(), None)) };
        let Arg::Ref(given) = arg else {
            let d = Diagnostic::new(Code::E0402, arg_span(arg), "a value where a name is needed")
                .label(scope.span(name.span), format!("`{head}` is used as a name here"))
                .help("give the name of a pool, a stage or an attribute");
            self.report(d);
            return None;
        };
        let text = match rest {
            Some(rest) => format!("{}.{rest}", given.name.text),
            None => given.name.text.clone(),
        };
        Some((text, given.index.clone()))
    }

    /// A parameter, or another name, that is the whole of an expression.
    pub(super) fn value(&mut self, name: &str, span: Span, scope: &Scope<'d>) -> Option<Expr> {
        match scope.arg(name) {
            Some(Arg::Expr(e)) => Some(e.clone()),
            Some(Arg::Ref(Ref { name, index: None, .. })) => {
                Some(Expr { kind: ExprKind::Name(name.text.clone()), span: name.span, height: 1 })
            }
            Some(Arg::Ref(r)) => {
                let d = Diagnostic::new(Code::E0402, r.span, "a member where a number is needed")
                    .label(scope.span(span), format!("`{name}` is used as a number here"));
                self.report(d);
                None
            }
            None => {
                let name = Name { text: name.to_owned(), span };
                let Name { text, span } = self.name(&name, scope)?;
                Some(Expr { kind: ExprKind::Name(text), span, height: 1 })
            }
        }
    }
}

pub(super) fn arg_span(arg: &Arg) -> Span {
    match arg {
        Arg::Expr(e) => e.span,
        Arg::Ref(r) => r.span,
    }
}

fn draws(arg: &Arg) -> Option<Span> {
    match arg {
        Arg::Expr(e) => e.draw(),
        Arg::Ref(r) => r.index.as_ref().and_then(Expr::draw),
    }
}

/// The name an argument is, if it is one.
fn plain(arg: &Arg) -> Option<&str> {
    match arg {
        Arg::Ref(Ref { name, index: None, .. }) => Some(&name.text),
        _ => None,
    }
}

/// The names an argument reads.
fn names(arg: &Arg) -> Vec<&str> {
    let mut found = Vec::new();
    let exprs: Vec<&Expr> = match arg {
        Arg::Expr(e) => vec![e],
        Arg::Ref(r) => {
            found.push(r.name.text.as_str());
            r.index.iter().collect()
        }
    };
    for e in exprs {
        e.walk(&mut |e| match &e.kind {
            ExprKind::Name(name) => found.push(name),
            ExprKind::Call(_, args) => found.extend(args.iter().filter_map(plain)),
            _ => {}
        });
    }
    found
}
