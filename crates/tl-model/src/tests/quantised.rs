//! A file of quantised blocks is the model of its expansion, whichever kind is asked for.

use super::Runner;
use super::write::{GgufFile, Words, gguf_with};
use crate::checkpoint::Dtype;
use crate::convert;
use crate::{Loaded, ModelError, RandomLlama, WeightKind, load};

const SEED: u64 = 5;
const FORMATS: [(Dtype, u32); 3] = [(Dtype::Q4_0, 2), (Dtype::Q4_1, 3), (Dtype::Q8_0, 8)];

/// Every matrix in whole blocks.
fn shape() -> RandomLlama {
    RandomLlama { vocab: 272, dim: 64, hidden: 96, n_layers: 2, ..Default::default() }
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

/// The nearest blocks, roughly: scales from the extremes of 32 values.
fn quantise(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    let half = |x: f32| half::f16::from_f32(x);
    let mut out = Vec::new();
    for block in values.chunks_exact(32) {
        let high = block.iter().copied().fold(f32::MIN, f32::max);
        let low = block.iter().copied().fold(f32::MAX, f32::min);
        let (d, m) = match dtype {
            // A negative scale is usual here: the value of largest magnitude gets the -8.
            Dtype::Q4_0 if high > -low => (half(high / -8.0), half(0.0)),
            Dtype::Q4_0 => (half(low / -8.0), half(0.0)),
            Dtype::Q4_1 => (half((high - low) / 15.0), half(low)),
            _ => (half(high.max(-low) / 127.0), half(0.0)),
        };
        let q = |x: f32| ((x - m.to_f32()) / d.to_f32()).round();
        out.extend(d.to_le_bytes());
        if dtype == Dtype::Q4_1 {
            out.extend(m.to_le_bytes());
        }
        if dtype == Dtype::Q8_0 {
            out.extend(block.iter().map(|&x| q(x).clamp(-127.0, 127.0) as i8 as u8));
            continue;
        }
        let zero = if dtype == Dtype::Q4_0 { 8.0 } else { 0.0 };
        let nibble = |x: f32| (q(x) + zero).clamp(0.0, 15.0) as u8;
        out.extend((0..16).map(|i| nibble(block[i]) | nibble(block[i + 16]) << 4));
    }
    out
}

/// The model with its matrices in blocks of `format(tensor name)`, or, if `expanded`, as the f32
/// values of those blocks.
fn file(format: impl Fn(&str) -> (Dtype, u32), expanded: bool) -> GgufFile {
    gguf_with(&shape(), SEED, &Words::new(), |name, dims, bytes| {
        if dims.len() < 2 {
            return (0, bytes);
        }
        let (dtype, type_id) = format(name);
        let blocks = quantise(dtype, &f32s(&bytes));
        if !expanded {
            return (type_id, blocks);
        }
        let mut values = vec![0.0; bytes.len() / 4];
        convert::to_f32(dtype, &blocks, &mut values);
        (0, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    })
}

fn open(file: &GgufFile, kind: WeightKind) -> Result<Loaded, ModelError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("blocks.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    load(&path, kind)
}

/// Logits after a prompt and after each of some single tokens.
fn logits(loaded: &Loaded) -> Vec<Vec<u32>> {
    let mut runner = Runner::pool(&loaded.model, 32);
    let steps: [&[u32]; 4] = [&[5, 200, 17, 3, 3, 90, 41], &[11], &[250], &[6, 7]];
    let mut start = 0;
    let mut bits = Vec::new();
    for tokens in steps {
        bits.push(runner.step(tokens, start).iter().map(|l| l.to_bits()).collect());
        start += tokens.len();
    }
    bits
}

#[test]
fn blocks_are_their_expansion_under_both_kinds() {
    for format in FORMATS {
        let exact = open(&file(|_| format, true), WeightKind::F32).unwrap();
        let wanted = logits(&exact);
        let mut fingerprints = std::collections::HashSet::new();
        for kind in [WeightKind::F16, WeightKind::F32] {
            let blocks = open(&file(|_| format, false), kind).unwrap();
            assert_eq!(logits(&blocks), wanted, "{format:?} as {kind:?}");
            let (bytes, elements) = (blocks.model.weight_bytes(), exact.model.weight_bytes() / 4);
            let (dtype, _) = format;
            let needed = elements / dtype.block_len() * dtype.block_bytes();
            assert!(bytes < needed + needed / 50, "{bytes} for {needed} bytes of {format:?}");
            fingerprints.insert(blocks.model.fingerprint());
        }
        assert!(fingerprints.contains(&exact.model.fingerprint()), "the same weights, as f32");
    }
}

#[test]
fn matrices_of_several_formats_are_expanded() {
    let mixed = |name: &str| if name.contains("attn_v") { FORMATS[2] } else { FORMATS[1] };
    let wanted = open(&file(mixed, true), WeightKind::F32).unwrap();
    let blocks = open(&file(mixed, false), WeightKind::F32).unwrap();
    assert_eq!(logits(&blocks), logits(&wanted));
    assert_eq!(blocks.model.fingerprint(), wanted.model.fingerprint());
    open(&file(mixed, false), WeightKind::F16).unwrap();
}

#[test]
fn blocks_past_the_largest_half_are_kept_and_infinite_ones_refused() {
    let with_scale = |scale: half::f16| {
        gguf_with(&shape(), SEED, &Words::new(), |name, dims, bytes| {
            if name != "blk.1.ffn_down.weight" {
                return (0, bytes);
            }
            assert_eq!(dims, [64, 96]);
            let mut blocks = quantise(Dtype::Q8_0, &f32s(&bytes));
            blocks[34..36].copy_from_slice(&scale.to_le_bytes());
            (8, blocks)
        })
    };
    open(&with_scale(half::f16::MAX), WeightKind::F16).unwrap();
    for kind in [WeightKind::F16, WeightKind::F32] {
        let error = open(&with_scale(half::f16::INFINITY), kind).unwrap_err();
        let text = "tensor `blk.1.ffn_down.weight` holds a value that is not finite as f32";
        assert_eq!(error.to_string(), text, "{kind:?}");
    }
}
