//! Reader of GGUF versions 2 and 3, little-endian.
//!
//! A file from elsewhere is hostile until proved otherwise: every length is compared with the bytes
//! that are left before anything is allocated for it, so that memory stays a small multiple of the
//! file's own size, and every refusal says what was being read and at which byte.

mod cursor;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use cursor::Cursor;
pub use value::{Array, Value};

use crate::checkpoint::{Dtype, TensorInfo};
use crate::source::{FileSource, ReadAt};

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;
const MAX_DIMS: u32 = 4;

/// Why a GGUF file was refused: `what` was being read at byte `offset`.
#[derive(Debug, thiserror::Error)]
#[error("{what} at byte {offset}: {problem}")]
pub struct GgufError {
    pub what: String,
    pub offset: u64,
    pub problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("not a GGUF file (the first four bytes are not `GGUF`)")]
    Magic,
    #[error("version {0} is not supported, only 2 and 3 are")]
    Version(u32),
    #[error("the file is big-endian, only little-endian files are supported")]
    BigEndian,
    #[error("needs {needed} bytes but the file has only {left} left")]
    TooShort { needed: u64, left: u64 },
    #[error("a count of {0} is more than the file can hold")]
    Count(u64),
    #[error("text is not UTF-8")]
    Utf8,
    #[error("unknown value type {0}")]
    ValueType(u32),
    #[error("arrays nested deeper than {0}")]
    Nesting(u32),
    #[error("a bool must be 0 or 1, found {0}")]
    Bool(u8),
    #[error("the name appears twice")]
    Duplicate,
    #[error("{0} dimensions, expected 1 to 4")]
    Dims(u32),
    #[error("a dimension is 0 or the size overflows")]
    Size,
    #[error("rows of {0} elements are not whole blocks of {1}")]
    Block(u64, u64),
    #[error("tensor type {0} is not supported; use a file with F32, F16, BF16, Q8_0, Q4_0 or Q4_1")]
    TensorType(String),
    #[error("alignment {0} is not a power of two up to 1 MiB")]
    Alignment(u64),
    #[error("the data offset {0} is not a multiple of the alignment")]
    Misaligned(u64),
    #[error("expected {expected}, found {found}")]
    Kind { expected: &'static str, found: &'static str },
    #[error("missing")]
    Missing,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An opened file: metadata and tensor directory in memory, tensor data read on demand.
pub struct Gguf {
    source: Box<dyn ReadAt>,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("keys", &self.metadata.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl Gguf {
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let source = FileSource::open(path).map_err(|e| GgufError {
            what: "opening the file".into(),
            offset: 0,
            problem: Problem::Io(e),
        })?;
        Self::read(Box::new(source))
    }

    /// Reads a file that is already in memory; what a fuzzer calls.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::read(Box::new(bytes))
    }

    /// Reads header, metadata and tensor directory, and checks that every tensor lies in the file.
    pub fn read(source: Box<dyn ReadAt>) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(&*source);
        let (n_tensors, n_keys) = header(&mut cursor)?;
        let mut metadata = BTreeMap::new();
        for _ in 0..n_keys {
            let at = cursor.pos();
            let key = cursor.string("metadata key")?;
            let value = value::read(&mut cursor, &key)?;
            if metadata.contains_key(&key) {
                return Err(refuse(format!("metadata key `{key}`"), at, Problem::Duplicate));
            }
            metadata.insert(key, value);
        }
        let alignment = alignment(&metadata)?;
        let mut tensors = BTreeMap::new();
        for _ in 0..n_tensors {
            let at = cursor.pos();
            let (name, info) = tensor_info(&mut cursor)?;
            if info.offset % alignment != 0 {
                let what = format!("tensor `{name}`");
                return Err(refuse(what, at, Problem::Misaligned(info.offset)));
            }
            if tensors.contains_key(&name) {
                return Err(refuse(format!("tensor `{name}`"), at, Problem::Duplicate));
            }
            tensors.insert(name, info);
        }
        let data_start = cursor.pos().next_multiple_of(alignment);
        for (name, info) in &mut tensors {
            let at = data_start.saturating_add(info.offset);
            let left = source.size().saturating_sub(at);
            if info.n_bytes > left {
                let problem = Problem::TooShort { needed: info.n_bytes, left };
                return Err(refuse(format!("data of tensor `{name}`"), at, problem));
            }
            info.offset = at;
        }
        Ok(Self { source, metadata, tensors })
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.metadata.keys().map(String::as_str)
    }

    /// Name and place of every tensor, by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// The raw bytes of one tensor of [`Self::tensors`].
    pub fn data(&self, name: &str, info: &TensorInfo) -> Result<Vec<u8>, GgufError> {
        let fail = |problem| refuse(format!("data of tensor `{name}`"), info.offset, problem);
        let len = usize::try_from(info.n_bytes).map_err(|_| fail(Problem::Size))?;
        let mut buf = vec![0; len];
        self.source.read_exact_at(&mut buf, info.offset).map_err(|e| fail(Problem::Io(e)))?;
        Ok(buf)
    }

    /// An unsigned number of any integer width.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "an unsigned number", Value::as_u64)
    }

    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a float", Value::as_f32)
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a bool", Value::as_bool)
    }

    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "text", Value::as_str)
    }

    pub fn strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        self.typed(key, "an array of text", |v| match v {
            Value::Array(Array::String(s)) => Some(s.as_slice()),
            _ => None,
        })
    }

    pub fn i32s(&self, key: &str) -> Result<Option<&[i32]>, GgufError> {
        self.typed(key, "an array of i32", |v| match v {
            Value::Array(Array::I32(s)) => Some(s.as_slice()),
            _ => None,
        })
    }

    /// The error for a key that must be there.
    pub fn missing(key: &str) -> GgufError {
        refuse(format!("metadata key `{key}`"), 0, Problem::Missing)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        f: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let found = value.kind();
        f(value).map(Some).ok_or_else(|| {
            refuse(format!("metadata key `{key}`"), 0, Problem::Kind { expected, found })
        })
    }
}

