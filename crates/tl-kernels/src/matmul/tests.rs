use super::*;
use crate::kernels::tests::{Stream, all_kernels, bits};
use crate::{Kernels, Quant, WeightsError};

const ROWS: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 50];

fn weights(stream: &mut Stream, n: usize, k: usize, f16: bool) -> Weights {
    let weights = if f16 {
        Weights::from_f16(n, k, stream.f16s(n * k))
    } else {
        Weights::from_f32(n, k, stream.f32s(n * k))
    };
    weights.expect("n * k elements")
}

fn row(w: &Weights, j: usize) -> Vec<f32> {
    let mut row = vec![f32::NAN; w.k()];
    w.row(j, &mut row);
    row
}

/// Every output has the bits of a single dot product, however it is computed.
fn check(n: usize, k: usize, f16: bool, rows: &[usize], teams: &[Threads]) {
    let mut stream = Stream::new((n * 7919 + k) as u64);
    let w = weights(&mut stream, n, k, f16);
    let most = rows.iter().copied().max().unwrap_or(0);
    let act = stream.f32s(most * k);
    let portable = Kernels::new(crate::Isa::Portable).expect("always there");
    let columns: Vec<_> = (0..n).map(|j| row(&w, j)).collect();
    let mut want = Vec::new();
    for i in 0..most {
        for column in &columns {
            let a = &act[i * k..][..k];
            let dot = portable.dot(a, column);
            let exact: f64 = a.iter().zip(column).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let size: f64 =
                a.iter().zip(column).map(|(&a, &b)| (f64::from(a) * f64::from(b)).abs()).sum();
            assert!((f64::from(dot) - exact).abs() <= 1e-6 * size, "{dot} for {exact}");
            want.push(dot);
        }
    }
    for kernels in all_kernels() {
        for team in teams {
            for &m in rows {
                let mut out = vec![f32::NAN; m * n];
                kernels.matmul(team, &mut out, &act[..m * k], &w, m);
                assert_eq!(
                    bits(&out),
                    bits(&want[..m * n]),
                    "{m} x {k} x {n}, f16: {f16}, {} with {team:?}",
                    kernels.isa(),
                );
            }
        }
    }
}

#[test]
fn odd_sizes_batches_and_threads_have_the_bits_of_dots() {
    let teams: Vec<_> = (1..=4).map(Threads::new).collect();
    for f16 in [true, false] {
        for n in [1, 15, 17, 63] {
            for k in [1, 15, 16, 17, 63, 65, 172] {
                check(n, k, f16, &ROWS, &teams);
            }
        }
    }
}

#[test]
fn shapes_large_enough_to_be_shared() {
    let teams: Vec<_> = (1..=4).map(Threads::new).collect();
    for f16 in [true, false] {
        check(172, 576, f16, &[1, 2, 7, 33, 130], &teams);
        check(65, 1536, f16, &[1, 3, 40], &teams);
        check(5, 4099, f16, &[1, 13], &teams);
        check(3, 33_000, f16, &[1, 13], &teams[1..2]);
        // Several blocks of rows, several chunks of columns, the last one shorter.
        check(23, 1300, f16, &[12, 47, 49, 53, 101], &teams[..2]);
    }
}

#[test]
fn infinities_nan_and_subnormals_are_not_special() {
    let k = 37;
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -1e-45, f32::MAX, -0.0];
    for f16 in [true, false] {
        let mut stream = Stream::new(9);
        let mut act = stream.f32s(8 * k);
        for (i, &x) in special.iter().enumerate() {
            act[i * k + 3 * i] = x;
        }
        let w = if f16 {
            let mut w = stream.f16s(21 * k);
            (w[5], w[k + 6], w[2 * k + 7], w[3 * k]) = (0x7c00, 0xfc00, 0x7e01, 0x0001);
            Weights::from_f16(21, k, w)
        } else {
            let mut w = stream.f32s(21 * k);
            (w[5], w[k + 6], w[2 * k + 7], w[3 * k]) = (f32::INFINITY, -1e-42, f32::NAN, 1e-45);
            Weights::from_f32(21, k, w)
        }
        .expect("n * k elements");
        let mut all = all_kernels().into_iter().map(|kernels| {
            let mut out = vec![0.0; 8 * 21];
            kernels.matmul(&Threads::new(1), &mut out, &act, &w, 8);
            bits(&out)
        });
        let portable = all.next().expect("always there");
        assert!(portable.iter().any(|&b| f32::from_bits(b).is_nan()));
        assert!(portable.iter().any(|&b| f32::from_bits(b).is_finite()));
        for other in all {
            assert_eq!(other, portable);
        }
    }
}

#[test]
fn empty_products() {
    let team = Threads::new(2);
    let kernels = Kernels::detect();
    let none = Weights::from_f16(0, 8, vec![]).expect("0 elements");
    kernels.matmul(&team, &mut [], &[1.0; 16], &none, 2);
    kernels.matmul(&team, &mut [], &[], &weights(&mut Stream::new(1), 3, 5, true), 0);
    let flat = Weights::from_f32(3, 0, vec![]).expect("0 elements");
    let mut out = [1.0; 6];
    kernels.matmul(&team, &mut out, &[], &flat, 2);
    assert_eq!(out, [0.0; 6]);
}

