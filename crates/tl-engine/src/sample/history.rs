//! Which tokens a request has seen, for the penalties.

/// The distinct ids of prompt and output, each with its count in the output.
///
/// Kept sorted by id: a request has few distinct ids, and the order in which the
/// penalties are applied is then the same everywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    seen: Vec<(u32, u32)>,
}

impl History {
    /// A history that holds the prompt and no output. O(n log n) in the prompt.
    pub fn new(prompt: &[u32]) -> Self {
        let mut ids = prompt.to_vec();
        ids.sort_unstable();
        ids.dedup();
        Self { seen: ids.into_iter().map(|id| (id, 0)).collect() }
    }

    /// Adds one token of the output.
    pub fn push(&mut self, id: u32) {
        match self.seen.binary_search_by_key(&id, |&(seen, _)| seen) {
            Ok(at) => self.seen[at].1 = self.seen[at].1.saturating_add(1),
            Err(at) => self.seen.insert(at, (id, 1)),
        }
    }

    /// `(id, times in the output)` of every distinct id, ids ascending. The count of
    /// an id that only the prompt holds is 0.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.seen.iter().copied()
    }
}
