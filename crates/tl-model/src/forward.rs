//! One step: the tokens of all spans through all layers together.
//!
//! The rows of all spans share each matrix product, so that weights are read once per step and not
//! once per sequence; attention is each span's own. Rows never mix, and every kernel gives the same
//! bits for a row wherever it stands, so neither the batch, nor the chunks a prompt is cut into,
//! nor the threads can be seen in a result.

use tl_kernels::{AttnJob, AttnScratch, AttnShape, Kernels, Threads};
use tl_kv::Slabs;

use crate::error::ForwardError;
use crate::kv::{KvStore, Place, SlabKv};
use crate::model::{Layer, Model};
use crate::rows::each_row;

/// One sequence's part of a step: `tokens` stand at the positions from `start` on, and the keys and
/// values of all earlier positions are already in the blocks of `table`.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    pub tokens: &'a [u32],
    pub start: usize,
    /// Block ids in the order of positions; those that `tokens` fall into are held by one owner.
    pub table: &'a [u32],
    /// Whether the logits of the last token are wanted.
    pub logits: bool,
}

/// Memory of a forward pass, kept from step to step: after the largest step so far nothing but
/// lists with an entry per span or block is allocated.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Residual stream, `[rows][dim]`.
    x: Vec<f32>,
    /// Normed input of a matrix product, and then its output on the way to `x`; `[rows][dim]`.
    h: Vec<f32>,
    /// `[rows][q_dim + 2 kv_dim]`
    qkv: Vec<f32>,
    /// `[rows][q_dim]`
    q: Vec<f32>,
    /// `[rows][q_dim]`
    attended: Vec<f32>,
    /// `[rows][2 hidden]`
    gate_up: Vec<f32>,
    /// `[rows][hidden]`
    inner: Vec<f32>,
    /// `[rows][head_dim / 2]`
    cos: Vec<f32>,
    sin: Vec<f32>,
    live: Vec<Live>,
    /// `[spans with logits][vocab]`
    logits: Vec<f32>,
    /// Which row of `logits` a span has.
    logit_rows: Vec<Option<usize>>,
    vocab: usize,
    scratch: AttnScratch,
    k_refs: Vec<&'static [u16]>,
    v_refs: Vec<&'static [u16]>,
    /// Where each live span's blocks begin in the two lists.
    ref_starts: Vec<usize>,
}

/// A span still in the step: its rows are `row..row + rows`, the first at position `position`.
#[derive(Debug, Clone, Copy)]
struct Live {
    span: usize,
    row: usize,
    rows: usize,
    position: usize,
}

impl Workspace {
    pub fn new() -> Self {
        Self::default()
    }

    /// The logits of the last token of span `span` in the last step, one per token of the
    /// vocabulary; `None` when the span did not ask, was dropped, or the step failed.
    pub fn logits(&self, span: usize) -> Option<&[f32]> {
        let row = (*self.logit_rows.get(span)?)?;
        Some(&self.logits[row * self.vocab..][..self.vocab])
    }
}

