use super::{Choice, Out, TokenBytes};
use tl_engine::engine::TokenOut;

/// Token `i` of a fixed table.
struct Table(&'static [&'static [u8]]);

impl TokenBytes for Table {
    fn token_bytes(&self, id: u32) -> &[u8] {
        self.0[id as usize]
    }
}

fn token(id: u32) -> TokenOut {
    TokenOut { id, logprob: -f64::from(id), top: vec![(id, -f64::from(id)), (0, -9.0)], draws: 0 }
}

/// `text|token texts` of one output.
fn show(out: &Out) -> String {
    let tokens: Vec<&str> =
        out.logprobs.as_deref().unwrap_or_default().iter().map(|t| t.token.as_str()).collect();
    format!("{}|{}", out.text, tokens.join(","))
}

#[track_caller]
fn check(table: &'static [&'static [u8]], stops: &[&str], expected: &[&str], end: &str) {
    let stops: Vec<String> = stops.iter().map(|s| (*s).to_owned()).collect();
    let table = Table(table);
    let mut choice = Choice::new(&stops, true);
    let got: Vec<String> =
        (0..table.0.len() as u32).map(|id| show(&choice.token(&token(id), &table))).collect();
    assert_eq!(got, expected);
    assert_eq!(show(&choice.finish()), end);
    assert_eq!(choice.tokens(), table.0.len() as u64);
}

#[test]
fn logprobs_come_with_the_text_of_their_token() {
    check(&[b"a", b"bc"], &[], &["a|a", "bc|bc"], "|");
}

#[test]
fn held_back_text_holds_back_its_logprobs() {
    check(&[b"a", b"<", b"|x"], &["<|end"], &["a|a", "|", "<|x|<,|x"], "|");
    check(&[b"a", b"<"], &["<|end"], &["a|a", "|"], "<|<");
}

#[test]
fn tokens_of_a_stop_string_have_no_logprobs() {
    check(&[b"a", b"<|", b"end", b"zz"], &["<|end"], &["a|a", "|", "|", "|"], "|");
    // a token that begins before the stop string and ends within it is shown, its text cut
    check(&[b"ab<", b"|end"], &["<|end"], &["ab|ab<", "|"], "|");
}

#[test]
fn a_character_in_two_tokens_has_both_entries() {
    check(&[b"\xc3", b"\xa9"], &[], &["|", "é|\u{fffd},\u{fffd}"], "|");
}

#[test]
fn a_special_token_at_the_end_is_reported_with_the_end() {
    check(&[b"a", b""], &[], &["a|a", "|"], "|");
}

#[test]
fn a_silent_first_token_leaves_the_rest_unchanged() {
    let table = Table(&[b"x<", b"|y", b"z"]);
    let stops = ["<|end".to_owned()];
    let mut whole = Choice::new(&stops, true);
    let first = whole.token(&token(0), &table);
    let mut resumed = Choice::new(&stops, true);
    resumed.silently(0, &table);
    assert_eq!(show(&first), "x|x<");
    for id in 1..3 {
        assert_eq!(whole.token(&token(id), &table), resumed.token(&token(id), &table));
    }
    assert_eq!(whole.finish(), resumed.finish());
    assert_eq!(whole.tokens(), resumed.tokens());
}

#[test]
fn offsets_are_places_in_the_text_also_of_tokens_that_share_a_character() {
    let check = |table: &'static [&'static [u8]], expected: &[usize]| {
        let table = Table(table);
        for resumed in [false, true] {
            let mut choice = Choice::new(&[], true);
            if resumed {
                choice.silently(0, &table);
            }
            let rest = u32::from(resumed)..table.0.len() as u32;
            let mut outs: Vec<Out> = rest.map(|id| choice.token(&token(id), &table)).collect();
            outs.push(choice.finish());
            let offsets: Vec<usize> =
                outs.into_iter().flat_map(|o| o.logprobs.unwrap()).map(|t| t.text_offset).collect();
            assert_eq!(offsets, expected[usize::from(resumed)..], "resumed: {resumed}");
        }
    };
    check(&[b"ab", b"c", b"d"], &[0, 2, 3]);
    check(&[b"\xc3", b"\xa9", b"x"], &[0, 0, 1]);
    check(&[b"a\xf0\x9f", b"\x8c", b"\x8d!", b"x"], &[0, 1, 1, 3]);
    check(&[b"\xe2", b"x", b""], &[0, 1, 2]);
}

#[test]
fn without_logprobs_there_are_none() {
    let table = Table(&[b"a"]);
    let out = Choice::new(&[], false).token(&token(0), &table);
    assert_eq!(out, Out { text: "a".into(), logprobs: None });
}
