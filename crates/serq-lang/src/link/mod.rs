//! From the tree to the intermediate representation.
//!
//! The linker gives every name its meaning, folds constants, flattens families, rewrites sugar and
//! refuses what can be known to be wrong. It goes on after an error, so that one pass names many.
//! Rules about one expression or one declaration are checked here, where the exact place is at
//! hand; rules about the whole program are those of [`crate::ir::validate`], which hand-written
//! programs pass through as well, and whose findings [`checked`] brings back to the text.

mod booking;
mod checked;
mod csv;
mod deadlock;
mod decl;
mod expr;
mod fold;
mod hidden;
mod hold;
mod lint;
mod names;
mod options;
mod place;
mod stmt;
mod table;

use std::collections::BTreeMap;

use crate::ast;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::ir::{self, CRef, CStmt, Slot};
use crate::source::{Sources, Span};

/// Most statements of a linked program; a server is copied to every `request`.
const MAX_STATEMENTS: usize = 100_000;

/// Most nodes of all expressions of a linked program.
const MAX_NODES: usize = 1_000_000;

/// Most nodes of a binding's expression with all bindings it uses put in. It is copied to every
/// use, so bindings of bindings can double with every step.
const MAX_BINDING: usize = 10_000;

/// Most pools, and most stages, with all members counted.
const MAX_MEMBERS: usize = 10_000;

/// An override: `name = value`, from outside.
pub(crate) type Override = (ast::Name, ast::Expr);

/// Links a program. `None` if there is an error in `diags`.
pub(crate) fn link(
    tree: &ast::Program,
    overrides: &[Override],
    sources: &Sources,
    diags: &mut Diagnostics,
) -> Option<ir::Program> {
    let mut linker = Linker {
        diags,
        consts: BTreeMap::new(),
        pools: Families::default(),
        stages: Families::default(),
        tables: Vec::new(),
        names: names::Names::default(),
        binds: None,
        bodies: Vec::new(),
        program: ir::Program::empty(),
        infos: vec![Vec::new(); 3],
        server: tree.server.as_ref(),
        bookings: booking::Bookings::default(),
        order: 0,
        deployment: false,
        nodes: 0,
        statements: 0,
    };
    linker.attributes(tree);
    linker.table_list(&tree.tables, sources);
    linker.lets(&tree.lets, overrides);
    linker.clashes();
    linker.families(tree);
    linker.workload(tree);
    linker.run_options(tree);
    for pool in &tree.pools {
        linker.pool_options(pool);
    }
    for stage in &tree.stages {
        linker.stage_options(stage);
    }
    linker.gauges(tree);
    linker.slo(tree);
    linker.sections(tree);
    linker.finish(tree, sources)
}

/// What a diagnostic needs of a statement of the linked program.
#[derive(Clone, Copy, Debug)]
struct Info {
    span: Span,
    /// Of a hold, its header; of what has a guard or a key, that; otherwise the statement.
    head: Span,
    /// Whether the deployment does it, and not the client.
    decides: bool,
}

/// A constant.
struct Const {
    /// `None` if its expression was wrong: then whatever reads it is not reported again.
    value: Option<f64>,
    span: Span,
    used: bool,
}

/// Pools or stages under one name.
struct Family {
    name: String,
    base: usize,
    count: usize,
    span: Span,
    /// For stages.
    step: bool,
    /// The place of its declaration among all of the program.
    order: usize,
}

impl Family {
    fn is_array(&self) -> bool {
        self.count > 1
    }
}

#[derive(Default)]
struct Families {
    list: Vec<Family>,
    members: usize,
}

impl Families {
    fn get(&self, name: &str) -> Option<&Family> {
        self.list.iter().find(|f| f.name == name)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|f| f.name.as_str())
    }
}

struct Linker<'a> {
    diags: &'a mut Diagnostics,
    consts: BTreeMap<String, Const>,
    pools: Families,
    stages: Families,
    tables: Vec<table::Known>,
    names: names::Names,
    /// The bindings of the header being linked.
    binds: Option<names::Binds<'a>>,
    /// The holds around the statement being linked, outermost first.
    bodies: Vec<names::Body<'a>>,
    program: ir::Program,
    /// In the shape of the program's blocks.
    infos: Vec<Vec<Info>>,
    server: Option<&'a ast::Section>,
    bookings: booking::Bookings,
    /// The declaration whose statements are being linked.
    order: usize,
    /// Whether those are the deployment's.
    deployment: bool,
    nodes: usize,
    statements: usize,
}

