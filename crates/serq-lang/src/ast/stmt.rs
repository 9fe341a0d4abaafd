//! Statements, as they were written.

use super::{Call, Expr, Name, Ref};
use crate::source::Span;

pub type Block = Vec<Stmt>;

#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    pub kind: StmtKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    Turn,
    Request,
    End,
    Set(Name, Expr),
    Observe(Name, Expr),
    Hold(Box<Hold>),
    Grow(Ref, Expr),
    Drop(Ref),
    Release(Box<Tell>),
    Load(Ref, Expr),
    Run(Box<RunStmt>),
    Branch(Box<Branch>),
    Loop(Block),
    While(Expr, Block),
    Until(Box<Until>),
    Shield(Block),
    Book(Name),
    Content(Box<Content>),
    Abandon(Ref),
    Renew(Box<Renew>),
    Choose(Box<Choose>),
    Serving(Box<Serving>),
    Call(Call),
}

/// How a hold was written, which decides its clauses and where it may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Hold,
    Enter,
    Admit,
    /// `enter NAME if`: the hold of a booking.
    Booked,
}

/// How the `enter` of a booking is told from that of a hold.
pub const OPEN: &str = "enter a booking";

impl StmtKind {
    /// The word it begins with; of a call, the name.
    pub fn word(&self) -> &str {
        match self {
            StmtKind::Turn => "turn",
            StmtKind::Request => "request",
            StmtKind::End => "end",
            StmtKind::Set(..) => "set",
            StmtKind::Observe(..) => "observe",
            StmtKind::Hold(hold) => match hold.form {
                Form::Hold => "hold",
                Form::Enter => "enter",
                Form::Admit => "admit",
                Form::Booked => OPEN,
            },
            StmtKind::Grow(..) => "grow",
            StmtKind::Drop(_) => "drop",
            StmtKind::Release(_) => "release",
            StmtKind::Load(..) => "load",
            StmtKind::Run(_) => "run",
            StmtKind::Branch(_) => "branch",
            StmtKind::Loop(_) => "loop",
            StmtKind::While(..) => "while",
            StmtKind::Until(_) => "until",
            StmtKind::Shield(_) => "shield",
            StmtKind::Book(_) => "book",
            StmtKind::Content(_) => "content",
            StmtKind::Abandon(_) => "abandon",
            StmtKind::Renew(_) => "renew",
            StmtKind::Choose(_) => "choose",
            StmtKind::Serving(serving) => serving.role.word(),
            StmtKind::Call(call) => &call.name.text,
        }
    }
}

/// `hold`, `enter` and `admit if`, which mean the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    pub form: Form,
    /// The booking it is of.
    pub booking: Option<Name>,
    pub claims: Vec<Claim>,
    pub reuse: Option<Expr>,
    pub when: Option<Expr>,
    /// Bindings, in order; visible in the header and in the clauses behind the body.
    pub binds: Vec<Bind>,
    pub body: Block,
    pub cache: Option<Expr>,
    pub lease: Option<Lease>,
    /// From the word to the body's brace.
    pub head: Span,
}

/// `lease pool (time) on stage`
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    pub pool: Ref,
    pub time: Expr,
    pub on: Option<Ref>,
}

/// `pool on stage after (e)`, behind `release` or `telling`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tell {
    pub pool: Ref,
    pub on: Option<Ref>,
    pub after: Option<Expr>,
}

/// `renew pool (time) every (e) from stage after (e);`
#[derive(Clone, Debug, PartialEq)]
pub struct Renew {
    pub pool: Ref,
    pub time: Expr,
    pub every: Expr,
    pub from: Ref,
    pub after: Option<Expr>,
}

/// `until (e) { ... } else { ... }`
#[derive(Clone, Debug, PartialEq)]
pub struct Until {
    pub deadline: Expr,
    pub body: Block,
    pub other: Block,
}

/// `content (key: length, ...);` or `content add (...);`
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    pub add: bool,
    pub parts: Vec<(Expr, Expr)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub pool: Ref,
    pub units: Expr,
    pub reserve: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bind {
    pub name: Name,
    pub value: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Prefill,
    Decode,
    Steps,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunStmt {
    pub stage: Ref,
    /// Further stages the work flows over.
    pub also: Vec<Ref>,
    pub mode: Option<(Mode, Span)>,
    pub work: Expr,
    /// `decode (m)` behind `prefill (n)`.
    pub then: Option<Expr>,
    pub growing: Option<Ref>,
    /// Attributes that samples change.
    pub answers: Option<Name>,
    pub first: Option<Name>,
    pub telling: Option<Tell>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// `branch with (p)`: the guard is a probability.
    pub with: bool,
    pub guard: Expr,
    pub then: Block,
    pub other: Block,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Choose {
    pub var: Name,
    pub count: Expr,
    pub key: Expr,
}

/// A statement that names a role instead of a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    pub role: Role,
    pub role_span: Span,
    pub place: ServePlace,
    /// Further stages the work flows over.
    pub also: Vec<Ref>,
    pub work: Expr,
    pub growing: Option<Ref>,
    pub moves: Option<Move>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Prefill,
    Decode,
    Transfer,
    Tool,
}

impl Role {
    pub fn word(self) -> &'static str {
        match self {
            Role::Prefill => "prefill",
            Role::Decode => "decode",
            Role::Transfer => "transfer",
            Role::Tool => "tool",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ServePlace {
    /// The role's own stage.
    Role,
    /// Member of the role's own family.
    Index(Expr),
    /// `on stage`
    On(Ref),
}

/// `from P to Q (n)`
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    pub from: Ref,
    pub to: Ref,
    pub units: Expr,
}
