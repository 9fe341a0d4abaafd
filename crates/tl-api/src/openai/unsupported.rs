//! Parameters that exist, are not implemented, and would change the answer: 422 by name.
//!
//! A value that asks for nothing (`tools: []`, `best_of: 1`) passes, since client libraries
//! send such defaults. Fields that do not change the answer (`store`, `metadata`) are
//! unknown fields like any other.

use serde_json::Value;

use super::fields::{Fields, wrong};
use super::request::Kind;
use crate::error::ApiError;

fn refuse(path: String, why: &str) -> ApiError {
    ApiError::unsupported_parameter(path.clone(), format!("`{path}` is not supported: {why}"))
}

/// `name` unless it is empty.
fn only_empty(fields: &Fields<'_>, name: &str, why: &str) -> Result<(), ApiError> {
    let empty = match fields.get(name) {
        None | Some(Value::Bool(false)) => true,
        Some(Value::Array(a)) => a.is_empty(),
        Some(Value::Object(o)) => o.is_empty(),
        Some(Value::String(s)) => s.is_empty(),
        Some(_) => false,
    };
    if empty { Ok(()) } else { Err(refuse(fields.path_of(name), why)) }
}

pub(super) fn check(kind: Kind, fields: &Fields<'_>) -> Result<(), ApiError> {
    only_empty(fields, "logit_bias", "remove it")?;
    match kind {
        Kind::Chat => chat(fields),
        Kind::Completion => completion(fields),
    }
}

fn chat(fields: &Fields<'_>) -> Result<(), ApiError> {
    only_empty(fields, "tools", "this server calls no tools; remove it")?;
    only_empty(fields, "functions", "this server calls no functions; remove it")?;
    only_empty(fields, "audio", "answers are text only")?;
    only_empty(fields, "web_search_options", "this server does not search")?;
    for name in ["tool_choice", "function_call"] {
        match fields.get(name) {
            None => {}
            Some(Value::String(s)) if s == "none" || s == "auto" => {}
            Some(Value::String(s)) if s == "required" => {
                return Err(refuse(fields.path_of(name), "this server calls no tools"));
            }
            Some(Value::Object(_)) => {
                return Err(refuse(fields.path_of(name), "this server calls no tools"));
            }
            Some(other) => {
                let rule = "\"none\", \"auto\", \"required\" or an object";
                return Err(wrong(&fields.path_of(name), rule, other));
            }
        }
    }
    fields.bool("parallel_tool_calls")?;
    if let Some(value) = fields.get("response_format") {
        let format = Fields::nested(value, fields.path_of("response_format"))?;
        match format.str("type")?.ok_or_else(|| format.missing("type"))? {
            "text" => {}
            "json_object" | "json_schema" => {
                let why = "answers are not constrained to json; ask for it in the prompt";
                return Err(refuse(fields.path_of("response_format"), why));
            }
            _ => {
                let path = format.path_of("type");
                let other = format.get("type").unwrap_or(&Value::Null);
                return Err(wrong(&path, "\"text\"", other));
            }
        }
    }
    if let Some(modalities) = fields.array("modalities")? {
        if modalities.iter().any(|m| m != "text") {
            return Err(refuse(fields.path_of("modalities"), "answers are text only"));
        }
    }
    Ok(())
}

fn completion(fields: &Fields<'_>) -> Result<(), ApiError> {
    if fields.bool("echo")? == Some(true) {
        return Err(refuse(fields.path_of("echo"), "the prompt is not repeated; remove it"));
    }
    only_empty(fields, "suffix", "text is only generated at the end")?;
    if fields.uint("best_of", 0, u64::from(u32::MAX))?.is_some_and(|n| n > 1) {
        return Err(refuse(fields.path_of("best_of"), "use `n` and choose on your side"));
    }
    Ok(())
}
