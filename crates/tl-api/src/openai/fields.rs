//! Typed access to the fields of a JSON object; its errors name the path, the value and the rule.

use serde_json::{Map, Value};

use crate::error::{ApiError, quoted};

/// An object and the path that leads to it (empty at the top).
#[derive(Clone)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

/// Reads a body that must be one JSON object.
pub(super) fn parse_object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(ApiError::malformed(format!(
            "the body must be a json object, not {}",
            kind_of(&other)
        ))),
        // The parser's text says line and column and quotes nothing of the body.
        Err(error) => Err(ApiError::malformed(format!("the body is not valid json: {error}"))),
    }
}

/// What a value is, for an error.
pub(super) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => quoted(s),
        Value::Array(a) => format!("an array of {}", a.len()),
        Value::Object(_) => "an object".into(),
    }
}

impl<'a> Fields<'a> {
    pub(super) fn top(map: &'a Map<String, Value>) -> Fields<'a> {
        Fields { map, path: String::new() }
    }

    /// `value`, which must be an object, at `path`.
    pub(super) fn nested(value: &'a Value, path: String) -> Result<Fields<'a>, ApiError> {
        match value {
            Value::Object(map) => Ok(Fields { map, path }),
            other => Err(wrong(&path, "an object", other)),
        }
    }

    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The value, or `None` when absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    pub(super) fn missing(&self, name: &str) -> ApiError {
        let path = self.path_of(name);
        ApiError::bad_request(format!("`{path}` is required"), path)
    }

    pub(super) fn bool(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(*b)),
            Some(other) => Err(wrong(&self.path_of(name), "true or false", other)),
        }
    }

    pub(super) fn uint(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_u64() {
            Some(n) if (min..=max).contains(&n) => Ok(Some(n)),
            _ => Err(wrong(&self.path_of(name), &format!("an integer from {min} to {max}"), value)),
        }
    }

    /// A finite number that satisfies `allowed` after rounding to f32; `rule` says it in words.
    /// The result is the rounded value: every role of a deployment computes with the same one.
    pub(super) fn float(
        &self,
        name: &str,
        rule: &str,
        allowed: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let rounded = value.as_f64().map(|x| f64::from(x as f32));
        match rounded {
            Some(x) if x.is_finite() && allowed(x) => Ok(Some(x)),
            _ => Err(wrong(&self.path_of(name), rule, value)),
        }
    }

    pub(super) fn str(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(wrong(&self.path_of(name), "a string", other)),
        }
    }

    pub(super) fn array(&self, name: &str) -> Result<Option<&'a [Value]>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(a)) => Ok(Some(a)),
            Some(other) => Err(wrong(&self.path_of(name), "an array", other)),
        }
    }
}

/// 400: `path` holds `value`, and `rule` is what it must be.
pub(super) fn wrong(path: &str, rule: &str, value: &Value) -> ApiError {
    ApiError::bad_request(format!("`{path}` must be {rule}, not {}", kind_of(value)), path)
}

/// An array of token ids.
pub(super) fn token_ids(values: &[Value], path: &str) -> Result<Vec<u32>, ApiError> {
    values
        .iter()
        .enumerate()
        .map(|(i, value)| {
            value
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .ok_or_else(|| wrong(&format!("{path}[{i}]"), "a token id", value))
        })
        .collect()
}
