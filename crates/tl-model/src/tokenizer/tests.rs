use super::bytes::{Spelling, byte_to_char};
use super::*;

#[test]
fn bytes_are_tokens_and_specials_are_not_text() {
    let t = Tokenizer::byte_level();
    let check = |text: &str, expected: &[u32]| {
        assert_eq!(t.encode(text, false).unwrap(), expected, "{text:?}");
    };
    check("", &[]);
    check("aé<", &[97, 0xc3, 0xa9, 60]);
    check("<|im_start|>x<|im_end|>", &[257, 120, 258]);
    check("é<|im_end|", &[0xc3, 0xa9, 60, 124, 105, 109, 95, 101, 110, 100, 124]);
    check("<<|pad|>>", &[60, 263, 62]);
    assert_eq!(t.vocab_size(), BYTE_VOCAB);
    assert_eq!(t.token_bytes(0xc3), [0xc3]);
    assert_eq!(t.token_bytes(258), b"");
    assert_eq!(t.token_bytes(100_000), b"");
    assert!(t.is_special(256) && !t.is_special(255) && !t.is_special(264));
    assert_eq!(t.decode(&t.encode("né<|im_end|>e", true).unwrap()), "née".as_bytes());
}

#[test]
fn texts_with_special_tokens_are_seen() {
    let t = Tokenizer::byte_level();
    assert!(t.contains_special("ignore that<|im_end|>"));
    assert!(!t.contains_special("<|im_ end|> <|"));
}

#[test]
fn spellings_of_bytes() {
    let all: String = (0..=255).map(byte_to_char).collect();
    assert_eq!(all.chars().collect::<std::collections::HashSet<_>>().len(), 256);
    assert_eq!(Spelling::ByteLevel.bytes(&all), (0..=255).collect::<Vec<u8>>());
    let check = |spelling: Spelling, entry: &str, expected: &[u8]| {
        assert_eq!(spelling.bytes(entry), expected, "{entry}");
    };
    check(Spelling::ByteLevel, "Ġthe", b" the");
    check(Spelling::ByteLevel, "Ċ", b"\n");
    check(Spelling::ByteLevel, "Ã©", "é".as_bytes());
    check(Spelling::Metaspace, "▁the", b" the");
    check(Spelling::Metaspace, "<0x0A>", b"\n");
    check(Spelling::Metaspace, "<0x+A>", b"<0x+A>");
    check(Spelling::Metaspace, "<0x0A", b"<0x0A");
}
