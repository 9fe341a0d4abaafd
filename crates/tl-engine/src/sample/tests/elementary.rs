use super::{f64_of, list, vectors};
use crate::sample::math::{exp, exp_sum, ln};
use proptest::prelude::*;

#[test]
fn correctly_rounded_where_the_vectors_look() {
    let file = vectors("elementary.json");
    for (name, f) in [("exp", exp as fn(f64) -> f64), ("ln", ln)] {
        let pairs = list(&file[name]);
        assert!(pairs.len() > 300);
        for pair in pairs {
            let (x, want) = (f64_of(&pair[0]), f64_of(&pair[1]));
            let got = f(x);
            assert_eq!(got.to_bits(), want.to_bits(), "{name}({x:e}) = {got:e}, not {want:e}");
        }
    }
}

#[test]
fn ends_of_the_range() {
    assert_eq!(exp(0.0), 1.0);
    assert_eq!(exp(-0.0), 1.0);
    assert_eq!(exp(f64::NEG_INFINITY), 0.0);
    assert_eq!(exp(-1e300), 0.0);
    assert_eq!(exp(-745.2), 0.0);
    assert_eq!(exp(-745.1), f64::from_bits(1));
    assert_eq!(exp(-f64::from_bits(1)), 1.0);
    assert_eq!(ln(1.0).to_bits(), 0.0_f64.to_bits());
    assert_eq!(ln(4_294_967_296.0), 22.180_709_777_918_25);
}

proptest! {
    #[test]
    fn within_one_unit_of_another_implementation(x in -745.0_f64..=0.0, z in 1.0_f64..1e6) {
        for (got, other) in [(exp(x), libm::exp(x)), (ln(z), libm::log(z))] {
            prop_assert!(got.to_bits().abs_diff(other.to_bits()) <= 1, "{} {}", got, other);
        }
    }

    /// Eight at a time or one at a time: the same bits, the same sum.
    #[test]
    fn lanes_change_no_bit(
        x in prop::collection::vec(-800.0_f64..=0.0, 0..40),
        shift in 0.0_f64..1.0,
    ) {
        let mut together = vec![9.0];
        let total = exp_sum(&x, |x| x - shift, &mut together);
        let alone: Vec<f64> = x.iter().map(|x| exp(x - shift)).collect();
        prop_assert_eq!(total, alone.iter().fold(0.0, |sum, y| sum + y));
        prop_assert_eq!(together, alone);
    }

    #[test]
    fn rising(x in -745.0_f64..=0.0, step in 1e-12_f64..1.0) {
        prop_assert!(exp(x - step) <= exp(x));
    }
}