#[test]
fn weights_give_back_what_they_got() {
    let error = Weights::from_f16(3, 5, vec![0; 14]).expect_err("an element is missing");
    assert_eq!(error, WeightsError::Elements { n: 3, k: 5, elements: 14 });
    assert!(error.to_string().contains("3 x 5"), "{error}");
    assert!(Weights::from_f32(usize::MAX, 2, vec![]).is_err());

    let data: Vec<u16> = (0..3 * 5).map(|i| crate::f32_to_f16(i as f32)).collect();
    let w = Weights::from_f16(3, 5, data).expect("15 elements");
    assert_eq!(row(&w, 2), [10.0, 11.0, 12.0, 13.0, 14.0]);
    assert!(w.is_f16() && w.bytes() >= 30);
    let built = Weights::build_f32(3, 5, |i, row| row.fill(i as f32));
    assert_eq!(row(&built, 1), [1.0; 5]);
    assert_eq!((built.n(), built.k(), built.is_f16()), (3, 5, false));
}

/// Any bytes are blocks; scales are made small, so that no weight is infinite.
fn quantised(stream: &mut Stream, n: usize, k: usize, quant: Quant) -> Weights {
    Weights::build_quant(n, k, quant, |_, row| {
        for block in row.chunks_exact_mut(quant.block_bytes()) {
            block.fill_with(|| stream.bits() as u8);
            let scales = if quant == Quant::Q4_1 { 2 } else { 1 };
            for scale in block.chunks_exact_mut(2).take(scales) {
                scale.copy_from_slice(&crate::f32_to_f16(stream.f32() * 0.01).to_le_bytes());
            }
        }
    })
    .expect("whole blocks")
}

/// The weights of a block by the definition of the format.
fn block_by_definition(quant: Quant, block: &[u8]) -> Vec<f32> {
    let half = |at: usize| crate::f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]));
    let nibble = |from: usize, i: usize| {
        let byte = block[from + i % 16];
        f32::from(if i < 16 { byte & 15 } else { byte >> 4 })
    };
    (0..32)
        .map(|i| match quant {
            Quant::Q4_0 => half(0) * (nibble(2, i) - 8.0),
            Quant::Q4_1 => half(0) * nibble(4, i) + half(2),
            Quant::Q8_0 => half(0) * f32::from(block[2 + i] as i8),
        })
        .collect()
}

#[test]
fn quantised_rows_are_what_the_format_says() {
    let mut stream = Stream::new(11);
    for quant in [Quant::Q4_0, Quant::Q4_1, Quant::Q8_0] {
        // Scales of every kind here: subnormal, zero, negative, large.
        let mut want = Vec::new();
        let w = Weights::build_quant(40, 96, quant, |_, row| {
            row.fill_with(|| stream.bits() as u8);
            let blocks = row.chunks_exact(quant.block_bytes());
            want.push(blocks.flat_map(|b| block_by_definition(quant, b)).collect::<Vec<_>>());
        })
        .expect("whole blocks");
        assert_eq!(w.quant(), Some(quant));
        assert_eq!(w.bytes().div_ceil(64), (40 * quant.row_bytes(96)).div_ceil(64));
        for (i, want) in want.iter().enumerate() {
            assert_eq!(bits(&row(&w, i)), bits(want), "row {i} of {quant}");
        }
    }
}

#[test]
fn quantised_products_have_the_bits_of_the_expansion() {
    let teams: Vec<_> = (1..=3).map(Threads::new).collect();
    let mut stream = Stream::new(12);
    for quant in [Quant::Q4_0, Quant::Q4_1, Quant::Q8_0] {
        for (n, k) in [(1, 32), (17, 64), (65, 576), (7, 1536), (3, 8192)] {
            let w = quantised(&mut stream, n, k, quant);
            let expanded = (0..n).flat_map(|i| row(&w, i)).collect();
            let expanded = Weights::from_f32(n, k, expanded).expect("n * k elements");
            for m in [1, 2, 3, 4, 5, 8, 15, 33, 100] {
                let act = stream.f32s(m * k);
                let mut want = vec![f32::NAN; m * n];
                let portable = Kernels::new(crate::Isa::Portable).expect("always there");
                portable.matmul(&teams[0], &mut want, &act, &expanded, m);
                for kernels in all_kernels() {
                    for team in &teams {
                        let mut out = vec![f32::NAN; m * n];
                        kernels.matmul(team, &mut out, &act, &w, m);
                        let isa = kernels.isa();
                        assert_eq!(bits(&out), bits(&want), "{m} rows, {w:?}, {isa}, {team:?}");
                    }
                }
            }
        }
    }
    let error = Weights::build_quant(2, 40, Quant::Q8_0, |_, _| ()).expect_err("not whole");
    assert_eq!(error, WeightsError::Blocks { k: 40, quant: Quant::Q8_0 });
}

#[test]
fn chunks_cover_every_column_once() {
    for k in (1..3000).chain([4096, 8192, 11_008, 33_000]) {
        let chunks = Chunks::of(k);
        let mut next = 0;
        for (at, len) in chunks.iter() {
            assert_eq!(at, next, "k {k}");
            assert!(at % 32 == 0 && len % LANES == 0 && (1..=672).contains(&len), "{len} of k {k}");
            next += len;
        }
        assert_eq!(next, k.next_multiple_of(LANES));
        assert_eq!(chunks.count(), chunks.iter().count(), "k {k}");
    }
    assert_eq!([576, 1536, 4096].map(|k| Chunks::of(k).count()), [1, 3, 7]);
}

#[test]
fn plans_cut_blocks_of_equal_height() {
    for (m, k, rows) in [(512, 576, 104), (25, 576, 28), (100, 4096, 36), (1, 576, 4)] {
        let w = Weights::build_f16(48, k, |_, _| ());
        assert_eq!(plan(m, &w, 1).rows, rows, "{m} rows of {k}");
        assert_eq!(plan(m, &w, 1).cols, 48);
        assert_eq!(plan(m, &w, 1).panels.is_some(), m >= PANEL_ROWS);
    }
}