impl<'a> Linker<'a> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.diags.push(diagnostic);
    }

    fn sections(&mut self, tree: &'a ast::Program) {
        if let Some(workload) = &tree.workload {
            if let Some(init) = &workload.init {
                self.section(init, 0);
            }
            if let Some(turn) = &workload.turn {
                self.section(turn, 1);
            }
        }
        let client = tree.workload.as_ref().and_then(|w| w.session.as_ref());
        if let Some(session) = client.or(tree.session.as_ref()) {
            self.deployment = client.is_none();
            self.section(session, 2);
        }
    }

    /// Links a section's statements into a block.
    fn section(&mut self, section: &'a ast::Section, block: usize) {
        let outer = std::mem::replace(&mut self.order, section.order);
        self.block_into(&section.body, block);
        self.order = outer;
    }

    /// The last checks, over the whole program.
    fn finish(mut self, tree: &ast::Program, sources: &Sources) -> Option<ir::Program> {
        if self.diags.has_errors() {
            return None;
        }
        // A used file may have more than this program needs.
        for (name, constant) in self.consts.iter().filter(|(_, c)| !c.used && c.span.source == 0) {
            let message = format!("`{name}` is never used");
            self.diags.push(Diagnostic::new(Code::W0702, constant.span, message));
        }
        self.program.version = ir::version_needed(&self.program);
        self.program.spans = Some(self.spans(tree, sources));
        if let Err(errors) = ir::validate(&self.program) {
            for error in errors {
                let d = self.checked(&error, tree);
                self.report(d);
            }
            return None;
        }
        let families = (&self.pools.list[..], &self.stages.list[..]);
        hidden::check(&self.program, &self.infos, &self.names.hidden, families, self.diags);
        lint::lint(&self.program, &self.infos, self.diags, tree);
        deadlock::lint(&self.program, &self.infos, self.diags);
        (!self.diags.has_errors()).then_some(self.program)
    }

    fn spans(&self, tree: &ast::Program, sources: &Sources) -> ir::Spans {
        let position = |span: Span| {
            let at = sources.start(span);
            ir::Span(sources.base(span.source), at.line, at.column)
        };
        let members = |families: &Families| {
            families
                .list
                .iter()
                .flat_map(|f| std::iter::repeat_n(position(f.span), f.count))
                .collect()
        };
        let workload = tree.workload.as_ref();
        ir::Spans {
            files: sources.iter().map(|s| s.name().to_owned()).collect(),
            blocks: self
                .infos
                .iter()
                .map(|block| block.iter().map(|info| position(info.span)).collect())
                .collect(),
            pools: members(&self.pools),
            stages: members(&self.stages),
            arrival: workload.and_then(|w| w.arrive.as_ref()).map(|a| position(a.span)),
            run: tree.run.as_ref().map(|r| position(r.span)),
            hidden: workload
                .map(|w| w.hidden.iter().map(|n| position(n.span)).collect())
                .unwrap_or_default(),
            gauges: tree.gauges.iter().map(|g| position(g.name.span)).collect(),
        }
    }

    /// Adds a statement to a block.
    fn push(&mut self, block: usize, stmt: CStmt, span: Span, head: Span) {
        self.program.blocks[block].push(stmt);
        self.infos[block].push(Info { span, head, decides: self.deployment });
    }

    /// A new, empty block.
    fn new_block(&mut self) -> usize {
        self.program.blocks.push(Vec::new());
        self.infos.push(Vec::new());
        self.program.blocks.len() - 1
    }

    fn slot(&self, name: &str) -> Option<Slot> {
        self.names.slot(name)
    }
}

/// How a reference is shown.
fn show_ref(r: &CRef, families: &Families) -> String {
    let family = families.list.iter().find(|f| f.base <= r.base && r.base < f.base + f.count);
    match family {
        Some(f) if !f.is_array() => f.name.clone(),
        Some(f) if r.index.is_none() => format!("{}[{}]", f.name, r.base - f.base),
        Some(f) => format!("{}[...]", f.name),
        None => "?".to_owned(),
    }
}
