//! What can go wrong, and how it names the program's line.
//!
//! Inside the engine a mistake is a [`Reason`], small and without context; on its way out it
//! collects the statement, pool or stage it came from. At the edge it becomes a [`Fault`] with the
//! program's position, the session and the time.

use std::fmt;

use serq_lang::ir::{IrError, Place};

/// Why a run did not come to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The program breaks a rule that can be known without running it.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<IrError>),
    /// The caller's options make no run.
    #[error("{0}")]
    Options(String),
    /// A statement or policy met a value it cannot mean anything with.
    #[error("{0}")]
    Fault(Box<Fault>),
    /// The observer asked to stop.
    #[error("stopped at time {0}")]
    Stopped(f64),
}

/// A run-time error.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Stable name of the rule.
    pub code: &'static str,
    /// Where in the source, if the program carries positions.
    pub place: Option<Place>,
    /// Where in the IR, e.g. `blocks[3][1]` or `pools[0]`.
    pub path: String,
    /// Serial number of the session, if one is concerned.
    pub session: Option<u64>,
    /// Simulated time, seconds.
    pub time: f64,
    pub reason: String,
    pub help: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: ")?,
            None => write!(f, "{}: ", self.path)?,
        }
        write!(f, "at time {}", self.time)?;
        if let Some(session) = self.session {
            write!(f, ", session {session}")?;
        }
        write!(f, ": {} [{}]; {}", self.reason, self.code, self.help)
    }
}

impl std::error::Error for Fault {}

/// A mistake on its way out.
#[derive(Debug)]
pub(crate) struct Reason {
    pub(crate) code: &'static str,
    pub(crate) text: String,
    pub(crate) help: &'static str,
    pub(crate) subject: Option<Subject>,
    pub(crate) session: Option<u32>,
}

/// What the mistake is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    /// Index of an instruction.
    Op(u32),
    Pool(u32),
    Stage(u32),
    Gauge(u32),
}

pub(crate) type Result<T> = std::result::Result<T, Box<Reason>>;

impl Reason {
    pub(crate) fn new(code: &'static str, text: String, help: &'static str) -> Box<Self> {
        Box::new(Self { code, text, help, subject: None, session: None })
    }

    /// Says what it is about, unless something nearer did.
    pub(crate) fn about(mut self: Box<Self>, subject: Subject) -> Box<Self> {
        self.subject.get_or_insert(subject);
        self
    }

    /// Says whose it is, unless something nearer did.
    pub(crate) fn of(mut self: Box<Self>, session: u32) -> Box<Self> {
        self.session.get_or_insert(session);
        self
    }
}

/// Rounding noise that still counts as 0; section by section the same tolerance.
pub(crate) const EPS: f64 = 1e-9;

/// An amount must be a number, not negative and not infinite. Rounding noise below 0 is 0.
pub(crate) fn amount(value: f64, what: &str) -> Result<f64> {
    if value >= 0.0 && value < f64::INFINITY {
        Ok(value)
    } else if value < 0.0 && value >= -EPS {
        Ok(0.0)
    } else {
        Err(bad_amount(value, what))
    }
}

/// The same where infinity has a meaning.
pub(crate) fn amount_or_inf(value: f64, what: &str) -> Result<f64> {
    if value == f64::INFINITY { Ok(value) } else { amount(value, what) }
}

/// An amount of an integral engine or its memory must be whole.
pub(crate) fn whole(value: f64, integral: bool, what: &str) -> Result<f64> {
    if !integral || !value.is_finite() || value.fract() == 0.0 {
        return Ok(value);
    }
    Err(Reason::new(
        "integral",
        format!("{what} is {value}, and the engine counts whole tokens"),
        "round it with `floor` or `ceil`, or take `integral` out",
    ))
}

#[cold]
fn bad_amount(value: f64, what: &str) -> Box<Reason> {
    Reason::new(
        "amount",
        format!("{what} is {value}"),
        "an amount is a number, 0 or more: check the expression's inputs",
    )
}
