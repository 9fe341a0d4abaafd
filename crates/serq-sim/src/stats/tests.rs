use super::sample::HISTOGRAM_ERROR;
use super::{Samples, TimeAverage};

#[test]
fn a_time_average_weighs_by_time_and_can_start_anew() {
    let mut a = TimeAverage::default();
    a.set(1.0, 4.0);
    a.set(3.0, 0.0);
    assert_eq!(a.mean(4.0), 2.0);
    a.set(5.0, 6.0);
    a.reset(6.0);
    assert_eq!(a.mean(8.0), 6.0);
    assert_eq!(TimeAverage::default().mean(0.0), 0.0);
}

#[test]
fn few_samples_have_quantiles_but_no_interval() {
    let mut s = Samples::default();
    assert!(s.mean().is_nan() && s.quantiles(&[0.5])[0].is_nan());
    for x in 1..=39 {
        s.add(f64::from(x));
    }
    assert_eq!(s.mean(), 20.0);
    assert_eq!(s.quantiles(&[0.0, 0.5, 0.9, 0.99, 1.0]), [1.0, 20.0, 36.0, 39.0, 39.0]);
    assert!(s.half_width().is_nan());
}

/// 20 batches of 2: means 1.5, 3.5, ..., whose variance is 4 times that of 0..20, 35.
#[test]
fn the_interval_is_by_twenty_batches() {
    let mut s = Samples::default();
    for x in 1..=41 {
        s.add(f64::from(x));
    }
    let expected = 2.093 * (4.0 * 35.0 / 20.0f64).sqrt();
    assert!((s.half_width() - expected).abs() < 1e-12, "{}", s.half_width());
}

#[test]
fn many_samples_are_summarised_within_the_stated_error() {
    let mut exact = Samples::default();
    let mut summary = Samples::exact_up_to(100);
    let mut x = 1u64;
    for _ in 0..200_000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let v = (x >> 40) as f64 / 1e5 - 20.0;
        exact.add(v);
        summary.add(v);
    }
    assert!(!summary.is_exact() && exact.is_exact());
    assert_eq!(exact.mean(), summary.mean());
    assert!((exact.half_width() / summary.half_width() - 1.0).abs() < 0.05);
    let qs = [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0];
    for (a, b) in exact.quantiles(&qs).into_iter().zip(summary.quantiles(&qs)) {
        assert!((a - b).abs() <= HISTOGRAM_ERROR * a.abs(), "{a} {b}");
    }
}
