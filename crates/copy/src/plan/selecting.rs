//! The part of a tree that the user asked for, decided entry by entry. Directories that would be empty only for that are left
//! out: one is created when its first selected entry appears.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use crate::options::TreeOptions;
use crate::options::selection::{Selection, SelectionVerdict};
use crate::storage::entry_names::{join_path, parents};
use crate::tree::TreeEntry;
use ftp::answers::SourceFacts;
use ftp::session::display_path;
use ftp::{Failure, FailureKind};
use units::show;

/// Decides about the entries of one tree.
#[derive(Debug)]
pub(crate) struct SelectedEntries {
    selection: Selection,
    /// `--files-from`: the listed paths, and whether each was found.
    listed: Option<HashMap<Vec<u8>, bool>>,
    selects_all: bool,
    /// A directory may have more entries than were listed.
    is_incomplete: bool,
    /// Files that may be selected or not: how many, and the first one.
    undecided: Option<(u64, Vec<u8>)>,
    /// Hashes of the directories that were admitted.
    directories: HashSet<u64>,
    /// Facts of other directories, by their hashes.
    others: HashMap<u64, SourceFacts>,
    hasher: RandomState,
}

impl SelectedEntries {
    /// By the options of a copy.
    pub(crate) fn of(options: &TreeOptions) -> Self {
        let listed = options.files_from.as_ref();
        let listed = listed.map(|paths| paths.iter().map(|path| (path.clone(), false)).collect());
        Self {
            selects_all: options.selection.selects_all() && listed.is_none(),
            selection: options.selection.clone(),
            listed,
            is_incomplete: false,
            undecided: None,
            directories: HashSet::new(),
            others: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Whether an entry belongs to the copy. If so, the directories that must be created before it, parents first.
    pub(crate) fn admit(
        &mut self,
        directory: &[u8],
        name: &[u8],
        entry: &TreeEntry,
    ) -> Option<Vec<(Vec<u8>, SourceFacts)>> {
        self.is_incomplete |= matches!(entry, TreeEntry::Unlisted(_));
        if self.selects_all {
            return Some(Vec::new());
        }
        let path = join_path(directory, name);
        let is_wanted = self.is_wanted(&path);
        let verdict = match entry {
            // Its content decides.
            TreeEntry::Directory(facts) => {
                self.others.insert(self.hasher.hash_one(&path), *facts);
                return None;
            }
            TreeEntry::Failed(_) | TreeEntry::Unlisted(_) => return Some(Vec::new()),
            TreeEntry::File(facts) | TreeEntry::LinkedFile(facts, _) => {
                self.selection.judge(&path, *facts)
            }
            TreeEntry::Link(_) | TreeEntry::Skipped(_) => {
                match self.selection.selects_path(&path) {
                    true => SelectionVerdict::Selected,
                    false => SelectionVerdict::LeftOut,
                }
            }
        };
        match verdict {
            _ if !is_wanted => return None,
            SelectionVerdict::Selected => {}
            SelectionVerdict::LeftOut => return None,
            SelectionVerdict::Unknown => {
                let (count, _) = self.undecided.get_or_insert((0, path));
                *count += 1;
                return None;
            }
        }
        if matches!(entry, TreeEntry::Skipped(_)) {
            return Some(Vec::new());
        }
        let mut needed = Vec::new();
        for parent in parents(&path) {
            let hash = self.hasher.hash_one(parent);
            if self.directories.insert(hash) {
                let facts = self.others.remove(&hash).unwrap_or_default();
                needed.push((parent.to_vec(), facts));
            }
        }
        Some(needed)
    }

    /// Whether the exact time of a file matters: for the selection, or, if it is selected, for the copy (`for_copy`).
    pub(crate) fn needs_time(&self, path: &[u8], facts: SourceFacts, for_copy: bool) -> bool {
        let is_listed = self.listed.as_ref().is_none_or(|listed| {
            listed.contains_key(path) || parents(path).any(|parent| listed.contains_key(parent))
        });
        is_listed
            && match self.selection.judge(path, facts) {
                SelectionVerdict::Selected => for_copy,
                SelectionVerdict::LeftOut => false,
                SelectionVerdict::Unknown => true,
            }
    }

    /// The first of the files that may be selected or not, which are left out, with the failure for all of them.
    pub(crate) fn undecided(&self) -> Option<(Vec<u8>, Failure)> {
        let (count, first) = self.undecided.as_ref()?;
        let others = match count {
            1 => String::new(),
            count => format!(" and {}", show::count(count - 1, "other file")),
        };
        let message = format!(
            "{}{others}: left out, because the server does not tell sizes or times as exactly as the selection needs",
            display_path(first)
        );
        Some((first.clone(), Failure::protocol(message)))
    }

    /// Whether `--files-from` lists a path, or a directory above it.
    fn is_wanted(&mut self, path: &[u8]) -> bool {
        let Some(listed) = &mut self.listed else {
            return true;
        };
        if let Some(is_found) = listed.get_mut(path) {
            *is_found = true;
            return true;
        }
        parents(path).any(|parent| listed.contains_key(parent))
    }

    /// Paths of `--files-from` that were not found, in order, each with its failure.
    pub(crate) fn missing(&self) -> Vec<(Vec<u8>, Failure)> {
        let listed = self.listed.iter().flatten();
        let missing = listed.filter(|(_, is_found)| !**is_found);
        let mut missing: Vec<_> = missing.map(|(path, _)| path.clone()).collect();
        missing.sort();
        let (kind, reason) = match self.is_incomplete {
            true => (
                FailureKind::Protocol,
                "not among what could be listed of the source",
            ),
            false => (FailureKind::NotFound, "no such file in the source"),
        };
        let failure = |path: &[u8]| Failure::about(kind, display_path(path), reason);
        let with_failures = missing.into_iter().map(|path| {
            let failure = failure(&path);
            (path, failure)
        });
        with_failures.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_created_when_its_first_selected_entry_appears() {
        let mut options = TreeOptions::default();
        options.selection.include("*.txt").unwrap();
        let mut selected = SelectedEntries::of(&options);
        let file = TreeEntry::File(SourceFacts::default());
        let directory = SourceFacts {
            mode: Some(0o700),
            ..SourceFacts::default()
        };
        let listed = TreeEntry::Directory(directory);
        assert_eq!(selected.admit(b"", b"d", &listed), None);
        assert_eq!(selected.admit(b"d", b"a.bin", &file), None);
        let needed = selected.admit(b"d/e", b"a.txt", &file);
        let unlisted = SourceFacts::default();
        let both = vec![(b"d".to_vec(), directory), (b"d/e".to_vec(), unlisted)];
        assert_eq!(needed, Some(both));
        assert_eq!(selected.admit(b"d", b"b.txt", &file), Some(Vec::new()));
    }

    #[test]
    fn listed_paths_that_do_not_exist_are_missing() {
        let options = TreeOptions {
            files_from: Some(vec![b"a".to_vec(), b"d".to_vec(), b"none".to_vec()]),
            ..TreeOptions::default()
        };
        let mut selected = SelectedEntries::of(&options);
        let file = TreeEntry::File(SourceFacts::default());
        assert_eq!(selected.admit(b"", b"a", &file), Some(Vec::new()));
        assert_eq!(
            selected.admit(b"", b"d", &TreeEntry::Directory(SourceFacts::default())),
            None
        );
        let needed = Some(vec![(b"d".to_vec(), SourceFacts::default())]);
        assert_eq!(selected.admit(b"d", b"x", &file), needed);
        assert_eq!(selected.admit(b"", b"other", &file), None);
        let missing = selected.missing();
        let [(path, failure)] = missing.as_slice() else {
            panic!("{missing:?}");
        };
        assert_eq!(
            (path.as_slice(), failure.kind()),
            (&b"none"[..], FailureKind::NotFound)
        );
        let unlisted = Failure::protocol("not known to be complete");
        selected.admit(b"", b"", &TreeEntry::Unlisted(unlisted));
        assert_eq!(selected.missing()[0].1.kind(), FailureKind::Protocol);
    }
}
