use super::*;
use crate::Kernels;
use crate::kernels::tests::{Stream, all_kernels, bits};

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
    assert_eq!((error.n, error.k, error.elements), (3, 5, 14));
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
