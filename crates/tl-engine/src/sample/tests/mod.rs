//! The module against the golden vectors and against a plain reference.

mod elementary;
mod generator;
mod golden;
mod reference;
mod refusals;

use serde_json::Value;

/// A file of `contracts/vectors`.
fn vectors(name: &str) -> Value {
    let path = format!("{}/../../contracts/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// A 64-bit number, which the vectors hold as text.
fn u64_of(value: &Value) -> u64 {
    value.as_str().expect("text").parse().expect("a 64-bit number")
}

/// A float, which the vectors hold as text so that no reader of JSON rounds it twice.
fn f64_of(value: &Value) -> f64 {
    value.as_str().expect("text").parse().expect("a float")
}

fn u32s(value: &Value) -> Vec<u32> {
    let one = |v: &Value| u32::try_from(v.as_u64().expect("a number")).expect("32 bits");
    list(value).iter().map(one).collect()
}

fn f64s(value: &Value) -> Vec<f64> {
    list(value).iter().map(f64_of).collect()
}
