//! Why files fail, apart from their names: many files of a batch fail alike, and are told of together.

use std::collections::HashMap;

/// Most causes of a batch that are told apart.
const MAX_CAUSES: usize = 256;

/// How many files have failed for each cause.
#[derive(Debug, Default)]
pub(crate) struct CauseCounts(HashMap<String, u64>);

impl CauseCounts {
    /// Adds a failed file. A cause is forgotten if there are too many.
    pub(crate) fn add(&mut self, cause: &str) {
        if let Some(files) = self.0.get_mut(cause) {
            *files += 1;
        } else if self.0.len() < MAX_CAUSES {
            self.0.insert(cause.to_owned(), 1);
        }
    }

    /// The cause of most failures, and their number; `None`: no two files failed alike.
    pub(crate) fn most_frequent(&self) -> Option<(String, u64)> {
        let most = self.0.iter().max_by_key(|(cause, files)| (**files, *cause));
        most.filter(|(_, files)| **files > 1)
            .map(|(cause, files)| (cause.clone(), *files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_cause_is_found_and_the_number_of_causes_is_bounded() {
        let mut counts = CauseCounts::default();
        counts.add("once");
        assert_eq!(counts.most_frequent(), None);
        for _ in 0..3 {
            counts.add("often");
        }
        assert_eq!(counts.most_frequent(), Some(("often".to_owned(), 3)));
        for n in 0..2 * MAX_CAUSES {
            counts.add(&n.to_string());
        }
        assert_eq!(counts.0.len(), MAX_CAUSES);
    }
}
