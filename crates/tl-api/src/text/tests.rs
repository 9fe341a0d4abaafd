use super::TextStream;
use proptest::prelude::*;

/// Text before the stop string that is completed first (the longest of those completed together).
fn naive(bytes: &[u8], stops: &[String]) -> (String, bool) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    for end in 1..=text.len() {
        let longest = stops
            .iter()
            .filter(|s| !s.is_empty() && text.as_bytes()[..end].ends_with(s.as_bytes()))
            .map(String::len)
            .max();
        if let Some(n) = longest {
            return (text[..end - n].to_owned(), true);
        }
    }
    (text, false)
}

/// For each byte, which character of the text it is in.
fn char_of_byte(bytes: &[u8]) -> Vec<usize> {
    let mut of = Vec::new();
    let mut index = 0;
    for chunk in bytes.utf8_chunks() {
        for (n, c) in (index..).zip(chunk.valid().chars()) {
            of.extend(std::iter::repeat_n(n, c.len_utf8()));
        }
        index += chunk.valid().chars().count();
        of.extend(std::iter::repeat_n(index, chunk.invalid().len()));
        index += usize::from(!chunk.invalid().is_empty());
    }
    of
}

/// Pushes the pieces one by one; returns what each push let out, and the flush.
fn run(pieces: &[&[u8]], stops: &[&str]) -> (Vec<String>, String, bool) {
    let mut stream = TextStream::new(stops);
    let out = pieces.iter().map(|p| stream.push(p).text).collect();
    let flushed = stream.finish();
    (out, flushed, stream.stopped())
}

#[track_caller]
fn check(pieces: &[&[u8]], stops: &[&str], expected: &[&str], flush: &str, stopped: bool) {
    let (out, flushed, ended) = run(pieces, stops);
    assert_eq!(out, expected);
    assert_eq!(flushed, flush);
    assert_eq!(ended, stopped);
}

#[test]
fn plain_text_passes_at_once() {
    check(&[b"he", b"llo"], &[], &["he", "llo"], "", false);
}

#[test]
fn a_character_waits_for_its_last_byte() {
    check(&[b"\xf0\x9f", b"\x8c", b"\x8d!"], &[], &["", "", "🌍!"], "", false);
}

#[test]
fn invalid_bytes_are_replaced_when_known_to_be_invalid() {
    check(&[b"a\xff", b"\xe0", b"\x80b"], &[], &["a\u{fffd}", "", "\u{fffd}\u{fffd}b"], "", false);
    check(&[b"\xf0\x9f", b"x"], &[], &["", "\u{fffd}x"], "", false);
}

#[test]
fn an_incomplete_end_is_flushed_as_one_replacement() {
    check(&[b"ok\xe2\x82"], &[], &["ok"], "\u{fffd}", false);
}

#[test]
fn a_stop_string_across_tokens_never_shows() {
    check(&[b"one <", b"|en", b"d|> two"], &["<|end|>"], &["one ", "", ""], "", true);
}

#[test]
fn what_turns_out_not_to_be_a_stop_string_comes_out() {
    check(&[b"a<", b"|b"], &["<|end|>"], &["a", "<|b"], "", false);
    check(&[b"a<|"], &["<|end|>"], &["a"], "<|", false);
}

#[test]
fn overlapping_candidates_keep_the_longest_possible_start() {
    check(&[b"aab", b"aab", b"c"], &["aabaac"], &["", "aab", "aabc"], "", false);
    check(&[b"aabaab", b"aac"], &["aabaac"], &["aab", ""], "", true);
}

#[test]
fn the_match_completed_first_wins_whatever_the_split() {
    check(&[b"xabcd"], &["abcd", "bc"], &["xa"], "", true);
    check(&[b"x", b"a", b"b", b"c", b"d"], &["abcd", "bc"], &["x", "", "", "a", ""], "", true);
    check(&[b"xabc"], &["c", "abc"], &["x"], "", true);
}

