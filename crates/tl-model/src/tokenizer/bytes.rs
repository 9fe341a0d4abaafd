//! The bytes that a vocabulary entry stands for, in the two spellings in use.

/// How a vocabulary writes bytes as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2's: each byte has a printable character of its own (space is `Ġ`).
    ByteLevel,
    /// SentencePiece's: `▁` is a space and `<0x0A>` a byte.
    Metaspace,
}

impl Spelling {
    /// The bytes of one entry.
    pub(super) fn bytes(self, entry: &str) -> Vec<u8> {
        match self {
            Self::ByteLevel => {
                let mut out = Vec::with_capacity(entry.len());
                for c in entry.chars() {
                    match char_to_byte(c) {
                        Some(byte) => out.push(byte),
                        // No entry made by byte-level training holds such a character; a decoder
                        // that meets one keeps it.
                        None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                out
            }
            Self::Metaspace => match hex_byte(entry) {
                Some(byte) => vec![byte],
                None => entry.replace('\u{2581}', " ").into_bytes(),
            },
        }
    }
}

/// The printable character of a byte.
pub(crate) fn byte_to_char(byte: u8) -> char {
    let code = match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        0..=0x20 => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x121 + u32::from(byte - 0x7f),
        0xad => 0x143,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn char_to_byte(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The byte of an entry like `<0x0A>`.
fn hex_byte(entry: &str) -> Option<u8> {
    let hex = entry.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(hex, 16).ok()
}
