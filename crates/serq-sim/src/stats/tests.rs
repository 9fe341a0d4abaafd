use super::histogram::HISTOGRAM_ERROR;
use super::student::student_t;
use super::trend::{WINDOWS, line};
use super::{Histogram, Rate, Samples, TimeAverage, Trend};

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

/// From tables of the distribution.
#[test]
fn students_t() {
    for (p, degrees, value) in [
        (0.975, 1, 12.706_205),
        (0.975, 2, 4.302_653),
        (0.975, 19, 2.093_024),
        (0.95, 5, 2.015_048),
        (0.9995, 8, 5.041_305),
        (0.975, 60, 2.000_298),
        (0.975, 1_000_000, 1.959_966),
        (0.5, 7, 0.0),
    ] {
        let t = student_t(p, degrees);
        assert!((t - value).abs() < 2e-6, "{p} {degrees}: {t}");
    }
    assert!(student_t(0.975, 0).is_nan() && student_t(1.0, 3).is_nan());
}

/// Values with multiplicities are the same as values one by one, but for the stretches.
#[test]
fn a_histogram_counts_multiples() {
    let (mut one, mut many) = (Histogram::default(), Histogram::default());
    // Of this one the first half is kept, and then goes into buckets.
    let mut coarse = Histogram::exact_up_to(50_000);
    let mut samples = Samples::default();
    let mut x = 1u64;
    for _ in 0..50_000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (v, times) = ((x >> 40) as f64 / 1e9, 1 + x % 3);
        many.add(v, times);
        coarse.add(v, times);
        for _ in 0..times {
            one.add(v, 1);
            samples.add(v);
        }
    }
    assert_eq!((many.count(), many.min, many.max), (samples.count(), samples.min, samples.max));
    assert!((many.mean() / samples.mean() - 1.0).abs() < 1e-12);
    assert!((many.half_width() / samples.half_width() - 1.0).abs() < 0.2);
    let qs = [0.0, 0.1, 0.5, 0.95, 1.0];
    assert!(one.is_exact() && many.is_exact() && !coarse.is_exact());
    assert_eq!(one.quantiles(&qs), samples.quantiles(&qs));
    assert_eq!(many.quantiles(&qs), samples.quantiles(&qs));
    for (a, b) in samples.quantiles(&qs).into_iter().zip(coarse.quantiles(&qs)) {
        assert!((a - b).abs() <= HISTOGRAM_ERROR * a, "{a} {b}");
    }
    assert_eq!((coarse.count(), coarse.mean()), (many.count(), many.mean()));
    assert!(Histogram::default().mean().is_nan() && Histogram::default().half_width().is_nan());
}

/// Two per second for 100 s: no spread; then with nothing in the second half: batches of 2 and 0,
/// whose standard deviation is the root of 20/19.
#[test]
fn rates_have_intervals() {
    for until in [100.0, f64::INFINITY] {
        let mut rate = Rate::new(10.0, 10.0 + until);
        let mut half = Rate::new(10.0, 10.0 + until);
        for k in 0..200 {
            let t = 10.01 + f64::from(k) / 2.0;
            rate.add(t);
            if k < 100 {
                half.add(t);
            }
        }
        assert_eq!((rate.per_second(110.0), half.per_second(110.0)), (2.0, 1.0));
        let expected = 2.093 * (20.0f64 / 19.0 / 20.0).sqrt();
        let width = half.half_width(110.0);
        assert!((width / expected - 1.0).abs() < 0.02, "{width} {expected}");
        assert!(rate.half_width(110.0) < 0.05, "{}", rate.half_width(110.0));
    }
}

#[test]
fn a_line_is_certain_if_the_scatter_is_small() {
    let flat = line(&[3.0; WINDOWS]);
    assert_eq!((flat.mean, flat.slope, flat.certain), (3.0, 0.0, false));
    let mut y = [0.0; WINDOWS];
    for (k, y) in y.iter_mut().enumerate() {
        *y = 2.0 + 3.0 * k as f64 + if k % 2 == 0 { 0.5 } else { -0.5 };
    }
    let rising = line(&y);
    assert!(rising.certain && (rising.slope - 3.0).abs() < 0.1);
    let noise = line(&[1.0, 5.0, 2.0, 6.0, 1.0, 4.0, 3.0, 5.0, 2.0, 6.0]);
    assert!(!noise.certain);
}

/// 500 looks, each good for the time since the one before.
#[test]
fn a_trend_averages_over_tenths() {
    let mut trend = Trend::new(100.0, 600.0, 2);
    for now in [100.4, 130.0, 150.0, 400.0, 600.0] {
        trend.look(now, [now, 1.0].into_iter());
    }
    assert!(trend.is_complete());
    assert_eq!(trend.windows(1), &[1.0; WINDOWS].map(|_: f64| trend.windows(1)[0]));
    assert!((trend.windows(1)[0] - 1.0).abs() < 1e-12);
    // Looks at 100.5 to 129.5 saw 130, those to 149.5 saw 150.
    assert!((trend.windows(0)[0] - (30.0 * 130.0 + 20.0 * 150.0) / 50.0).abs() < 1e-9);
    assert!((trend.windows(0)[9] - 600.0).abs() < 1e-9);
    assert_eq!(Trend::new(0.0, f64::INFINITY, 1).next, f64::INFINITY);
}
