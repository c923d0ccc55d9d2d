//! The difference between two trees.

use std::collections::{HashMap, HashSet};

use crate::answers::SourceFacts;
use crate::tree::DirectoryTree;

/// The files, directories and links that a destination lacks. Paths are relative to the tops.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TreeDifference {
    /// Directories to create, parents first.
    pub(super) missing_directories: Vec<Vec<u8>>,
    /// Files that are missing or have another size, with the facts of the source.
    pub(super) to_copy: Vec<(Vec<u8>, SourceFacts)>,
    /// Files of one size, or of unknown size, at both ends: path, source, destination.
    pub(super) equal_sizes: Vec<(Vec<u8>, SourceFacts, SourceFacts)>,
    /// Links that are missing or lead elsewhere.
    pub(super) links_to_make: Vec<(Vec<u8>, Vec<u8>)>,
}

impl TreeDifference {
    /// The difference of `source` from `destination`, which may not exist.
    pub(super) fn between(source: &DirectoryTree, destination: Option<&DirectoryTree>) -> Self {
        let nothing = DirectoryTree::default();
        let there = destination.unwrap_or(&nothing);
        let directories: HashSet<&[u8]> = there.directories.iter().map(Vec::as_slice).collect();
        let files: HashMap<&[u8], SourceFacts> = there
            .files
            .iter()
            .map(|(path, facts)| (path.as_slice(), *facts))
            .collect();
        let links: HashMap<&[u8], &[u8]> = there
            .links
            .iter()
            .map(|(path, target)| (path.as_slice(), target.as_slice()))
            .collect();
        let mut difference = Self::default();
        for directory in &source.directories {
            if !directories.contains(directory.as_slice()) {
                difference.missing_directories.push(directory.clone());
            }
        }
        for (path, facts) in &source.files {
            match files.get(path.as_slice()) {
                Some(there) if facts.size.is_none() || facts.size == there.size => {
                    let equal = (path.clone(), *facts, *there);
                    difference.equal_sizes.push(equal);
                }
                _ => difference.to_copy.push((path.clone(), *facts)),
            }
        }
        for (path, target) in &source.links {
            if links.get(path.as_slice()) != Some(&target.as_slice()) {
                difference
                    .links_to_make
                    .push((path.clone(), target.clone()));
            }
        }
        difference
    }
}

/// Whether two files of one size are taken for the same. A destination that does not keep times (`keeps_times`) has the
/// time of the copy, which is later.
pub(super) fn is_same_by_time(source: SourceFacts, there: SourceFacts, keeps_times: bool) -> bool {
    match (source.modified, there.modified) {
        (Some(source), Some(there)) if keeps_times => source.0 == there.0,
        (Some(source), Some(there)) => source.0 <= there.0,
        // Only the sizes can be compared.
        _ => source.size.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use proto::timestamp::Timestamp;

    use super::*;

    fn facts(size: u64, time: i64) -> SourceFacts {
        SourceFacts {
            size: Some(size),
            modified: Some(Timestamp(time)),
            ..SourceFacts::default()
        }
    }

    fn tree(directories: &[&str], files: &[(&str, u64)]) -> DirectoryTree {
        DirectoryTree {
            directories: directories.iter().map(|d| d.as_bytes().to_vec()).collect(),
            files: files
                .iter()
                .map(|(path, size)| (path.as_bytes().to_vec(), facts(*size, 0)))
                .collect(),
            ..DirectoryTree::default()
        }
    }

    #[test]
    fn what_is_missing_or_of_another_size_is_copied() {
        let source = tree(&["d", "e"], &[("a", 1), ("d/b", 2), ("e/c", 3)]);
        let there = tree(&["d"], &[("a", 1), ("d/b", 5), ("x", 1)]);
        let difference = TreeDifference::between(&source, Some(&there));
        assert_eq!(difference.missing_directories, [b"e"]);
        let paths: Vec<&[u8]> = difference.to_copy.iter().map(|(p, _)| &p[..]).collect();
        assert_eq!(paths, [&b"d/b"[..], b"e/c"]);
        assert_eq!(difference.equal_sizes.len(), 1);
        let all = TreeDifference::between(&source, None);
        assert_eq!((all.to_copy.len(), all.missing_directories.len()), (3, 2));
    }

    #[test]
    fn links_that_lead_elsewhere_are_made_again() {
        let link = |target: &str| DirectoryTree {
            links: vec![(b"l".to_vec(), target.as_bytes().to_vec())],
            ..DirectoryTree::default()
        };
        let same = TreeDifference::between(&link("a"), Some(&link("a")));
        assert!(same.links_to_make.is_empty());
        let other = TreeDifference::between(&link("a"), Some(&link("b")));
        assert_eq!(other.links_to_make.len(), 1);
    }

    #[test]
    fn files_of_one_size_are_compared_by_time() {
        for (source, there, keeps_times, same) in [
            (100, 100, true, true),
            (100, 101, true, false),
            (100, 99, true, false),
            (100, 500, false, true),
            (100, 99, false, false),
        ] {
            let (source, there) = (facts(1, source), facts(1, there));
            assert_eq!(is_same_by_time(source, there, keeps_times), same);
        }
        let unknown = SourceFacts {
            size: Some(1),
            ..SourceFacts::default()
        };
        assert!(is_same_by_time(unknown, facts(1, 5), true));
        assert!(!is_same_by_time(SourceFacts::default(), facts(1, 5), true));
    }
}
