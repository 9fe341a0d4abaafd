//! A Llama model in memory, built from any checkpoint.

use std::fmt;

use tl_kernels::{Quant, Weights};
use tl_kv::{KV_FORMAT_V1, KvCfg, TL_F16};

use crate::checkpoint::{Checkpoint, Dtype, in_parallel};
use crate::config::{ModelConfig, WeightKind};
use crate::convert;
use crate::error::ModelError;
use crate::fingerprint::Hasher;

/// Weights and constants of one model. Immutable: any number of threads may compute with it.
pub struct Model {
    config: ModelConfig,
    kind: WeightKind,
    fingerprint: u64,
    /// `[vocab, dim]`: looked up by row, and the output head of a model that ties them.
    pub(crate) embedding: Weights,
    pub(crate) layers: Vec<Layer>,
    pub(crate) final_norm: Vec<f32>,
    /// `[vocab, dim]` of a model with a head of its own.
    head: Option<Weights>,
    /// Radians per position of each rotated pair.
    pub(crate) frequencies: Vec<f64>,
}

/// One layer. Matrices that read the same input are kept as one, so that a step is four matrix
/// products per layer and not seven.
pub(crate) struct Layer {
    pub(crate) attn_norm: Vec<f32>,
    /// `[q_dim + 2 kv_dim, dim]`: queries, keys, values.
    pub(crate) qkv: Weights,
    /// `[dim, q_dim]`
    pub(crate) out: Weights,
    pub(crate) ffn_norm: Vec<f32>,
    /// `[2 hidden, dim]`: gate, up.
    pub(crate) gate_up: Weights,
    /// `[dim, hidden]`
    pub(crate) down: Weights,
}

/// A run of rows of a matrix that come from one stored tensor.
struct Part {
    tensor: String,
    rows: usize,
    /// Head dimension whose rows go from the half-split to the interleaved order.
    interleave: Option<usize>,
}

/// What one loading job makes.
enum Made {
    Matrix(Weights, u64),
    Vector(Vec<f32>, u64),
}

enum Plan {
    Matrix { parts: Vec<Part>, columns: usize },
    Vector { tensor: String, len: usize },
}

