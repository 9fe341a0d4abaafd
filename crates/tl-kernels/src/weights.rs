//! Weight matrices as the kernels read them: row major, each row padded with zeros to
//! whole vectors and aligned to a cache line.

use std::fmt;

use crate::f16::f16_to_f32;
use crate::simd::LANES;

/// A matrix of `n` rows (outputs) by `k` columns (inputs), in half or single precision.
///
/// The product of activations `x` (m x k) with it is `x * W^T` (m x n).
#[derive(Clone)]
pub struct Weights {
    n: usize,
    k: usize,
    /// Elements from one row to the next: `k` rounded up to whole vectors.
    stride: usize,
    pub(crate) data: Data,
}

#[derive(Clone)]
pub(crate) enum Data {
    /// IEEE half bits.
    F16(Lines),
    F32(Lines),
}

/// The data given for a matrix is not `n * k` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightShapeError {
    pub n: usize,
    pub k: usize,
    pub elements: usize,
}

impl fmt::Display for WeightShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n, k, elements } = self;
        write!(f, "a {n} x {k} weight matrix needs n * k elements, the data has {elements}")
    }
}

impl std::error::Error for WeightShapeError {}

impl Weights {
    /// From `n * k` halves (bits), row major.
    pub fn from_f16(n: usize, k: usize, data: Vec<u16>) -> Result<Self, WeightShapeError> {
        check(n, k, data.len())?;
        Ok(Self::build_f16(n, k, |i, row| row.copy_from_slice(&data[i * k..][..k])))
    }

    /// From `n * k` singles, row major.
    pub fn from_f32(n: usize, k: usize, data: Vec<f32>) -> Result<Self, WeightShapeError> {
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

    /// Bytes of memory, padding included.
    pub fn bytes(&self) -> usize {
        match &self.data {
            Data::F16(lines) | Data::F32(lines) => lines.0.len() * size_of::<Line>(),
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
        }
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = if self.is_f16() { "f16" } else { "f32" };
        write!(f, "Weights({} x {} {precision})", self.n, self.k)
    }
}

fn check(n: usize, k: usize, elements: usize) -> Result<(), WeightShapeError> {
    if n.checked_mul(k) == Some(elements) {
        Ok(())
    } else {
        Err(WeightShapeError { n, k, elements })
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
