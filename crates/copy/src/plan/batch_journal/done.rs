//! The set of finished entries: one bit each.

/// Entries of a plan that are done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DoneEntries {
    words: Vec<u64>,
}

impl DoneEntries {
    /// Adds an entry.
    pub(crate) fn insert(&mut self, entry: u32) {
        let word = entry as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            *word |= 1 << (entry % 64);
        }
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, entry: u32) {
        if let Some(word) = self.words.get_mut(entry as usize / 64) {
            *word &= !(1 << (entry % 64));
        }
    }

    /// Whether an entry is in the set.
    pub(crate) fn contains(&self, entry: u32) -> bool {
        let word = self.words.get(entry as usize / 64);
        word.is_some_and(|word| word & (1 << (entry % 64)) != 0)
    }
}
