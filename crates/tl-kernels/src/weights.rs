//! Weight matrices as the kernels read them: row major, each row padded with zeros to
//! whole vectors, or in the blocks of the checkpoint.

use std::fmt;

use crate::f16::f16_to_f32;
use crate::isa::Token;
use crate::quant::{Quant, expand};
use crate::simd::LANES;
use crate::simd::portable::Portable;
use crate::tiles::{Mat, MatMut};

/// A matrix of `n` rows (outputs) by `k` columns (inputs), in half or single precision or in
/// quantised blocks.
///
/// The product of activations `x` (m x k) with it is `x * W^T` (m x n).
#[derive(Clone)]
pub struct Weights {
    n: usize,
    k: usize,
    /// Elements from one row to the next, `k` rounded up to whole vectors; bytes for blocks.
    stride: usize,
    pub(crate) data: Data,
}

#[derive(Clone)]
pub(crate) enum Data {
    /// IEEE half bits.
    F16(Lines),
    F32(Lines),
    /// Whole blocks, row after row.
    Quant(Quant, Lines),
}

/// Data that makes no matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightsError {
    /// The data is not `n * k` elements.
    Elements { n: usize, k: usize, elements: usize },
    /// Rows of `k` are not whole blocks.
    Blocks { k: usize, quant: Quant },
}

impl fmt::Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elements { n, k, elements } => {
                write!(f, "a {n} x {k} weight matrix needs n * k elements, the data has {elements}")
            }
            Self::Blocks { k, quant } => {
                let block = Quant::BLOCK;
                write!(f, "rows of {k} weights are not whole {quant} blocks of {block}")
            }
        }
    }
}

impl std::error::Error for WeightsError {}

impl Weights {
    /// From `n * k` halves (bits), row major.
    pub fn from_f16(n: usize, k: usize, data: Vec<u16>) -> Result<Self, WeightsError> {
        check(n, k, data.len())?;
        Ok(Self::build_f16(n, k, |i, row| row.copy_from_slice(&data[i * k..][..k])))
    }

    /// From `n * k` singles, row major.
    pub fn from_f32(n: usize, k: usize, data: Vec<f32>) -> Result<Self, WeightsError> {
        check(n, k, data.len())?;
        Ok(Self::build_f32(n, k, |i, row| row.copy_from_slice(&data[i * k..][..k])))
    }

    /// Halves written in place: `fill(i, row)` gets the zeroed `k` halves (bits) of row `i`.
    /// A loader that decodes a file needs no second copy of the matrix.
    pub fn build_f16(n: usize, k: usize, mut fill: impl FnMut(usize, &mut [u16])) -> Self {
        let stride = k.next_multiple_of(LANES);
        let mut lines = Lines::zeroed::<u16>(n * stride);
        let rows = bytemuck::cast_slice_mut::<_, u16>(&mut lines.0);
        for i in 0..n {
            fill(i, &mut rows[i * stride..][..k]);
        }
        Self { n, k, stride, data: Data::F16(lines) }
    }

    /// As [`Weights::build_f16`], in single precision.
    pub fn build_f32(n: usize, k: usize, mut fill: impl FnMut(usize, &mut [f32])) -> Self {
        let stride = k.next_multiple_of(LANES);
        let mut lines = Lines::zeroed::<f32>(n * stride);
        let rows = bytemuck::cast_slice_mut::<_, f32>(&mut lines.0);
        for i in 0..n {
            fill(i, &mut rows[i * stride..][..k]);
        }
        Self { n, k, stride, data: Data::F32(lines) }
    }