#[test]
fn a_stop_string_of_several_bytes_per_character() {
    check(&[b"a\xe2\x82", b"\xac!"], &["€"], &["a", ""], "", true);
    // the first byte of the stop string alone is an incomplete character, not yet a candidate
    check(&[b"\xe2\x82", b"\xad"], &["€"], &["", "₭"], "", false);
}

#[test]
fn nothing_comes_after_a_stop() {
    let mut stream = TextStream::new(["."]);
    assert!(stream.push(b"a.b").stopped);
    let again = stream.push(b"more");
    assert_eq!((again.text.as_str(), again.stopped), ("", true));
    assert_eq!(stream.finish(), "");
}

#[test]
fn offsets_count_characters_decoded_and_let_out() {
    let check = |pieces: &[&[u8]], expected: &[(usize, usize)]| {
        let mut stream = TextStream::new(["zz"]);
        let got: Vec<(usize, usize)> = pieces
            .iter()
            .map(|piece| (stream.push(piece).begins, stream.emitted_chars()))
            .collect();
        assert_eq!(got, expected, "{pieces:?}");
    };
    check(&["äz".as_bytes(), b"a"], &[(0, 1), (2, 3)]);
    // All bytes of a character begin where it begins.
    check(&[b"a", b"\xe2", b"\x82", b"\xacb", b"c"], &[(0, 1), (1, 1), (1, 1), (1, 3), (3, 4)]);
    // A character that was never finished is a replacement of its own.
    check(&[b"\xe2\x82", b"x", b"y"], &[(0, 0), (1, 2), (2, 3)]);
    check(&[b"\xe2", b"\x82x", b"y"], &[(0, 0), (0, 2), (2, 3)]);
    check(&[b"\xe2", b"", b"\xe2", b"\x82\xac"], &[(0, 0), (0, 0), (1, 1), (1, 2)]);
}

#[test]
fn a_long_stop_string_that_almost_matches_costs_linear_time() {
    let stop = "a".repeat(200_000) + "b";
    let mut stream = TextStream::new([stop]);
    let mut seen = 0;
    for _ in 0..400_000 {
        seen += stream.push(b"a").text.len();
    }
    assert_eq!(seen, 200_000);
    assert_eq!(stream.finish().len(), 200_000);
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[ab]{1,4}".prop_map(String::into_bytes),
        "[aéß€🌍]{1,3}".prop_map(String::into_bytes),
        proptest::collection::vec(
            prop_oneof![Just(0xe2_u8), Just(0x82), Just(0xac), Just(0xf0), Just(b'a')],
            1..5
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_naive_search_over_random_splits(
        pieces in proptest::collection::vec(piece(), 0..12),
        stops in proptest::collection::vec("[ab]{0,4}|[aé€]{1,2}|\u{fffd}a?", 0..4),
        cuts in proptest::collection::vec(0_usize..40, 0..10),
    ) {
        let bytes = pieces.concat();
        let (expected, stopped) = naive(&bytes, &stops);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut stream = TextStream::new(&stops);
        let mut seen = String::new();
        let mut from = 0;
        let char_of_byte = char_of_byte(&bytes);
        for cut in cuts {
            let emit = stream.push(&bytes[from..cut]);
            if !emit.stopped && from < cut {
                prop_assert_eq!(emit.begins, char_of_byte[from]);
            }
            from = cut;
            seen.push_str(&emit.text);
            prop_assert!(expected.starts_with(&seen), "showed {seen:?} of {expected:?}");
            prop_assert_eq!(stream.emitted_chars(), seen.chars().count());
            // Nothing certain is withheld: what waits is shorter than the longest stop string.
            let longest = stops.iter().map(String::len).max().unwrap_or(0);
            let sure = naive(&bytes[..cut], &stops);
            let waiting = String::from_utf8_lossy(&bytes[..cut]).len().saturating_sub(seen.len());
            prop_assert!(sure.1 || waiting <= longest.saturating_sub(1) + 3);
        }
        seen.push_str(&stream.finish());
        prop_assert_eq!(seen, expected);
        prop_assert_eq!(stream.stopped(), stopped);
    }
}
