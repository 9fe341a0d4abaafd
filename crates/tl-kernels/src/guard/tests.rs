use super::*;
use crate::simd::faulty::{FLAWS, Faulty, Flaw};

fn faulty(isa: Isa, flaw: Flaw) -> (Isa, Option<Token>) {
    (isa, Some(Token::Faulty(Faulty { flaw, isa })))
}

fn portable() -> (Isa, Option<Token>) {
    (Isa::Portable, Token::new(Isa::Portable))
}

#[test]
fn this_cpu_is_not_faulty() {
    let detected = Isa::detect();
    assert_eq!(Some(&detected.isa), Isa::available().last());
    assert_eq!(detected.faulty().next(), None, "{detected}");
    assert!(detected.refused.iter().all(|(isa, _)| !isa.is_available()));
    assert_eq!(Kernels::detect().isa(), detected.isa);
    println!("{detected}");
}

#[test]
fn no_wrong_primitive_goes_unnoticed() {
    for flaw in FLAWS {
        let candidates = [(Isa::Avx512, None), faulty(Isa::Avx2, flaw), portable()];
        let detected = choose(candidates.into_iter());
        assert_eq!(detected.isa, Isa::Portable, "{flaw:?}");
        assert_eq!(detected.refused[0], (Isa::Avx512, Refusal::Absent));
        let (isa, kernel) = detected.faulty().next().expect("one was refused");
        assert_eq!(isa, Isa::Avx2, "{flaw:?}");
        println!("{flaw:?} shows in {kernel}: {detected}");
    }
}

#[test]
fn without_a_flaw_it_is_taken() {
    let detected = choose([faulty(Isa::Avx512, Flaw::None), portable()].into_iter());
    assert_eq!(detected, Detected { isa: Isa::Avx512, refused: vec![] });
}

#[test]
fn the_next_lower_set_is_taken_instead() {
    let candidates =
        [faulty(Isa::Avx512, Flaw::UnfusedMultiplyAdd), faulty(Isa::Avx2, Flaw::None), portable()];
    let detected = choose(candidates.into_iter());
    assert_eq!(detected.isa, Isa::Avx2);
    let refusal = Refusal::Differs { kernel: "dot" };
    assert_eq!(detected.refused, [(Isa::Avx512, refusal)]);
    assert_eq!(detected.to_string(), "avx2; not avx512, whose dot differs from portable code");
}

#[test]
fn the_battery_runs_every_kernel_often() {
    let results = battery(Kernels::of(Token::Portable(Portable)));
    let count = |name| results.iter().filter(|(n, _)| *n == name).count();
    assert_eq!((count("dot"), count("max")), (8 * LENGTHS.len(), 2 * LENGTHS.len() + 16));
    for name in ["rmsnorm", "silu_mul", "softmax"] {
        assert_eq!(count(name), LENGTHS.len(), "{name}");
    }
    for name in ["f32 product", "f16 product", "Q4_0 product", "Q4_1 product", "Q8_0 product"] {
        assert_eq!(count(name), ROWS.len() * COLUMNS.len(), "{name}");
    }
    assert_eq!((count("attention"), count("attention_f32")), (HEADS.len(), HEADS.len()));
    assert_eq!([count("exp"), count("f32_to_f16"), count("f16_to_f32")], [1; 3]);
    assert_eq!(results, battery(Kernels::of(Token::Portable(Portable))), "it is fixed");
}
