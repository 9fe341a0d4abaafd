//! Hostile input, on a fixed number of cases: arbitrary bytes, soups of tokens, mutated examples,
//! mutated representations. The fuzz targets run the same oracles without end.

mod common;
mod oracle;

use std::time::{Duration, Instant};

use common::{MUTATED_SEED, Random, examples, linked};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        oracle::parse(&data);
        oracle::json(&data);
        oracle::trace(&data);
    }

    #[test]
    fn arbitrary_text(text in "[ -~\\n\u{e9}\u{4e2d}]{0,200}") {
        oracle::parse(text.as_bytes());
        oracle::trace(text.as_bytes());
    }
}

/// The words and signs of all examples.
fn vocabulary() -> Vec<String> {
    let mut words = Vec::new();
    for (_, text) in examples() {
        for token in serq_lang::lex::lex(&text, 0, &mut Default::default()) {
            words.push(text[token.span.start as usize..token.span.end as usize].to_owned());
        }
    }
    words.sort();
    words.dedup();
    words.extend(
        ["where", "at", "admission", "grow", "drop", "spill", "fits", "0.5", "[", "~h2"]
            .map(str::to_owned),
    );
    words
}

#[test]
fn token_soup() {
    let words = vocabulary();
    let mut random = Random::new(MUTATED_SEED);
    for _ in 0..400 {
        let len = random.below(120);
        let soup: Vec<&str> = (0..len).map(|_| words[random.below(words.len())].as_str()).collect();
        oracle::parse(soup.join(" ").as_bytes());
    }
}

/// One to four changes of tokens: swapped, dropped, doubled, replaced.
#[test]
fn mutated_examples() {
    let words = vocabulary();
    let mut random = Random::new(MUTATED_SEED + 1);
    for (_, text) in examples() {
        let tokens: Vec<&str> = serq_lang::lex::lex(&text, 0, &mut Default::default())
            .iter()
            .map(|t| &text[t.span.start as usize..t.span.end as usize])
            .collect();
        for _ in 0..120 {
            let mut changed: Vec<&str> = tokens.clone();
            for _ in 0..=random.below(4) {
                let (a, b) = (random.below(changed.len()), random.below(changed.len()));
                match random.below(4) {
                    0 => changed.swap(a, b),
                    1 => drop(changed.remove(a)),
                    2 => changed.insert(b, changed[a]),
                    _ => changed[a] = &words[random.below(words.len())],
                }
            }
            oracle::parse(changed.join(" ").as_bytes());
        }
    }
}

#[test]
fn mutated_bytes() {
    let mut random = Random::new(MUTATED_SEED + 2);
    for (_, text) in examples() {
        for _ in 0..60 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.next() as u8,
                    1 => bytes.truncate(at + 1),
                    _ => bytes.insert(at, b"{}();[]/*\"~-"[random.below(12)]),
                }
            }
            oracle::parse(&bytes);
        }
    }
}

#[test]
fn mutated_representations() {
    let mut random = Random::new(MUTATED_SEED + 3);
    for (name, text) in examples() {
        let json = serq_lang::ir::to_json(&linked(&name, &text));
        oracle::json(json.as_bytes());
        let mut value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        value.as_object_mut().expect("an object").remove("spans");
        let compact = value.to_string();
        for _ in 0..150 {
            let mut bytes = compact.clone().into_bytes();
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = b"0123456789[]{},\":ne"[random.below(19)],
                1 => drop(bytes.remove(at)),
                2 => bytes.truncate(at),
                // Another number: indices and counts that name nothing.
                _ => {
                    if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit) {
                        bytes.splice(at + digit..=at + digit, *b"4294967297");
                    }
                }
            }
            oracle::json(&bytes);
        }
    }
}

/// Inputs made to be slow or deep. Each must be answered, and soon.
#[test]
fn hostile_shapes_end_soon() {
    for (name, text) in common::hostile::shapes() {
        let began = Instant::now();
        oracle::parse(text.as_bytes());
        let took = began.elapsed();
        assert!(took < Duration::from_secs(60), "{name} took {took:?}");
        if name.starts_with("deepest") {
            linked(name, &text);
        }
        println!("{name}: {took:?}");
    }
    for form in common::hostile::deep_forms() {
        oracle::json(form.as_bytes());
    }
}

/// What recurses over nested text is bounded so that the smallest stack that a main thread has on
/// common systems is enough, without optimisation too.
#[test]
fn a_small_stack_is_enough() {
    let small = |f: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        thread.spawn(f).expect("a thread").join().expect("no panic");
    };
    for (_, text) in common::hostile::shapes() {
        small(Box::new(move || oracle::parse(text.as_bytes())));
    }
    for form in common::hostile::deep_forms() {
        small(Box::new(move || oracle::json(form.as_bytes())));
    }
}
