//! What is wrong with a configuration, for whoever has to change it.

use std::fmt;

use figment::Figment;
use figment::error::Kind;
use figment::value::Value;

/// One thing to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file's path, `environment variable TL_..`, or `default`.
    pub source: String,
    /// `engine.kv_blocks`; empty when the file as a whole is unreadable.
    pub key: String,
    /// As written; secrets are shown as `***`.
    pub value: Option<String>,
    pub reason: String,
    pub fix: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.source)?;
        if !self.key.is_empty() {
            write!(f, "{}", self.key)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.reason)?;
        if let Some(fix) = &self.fix {
            write!(f, "; {fix}")?;
        }
        Ok(())
    }
}

/// Every problem found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Not empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> ConfigError {
        ConfigError { problems: vec![problem] }
    }
}

/// Where the value under `key` came from.
pub(super) fn source_of(figment: &Figment, key: &str) -> String {
    figment.find_metadata(key).map_or_else(|| "default".into(), |m| describe(m, key))
}

fn describe(metadata: &figment::Metadata, key: &str) -> String {
    match &metadata.source {
        Some(figment::Source::File(path)) => path.display().to_string(),
        _ if metadata.name == super::source::ENVIRONMENT => {
            format!("environment variable {}", super::source::variable(key))
        }
        _ => "default".into(),
    }
}

/// A value as a line of TOML would show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(_, s) => format!("{s:?}"),
        Value::Bool(_, b) => b.to_string(),
        Value::Num(_, n) => match (n.to_i128(), n.to_u128(), n.to_f64()) {
            (Some(n), _, _) => n.to_string(),
            (_, Some(n), _) => n.to_string(),
            (_, _, Some(x)) => x.to_string(),
            _ => "a number".into(),
        },
        Value::Char(_, c) => format!("{c:?}"),
        Value::Array(..) => "an array".into(),
        Value::Dict(..) => "a table".into(),
        Value::Empty(..) => "nothing".into(),
    }
}

fn one_of(names: &[&str]) -> String {
    format!("use one of: {}", names.join(", "))
}

/// The known name that `name` most likely was meant to be.
fn closest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let distance = |other: &str| {
        let other: Vec<char> = other.chars().collect();
        let mut row: Vec<usize> = (0..=other.len()).collect();
        for (i, a) in name.chars().enumerate() {
            let mut before = row[0];
            row[0] = i + 1;
            for (j, b) in other.iter().enumerate() {
                let replaced = before + usize::from(a != *b);
                before = row[j + 1];
                row[j + 1] = replaced.min(row[j] + 1).min(before + 1);
            }
        }
        row[other.len()]
    };
    names.iter().copied().map(|n| (distance(n), n)).min().filter(|(d, _)| *d <= 2).map(|(_, n)| n)
}

/// figment's errors (one per failed value) as problems.
pub(super) fn from_figment(figment: &Figment, error: figment::Error) -> ConfigError {
    let problems = error.into_iter().map(|e| one(figment, &e)).collect();
    ConfigError { problems }
}

fn one(figment: &Figment, error: &figment::Error) -> Problem {
    let mut path = error.path.clone();
    let (reason, fix) = match &error.kind {
        Kind::UnknownField(name, known) => {
            if path.last() != Some(name) {
                path.push(name.clone());
            }
            let fix = match closest(name, known) {
                Some(near) => format!("did you mean {near}?"),
                None => one_of(known),
            };
            ("there is no such key".to_owned(), Some(fix))
        }
        Kind::UnknownVariant(_, known) => ("not an allowed value".into(), Some(one_of(known))),
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => {
            (format!("must be {expected}"), None)
        }
        Kind::InvalidLength(_, expected) => (format!("must have {expected}"), None),
        Kind::Message(text) => (text.clone(), None),
        other => (other.to_string(), None),
    };
    let key = path.join(".");
    let value = figment.find_value(&key).ok();
    let secret = key == "cluster.token";
    Problem {
        source: error
            .metadata
            .as_ref()
            .map_or_else(|| source_of(figment, &key), |m| describe(m, &key)),
        value: value.map(|v| if secret { "***".into() } else { shown(&v) }),
        key,
        reason,
        fix,
    }
}