    /// Quantised blocks written in place: `fill(i, row)` gets the zeroed
    /// [`Quant::row_bytes`] of row `i`. Products have the bits of the f32 expansion.
    pub fn build_quant(
        n: usize,
        k: usize,
        quant: Quant,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<Self, WeightsError> {
        if k % Quant::BLOCK != 0 {
            return Err(WeightsError::Blocks { k, quant });
        }
        let stride = quant.row_bytes(k);
        let mut lines = Lines::zeroed::<u8>(n * stride);
        let rows = bytemuck::cast_slice_mut::<_, u8>(&mut lines.0);
        for i in 0..n {
            fill(i, &mut rows[i * stride..][..stride]);
        }
        Ok(Self { n, k, stride, data: Data::Quant(quant, lines) })
    }

    /// Rows: the outputs of a product.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns: the inputs of a product.
    pub fn k(&self) -> usize {
        self.k
    }

    pub fn is_f16(&self) -> bool {
        matches!(self.data, Data::F16(_))
    }

    /// The format of quantised weights.
    pub fn quant(&self) -> Option<Quant> {
        match self.data {
            Data::Quant(quant, _) => Some(quant),
            Data::F16(_) | Data::F32(_) => None,
        }
    }

    /// Bytes of memory, padding included.
    pub fn bytes(&self) -> usize {
        match &self.data {
            Data::F16(lines) | Data::F32(lines) | Data::Quant(_, lines) => {
                lines.0.len() * size_of::<Line>()
            }
        }
    }

    /// Row `i` in single precision: an embedding is looked up with it.
    ///
    /// # Panics
    /// If `i >= n` or `out` has not `k` elements.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        assert!(i < self.n, "row {i} of a weight matrix with {} rows", self.n);
        assert_eq!(out.len(), self.k, "a row has k elements");
        let at = i * self.stride;
        match &self.data {
            Data::F16(lines) => {
                let row = &lines.as_slice::<u16>()[at..][..self.k];
                for (out, &bits) in out.iter_mut().zip(row) {
                    *out = f16_to_f32(bits);
                }
            }
            Data::F32(lines) => out.copy_from_slice(&lines.as_slice::<f32>()[at..][..self.k]),
            Data::Quant(quant, lines) => {
                let row = &lines.as_slice::<u8>()[at..][..self.stride];
                let to = MatMut { at: out.as_mut_ptr(), stride: self.k };
                let from = Mat { at: row.as_ptr(), stride: self.stride };
                // SAFETY: one row of `k`, whole blocks; portable code needs no instructions.
                unsafe { expand(Token::Portable(Portable), *quant, to, from, self.k, 1, 0) }
            }
        }
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weights({} x {} ", self.n, self.k)?;
        match self.data {
            Data::F16(_) => f.write_str("f16)"),
            Data::F32(_) => f.write_str("f32)"),
            Data::Quant(quant, _) => write!(f, "{quant})"),
        }
    }
}

fn check(n: usize, k: usize, elements: usize) -> Result<(), WeightsError> {
    if n.checked_mul(k) == Some(elements) {
        Ok(())
    } else {
        Err(WeightsError::Elements { n, k, elements })
    }
}

/// Elements between rows of `k` in scratch memory: whole cache lines, and an odd number of
/// them, so that the same columns of many rows spread over all sets of a cache.
pub(crate) fn spread<E>(k: usize) -> usize {
    let line = size_of::<Line>() / size_of::<E>();
    (k.div_ceil(line) | 1) * line
}

/// Memory in whole cache lines, zeroed when it is made.
#[derive(Clone, Default)]
pub(crate) struct Lines(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: an array of bytes; its size is its alignment, so there is no padding.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: as above, and every bit pattern is valid.
unsafe impl bytemuck::Pod for Line {}

impl Lines {
    fn zeroed<E>(elements: usize) -> Self {
        Self(vec![Line([0; 64]); (elements * size_of::<E>()).div_ceil(size_of::<Line>())])
    }

    pub(crate) fn as_slice<E: bytemuck::Pod>(&self) -> &[E] {
        bytemuck::cast_slice(&self.0)
    }

    /// At least `elements`, with whatever was there before.
    pub(crate) fn at_least<E: bytemuck::Pod>(&mut self, elements: usize) -> &mut [E] {
        let lines = (elements * size_of::<E>()).div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line([0; 64]));
        }
        bytemuck::cast_slice_mut(&mut self.0)
    }
}