impl Model {
    /// Reads and converts all weights, on `threads` threads. At no time more than one stored
    /// tensor per thread is held beside the finished weights.
    pub(crate) fn load(
        checkpoint: &dyn Checkpoint,
        config: ModelConfig,
        kind: WeightKind,
        threads: usize,
    ) -> Result<Self, ModelError> {
        config.check()?;
        let plans = plans(&config, checkpoint.half_split_rope());
        let made = in_parallel(plans.len(), threads, |i| match &plans[i] {
            Plan::Matrix { parts, columns } => matrix(checkpoint, parts, *columns, kind),
            Plan::Vector { tensor, len } => vector(checkpoint, tensor, *len),
        })?;

        let frequencies = config.frequencies();
        let mut hasher = Hasher::new();
        hash_config(&mut hasher, &config, kind, &frequencies);
        let (mut matrices, mut vectors) = (Vec::new(), Vec::new());
        for made in made {
            match made {
                Made::Matrix(weights, digest) => {
                    hasher.number(digest);
                    matrices.push(weights);
                }
                Made::Vector(values, digest) => {
                    hasher.number(digest);
                    vectors.push(values);
                }
            }
        }
        let (mut matrices, mut vectors) = (matrices.into_iter(), vectors.into_iter());
        // In the order of `plans`.
        let mut matrix = || matrices.next().expect("every matrix was planned");
        let mut vector = || vectors.next().expect("every vector was planned");
        let embedding = matrix();
        let head = (!config.tied_head).then(&mut matrix);
        let layers = (0..config.n_layers)
            .map(|_| Layer {
                qkv: matrix(),
                out: matrix(),
                gate_up: matrix(),
                down: matrix(),
                attn_norm: vector(),
                ffn_norm: vector(),
            })
            .collect();
        let final_norm = vector();
        let fingerprint = hasher.finish();
        Ok(Self { config, kind, fingerprint, embedding, layers, final_norm, head, frequencies })
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub fn weight_kind(&self) -> WeightKind {
        self.kind
    }

    /// Names what this model computes: equal on two engines exactly when configuration, weights
    /// and weight kind are, so that KV blocks of one are right for the other. Never 0.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The shape of a pool for this model.
    pub fn kv_cfg(&self, n_blocks: u32, block_tokens: u32) -> KvCfg {
        KvCfg {
            n_blocks,
            block_tokens,
            n_layers: self.config.n_layers as u32,
            n_kv_heads: self.config.n_kv_heads as u32,
            head_dim: self.config.head_dim as u32,
            dtype: TL_F16,
            format: KV_FORMAT_V1,
        }
    }

    /// Bytes of all weights in memory.
    pub fn weight_bytes(&self) -> usize {
        let layers = self.layers.iter().flat_map(|l| [&l.qkv, &l.out, &l.gate_up, &l.down]);
        layers.chain([&self.embedding]).chain(&self.head).map(Weights::bytes).sum()
    }

    /// Bytes of weights that one decode step reads, whatever its batch: all matrices but an
    /// embedding that is not the head too.
    pub fn bytes_per_step(&self) -> usize {
        let unread = if self.head.is_some() { self.embedding.bytes() } else { 0 };
        self.weight_bytes() - unread
    }

    /// `[vocab, dim]`
    pub(crate) fn head(&self) -> &Weights {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("config", &self.config)
            .field("kind", &self.kind)
            .field("fingerprint", &format_args!("{:016x}", self.fingerprint))
            .finish_non_exhaustive()
    }
}

/// All loading jobs: the two largest matrices first, so that no thread starts one at the end.
fn plans(c: &ModelConfig, half_split: bool) -> Vec<Plan> {
    let part = |tensor: String, rows| Part { tensor, rows, interleave: None };
    let rotated =
        |tensor: String, rows| Part { tensor, rows, interleave: half_split.then_some(c.head_dim) };
    let matrix = |parts, columns| Plan::Matrix { parts, columns };
    let mut plans = vec![matrix(vec![part("token_embd.weight".into(), c.vocab)], c.dim)];
    if !c.tied_head {
        plans.push(matrix(vec![part("output.weight".into(), c.vocab)], c.dim));
    }
    for i in 0..c.n_layers {
        let name = |what: &str| format!("blk.{i}.{what}.weight");
        let qkv = vec![
            rotated(name("attn_q"), c.q_dim()),
            rotated(name("attn_k"), c.kv_dim()),
            part(name("attn_v"), c.kv_dim()),
        ];
        let gate_up = vec![part(name("ffn_gate"), c.hidden), part(name("ffn_up"), c.hidden)];
        plans.push(matrix(qkv, c.dim));
        plans.push(matrix(vec![part(name("attn_output"), c.dim)], c.q_dim()));
        plans.push(matrix(gate_up, c.dim));
        plans.push(matrix(vec![part(name("ffn_down"), c.dim)], c.hidden));
    }
    for i in 0..c.n_layers {
        for what in ["attn_norm", "ffn_norm"] {
            plans.push(Plan::Vector { tensor: format!("blk.{i}.{what}.weight"), len: c.dim });
        }
    }
    plans.push(Plan::Vector { tensor: "output_norm.weight".into(), len: c.dim });
    plans
}

fn matrix(
    checkpoint: &dyn Checkpoint,
    parts: &[Part],
    columns: usize,
    kind: WeightKind,
) -> Result<Made, ModelError> {
    struct Source<'a> {
        part: &'a Part,
        dtype: Dtype,
        bytes: Vec<u8>,
        row_bytes: usize,
        finite: bool,
    }
    let mut sources = Vec::with_capacity(parts.len());
    // Which source a row of the matrix comes from, and which row there.
    let mut rows = Vec::with_capacity(parts.iter().map(|p| p.rows).sum());
    for (s, part) in parts.iter().enumerate() {
        let dtype = expect_shape(checkpoint, &part.tensor, &[part.rows, columns])?;
        let bytes = checkpoint.bytes(&part.tensor)?;
        let row_bytes = columns / dtype.block_len() * dtype.block_bytes();
        rows.extend((0..part.rows).map(|i| (s, part.stored_row(i))));
        sources.push(Source { part, dtype, bytes, row_bytes, finite: true });
    }
    let mut hasher = Hasher::new();
    let n = rows.len();
    let blocks = blocks_of(sources.iter().map(|s| s.dtype), columns);
    let mut values = vec![0.0; if blocks.is_some() { columns } else { 0 }];
    let weights = match (kind, blocks) {
        // As exact as their expansion to f32 and a fraction of its size. The digest is the
        // expansion's: how the weights are kept changes no bit of a result.
        (_, Some(quant)) => Weights::build_quant(n, columns, quant, |i, out| {
            let (s, row) = rows[i];
            let s = &mut sources[s];
            out.copy_from_slice(&s.bytes[row * s.row_bytes..][..s.row_bytes]);
            convert::to_f32(s.dtype, out, &mut values);
            s.finite &= convert::all_finite_f32(&values);
            hasher.field(bytemuck::cast_slice(&values));
        })
        .expect("blocks_of has seen that rows are whole blocks"),
        (WeightKind::F16, None) => Weights::build_f16(n, columns, |i, out| {
            let (s, row) = rows[i];
            let s = &mut sources[s];
            convert::to_f16(s.dtype, &s.bytes[row * s.row_bytes..][..s.row_bytes], out);
            s.finite &= convert::all_finite_f16(out);
            hasher.field(bytemuck::cast_slice(out));
        }),
        (WeightKind::F32, None) => Weights::build_f32(n, columns, |i, out| {
            let (s, row) = rows[i];
            let s = &mut sources[s];
            convert::to_f32(s.dtype, &s.bytes[row * s.row_bytes..][..s.row_bytes], out);
            s.finite &= convert::all_finite_f32(out);
            hasher.field(bytemuck::cast_slice(out));
        }),
    };
    if let Some(source) = sources.iter().find(|s| !s.finite) {
        let (kind, hint) = match (kind, blocks) {
            (WeightKind::F16, None) => ("f16", "; load the weights as f32"),
            (WeightKind::F32, _) | (_, Some(_)) => ("f32", ""),
        };
        return Err(ModelError::NotFinite { name: source.part.tensor.clone(), kind, hint });
    }
    Ok(Made::Matrix(weights, hasher.finish()))
}

