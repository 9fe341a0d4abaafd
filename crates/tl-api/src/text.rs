//! From the bytes of tokens to the text a client may see.
//!
//! A token is a run of bytes, not of characters, and a stop string may begin in one token and end
//! three tokens later. Decoding each token by itself would show broken characters; searching the
//! finished text would show the beginning of a stop string before it is known to be one.
//! [`TextStream`] holds back exactly what is not decided yet: the bytes of an incomplete character,
//! and the longest end of the text with which a stop string could begin.
//!
//! The result depends on the bytes alone, never on how they were cut into pushes. One
//! Knuth-Morris-Pratt automaton per stop string makes a push cost time in the bytes pushed, however
//! long the stop strings are and however often they almost match.

#[cfg(test)]
mod tests;

/// What one push let out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Emit {
    /// Text that is certain: whole characters, no part of a stop string.
    pub text: String,
    /// A stop string was completed by this push or an earlier one. Nothing more will come.
    pub stopped: bool,
    /// Where in the whole text, in characters, what was pushed begins: at the character that its
    /// first byte belongs to, which may have begun in an earlier push.
    pub begins: usize,
}

/// Turns token bytes into text, withholding incomplete characters and possible stop strings.
///
/// Invalid UTF-8 becomes U+FFFD as [`String::from_utf8_lossy`] places it, as soon as it is known to
/// be invalid. Of several stop strings the one completed first ends the text, and of those
/// completed by the same byte the longest.
#[derive(Debug, Clone, Default)]
pub struct TextStream {
    stops: Vec<Automaton>,
    /// Bytes of a character that is not complete yet; at most three.
    partial: Vec<u8>,
    /// Decoded text; what lies before `sent` has been let out.
    text: String,
    sent: usize,
    decoded_chars: usize,
    emitted_chars: usize,
    stopped: bool,
}

impl TextStream {
    /// Empty stop strings are ignored: they would end every text before it begins.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>) -> TextStream {
        let stops = stops
            .into_iter()
            .filter(|s| !s.as_ref().is_empty())
            .map(|s| Automaton::new(s.as_ref()))
            .collect();
        TextStream { stops, ..TextStream::default() }
    }

    /// Takes the bytes of one token and lets out what has become certain.
    pub fn push(&mut self, bytes: &[u8]) -> Emit {
        let begun = self.partial.len();
        let mut begins = self.decoded_chars;
        if !self.stopped {
            self.partial.extend_from_slice(bytes);
            if begun > 0 && ends_within(&self.partial, begun) {
                begins += 1;
            }
            self.decode(false);
        }
        Emit { begins, ..self.let_out(false) }
    }

    /// Ends the text: what was held back as a possible stop string comes out, an incomplete
    /// character as U+FFFD.
    pub fn finish(&mut self) -> String {
        if !self.stopped {
            self.decode(true);
        }
        self.let_out(true).text
    }

    /// Whether a stop string has been completed.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Characters let out so far. A token whose text begins before this has been seen by the
    /// client.
    pub fn emitted_chars(&self) -> usize {
        self.emitted_chars
    }

    fn decode(&mut self, last: bool) {
        let bytes = std::mem::take(&mut self.partial);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() && !self.stopped {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    self.append(valid);
                    return;
                }
                Err(e) => {
                    let (valid, tail) = rest.split_at(e.valid_up_to());
                    self.append(
                        std::str::from_utf8(valid).expect("valid up to here, from_utf8 said"),
                    );
                    match e.error_len() {
                        None if !last => {
                            self.partial = tail.to_vec();
                            return;
                        }
                        bad => {
                            self.append("\u{fffd}");
                            rest = &tail[bad.unwrap_or(tail.len())..];
                        }
                    }
                }
            }
        }
    }

    fn append(&mut self, new: &str) {
        if self.stopped {
            return;
        }
        self.decoded_chars += new.chars().count();
        let before = self.text.len();
        self.text.push_str(new);
        if self.stops.is_empty() {
            return;
        }
        for (i, byte) in new.bytes().enumerate() {
            let mut longest = 0;
            for stop in &mut self.stops {
                if stop.feed(byte) {
                    longest = longest.max(stop.pattern.len());
                }
            }
            if longest > 0 {
                self.text.truncate(before + i + 1 - longest);
                self.stopped = true;
                return;
            }
        }
    }

    fn let_out(&mut self, all: bool) -> Emit {
        let held = if all || self.stopped {
            0
        } else {
            self.stops.iter().map(|s| s.matched).max().unwrap_or(0)
        };
        let until = self.text.len() - held;
        let text = self.text[self.sent..until].to_owned();
        self.emitted_chars += text.chars().count();
        self.sent = until;
        // Moving the held text costs its length, so it waits until as much has been let out.
        if self.sent >= held {
            self.text.drain(..self.sent);
            self.sent = 0;
        }
        Emit { text, stopped: self.stopped, begins: 0 }
    }
}

/// Whether the character that `bytes` begin with, known to be incomplete after `begun` bytes, turns
/// out to be invalid there, so that the next byte begins another one.
fn ends_within(bytes: &[u8], begun: usize) -> bool {
    let invalid = std::str::from_utf8(bytes).err().filter(|e| e.valid_up_to() == 0);
    invalid.and_then(|e| e.error_len()).is_some_and(|len| len <= begun)
}

/// Recognises one stop string in a run of bytes, a constant number of steps per byte.
#[derive(Debug, Clone)]
struct Automaton {
    pattern: Box<[u8]>,
    /// `border[i]`: length of the longest proper prefix of `pattern[..=i]` that is also its end.
    border: Box<[u32]>,
    /// How much of the pattern the text ends with; the full length only inside `feed`.
    matched: usize,
}

impl Automaton {
    fn new(stop: &str) -> Automaton {
        let pattern: Box<[u8]> = stop.as_bytes().into();
        let mut border = vec![0_u32; pattern.len()].into_boxed_slice();
        let mut k = 0;
        for i in 1..pattern.len() {
            while k > 0 && pattern[i] != pattern[k] {
                k = border[k - 1] as usize;
            }
            if pattern[i] == pattern[k] {
                k += 1;
            }
            border[i] = k as u32;
        }
        Automaton { pattern, border, matched: 0 }
    }

    /// Whether this byte completes the pattern.
    fn feed(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.pattern[self.matched] != byte {
            self.matched = self.border[self.matched - 1] as usize;
        }
        if self.pattern[self.matched] == byte {
            self.matched += 1;
        }
        if self.matched == self.pattern.len() {
            self.matched = 0;
            return true;
        }
        false
    }
}
