//! Metadata values. Arrays are typed vectors: a vector of values would take thirty bytes for each
//! byte of a hostile array.

use super::cursor::Cursor;
use super::{GgufError, Problem};

const MAX_NESTING: u32 = 4;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// What the value is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::U8(_) | Self::U16(_) | Self::U32(_) | Self::U64(_) => "an unsigned number",
            Self::I8(_) | Self::I16(_) | Self::I32(_) | Self::I64(_) => "a signed number",
            Self::F32(_) | Self::F64(_) => "a float",
            Self::Bool(_) => "a bool",
            Self::String(_) => "text",
            Self::Array(Array::String(_)) => "an array of text",
            Self::Array(_) => "an array",
        }
    }

    /// Any integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(v) => Some(v),
            Self::F64(v) => Some(v as f32),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(v) => Some(v),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(v) => Some(v),
            _ => None,
        }
    }
}

/// Reads the type and the value that follow `key`.
pub(super) fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let what = format!("value of metadata key `{key}`");
    let what = what.as_str();
    let type_id = cursor.u32(what)?;
    Ok(match type_id {
        0 => Value::U8(u8::from_le_bytes(cursor.array(what)?)),
        1 => Value::I8(i8::from_le_bytes(cursor.array(what)?)),
        2 => Value::U16(u16::from_le_bytes(cursor.array(what)?)),
        3 => Value::I16(i16::from_le_bytes(cursor.array(what)?)),
        4 => Value::U32(cursor.u32(what)?),
        5 => Value::I32(i32::from_le_bytes(cursor.array(what)?)),
        6 => Value::F32(f32::from_le_bytes(cursor.array(what)?)),
        7 => Value::Bool(bool(cursor, what)?),
        8 => Value::String(cursor.string(what)?),
        9 => Value::Array(array(cursor, what, 1)?),
        10 => Value::U64(cursor.u64(what)?),
        11 => Value::I64(i64::from_le_bytes(cursor.array(what)?)),
        12 => Value::F64(f64::from_le_bytes(cursor.array(what)?)),
        other => return Err(cursor.fail(what, Problem::ValueType(other))),
    })
}

fn bool(cursor: &mut Cursor<'_>, what: &str) -> Result<bool, GgufError> {
    match cursor.array::<1>(what)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [other] => Err(cursor.fail(what, Problem::Bool(other))),
    }
}

fn array(cursor: &mut Cursor<'_>, what: &str, depth: u32) -> Result<Array, GgufError> {
    if depth > MAX_NESTING {
        return Err(cursor.fail(what, Problem::Nesting(MAX_NESTING)));
    }
    let type_id = cursor.u32(what)?;
    Ok(match type_id {
        0 => Array::U8(numbers(cursor, what, u8::from_le_bytes)?),
        1 => Array::I8(numbers(cursor, what, i8::from_le_bytes)?),
        2 => Array::U16(numbers(cursor, what, u16::from_le_bytes)?),
        3 => Array::I16(numbers(cursor, what, i16::from_le_bytes)?),
        4 => Array::U32(numbers(cursor, what, u32::from_le_bytes)?),
        5 => Array::I32(numbers(cursor, what, i32::from_le_bytes)?),
        6 => Array::F32(numbers(cursor, what, f32::from_le_bytes)?),
        7 => {
            let n = cursor.count(what, 1)?;
            Array::Bool((0..n).map(|_| bool(cursor, what)).collect::<Result<_, _>>()?)
        }
        8 => {
            let n = cursor.count(what, 8)?;
            Array::String((0..n).map(|_| cursor.string(what)).collect::<Result<_, _>>()?)
        }
        9 => {
            let n = cursor.count(what, 12)?;
            Array::Array((0..n).map(|_| array(cursor, what, depth + 1)).collect::<Result<_, _>>()?)
        }
        10 => Array::U64(numbers(cursor, what, u64::from_le_bytes)?),
        11 => Array::I64(numbers(cursor, what, i64::from_le_bytes)?),
        12 => Array::F64(numbers(cursor, what, f64::from_le_bytes)?),
        other => return Err(cursor.fail(what, Problem::ValueType(other))),
    })
}

fn numbers<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    what: &str,
    decode: fn([u8; N]) -> T,
) -> Result<Vec<T>, GgufError> {
    let n = cursor.count(what, N as u64)?;
    let bytes = cursor.bytes(what, n * N as u64)?;
    Ok(bytes.as_chunks::<N>().0.iter().map(|&b| decode(b)).collect())
}