/// The block format that all parts of a matrix share, if its rows are whole blocks.
fn blocks_of(mut dtypes: impl Iterator<Item = Dtype>, columns: usize) -> Option<Quant> {
    let first = dtypes.next()?;
    let quant = match first {
        Dtype::Q4_0 => Quant::Q4_0,
        Dtype::Q4_1 => Quant::Q4_1,
        Dtype::Q8_0 => Quant::Q8_0,
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 => return None,
    };
    (columns % Quant::BLOCK == 0 && dtypes.all(|dtype| dtype == first)).then_some(quant)
}

fn vector(checkpoint: &dyn Checkpoint, tensor: &str, len: usize) -> Result<Made, ModelError> {
    let dtype = expect_shape(checkpoint, tensor, &[len])?;
    let mut values = vec![0.0; len];
    convert::to_f32(dtype, &checkpoint.bytes(tensor)?, &mut values);
    if !convert::all_finite_f32(&values) {
        return Err(ModelError::NotFinite { name: tensor.to_owned(), kind: "f32", hint: "" });
    }
    let mut hasher = Hasher::new();
    hasher.field(bytemuck::cast_slice(&values));
    Ok(Made::Vector(values, hasher.finish()))
}

impl Part {
    /// The stored row that becomes row `i`. Half-split RoPE pairs row `r` of a head with row
    /// `r + head_dim / 2`; the interleaved form wants the two side by side.
    fn stored_row(&self, i: usize) -> usize {
        let Some(head_dim) = self.interleave else { return i };
        let (head, r) = (i / head_dim, i % head_dim);
        head * head_dim + r / 2 + r % 2 * (head_dim / 2)
    }
}

fn expect_shape(
    checkpoint: &dyn Checkpoint,
    name: &str,
    expected: &[usize],
) -> Result<Dtype, ModelError> {
    let (dtype, found) =
        checkpoint.shape(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
    if found != expected {
        let expected = expected.to_vec();
        return Err(ModelError::Shape { name: name.to_owned(), found, expected });
    }
    Ok(dtype)
}

fn hash_config(h: &mut Hasher, c: &ModelConfig, kind: WeightKind, frequencies: &[f64]) {
    // Destructured, so that a new field cannot be forgotten.
    let ModelConfig {
        vocab,
        dim,
        hidden,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim,
        max_positions,
        norm_eps,
        rope_theta: _,
        rope_scaling: _,
        tied_head,
    } = c;
    h.field(b"tl-model 1");
    for n in [vocab, dim, hidden, n_layers, n_heads, n_kv_heads, head_dim, max_positions] {
        h.number(*n as u64);
    }
    h.number(norm_eps.to_bits().into());
    // RoPE's base and scaling act through the frequencies alone.
    for f in frequencies {
        h.number(f.to_bits());
    }
    h.number(u64::from(*tied_head));
    h.number(match kind {
        WeightKind::F16 => 16,
        WeightKind::F32 => 32,
    });
}
