//! Numbers in JSON, infinities included.
//!
//! JSON has no infinity, and a pool without a cap or a lease without a bound is one. Finite
//! numbers are JSON numbers; the others are the strings `"inf"`, `"-inf"` and `"nan"`. A `nan`
//! is readable so that the validator, which has a place and a reason to give, refuses it.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;

pub(super) fn serialize<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        out.serialize_f64(*value)
    } else if value.is_nan() {
        out.serialize_str("nan")
    } else if *value > 0.0 {
        out.serialize_str("inf")
    } else {
        out.serialize_str("-inf")
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    input.deserialize_any(NumberVisitor)
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or \"inf\" or \"-inf\"")
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<f64, E> {
        Ok(v)
    }

    #[expect(clippy::cast_precision_loss, reason = "JSON integers are numbers here")]
    fn visit_i64<E: de::Error>(self, v: i64) -> Result<f64, E> {
        Ok(v as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "JSON integers are numbers here")]
    fn visit_u64<E: de::Error>(self, v: u64) -> Result<f64, E> {
        Ok(v as f64)
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<f64, E> {
        match v {
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            "nan" => Ok(f64::NAN),
            _ => Err(E::invalid_value(de::Unexpected::Str(v), &self)),
        }
    }
}

/// The same for an optional number: absent and `null` are `None`.
pub(super) mod opt {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Wrap(#[serde(with = "super")] f64);

    pub(in crate::ir) fn serialize<S: Serializer>(
        value: &Option<f64>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Wrap).serialize(out)
    }

    pub(in crate::ir) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Wrap>::deserialize(input)?.map(|w| w.0))
    }
}
