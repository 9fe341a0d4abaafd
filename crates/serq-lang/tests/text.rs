//! The text as a text: tokens and trivia are the source, layout changes nothing that counts.

mod common;

use common::{MUTATED_SEED, examples, linked, without_spans};
use serq_lang::diag::Diagnostics;
use serq_lang::fmt::{WIDTH, format};
use serq_lang::lex::{Tok, Trivia, lex, trivia};

/// Writes tokens and trivia one after the other.
fn rebuilt(text: &str) -> String {
    let mut out = String::new();
    let mut end = 0;
    for token in lex(text, 0, &mut Diagnostics::default()) {
        let (from, to) = (token.span.start as usize, token.span.end as usize);
        for piece in trivia(&text[end..from]) {
            let (Trivia::Space(s) | Trivia::Line(s) | Trivia::Block(s)) = piece;
            out.push_str(s);
        }
        out.push_str(&text[from..to]);
        end = to;
    }
    out
}

#[test]
fn tokens_and_trivia_are_the_source() {
    let check = |text: &str| assert_eq!(rebuilt(text), text);
    for (_, text) in examples() {
        check(&text);
    }
    for text in
        ["", " ", "/**/", "// x", "a/*b*/c//d\n/", "\u{e9}t\u{e9} 1.5e-3 \"s\" # $", "/* /* */ */"]
    {
        check(text);
    }
}

#[test]
fn words_numbers_signs() {
    let check = |text: &str, want: &[&str]| {
        let mut diags = Diagnostics::default();
        let found: Vec<String> = lex(text, 0, &mut diags)
            .into_iter()
            .map(|t| match t.tok {
                Tok::Number(v) => format!("{v:?}"),
                Tok::End => "end".to_owned(),
                Tok::Bad => "bad".to_owned(),
                _ => text[t.span.start as usize..t.span.end as usize].to_owned(),
            })
            .collect();
        assert_eq!(found, want, "{text}");
        assert_eq!(diags.has_errors(), want.contains(&"bad"), "{text}");
    };
    check("a_1 \u{e4}b _", &["a_1", "\u{e4}b", "_", "end"]);
    check(
        "1 1.5 .5 1_000 2e3 2e-3 1E+2",
        &["1.0", "1.5", "0.5", "1000.0", "2000.0", "0.002", "100.0", "end"],
    );
    check("<= < == = != ! && ||", &["<=", "<", "==", "=", "!=", "!", "&&", "||", "end"]);
    check("a.b", &["a", ".", "b", "end"]);
    check("1.2.3 5ms 1e999 2e", &["bad", "bad", "bad", "bad", "end"]);
    check("\"a b\" \"\n", &["\"a b\"", "bad", "end"]);
    check("& | %", &["bad", "bad", "bad", "end"]);
}

