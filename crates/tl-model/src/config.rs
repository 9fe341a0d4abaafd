//! The shape of a Llama model.

use crate::error::ModelError;

/// The precision of the weight matrices in memory.
///
/// Tensors that the file holds in quantised blocks stay in them, whichever kind is asked for, and
/// count as exactly what the file says: they are smaller than halves, decoding is bound by memory
/// bandwidth, and to round each value to a half on the way to its product takes longer than the
/// product. The kinds differ in what becomes of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightKind {
    /// Rounded to half precision: half the bytes of single precision.
    F16,
    /// As exact as the file.
    F32,
}

/// How the rotary frequencies are stretched for contexts longer than the trained one.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// Every position divided by the factor.
    Linear(f64),
    /// Llama 3.1's: long wavelengths are divided by `factor`, short ones kept, blended between.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    /// One divisor per pair, as a GGUF file of such a model holds them.
    Factors(Vec<f32>),
}

/// Dimensions and constants of one model; `head_dim` pairs are rotated in the interleaved form.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    pub vocab: usize,
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of the feed-forward layer.
    pub hidden: usize,
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    /// Positions 0..max_positions may be computed.
    pub max_positions: usize,
    pub norm_eps: f32,
    pub rope_theta: f64,
    pub rope_scaling: RopeScaling,
    /// The output head is the embedding matrix.
    pub tied_head: bool,
}

/// Bounds no dimension of a real model passes: they keep every product within `usize` and an
/// absurd file from being believed.
const MAX_DIM: usize = 1 << 20;
const MAX_LAYERS: usize = 1024;
const MAX_POSITIONS: usize = 1 << 24;

impl ModelConfig {
    /// Width of all query heads together.
    pub fn q_dim(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of all key heads together, and of all value heads.
    pub fn kv_dim(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// Checks that the dimensions fit together.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        let bad = |what: String| Err(ModelError::Config(what));
        let dims = [
            ("vocabulary size", self.vocab, 1 << 24),
            ("embedding length", self.dim, MAX_DIM),
            ("feed-forward length", self.hidden, MAX_DIM),
            ("layer count", self.n_layers, MAX_LAYERS),
            ("head count", self.n_heads, MAX_DIM),
            ("kv head count", self.n_kv_heads, MAX_DIM),
            ("head dimension", self.head_dim, MAX_DIM),
            ("context length", self.max_positions, MAX_POSITIONS),
        ];
        for (name, value, max) in dims {
            if value == 0 || value > max {
                return bad(format!("{name} is {value}, expected 1 to {max}"));
            }
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            let (h, kv) = (self.n_heads, self.n_kv_heads);
            return bad(format!("{h} heads cannot share {kv} kv heads evenly"));
        }
        if !self.head_dim.is_multiple_of(2) {
            return bad(format!("the head dimension {} is odd, RoPE needs pairs", self.head_dim));
        }
        if self.q_dim() > MAX_DIM {
            return bad(format!("{} heads of {} are too wide", self.n_heads, self.head_dim));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            return bad(format!("the norm epsilon is {}", self.norm_eps));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 0.0) {
            return bad(format!("the RoPE base is {}", self.rope_theta));
        }
        self.check_scaling()
    }

    fn check_scaling(&self) -> Result<(), ModelError> {
        let positive = |v: f64| v.is_finite() && v > 0.0;
        let ok = match &self.rope_scaling {
            RopeScaling::None => true,
            RopeScaling::Linear(factor) => positive(*factor),
            RopeScaling::Llama3 { factor, low, high, original } => {
                [*factor, *low, *high, *original].into_iter().all(positive) && high > low
            }
            RopeScaling::Factors(f) => {
                f.len() == self.head_dim / 2 && f.iter().all(|&v| positive(v.into()))
            }
        };
        if ok {
            return Ok(());
        }
        Err(ModelError::Config(format!("the RoPE scaling {:?} makes no sense", self.rope_scaling)))
    }

    /// Radians per position of each pair, `head_dim / 2` of them.
    pub(crate) fn frequencies(&self) -> Vec<f64> {
        let pairs = self.head_dim / 2;
        (0..pairs)
            .map(|i| {
                let exponent = 2.0 * i as f64 / self.head_dim as f64;
                let f = 1.0 / libm::pow(self.rope_theta, exponent);
                match &self.rope_scaling {
                    RopeScaling::None => f,
                    RopeScaling::Linear(factor) => f / factor,
                    RopeScaling::Factors(factors) => f / f64::from(factors[i]),
                    RopeScaling::Llama3 { factor, low, high, original } => {
                        let turns = original * f / std::f64::consts::TAU;
                        let keep = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                        f * keep + f / factor * (1.0 - keep)
                    }
                }
            })
            .collect()
    }
}
