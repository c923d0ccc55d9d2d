//! The names that one listing command after the other has shown.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// Most names that are kept, at some 18 bytes each. In a larger directory names that are shown twice are not noticed, and no
/// second command is sent.
const MAX_NAMES: usize = 4_000_000;

/// Hashes of names, by which a name is visited once, and two entries with one name are noticed.
#[derive(Debug, Default)]
pub(super) struct ShownNames {
    /// Its keys are secret, so that no server can choose names of one hash.
    hasher: RandomState,
    /// Names that earlier commands showed.
    earlier: HashSet<u64>,
    /// Names that the present command showed.
    current: HashSet<u64>,
    /// There are more names than are kept.
    is_full: bool,
    new: u64,
    repeated: Option<Vec<u8>>,
}

impl ShownNames {
    /// A further command begins.
    pub(super) fn begin_command(&mut self) {
        self.earlier.extend(self.current.drain());
        self.new = 0;
        self.repeated = None;
    }

    /// Whether a name that the present command shows was not shown before.
    pub(super) fn add(&mut self, name: &[u8]) -> bool {
        self.is_full |= self.current.len() >= MAX_NAMES;
        if self.is_full {
            return true;
        }
        let hash = self.hasher.hash_one(name);
        if !self.current.insert(hash) {
            self.repeated.get_or_insert_with(|| name.to_vec());
            return false;
        }
        let is_new = !self.earlier.contains(&hash);
        self.new += u64::from(is_new);
        is_new
    }

    /// Whether the present command showed all names that earlier ones showed.
    pub(super) fn repeats_all(&self) -> bool {
        self.earlier.is_subset(&self.current)
    }

    /// Whether there are too many names for another command, which shows most of them again.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Number of names that the present command showed and no earlier one.
    pub(super) fn new_ones(&self) -> u64 {
        self.new
    }

    /// The first name that the present command showed twice.
    pub(super) fn take_repeated(&mut self) -> Option<Vec<u8>> {
        self.repeated.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_earlier_commands_are_known_and_repeated_ones_are_noticed() {
        let mut names = ShownNames::default();
        names.begin_command();
        assert!(names.add(b"a") && names.add(b"b"));
        assert_eq!(names.take_repeated(), None);
        names.begin_command();
        assert!(!names.add(b"b") && names.add(b"c") && !names.add(b"c"));
        assert_eq!(names.new_ones(), 1);
        assert!(!names.repeats_all() && !names.add(b"a") && names.repeats_all());
        assert_eq!(names.take_repeated().as_deref(), Some(&b"c"[..]));
    }
}