impl Model {
    /// Computes one step. The keys and values of all tokens are written to the pool, and the
    /// logits of the spans that ask are in `ws` afterwards.
    ///
    /// `keep(i)` is asked between layers for each span `i` still in the step; after `false` the
    /// span's rows leave the step, its keys and values are incomplete and it has no logits.
    ///
    /// An error comes before anything is written.
    #[allow(clippy::too_many_arguments, reason = "one call is one step")]
    pub fn forward(
        &self,
        ws: &mut Workspace,
        kernels: Kernels,
        threads: &Threads,
        slabs: &Slabs,
        spans: &[Span<'_>],
        keep: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), ForwardError> {
        ws.logit_rows.clear();
        self.check_pool(slabs)?;
        self.check_spans(spans, slabs.cfg().block_tokens as usize)?;
        let mut kv = SlabKv::open(slabs, spans)?;
        let mut refs = (recycle(&mut ws.k_refs), recycle(&mut ws.v_refs));
        let block_tokens = slabs.cfg().block_tokens as usize;
        self.run(ws, kernels, threads, &mut kv, &mut refs, block_tokens, spans, keep);
        (ws.k_refs, ws.v_refs) = refs;
        Ok(())
    }

    fn check_pool(&self, slabs: &Slabs) -> Result<(), ForwardError> {
        let cfg = slabs.cfg();
        let needed = self.kv_cfg(cfg.n_blocks, cfg.block_tokens);
        if needed.same_shape(cfg) {
            return Ok(());
        }
        let shape = |c: &tl_kv::KvCfg| [c.n_layers, c.n_kv_heads, c.head_dim];
        Err(ForwardError::PoolShape { needed: shape(&needed), found: shape(cfg) })
    }

    pub(crate) fn check_spans(
        &self,
        spans: &[Span<'_>],
        block_tokens: usize,
    ) -> Result<(), ForwardError> {
        let (vocab, max_positions) = (self.config().vocab, self.config().max_positions);
        for (span, s) in spans.iter().enumerate() {
            let Some(last) = s.tokens.len().checked_sub(1) else {
                return Err(ForwardError::EmptySpan { span });
            };
            let position = s.start.saturating_add(last);
            if position >= max_positions {
                return Err(ForwardError::Position { span, position, max_positions });
            }
            if let Some(&token) = s.tokens.iter().find(|&&t| t as usize >= vocab) {
                return Err(ForwardError::Token { span, token, vocab });
            }
            let (needed, found) = (position / block_tokens + 1, s.table.len());
            if needed > found {
                return Err(ForwardError::TableTooShort { span, needed, found });
            }
        }
        Ok(())
    }

    /// The pass itself, over checked spans.
    #[allow(clippy::too_many_arguments, reason = "the step's parts, borrowed one by one")]
    pub(crate) fn run<K: KvStore>(
        &self,
        ws: &mut Workspace,
        kernels: Kernels,
        threads: &Threads,
        kv: &mut K,
        refs: &mut (Vec<&'static [K::Elem]>, Vec<&'static [K::Elem]>),
        block_tokens: usize,
        spans: &[Span<'_>],
        keep: &mut dyn FnMut(usize) -> bool,
    ) {
        let c = self.config();
        ws.vocab = c.vocab;
        ws.logit_rows.clear();
        ws.logit_rows.resize(spans.len(), None);
        let total = spans.iter().map(|s| s.tokens.len()).sum();
        let mut step = Step { model: self, ws, kernels, threads, block_tokens, m: total };
        step.embed(spans);
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 && !step.retain(keep) {
                return;
            }
            step.qkv(layer);
            step.store(i, kv);
            if i + 1 == self.layers.len() && !step.only_last_rows(spans) {
                return;
            }
            step.attend(i, kv, refs);
            let next = self.layers.get(i + 1).map_or(&self.final_norm, |l| &l.attn_norm);
            step.feed_forward(layer, next);
        }
        step.head();
    }
}

/// A step under way. Between layers `x` is the residual stream and `h` its norm for what comes
/// next.
struct Step<'a> {
    model: &'a Model,
    ws: &'a mut Workspace,
    kernels: Kernels,
    threads: &'a Threads,
    block_tokens: usize,
    /// Rows in the step now.
    m: usize,
}

impl Step<'_> {
    fn embed(&mut self, spans: &[Span<'_>]) {
        let Self { model, ws, kernels, m, .. } = self;
        let c = model.config();
        let half = c.head_dim / 2;
        let x = room(&mut ws.x, *m * c.dim);
        let h = room(&mut ws.h, *m * c.dim);
        let cos = room(&mut ws.cos, *m * half);
        let sin = room(&mut ws.sin, *m * half);
        ws.live.clear();
        let mut row = 0;
        for (span, s) in spans.iter().enumerate() {
            let rows = s.tokens.len();
            ws.live.push(Live { span, row, rows, position: s.start });
            for (i, &token) in s.tokens.iter().enumerate() {
                let x = &mut x[row * c.dim..][..c.dim];
                model.embedding.row(token as usize, x);
                let norm = &model.layers[0].attn_norm;
                kernels.rmsnorm(&mut h[row * c.dim..][..c.dim], x, norm, c.norm_eps);
                let position = (s.start + i) as f64;
                for (j, f) in model.frequencies.iter().enumerate() {
                    let (sin_j, cos_j) = libm::sincos(position * f);
                    cos[row * half + j] = cos_j as f32;
                    sin[row * half + j] = sin_j as f32;
                }
                row += 1;
            }
        }
    }

    /// Asks whether each span goes on and closes the gaps; `false` when none does.
    fn retain(&mut self, keep: &mut dyn FnMut(usize) -> bool) -> bool {
        let ws = &mut *self.ws;
        let before = ws.live.len();
        ws.live.retain(|l| keep(l.span));
        if ws.live.len() < before {
            let (dim, half) = (self.model.config().dim, self.model.config().head_dim / 2);
            let mut to = 0;
            for l in &mut ws.live {
                let rows = l.row..l.row + l.rows;
                for (buf, w) in
                    [(&mut ws.x, dim), (&mut ws.h, dim), (&mut ws.cos, half), (&mut ws.sin, half)]
                {
                    buf.copy_within(rows.start * w..rows.end * w, to * w);
                }
                l.row = to;
                to += l.rows;
            }
            self.m = to;
        }
        self.m > 0
    }

    /// Queries, keys and values of all rows, rotated; the queries side by side in `q`.
    fn qkv(&mut self, layer: &Layer) {
        let Self { model, ws, kernels, threads, m, .. } = self;
        let c = model.config();
        let (q_dim, kv_dim, half) = (c.q_dim(), c.kv_dim(), c.head_dim / 2);
        let width = q_dim + 2 * kv_dim;
        let qkv = room(&mut ws.qkv, *m * width);
        kernels.matmul(threads, qkv, &ws.h[..*m * c.dim], &layer.qkv, *m);
        let q = room(&mut ws.q, *m * q_dim);
        let (cos, sin) = (&ws.cos, &ws.sin);
        each_row(threads, *m, [(qkv, width), (q, q_dim)], |i, [qkv, q]| {
            let (cos, sin) = (&cos[i * half..][..half], &sin[i * half..][..half]);
            kernels.rope_interleaved(&mut qkv[..q_dim + kv_dim], cos, sin);
            q.copy_from_slice(&qkv[..q_dim]);
        });
    }

    /// Keys and values of all rows to the store.
    fn store<K: KvStore>(&mut self, layer: usize, kv: &mut K) {
        let c = self.model.config();
        let (q_dim, kv_dim) = (c.q_dim(), c.kv_dim());
        let width = q_dim + 2 * kv_dim;
        for &Live { span, row, rows, position } in &self.ws.live {
            for (i, qkv) in
                self.ws.qkv[row * width..][..rows * width].chunks_exact(width).enumerate()
            {
                let (k, v) = qkv[q_dim..].split_at(kv_dim);
                kv.write(self.kernels, Place { span, layer, position: position + i }, k, v);
            }
        }
    }

    /// After the last layer's keys and values only the rows whose logits are wanted matter: keeps
    /// those of `x` and `q`; `false` when there are none.
    fn only_last_rows(&mut self, spans: &[Span<'_>]) -> bool {
        let c = self.model.config();
        let ws = &mut *self.ws;
        ws.live.retain(|l| spans[l.span].logits);
        for (to, l) in ws.live.iter_mut().enumerate() {
            let last = l.row + l.rows - 1;
            for (buf, w) in [(&mut ws.x, c.dim), (&mut ws.q, c.q_dim())] {
                buf.copy_within(last * w..(last + 1) * w, to * w);
            }
            *l = Live { span: l.span, row: to, rows: 1, position: l.position + l.rows - 1 };
        }
        self.m = ws.live.len();
        self.m > 0
    }

    /// Attention of all rows, from `q` to `attended`.
    fn attend<K: KvStore>(
        &mut self,
        layer: usize,
        kv: &K,
        refs: &mut (Vec<&'static [K::Elem]>, Vec<&'static [K::Elem]>),
    ) {
        let Self { model, ws, kernels, threads, m, block_tokens } = self;
        let c = model.config();
        let q_dim = c.q_dim();
        let shape = AttnShape {
            n_heads: c.n_heads,
            n_kv_heads: c.n_kv_heads,
            head_dim: c.head_dim,
            block_tokens: *block_tokens,
        };
        let scale = 1.0 / (c.head_dim as f32).sqrt();
        let (mut k_refs, mut v_refs) = (recycle(&mut refs.0), recycle(&mut refs.1));
        ws.ref_starts.clear();
        for l in &ws.live {
            ws.ref_starts.push(k_refs.len());
            kv.blocks(l.span, layer, &mut k_refs, &mut v_refs);
        }
        ws.ref_starts.push(k_refs.len());
        let mut rest = room(&mut ws.attended, *m * q_dim);
        let mut jobs = Vec::with_capacity(ws.live.len());
        for (&Live { row, rows, position, .. }, blocks) in
            ws.live.iter().zip(ws.ref_starts.windows(2))
        {
            let (out, after) = std::mem::take(&mut rest).split_at_mut(rows * q_dim);
            rest = after;
            jobs.push(AttnJob {
                out,
                q: &ws.q[row * q_dim..][..rows * q_dim],
                k_blocks: &k_refs[blocks[0]..blocks[1]],
                v_blocks: &v_refs[blocks[0]..blocks[1]],
                start: position,
                rows,
            });
        }
        K::attention(&mut jobs, *kernels, threads, shape, scale, &mut ws.scratch);
        drop(jobs);
        *refs = (recycle(&mut k_refs), recycle(&mut v_refs));
    }

    /// The attention's output into the residual stream, then the feed-forward part; leaves the
    /// norm by `next` in `h`.
    fn feed_forward(&mut self, layer: &Layer, next: &[f32]) {
        let Self { model, ws, kernels, threads, m, .. } = self;
        let c = model.config();
        let m = *m;
        let (x, h) = (&mut ws.x[..m * c.dim], &mut ws.h[..m * c.dim]);
        let add_and_norm = |x: &mut [f32], h: &mut [f32], norm: &[f32]| {
            each_row(threads, m, [(x, c.dim), (h, c.dim)], |_, [x, h]| {
                kernels.add_assign(x, h);
                kernels.rmsnorm(h, x, norm, c.norm_eps);
            });
        };
        kernels.matmul(threads, h, &ws.attended[..m * c.q_dim()], &layer.out, m);
        add_and_norm(x, h, &layer.ffn_norm);
        let gate_up = room(&mut ws.gate_up, m * 2 * c.hidden);
        kernels.matmul(threads, gate_up, h, &layer.gate_up, m);
        let inner = room(&mut ws.inner, m * c.hidden);
        each_row(threads, m, [(&mut *inner, c.hidden)], |i, [inner]| {
            let (gate, up) = gate_up[i * 2 * c.hidden..][..2 * c.hidden].split_at(c.hidden);
            kernels.silu_mul(gate, up, inner);
        });
        kernels.matmul(threads, h, inner, &layer.down, m);
        add_and_norm(x, h, next);
    }

    /// Logits of the rows that are left.
    fn head(&mut self) {
        let Self { model, ws, kernels, threads, m, .. } = self;
        let c = model.config();
        let logits = room(&mut ws.logits, *m * c.vocab);
        kernels.matmul(threads, logits, &ws.h[..*m * c.dim], model.head(), *m);
        for l in &ws.live {
            ws.logit_rows[l.span] = Some(l.row);
        }
    }
}

/// The first `n` elements of a buffer that grows and never shrinks.
fn room(buf: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if buf.len() < n {
        buf.resize(n, 0.0);
    }
    &mut buf[..n]
}

/// An empty vector of another lifetime in the same memory: collecting a vector's own iterator into
/// elements of the same layout reuses its allocation.
fn recycle<'b, T>(v: &mut Vec<&'_ [T]>) -> Vec<&'b [T]> {
    let mut v = std::mem::take(v);
    v.clear();
    v.into_iter().map(|_| -> &'b [T] { &[] }).collect()
}
