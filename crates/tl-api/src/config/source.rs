//! Where values come from: a file and the environment.

use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Num, Tag, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::problem::{ConfigError, Problem};

/// Name of the environment in figment's metadata.
pub(super) const ENVIRONMENT: &str = "environment";

/// The variable that sets `key`.
pub(super) fn variable(key: &str) -> String {
    format!("TL_{}", key.to_uppercase().replace('.', "__"))
}

/// A TOML file that was read once.
pub(super) struct File {
    path: PathBuf,
    values: Map<Profile, Dict>,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<File, ConfigError> {
        let problem = |reason: String, fix: Option<&str>| Problem {
            source: path.display().to_string(),
            key: String::new(),
            value: None,
            reason,
            fix: fix.map(str::to_owned),
        };
        let text = std::fs::read_to_string(path).map_err(|e| {
            problem(format!("cannot be read: {e}"), Some("name an existing file with --config"))
        })?;
        let values = Toml::string(&text)
            .data()
            .map_err(|e| problem(format!("is not valid toml: {}", e.kind), None))?;
        Ok(File { path: path.to_owned(), values })
    }
}

impl Provider for File {
    fn metadata(&self) -> Metadata {
        Metadata::from("file", self.path.as_path())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(self.values.clone())
    }
}

/// `TL_<SECTION>__<KEY>` variables. A text becomes what the default under its key is, so that
/// a token of digits stays a text; names without the double underscore are somebody else's.
pub(super) struct Env {
    values: Dict,
}

impl Env {
    pub(super) fn new(
        defaults: &Figment,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Env {
        let mut values = Dict::new();
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix("TL_") else { continue };
            if !rest.contains("__") {
                continue;
            }
            let path: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
            let value = typed(defaults.find_value(&path.join(".")).ok().as_ref(), text);
            insert(&mut values, &path, value);
        }
        Env { values }
    }
}

fn typed(default: Option<&Value>, text: String) -> Value {
    let parsed = match default {
        Some(Value::Bool(..)) => text.parse().ok().map(|b| Value::Bool(Tag::Default, b)),
        Some(Value::Num(_, Num::F32(_) | Num::F64(_))) => text.parse::<f64>().ok().map(Value::from),
        Some(Value::Num(..)) => text.parse::<i64>().ok().map(Value::from),
        _ => None,
    };
    parsed.unwrap_or_else(|| Value::from(text))
}

fn insert(dict: &mut Dict, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            dict.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let inner = dict.entry(first.clone()).or_insert_with(|| Value::from(Dict::new()));
            if let Value::Dict(_, inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

impl Provider for Env {
    fn metadata(&self) -> Metadata {
        Metadata::named(ENVIRONMENT)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}
