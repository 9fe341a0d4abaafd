use super::{f64s, list, u32s, u64_of, vectors};
use crate::sample::*;
use proptest::prelude::*;

fn draw<T>(n: usize, mut next: impl FnMut() -> T) -> Vec<T> {
    (0..n).map(|_| next()).collect()
}

#[test]
fn generators() {
    let file = vectors("pcg32.json");
    for case in list(&file["generators"]) {
        let (seed, seq) = (u64_of(&case["seed"]), u64_of(&case["seq"]));
        let fresh = Pcg32::new(seed, seq);
        assert_eq!(seq, Pcg32::DEFAULT_SEQ);
        assert_eq!(fresh.state(), (u64_of(&case["state"]), u64_of(&case["inc"])), "seed {seed}");

        let u32_want = u32s(&case["u32"]);
        assert_eq!(u32_want.len(), 1024);
        let mut rng = fresh.clone();
        assert_eq!(draw(1024, || rng.next_u32()), u32_want, "seed {seed}");

        let uniform = f64s(&case["uniform"]);
        let mut rng = fresh.clone();
        assert_eq!(draw(uniform.len(), || rng.uniform_f64()), uniform, "seed {seed}");

        for (key, n) in [("below_10", 10), ("below_2863311531", 2_863_311_531)] {
            let mut rng = fresh.clone();
            assert_eq!(draw(16, || rng.below(n)), u32s(&case[key]), "seed {seed} {key}");
        }

        let mut items: Vec<u32> = (0..10).collect();
        fresh.clone().shuffle(&mut items);
        assert_eq!(items, u32s(&case["shuffle_10"]), "seed {seed}");

        let mut rng = fresh.clone();
        for (i, want) in f64s(&case["normal"]).into_iter().enumerate() {
            let got = rng.normal();
            let ulps = got.to_bits().abs_diff(want.to_bits());
            assert!(ulps <= 4, "seed {seed} normal {i}: {got} for {want}");
        }
    }
}

#[test]
fn other_seeds_and_sequences() {
    let file = vectors("pcg32.json");
    let mut rng = Pcg32::new(42, Pcg32::DEFAULT_SEQ);
    assert_eq!(draw(6, || rng.next_u32()), u32s(&file["seed_42_u32"]));
    let mut rng = Pcg32::new(42, 7);
    assert_eq!(rng.state().1, u64_of(&file["seed_42_seq_7"]["inc"]));
    assert_eq!(draw(4, || rng.next_u32()), u32s(&file["seed_42_seq_7"]["u32"]));
}

#[test]
fn streams_of_a_seed() {
    let file = vectors("pcg32.json");
    let purposes = [
        ("init", PURPOSE_INIT),
        ("dropout", PURPOSE_DROPOUT),
        ("shuffle", PURPOSE_SHUFFLE),
        ("sample", PURPOSE_SAMPLE),
        ("mutation", PURPOSE_MUTATION),
    ];
    for case in list(&file["streams"]) {
        let seed = u64_of(&case["seed"]);
        let name = case["name"].as_str().expect("a name");
        let (_, purpose) = purposes.iter().find(|(n, _)| *n == name).expect("a known purpose");
        assert_eq!(case["purpose"].as_u64(), Some(*purpose));
        assert_eq!(child_seed(seed, *purpose), u64_of(&case["child_seed"]), "{seed} {name}");
        let mut rng = stream(seed, *purpose);
        assert_eq!(draw(4, || rng.next_u32()), u32s(&case["u32"]), "{seed} {name}");
        let mut rng = stream(seed, *purpose);
        assert_eq!(draw(4, || rng.uniform_f64()), f64s(&case["uniform"]), "{seed} {name}");
    }
    for case in list(&file["mix64"]) {
        assert_eq!(mix64(u64_of(&case["in"])), u64_of(&case["out"]));
    }
}

#[test]
fn choices_of_a_request() {
    let file = vectors("pcg32.json");
    let derived: Vec<u64> = list(&file["choice_seeds_of_11"]).iter().map(u64_of).collect();
    assert_eq!(choice_seed(11, 0), 11);
    for (i, want) in derived.iter().enumerate().skip(1) {
        assert_eq!(choice_seed(11, i as u32), *want);
    }
}

#[test]
fn resuming_skips_what_was_drawn() {
    for case in list(&vectors("resume-rng.json")["cases"]) {
        let draws = case["draws"].as_u64().expect("a number");
        let mut rng = stream(u64_of(&case["seed"]), PURPOSE_SAMPLE);
        rng.advance_uniforms(draws);
        assert_eq!(rng.state(), (u64_of(&case["state"]), u64_of(&case["inc"])), "{draws} draws");
        assert_eq!(rng.uniform_f64(), super::f64_of(&case["next_uniform"]));
    }
}

#[test]
fn below_nothing_draws_nothing() {
    let mut rng = Pcg32::new(1, 2);
    let before = rng.clone();
    assert_eq!(rng.below(0), 0);
    rng.shuffle::<u8>(&mut []);
    rng.shuffle(&mut [1]);
    assert_eq!(rng, before);
}

#[test]
fn a_spare_normal_tells_generators_apart() {
    let mut one = Pcg32::new(1, 2);
    one.normal();
    let mut other = Pcg32::new(1, 2);
    other.advance_uniforms(2);
    assert_eq!(one.state(), other.state());
    assert_ne!(one, other);
}

proptest! {
    #[test]
    fn advancing_is_drawing(seed: u64, seq: u64, n in 0_u64..2000) {
        let mut called = Pcg32::new(seed, seq);
        let mut skipped = called.clone();
        for _ in 0..n {
            called.uniform_f64();
        }
        skipped.advance_uniforms(n);
        prop_assert_eq!(called, skipped);
    }

    #[test]
    fn advances_add_up(seed: u64, a: u64, b: u64) {
        let mut twice = Pcg32::new(seed, 5);
        let mut once = twice.clone();
        twice.advance_uniforms(a);
        twice.advance_uniforms(b);
        once.advance_uniforms(a.wrapping_add(b));
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn uniforms_and_bounded_numbers_stay_in_range(seed: u64, n in 1_u32..) {
        let mut rng = Pcg32::new(seed, 1);
        for _ in 0..50 {
            prop_assert!((0.0..1.0).contains(&rng.uniform_f64()));
            prop_assert!(rng.below(n) < n);
        }
    }

    #[test]
    fn shuffling_keeps_the_items(seed: u64, n in 0_usize..40) {
        let mut items: Vec<usize> = (0..n).collect();
        Pcg32::new(seed, 1).shuffle(&mut items);
        items.sort_unstable();
        prop_assert_eq!(items, (0..n).collect::<Vec<_>>());
    }
}