#[test]
fn layout() {
    let check = |text: &str, want: &str| {
        let got = format("a.sq", text).expect("it parses");
        assert_eq!(got, want, "of {text}");
        assert_eq!(format("a.sq", &got).expect("it parses"), want, "again");
    };
    check("", "");
    check("let a=1;let b = - a^2;", "let a = 1;\nlet b = -a^2;\n");
    check("let a=min( 1,f [ 2 ] ) ;", "let a = min(1, f[2]);\n");
    check("let a=1;\n\n\n\nlet b=2;\n\n", "let a = 1;\n\nlet b = 2;\n");
    check("pool p{cap 1;}", "pool p { cap 1; }\n");
    check("pool p{\ncap 1;}", "pool p {\n  cap 1;\n}\n");
    check("pool p{}", "pool p { }\n");
    check("stage s:step{cost 1;};", "stage s : step { cost 1; };\n");
    check(
        "session{branch(a<b){end;}else{\nrun s(~exp(1));}}",
        "session {\n  branch (a < b) {\n    end;\n  } else {\n    run s (~exp(1));\n  }\n}\n",
    );
    check(
        "session { hold p[ i ](1)reserve(2),q (1) { run s (1); }keep( 3 )lease p[i](inf); }",
        "session { hold p[i] (1) reserve (2), q (1) { run s (1); } keep (3) lease p[i] (inf); }\n",
    );
    check(
        "// head\n\n\nlet a = 1; // one\n  // two\nlet b = 2; /* three */ let c = 3;\n// end",
        "// head\n\nlet a = 1; // one\n// two\nlet b = 2; /* three */\nlet c = 3;\n// end\n",
    );
    check(
        "session { // why\n // first\n run s (1); // run\n\n // last\n}",
        "session { // why\n  // first\n  run s (1); // run\n\n  // last\n}\n",
    );
    check(
        "let a = 1; // one\nlet long = 100; // two\nlet b = 2;\nlet c = 3; // three",
        "let a = 1;      // one\nlet long = 100; // two\nlet b = 2;\nlet c = 3; // three\n",
    );
    check("stage s:ps( 1 ) ;stage t :fifo (2);", "stage s : ps(1);\nstage t : fifo(2);\n");
    check("\u{feff}let a = 1;\r\nlet b = 2; // c\r\n", "let a = 1;\nlet b = 2; // c\n");
    check("session { }", "session { }\n");
    check("session {\n  // nothing\n}", "session {\n  // nothing\n}\n");
    check(
        "use \"std/x\" ;def f ( a,b )=a+b;def g(E){pool E . kv[2]{cap 1;}}g( P ) ;session{h (P.kv [ 1 ],2);}",
        "use \"std/x\";\ndef f(a, b) = a + b;\ndef g(E) { pool E.kv[2] { cap 1; } }\ng(P);\nsession { h(P.kv[1], 2); }\n",
    );
    check("let a = 1 // why\n + 2 /* and */ + 3;", "let a = 1 // why\n    + 2 /* and */ + 3;\n");
}

/// Long clauses break where they may, and every line that can be short is.
#[test]
fn long_lines_break() {
    let text = "session { hold first_pool_of_many (min(prompt, hit + budget_left(engine))) reserve (prompt), second_pool_of_many (0) reserve (1) reuse (floor((known - 1) / bs) * bs) { run s (1); } }";
    let got = format("a.sq", text).expect("it parses");
    assert!(got.lines().all(|l| l.chars().count() <= WIDTH), "{got}");
    assert_eq!(format("a.sq", &got).expect("it parses"), got);
    let long = format!("let a = {};", vec!["1"; 150].join(" + "));
    let got = format("a.sq", &long).expect("it parses");
    assert!(got.lines().all(|l| l.chars().count() <= WIDTH), "{got}");
    assert_eq!(format("a.sq", &got).expect("it parses"), got);
}

#[test]
fn a_program_with_errors_is_not_formatted() {
    let (found, _) = format("a.sq", "let a = ;").expect_err("it does not parse");
    assert_eq!(found[0].code.as_str(), "E0105");
}

/// Programs in any layout: the formatter answers once and for all, and the meaning stays.
#[test]
fn layout_never_changes_the_meaning() {
    let mut random = common::Random::new(MUTATED_SEED);
    for (name, text) in examples() {
        let meaning = without_spans(linked(&name, &text));
        for round in 0..30 {
            let shaken = if round == 0 { text.clone() } else { shake(&text, &mut random) };
            let once = format(&name, &shaken).expect("it parses");
            assert_eq!(format(&name, &once).expect("it parses"), once, "{name}, shaken:\n{shaken}");
            assert_eq!(without_spans(linked(&name, &once)), meaning, "{name}");
        }
    }
}

/// The same tokens with other white space and more comments.
fn shake(text: &str, random: &mut common::Random) -> String {
    let mut out = String::new();
    let mut end = 0;
    for token in lex(text, 0, &mut Diagnostics::default()) {
        let (from, to) = (token.span.start as usize, token.span.end as usize);
        for piece in trivia(&text[end..from]) {
            match piece {
                Trivia::Line(s) | Trivia::Block(s) => {
                    out.push_str(s);
                    out.push('\n');
                }
                Trivia::Space(_) => {}
            }
        }
        let kinds = [
            "\n",
            " ",
            "\n\n",
            "\t\n \n",
            " /* c */ ",
            " // c\n",
            "  // c\r\n",
            " /* c\n c */",
            "  ",
        ];
        let weight = random.below(24);
        out.push_str(kinds.get(weight).unwrap_or(&" "));
        out.push_str(&text[from..to]);
        end = to;
    }
    out
}
