//! The table of definitions.

use std::collections::{BTreeMap, BTreeSet};

use crate::ast::Def;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::ir::{Ctx, Dist, Fun};

/// Adds a definition, unless its name is taken.
pub(super) fn define(def: Def, defs: &mut BTreeMap<String, Def>, diags: &mut Diagnostics) {
    for (at, param) in def.params.iter().enumerate() {
        if let Some(first) = def.params[..at].iter().find(|p| p.text == param.text) {
            let message = format!("a second parameter `{}`", param.text);
            let d = Diagnostic::new(Code::E0306, param.span, message)
                .label(first.span, "first declared here")
                .help("give it another name");
            diags.push(d);
        }
        if param.text.contains('.') {
            let message = format!("`{}` is no name for a parameter", param.text);
            let d = Diagnostic::new(Code::E0308, param.span, message)
                .help("a parameter is a plain name; `E.kv` in the body has the argument in the place of `E`");
            diags.push(d);
        }
    }
    let name = &def.name.text;
    let taken = Fun::ALL.into_iter().any(|f| f.name() == name)
        || Dist::ALL.into_iter().any(|d| d.name() == name)
        || Ctx::ALL.into_iter().any(|c| c.name() == name)
        || name == "inf";
    if taken {
        let message = format!("`{name}` is no name for a definition");
        let d = Diagnostic::new(Code::E0308, def.name.span, message)
            .at("the language gives it a meaning of its own");
        diags.push(d);
    }
    if let Some(first) = defs.get(name) {
        let message = format!("a second definition `{name}`");
        let d = Diagnostic::new(Code::E0306, def.name.span, message)
            .label(first.name.span, "first declared here")
            .help("give it another name");
        diags.push(d);
        return;
    }
    defs.insert(name.clone(), def);
}

/// Reports definitions that lead back to themselves, and otherwise gives every definition what
/// those it calls change. Whether there are none.
pub(super) fn acyclic(defs: &mut BTreeMap<String, Def>, diags: &mut Diagnostics) -> bool {
    let Some(order) = callees_first(defs, diags) else { return false };
    for name in order {
        let Some(def) = defs.get(&name) else { continue };
        let mut all: BTreeSet<String> = def.facts.changes.iter().cloned().collect();
        for call in &def.facts.calls {
            if let Some(callee) = defs.get(&call.text) {
                let own = |n: &&String| callee.params.iter().all(|p| p.text != **n);
                all.extend(callee.facts.changes.iter().filter(own).cloned());
            }
        }
        if let Some(def) = defs.get_mut(&name) {
            def.facts.changes = all.into_iter().collect();
        }
    }
    true
}

/// The definitions, each behind those it calls; `None` if there is a circle.
fn callees_first(defs: &BTreeMap<String, Def>, diags: &mut Diagnostics) -> Option<Vec<String>> {
    let mut order = Vec::with_capacity(defs.len());
    // 1 while on the path, 2 when done. Without recursion: there may be many definitions.
    let mut state: BTreeMap<&str, u8> = BTreeMap::new();
    let mut good = true;
    for root in defs.keys() {
        let mut path: Vec<(&str, usize)> = Vec::new();
        if !state.contains_key(root.as_str()) {
            state.insert(root, 1);
            path.push((root, 0));
        }
        while let Some((name, next)) = path.last_mut() {
            let Some(call) = defs.get(*name).and_then(|def| def.facts.calls.get(*next)) else {
                state.insert(name, 2);
                order.push((*name).to_owned());
                path.pop();
                continue;
            };
            *next += 1;
            let Some((target, def)) = defs.get_key_value(&call.text) else { continue };
            match state.get(target.as_str()) {
                Some(1) => {
                    good = false;
                    let from = path.iter().position(|(n, _)| n == target).unwrap_or(0);
                    let mut round: Vec<&str> = path[from..].iter().map(|(n, _)| *n).collect();
                    round.push(target);
                    let message = format!("the definition `{target}` calls itself");
                    let d = Diagnostic::new(Code::E0315, call.span, message)
                        .label(def.name.span, "defined here")
                        .at(round.join(" calls "))
                        .help("a definition is put in where it is called, which would never end: repetition is `loop { ... }`");
                    diags.push(d);
                }
                Some(_) => {}
                None => {
                    state.insert(target, 1);
                    path.push((target, 0));
                }
            }
        }
    }
    good.then_some(order)
}
