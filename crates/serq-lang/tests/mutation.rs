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
    let program = |body: &str| {
        format!(
            "pool p {{ }}\nstage s : fifo;\nworkload {{ arrive poisson(1); session {{ turn; request; }} }}\nserver {{ {body} }}\nrun {{ horizon 1; }}\n"
        )
    };
    let doubled: String = (1..60).map(|i| format!(", b{i} = b{} + b{}", i - 1, i - 1)).collect();
    let cases: Vec<(&str, String)> = vec![
        (
            "parentheses",
            program(&format!("run s ({}1{});", "(".repeat(100_000), ")".repeat(100_000))),
        ),
        ("open parentheses", "let a = ".to_owned() + &"(".repeat(500_000)),
        ("blocks", program(&"loop {".repeat(100_000))),
        ("signs", program(&format!("run s ({}1);", "-".repeat(200_000)))),
        ("powers", program(&format!("run s (1{});", "^1".repeat(200_000)))),
        ("sum", program(&format!("run s (1{});", " + 1".repeat(200_000)))),
        ("conditions", program(&format!("run s ({}1);", "1 ? 1 : ".repeat(100_000)))),
        ("calls", program(&format!("run s ({}1);", "abs(".repeat(100_000)))),
        ("indices", program(&format!("run s (used({}));", "p[used(".repeat(50_000)))),
        (
            "doubling bindings",
            program(&format!("admit if p (b59) fit where b0 = serial{doubled} {{ run s (1); }}")),
        ),
        ("copied server", {
            let client = "request;".repeat(3000);
            let server = "run s (1);".repeat(3000);
            format!(
                "stage s : fifo;\nworkload {{ arrive poisson(1); session {{ {client} }} }}\nserver {{ {server} }}\nrun {{ horizon 1; }}\n"
            )
        }),
        ("comments", "// c\n".repeat(200_000)),
        ("block comments", "/**/".repeat(200_000)),
        ("slashes", "/ ".repeat(200_000)),
        ("strings", "\"\n".repeat(200_000)),
        ("many lets", (0..20_000).map(|i| format!("let a{i} = {i};\n")).collect()),
        ("one line", "let a = 1; ".repeat(20_000)),
        ("one line, not ASCII", "let \u{e9} = 1; ".repeat(20_000)),
        ("families", "pool p[10000] { } pool q[10000] { }".to_owned()),
        (
            "nested branches",
            program(&format!(
                "{}run s (1);{}",
                "branch (serial) { ".repeat(90),
                " } else { run s (1); }".repeat(90)
            )),
        ),
        (
            "nested loops",
            program(&format!(
                "{}run s (1);{}",
                "loop { set x = free(p); ".repeat(90),
                " }".repeat(90)
            )),
        ),
        ("closing braces", "}".repeat(300_000)),
        ("long name", format!("let {} = 1;", "a".repeat(1_000_000))),
    ];
    for (name, text) in cases {
        let began = Instant::now();
        oracle::parse(text.as_bytes());
        let took = began.elapsed();
        assert!(took < Duration::from_secs(60), "{name} took {took:?}");
        println!("{name}: {took:?}");
    }
    let json = "[".repeat(1_000_000);
    oracle::json(json.as_bytes());
    oracle::json(format!("{{\"format\":\"serq-tl\",\"version\":5,\"blocks\":{json}").as_bytes());
}
