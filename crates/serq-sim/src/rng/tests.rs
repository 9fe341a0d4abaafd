use super::dist::draw;
use super::*;
use serq_lang::ir::Dist;

/// The published outputs of both generators, so that a slip in a constant shows.
#[test]
fn the_generators_are_the_published_ones() {
    let mut state = 1_234_567;
    let expected = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];
    for value in expected {
        assert_eq!(split(&mut state), value);
    }
    let mut rng = Rng { s: [1, 2, 3, 4] };
    let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
    for value in expected {
        assert_eq!(rng.next_u64(), value);
    }
}

/// Our own vectors: they change only with the documented key schedule, and then every seed's
/// results change with them.
#[test]
fn streams_are_fixed() {
    let first = |p, a, b| Rng::stream(1, p, a, b).next_u64();
    let found = [
        first(Purpose::Arrivals, 0, 0),
        first(Purpose::Trace, 5, 0),
        first(Purpose::Workload, 0, 1),
        first(Purpose::Workload, 1, 0),
        first(Purpose::Statements, 1, 0),
        Rng::stream(2, Purpose::Arrivals, 0, 0).next_u64(),
    ];
    let mut distinct = found.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), found.len());
    assert_eq!(found, GOLDEN_STREAMS);
}

/// Computed from the description in the module's documentation by a program of another language.
const GOLDEN_STREAMS: [u64; 6] = [
    5_833_392_984_499_759_070,
    5_702_275_607_820_366_601,
    8_796_468_134_091_234_576,
    3_857_014_335_671_075_382,
    2_123_978_369_139_082_108,
    3_825_626_967_351_844_277,
];

/// Mean and squared coefficient of variation of every law, over a million draws.
#[test]
fn laws_have_their_moments() {
    let cases = [
        (Dist::Exp, 2.0, 0.0, 2.0, 1.0),
        (Dist::Det, 3.0, 0.0, 3.0, 0.0),
        (Dist::Uniform, 1.0, 3.0, 2.0, 1.0 / 12.0),
        (Dist::Erlang, 4.0, 2.0, 2.0, 0.25),
        (Dist::Erlang, 0.5, 2.0, 2.0, 1.0),
        (Dist::H2, 2.0, 4.0, 2.0, 4.0),
        (Dist::H2, 2.0, 0.3, 2.0, 1.0),
        (Dist::Bernoulli, 0.25, 0.0, 0.25, 3.0),
    ];
    let n = 1_000_000;
    for (i, (dist, a, b, mean, cv2)) in cases.into_iter().enumerate() {
        let mut rng = Rng::stream(7, Purpose::Statements, i as u64, 0);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = draw(&mut rng, dist, a, b).unwrap();
            sum += x;
            squares += x * x;
        }
        let m = sum / f64::from(n);
        let c = squares / f64::from(n) / (m * m) - 1.0;
        assert!((m / mean - 1.0).abs() < 0.01, "{dist:?}: mean {m}, not {mean}");
        assert!((c - cv2).abs() < 0.03 * cv2.max(1.0), "{dist:?}: cv2 {c}, not {cv2}");
    }
}

#[test]
fn parameters_that_make_no_law_are_refused() {
    let mut rng = Rng::stream(1, Purpose::Statements, 0, 0);
    for (dist, a, b) in [
        (Dist::Exp, -1.0, 0.0),
        (Dist::Exp, f64::NAN, 0.0),
        (Dist::Exp, f64::INFINITY, 0.0),
        (Dist::Uniform, 2.0, 1.0),
        (Dist::Erlang, 1e9, 1.0),
        (Dist::H2, 1.0, f64::INFINITY),
        (Dist::Bernoulli, 1.5, 0.0),
    ] {
        assert!(draw(&mut rng, dist, a, b).is_err(), "{dist:?} {a} {b}");
    }
}

#[test]
fn a_choice_is_uniform() {
    let mut rng = Rng::stream(1, Purpose::Trace, 0, 0);
    let mut counts = [0u32; 3];
    for _ in 0..30_000 {
        counts[rng.below(3)] += 1;
    }
    assert!(counts.iter().all(|&c| (9_600..10_400).contains(&c)), "{counts:?}");
}
