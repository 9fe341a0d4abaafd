//! The intermediate representation: what a deployment means.
//!
//! The text of a program is one way to write it down; this is its definition. Names of constants
//! are gone, families are flattened to one entry per member, sugar is rewritten, and every
//! reference is an index. The JSON form (external tagging, `"format": "serq-tl"`) is stable, so a
//! program can be written by hand, generated, stored and compared.
//!
//! The types are plain data with no behaviour beyond walking; what must hold of them is in
//! [`validate`], which text and JSON go through alike. Source positions travel beside the program
//! in [`Spans`], so that an error during a run names the line it came from, and a program without
//! them is complete all the same.
//!
//! Growing it: a field that an old reader may ignore is optional and does not change the version;
//! a new variant or a new meaning does.

pub mod expr;
pub mod json;
mod num;
pub mod program;
pub mod slo;
pub mod span;
pub mod stmt;
pub mod table;
pub mod validate;
mod version;
mod walk;

pub use expr::{Binary, CArg, CExpr, CRef, Ctx, Dist, Fun, FunArg, Unary};
pub use json::{from_json, to_json};
pub use program::{
    Arrival, BlockId, CEvict, CGauge, CPool, CPreempt, CQueue, CServe, CSession, CShare, CSpill,
    CStage, CStageKind, CStep, Content, MAX_SESSIONS, Preset, Program, Rate, Slot, Slots, Trace,
    TraceTurn,
};
pub use slo::Slo;
pub use span::{Place, Span, Spans};
pub use stmt::{Bind, CHold, CRenew, CRun, CSegment, CStmt, CTell, Claim, RunMode};
pub use table::{CTable, Grid, Outside};
pub use validate::{IrError, Moment, validate};
pub use version::version_needed;

/// The `format` field of every file.
pub const FORMAT: &str = "serq-tl";

/// The version of a program that needs no later one.
pub const VERSION: u32 = 5;

/// The version of a program that uses what version 5 does not have.
pub const VERSION_6: u32 = 6;

/// Deepest nesting of one expression. Readers and walkers recurse, so depth is bounded where
/// expressions come in: at the JSON reader, in the parser, and in [`validate`].
pub const MAX_EXPR_DEPTH: usize = 256;

/// Deepest nesting of statement blocks, for the same reason.
pub const MAX_BLOCK_DEPTH: usize = 256;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_six;