fn refuse(what: String, offset: u64, problem: Problem) -> GgufError {
    GgufError { what, offset, problem }
}

/// Counts of tensors and metadata keys, both bounded by the file's size.
fn header(cursor: &mut Cursor<'_>) -> Result<(u64, u64), GgufError> {
    let magic: [u8; 4] = cursor.array("magic").map_err(|e| match e.problem {
        Problem::TooShort { .. } => refuse("header".into(), 0, Problem::Magic),
        _ => e,
    })?;
    if &magic != MAGIC {
        return Err(refuse("header".into(), 0, Problem::Magic));
    }
    let version = cursor.u32("version")?;
    if version != 0 && version & 0xffff == 0 {
        return Err(refuse("version".into(), 4, Problem::BigEndian));
    }
    if !(2..=3).contains(&version) {
        return Err(refuse("version".into(), 4, Problem::Version(version)));
    }
    // The smallest tensor entry has a name length, a dimension count, one dimension, a type and
    // an offset; the smallest metadata entry a key length, a type and one byte.
    let n_tensors = cursor.count("tensor count", 8 + 4 + 8 + 4 + 8)?;
    let n_keys = cursor.count("metadata count", 8 + 4 + 1)?;
    Ok((n_tensors, n_keys))
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, GgufError> {
    let Some(value) = metadata.get("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
    let what = || "metadata key `general.alignment`".to_owned();
    let Some(alignment) = value.as_u64() else {
        let problem = Problem::Kind { expected: "an unsigned number", found: value.kind() };
        return Err(refuse(what(), 0, problem));
    };
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        return Err(refuse(what(), 0, Problem::Alignment(alignment)));
    }
    Ok(alignment)
}

/// One directory entry; its offset is still relative to the data section.
fn tensor_info(cursor: &mut Cursor<'_>) -> Result<(String, TensorInfo), GgufError> {
    let at = cursor.pos();
    let name = cursor.string("tensor name")?;
    let what = || format!("tensor `{name}`");
    let n_dims = cursor.u32("dimension count")?;
    if n_dims == 0 || n_dims > MAX_DIMS {
        return Err(refuse(what(), at, Problem::Dims(n_dims)));
    }
    let mut dims = Vec::with_capacity(MAX_DIMS as usize);
    for _ in 0..n_dims {
        dims.push(cursor.u64("dimension")?);
    }
    let type_id = cursor.u32("tensor type")?;
    let offset = cursor.u64("tensor offset")?;
    let dtype = dtype(type_id)
        .ok_or_else(|| refuse(what(), at, Problem::TensorType(type_name(type_id))))?;
    let elements = dims
        .iter()
        .try_fold(1u64, |n, &d| n.checked_mul(d))
        .filter(|&n| n > 0)
        .ok_or_else(|| refuse(what(), at, Problem::Size))?;
    let block = dtype.block_len() as u64;
    if dims[0] % block != 0 {
        return Err(refuse(what(), at, Problem::Block(dims[0], block)));
    }
    let n_bytes = (elements / block)
        .checked_mul(dtype.block_bytes() as u64)
        .ok_or_else(|| refuse(what(), at, Problem::Size))?;
    let mut shape = Vec::with_capacity(dims.len());
    // GGUF lists the fastest dimension first.
    for &d in dims.iter().rev() {
        shape.push(usize::try_from(d).map_err(|_| refuse(what(), at, Problem::Size))?);
    }
    Ok((name, TensorInfo { dtype, shape, offset, n_bytes }))
}

fn dtype(type_id: u32) -> Option<Dtype> {
    Some(match type_id {
        0 => Dtype::F32,
        1 => Dtype::F16,
        2 => Dtype::Q4_0,
        3 => Dtype::Q4_1,
        8 => Dtype::Q8_0,
        30 => Dtype::Bf16,
        _ => return None,
    })
}

fn type_name(type_id: u32) -> String {
    let known = match type_id {
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        12 => "Q4_K",
        13 => "Q5_K",
        14 => "Q6_K",
        15 => "Q8_K",
        16..=23 | 29 => "of the IQ family",
        24..=27 => "integer",
        28 => "F64",
        34 | 35 => "ternary",
        39 => "MXFP4",
        _ => return type_id.to_string(),
    };
    format!("{known} ({type_id})")
}

#[cfg(test)]
mod tests;
