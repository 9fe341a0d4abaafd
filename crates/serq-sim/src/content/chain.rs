//! Content by name: what a request's tokens are, without the tokens.

/// The first `len` tokens of the content called `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub key: u64,
    pub len: u64,
}

/// A request's content: segments one after the other.
///
/// Token `i` of a segment is the pair of its key and `i`; two chains have the same token at a
/// position if these pairs are equal. So `[a: 12]` and `[a: 8][b: 4]` share eight tokens, and a shared
/// system prompt, a user's turn and an answer are a segment each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    segments: Vec<Segment>,
    len: u64,
}

/// A position between two tokens of a chain. A chain only grows at its end, so a cursor stays good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    segment: usize,
    offset: u64,
}

/// Part of one segment: `len` tokens of `key` from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Piece {
    pub(super) key: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Chain {
    pub fn new(segments: impl IntoIterator<Item = Segment>) -> Self {
        let mut chain = Chain::default();
        for segment in segments {
            chain.push(segment);
        }
        chain
    }

    /// Appends a segment; one of no tokens is none.
    pub fn push(&mut self, segment: Segment) {
        // A length that no clock could reach: the sum stays a number of tokens.
        let len = segment.len.min(u64::MAX - self.len);
        if len > 0 {
            self.segments.push(Segment { len, ..segment });
            self.len += len;
        }
    }

    /// Appends the next `tokens` tokens of `key`: the last segment goes on if it is of that key.
    pub fn extend(&mut self, key: u64, tokens: u64) {
        match self.segments.last_mut() {
            Some(last) if last.key == key => {
                let tokens = tokens.min(u64::MAX - self.len);
                last.len += tokens;
                self.len += tokens;
            }
            _ => self.push(Segment { key, len: tokens }),
        }
    }

    /// Whether it has no end that any clock could reach; nothing can be appended then.
    pub fn is_endless(&self) -> bool {
        self.len == u64::MAX
    }

    /// Becomes a chain of this one segment.
    pub(crate) fn restart(&mut self, segment: Segment) {
        self.clear();
        self.push(segment);
    }

    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.len = 0;
    }

    /// Tokens.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The rest of the segment at `cursor`, at most `most` tokens of it, and the cursor moves past
    /// it. `None` at the end of the chain.
    pub(super) fn piece(&self, cursor: &mut Cursor, most: u32) -> Option<Piece> {
        while let Some(segment) = self.segments.get(cursor.segment) {
            let left = segment.len.saturating_sub(cursor.offset);
            if left > 0 {
                // The minimum fits: `most` does.
                let len = left.min(u64::from(most)) as u32;
                let piece = Piece { key: segment.key, offset: cursor.offset, len };
                cursor.offset += u64::from(len);
                return Some(piece);
            }
            if cursor.segment + 1 == self.segments.len() {
                // Stay here: this segment may yet grow.
                return None;
            }
            *cursor = Cursor { segment: cursor.segment + 1, offset: 0 };
        }
        None
    }
}
