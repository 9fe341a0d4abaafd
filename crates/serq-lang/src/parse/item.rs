//! Declarations: `let`, `pool`, `stage`, `run` and the sections.

use super::{Parse, Parser, Side, Stop};
use crate::ast::{
    Expr, Gauge, Item, Let, Name, Pool, Preempt, Queue, Run, Section, Serve, Share, Slo, Spill,
    Stage, StageKind, Step,
};
use crate::diag::{Code, Diagnostic};
use crate::ir;
use crate::lex::Tok;
use crate::source::Span;

/// The words that begin a declaration.
pub(super) const ITEMS: [&str; 13] = [
    "let", "pool", "stage", "workload", "session", "server", "run", "gauge", "share", "slo",
    "table", "def", "use",
];
const POOL_OPTIONS: [&str; 8] =
    ["cap", "block", "evict", "preempt", "queue", "admit", "spill", "shared"];
const KINDS: [&str; 4] = ["fifo", "ps", "delay", "step"];
const STEP_OPTIONS: [&str; 9] =
    ["budget", "cost", "chunk", "memory", "serve", "integral", "ahead", "fenced", "stops"];
const RUN_OPTIONS: [&str; 3] = ["horizon", "warmup", "seed"];

impl Parser<'_> {
    /// The whole text.
    pub(super) fn items(&mut self) -> Vec<Item> {
        let mut items = Vec::new();
        while self.token().tok != Tok::End {
            let from = self.at;
            match self.item() {
                Ok(item) => items.push(item),
                Err(Stop) => {
                    if self.at == from {
                        self.bump();
                    }
                    self.skip_to_item();
                }
            }
        }
        items
    }

    /// Skips to the next word that begins a declaration, outside all braces opened on the way.
    fn skip_to_item(&mut self) {
        let mut depth = 0usize;
        while self.token().tok != Tok::End {
            if self.at_sign("{") {
                depth += 1;
            } else if self.at_sign("}") {
                depth = depth.saturating_sub(1);
            } else if depth == 0 && self.starts_line() && ITEMS.contains(&self.word()) {
                return;
            }
            self.bump();
        }
    }

    /// Whether the current token is the first of its line.
    fn starts_line(&self) -> bool {
        let (from, to) = (self.before().end as usize, self.token().span.start as usize);
        self.at == 0 || self.text.get(from..to).unwrap_or("").contains('\n')
    }

    pub(super) fn item(&mut self) -> Parse<Item> {
        let word = self.token().span;
        if self.at_call() {
            return Ok(Item::Call(self.call_clause()?));
        }
        Ok(match self.word() {
            "let" => {
                self.bump();
                let (name, value) = self.assignment("a name")?;
                self.semicolon()?;
                Item::Let(Let { name, value })
            }
            "pool" => {
                self.bump();
                Item::Pool(Box::new(self.pool()?))
            }
            "stage" => {
                self.bump();
                Item::Stage(Box::new(self.stage()?))
            }
            "workload" => {
                self.bump();
                Item::Workload(Box::new(self.workload(word)?))
            }
            "session" => Item::Session(self.section(Side::Kernel)?),
            "server" => Item::Server(self.section(Side::Server)?),
            "run" => {
                self.bump();
                Item::Run(Box::new(self.run_options(word)?))
            }
            "gauge" => {
                self.bump();
                let (name, value) = self.assignment("the name of the gauge")?;
                self.semicolon()?;
                Item::Gauge(Gauge { name, value })
            }
            "share" => {
                self.bump();
                let max_min = self.one_of("a rule", &["maxmin", "bottleneck"])? == "maxmin";
                self.semicolon()?;
                Item::Share(Share { max_min, span: word })
            }
            "slo" => {
                self.bump();
                Item::Slo(self.slo(word)?)
            }
            "table" => {
                self.bump();
                Item::Table(Box::new(self.table()?))
            }
            "def" => Item::Def(Box::new(self.def()?)),
            "use" => Item::Use(self.use_clause()?),
            _ if self.at_sign("}") => {
                let d = Diagnostic::new(Code::E0105, word, "this `}` closes nothing");
                return Err(self.report(d));
            }
            _ => return Err(self.unknown_word(Code::E0106, "a declaration", &ITEMS)),
        })
    }

    pub(super) fn section_once(&mut self, known: bool, word: Span, what: &str) {
        if known {
            self.report(described_twice(word, what));
        }
    }

    /// `word { statements }`
    pub(super) fn section(&mut self, side: Side) -> Parse<Section> {
        let word = self.bump().span;
        let outer = std::mem::replace(&mut self.side, side);
        let body = self.block();
        self.side = outer;
        Ok(Section { word, body: body?, order: 0 })
    }

    /// The bounds of `slo`.
    fn slo(&mut self, word: Span) -> Parse<Slo> {
        let mut bounds = Vec::new();
        loop {
            let span = self.token().span;
            let measure = self.one_of("what is bounded", &ir::Slo::NAMES)?;
            bounds.push((Name { text: measure.to_owned(), span }, self.expr()?));
            if self.at_sign(";") {
                break;
            }
        }
        self.semicolon()?;
        Ok(Slo { bounds, span: word })
    }

    fn family(&mut self) -> Parse<Option<Expr>> {
        if !self.eat("[") {
            return Ok(None);
        }
        let count = self.expr()?;
        self.expect("]")?;
        Ok(Some(count))
    }

    fn pool(&mut self) -> Parse<Pool> {
        let name = self.name("the pool's name")?;
        let count = self.family()?;
        let mut pool = Pool {
            span: name.span,
            name,
            count,
            cap: None,
            block: None,
            evict: None,
            preempt: Preempt::None,
            queue: None,
            admit_via: None,
            spill: None,
            shared: false,
        };
        let mut seen: Vec<&'static str> = Vec::new();
        self.braces(|p| {
            let Some(&word) = POOL_OPTIONS.iter().find(|&&w| p.at_word(w)) else {
                return Err(p.unknown_word(Code::E0108, "a pool option", &POOL_OPTIONS));
            };
            let at = p.bump().span;
            if seen.contains(&word) {
                p.twice(at, &format!("`{word}`"));
            }
            seen.push(word);
            p.pool_option(word, &mut pool)?;
            p.semicolon()
        })?;
        Ok(pool)
    }

    fn pool_option(&mut self, word: &str, pool: &mut Pool) -> Parse<()> {
        match word {
            "cap" => pool.cap = Some(self.expr()?),
            "block" => pool.block = Some(self.expr()?),
            "evict" => match self.one_of("an eviction order", &["lru", "by"])? {
                "by" => pool.evict = Some(self.parens_list()?),
                _ => pool.evict = None,
            },
            "preempt" => {
                pool.preempt = match self.one_of("a preemption policy", &["none", "lifo", "by"])? {
                    "none" => Preempt::None,
                    "lifo" => Preempt::Lifo,
                    _ => {
                        let keys = self.parens_list()?;
                        let requeue =
                            if self.eat_word("requeue") { Some(self.parens()?) } else { None };
                        Preempt::By { keys, requeue }
                    }
                };
            }
            "queue" => match self.one_of("a queue order", &["fifo", "by"])? {
                "by" => {
                    let keys = self.parens_list()?;
                    pool.queue = Some(Queue { keys, live: self.eat_word("live") });
                }
                _ => pool.queue = None,
            },
            "shared" => pool.shared = true,
            "admit" => {
                self.expect_word("via")?;
                pool.admit_via = Some(self.name("the name of a step stage")?);
            }
            _ => {
                let to = self.name("the name of the pool that receives")?;
                self.expect_word("via")?;
                let via = self.name("the name of the stage that moves")?;
                let work = self.parens()?;
                self.expect_word("when")?;
                let when = self.parens()?;
                pool.spill = Some(Spill { to, via, work, when });
            }
        }
        Ok(())
    }

    /// Reads one of a few words.
    pub(super) fn one_of(&mut self, what: &str, words: &[&'static str]) -> Parse<&'static str> {
        match words.iter().find(|&&w| self.at_word(w)) {
            Some(&word) => {
                self.bump();
                Ok(word)
            }
            None => Err(self.unknown_word(Code::E0108, what, words)),
        }
    }

    fn stage(&mut self) -> Parse<Stage> {
        let name = self.name("the stage's name")?;
        let count = self.family()?;
        self.expect(":")?;
        let word = self.token().span;
        let kind = match self.one_of("a kind of stage", &KINDS)? {
            "fifo" => {
                StageKind::Fifo(if self.at_sign("(") { Some(self.tight_parens()?) } else { None })
            }
            "ps" => StageKind::Ps(self.tight_parens()?),
            "delay" => StageKind::Delay,
            _ => {
                let mut step = self.step()?;
                step.span = word;
                StageKind::Step(Box::new(step))
            }
        };
        // Behind a block the `;` may be left out.
        if !matches!(kind, StageKind::Step(_)) || self.at_sign(";") {
            self.semicolon()?;
        }
        Ok(Stage { span: name.span, name, count, kind, order: 0 })
    }

    fn step(&mut self) -> Parse<Step> {
        let mut step = Step::default();
        self.braces(|p| {
            let at = p.token().span;
            match p.word() {
                "budget" => {
                    p.bump();
                    p.once(&step.budget, at, "`budget`");
                    step.budget = Some(p.expr()?);
                }
                "cost" => {
                    p.bump();
                    p.once(&step.cost, at, "`cost`");
                    step.cost = Some(p.expr()?);
                }
                "chunk" => {
                    p.bump();
                    p.once(&step.chunk, at, "`chunk`");
                    step.chunk = Some(p.expr()?);
                }
                "memory" => {
                    p.bump();
                    p.once(&step.memory, at, "`memory`");
                    step.memory = Some(p.name("the name of a pool")?);
                }
                "serve" => {
                    p.bump();
                    p.once(&step.serve, at, "`serve`");
                    step.serve = Some(p.serve()?);
                }
                "integral" => {
                    p.bump();
                    if step.integral {
                        p.twice(at, "`integral`");
                    }
                    step.integral = true;
                }
                word @ ("ahead" | "fenced" | "stops") => {
                    p.bump();
                    let slot = match word {
                        "ahead" => &mut step.ahead,
                        "fenced" => &mut step.fenced,
                        _ => &mut step.stops,
                    };
                    p.once(slot, at, &format!("`{word}`"));
                    *slot = Some(p.expr()?);
                }
                "decode" | "exclusive" => return Err(p.old_serve()),
                _ => return Err(p.unknown_word(Code::E0108, "a step option", &STEP_OPTIONS)),
            }
            p.semicolon()
        })?;
        Ok(step)
    }

    fn serve(&mut self) -> Parse<Serve> {
        let orders = ["admission", "by", "decode", "exclusive", "prefill"];
        Ok(match self.one_of("a serving order", &orders)? {
            "admission" => Serve::Admission,
            "by" => Serve::By(self.parens_list()?),
            "decode" => {
                self.expect_word("first")?;
                Serve::DecodeFirst
            }
            "prefill" => {
                self.expect_word("alone")?;
                Serve::PrefillAlone
            }
            _ => {
                self.expect_word("prefill")?;
                Serve::ExclusivePrefill
            }
        })
    }

    /// `decode first;` and `exclusive prefill;` without `serve`, as it once was.
    fn old_serve(&mut self) -> Stop {
        let first = self.bump();
        let second = self.bump();
        let span = first.span.to(second.span);
        let now = format!("serve {} {}", self.spelling(first), self.spelling(second));
        let d = Diagnostic::new(Code::E0111, span, "this serving order is an old spelling")
            .did_you_mean(Some(&now));
        self.report(d)
    }

    fn run_options(&mut self, word: Span) -> Parse<Run> {
        let mut run = Run { span: word, ..Run::default() };
        self.braces(|p| {
            let at = p.token().span;
            let name = p.word();
            let slot = match name {
                "horizon" => &mut run.horizon,
                "warmup" => &mut run.warmup,
                "seed" => &mut run.seed,
                _ => return Err(p.unknown_word(Code::E0108, "an option of the run", &RUN_OPTIONS)),
            };
            p.bump();
            p.once(slot, at, &format!("`{name}`"));
            *slot = Some(p.expr()?);
            p.semicolon()
        })?;
        Ok(run)
    }

    /// `NAME (, NAME)*`
    pub(super) fn names(&mut self, what: &str) -> Parse<Vec<Name>> {
        let mut names = vec![self.name(what)?];
        while self.eat(",") {
            names.push(self.name(what)?);
        }
        Ok(names)
    }
}

/// The finding about a part of a program that stands there already.
pub(crate) fn described_twice(word: Span, what: &str) -> Diagnostic {
    Diagnostic::new(Code::E0212, word, format!("{what} is described twice"))
        .help("put both parts into one block")
}
