//! Entries of directories, which are the common prefixes of keys.

use std::ops::ControlFlow;

use ftp::incomplete_listing::IncompleteListing;
use proto::listing::{EntryKind, ListedEntry};
use proto::s3::documents::{ListedObject, ListingPage};
use proto::s3::keys;

/// The names of files that a directory may have, too: a bucket has an object `a` and others below `a/` side by side. Keys come
/// in the order of their bytes, so that only names that the present key begins with can recur.
#[derive(Debug, Default)]
struct OpenNames(Vec<Vec<u8>>);

impl OpenNames {
    fn add(&mut self, name: &[u8]) {
        self.leave(name);
        self.0.push(name.to_vec());
    }

    /// Whether a file has had this name.
    fn has(&mut self, name: &[u8]) -> bool {
        self.leave(name);
        self.0.iter().any(|known| known == name)
    }

    fn leave(&mut self, name: &[u8]) {
        while self.0.last().is_some_and(|last| !name.starts_with(last)) {
            self.0.pop();
        }
    }
}

/// The entries of pages, one after the other.
#[derive(Debug, Default)]
pub(super) struct EntryReader {
    prefix: String,
    names: OpenNames,
    /// The directory of the last key, of a listing of a tree.
    directory: Vec<u8>,
    last_key: Vec<u8>,
    /// Something is below the prefix, if only a mark of the directory itself.
    pub(super) is_there: bool,
    unknown: Option<IncompleteListing>,
    /// A file and a directory may have one name.
    shows_same_names: bool,
}

impl EntryReader {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ..Self::default()
        }
    }

    /// The same, which shows a file and a directory of one name, both.
    pub(super) fn with_same_names(self) -> Self {
        Self {
            shows_same_names: true,
            ..self
        }
    }

    /// The entries of a page of one directory.
    pub(super) fn entries(&mut self, page: &ListingPage) -> Vec<ListedEntry> {
        self.is_there |= !page.objects.is_empty() || !page.prefixes.is_empty();
        let objects = page
            .objects
            .iter()
            .map(|object| (&object.key, Some(object)));
        let prefixes = page.prefixes.iter().map(|prefix| (prefix, None));
        let mut keys: Vec<_> = objects.chain(prefixes).collect();
        keys.sort_by_key(|(key, _)| *key);
        let mut entries = Vec::with_capacity(keys.len());
        for (key, object) in keys {
            match (keys::name_below(key, &self.prefix), object) {
                // The mark of the directory itself.
                _ if key == self.prefix.as_bytes() => {}
                (Some(name), Some(object)) if !key.ends_with(b"/") => {
                    self.names.add(name);
                    entries.push(entry_of(object, name));
                }
                (Some(name), _) if !self.shows_same_names && self.names.has(name) => {
                    self.note_same_name(name);
                }
                (Some(name), _) => entries.push(ListedEntry::new(name, EntryKind::Dir)),
                (None, _) => self.note_unknown(key),
            }
        }
        entries
    }

    /// The entries of a page of everything below the prefix, a directory before its content, with paths relative to it.
    pub(super) fn tree_entries(&mut self, page: &ListingPage) -> Vec<ListedEntry> {
        self.is_there |= !page.objects.is_empty();
        let mut entries = Vec::with_capacity(page.objects.len());
        for object in &page.objects {
            let Some(path) = object.key.strip_prefix(self.prefix.as_bytes()) else {
                self.note_unknown(&object.key);
                continue;
            };
            if path.is_empty() {
                continue;
            }
            // Directories are known by their neighbours: in another order, some would be named twice.
            if object.key <= self.last_key {
                self.note_unknown(&object.key);
                continue;
            }
            self.last_key.clone_from(&object.key);
            let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(at) => (&path[..at], &path[at + 1..]),
                None => (&path[..0], path),
            };
            let mut parts = directory.split(|byte| *byte == b'/');
            let is_plain = |part: &[u8]| keys::name_below(part, "").is_some();
            let is_known = (directory.is_empty() || parts.all(is_plain))
                && (name.is_empty() || is_plain(name));
            if !is_known {
                self.note_unknown(&object.key);
                continue;
            }
            if !self.enter(directory, &mut entries) {
                continue;
            }
            if !name.is_empty() {
                self.names.add(path);
                entries.push(entry_of(object, path));
            }
        }
        entries
    }

    /// Adds the directories down to this one that were not named yet. `false`: a file has the name of one of them.
    fn enter(&mut self, directory: &[u8], entries: &mut Vec<ListedEntry>) -> bool {
        let ends = directory
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at)
            .chain((!directory.is_empty()).then_some(directory.len()));
        for end in ends {
            let above = &directory[..end];
            if !self.shows_same_names && self.names.has(above) {
                self.note_same_name(above);
                return false;
            }
            let last = &self.directory;
            let is_open = last.starts_with(above) && matches!(last.get(end), None | Some(b'/'));
            if !is_open {
                entries.push(ListedEntry::new(above, EntryKind::Dir));
                self.directory = above.to_vec();
            }
        }
        self.directory = directory.to_vec();
        true
    }

    fn note_same_name(&mut self, name: &[u8]) {
        let reason = IncompleteListing::SameName(name.to_vec());
        self.unknown.get_or_insert(reason);
    }

    fn note_unknown(&mut self, key: &[u8]) {
        match &mut self.unknown {
            Some(IncompleteListing::NotUnderstood { count, .. }) => *count += 1,
            Some(_) => {}
            None => {
                self.unknown = Some(IncompleteListing::NotUnderstood {
                    count: 1,
                    first: key.to_vec(),
                });
            }
        }
    }

    /// Why the entries are not all, when every page was read.
    pub(super) fn finish(self) -> Option<IncompleteListing> {
        self.unknown
    }
}

fn entry_of(object: &ListedObject, name: &[u8]) -> ListedEntry {
    ListedEntry {
        size: object.size,
        modified: object.modified,
        version: object.etag.clone(),
        is_archived: object.is_archived(),
        ..ListedEntry::new(name, EntryKind::File)
    }
}

/// Whether a visitor wants more.
pub(super) fn visit_all<T>(
    entries: impl IntoIterator<Item = T>,
    visit: &mut (dyn FnMut(T) -> ControlFlow<()> + Send + '_),
) -> bool {
    entries.into_iter().try_for_each(visit).is_continue()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(objects: &[&str], prefixes: &[&str]) -> ListingPage {
        let object = |key: &&str| ListedObject {
            key: key.as_bytes().to_vec(),
            size: Some(1),
            ..ListedObject::default()
        };
        ListingPage {
            objects: objects.iter().map(object).collect(),
            prefixes: prefixes.iter().map(|key| key.as_bytes().to_vec()).collect(),
            next: None,
        }
    }

    fn shown(entries: &[ListedEntry]) -> Vec<String> {
        let show = |entry: &ListedEntry| {
            let slash = if entry.kind == EntryKind::Dir {
                "/"
            } else {
                ""
            };
            format!("{}{slash}", String::from_utf8_lossy(&entry.name))
        };
        entries.iter().map(show).collect()
    }

    #[test]
    fn a_directory_has_objects_and_common_prefixes() {
        let mut reader = EntryReader::new("d/");
        let entries = reader.entries(&page(&["d/", "d/a", "d/b c"], &["d/e/"]));
        assert_eq!(shown(&entries), ["a", "b c", "e/"]);
        assert!(reader.is_there);
        assert_eq!(reader.finish(), None);
        let mut empty = EntryReader::new("d/");
        assert!(empty.entries(&page(&[], &[])).is_empty() && !empty.is_there);
    }

    #[test]
    fn an_object_and_a_prefix_of_one_name_are_no_complete_listing() {
        let mut reader = EntryReader::new("");
        let first = reader.entries(&page(&["a", "a-b"], &[]));
        let second = reader.entries(&page(&["b"], &["a/"]));
        assert_eq!(
            (shown(&first), shown(&second)),
            (vec!["a".into(), "a-b".into()], vec!["b".into()])
        );
        assert_eq!(
            reader.finish(),
            Some(IncompleteListing::SameName(b"a".to_vec()))
        );
    }

    #[test]
    fn names_that_no_path_can_have_are_no_complete_listing() {
        let mut reader = EntryReader::new("d/");
        reader.entries(&page(&["d/.."], &["d//"]));
        let unknown = IncompleteListing::NotUnderstood {
            count: 2,
            first: b"d/..".to_vec(),
        };
        assert_eq!(reader.finish(), Some(unknown));
    }

    #[test]
    fn a_tree_has_each_directory_once_before_its_content() {
        let mut reader = EntryReader::new("t/");
        let first = page(&["t/", "t/a/b/x", "t/a/b/y", "t/a/c"], &[]);
        let second = page(&["t/a/d/", "t/ab/z", "t/b", "t/e/f/g/"], &[]);
        let mut entries = reader.tree_entries(&first);
        entries.extend(reader.tree_entries(&second));
        assert_eq!(
            shown(&entries),
            [
                "a/", "a/b/", "a/b/x", "a/b/y", "a/c", "a/d/", "ab/", "ab/z", "b", "e/", "e/f/",
                "e/f/g/"
            ]
        );
        assert_eq!(reader.finish(), None);
    }

    #[test]
    fn a_tree_with_one_name_for_a_file_and_a_directory_is_not_complete() {
        let mut reader = EntryReader::new("");
        let entries = reader.tree_entries(&page(&["a", "a.b", "a/x", "c"], &[]));
        assert_eq!(shown(&entries), ["a", "a.b", "c"]);
        assert_eq!(
            reader.finish(),
            Some(IncompleteListing::SameName(b"a".to_vec()))
        );
        for keys in [["b/x", "a/x"], ["a//x", "a/x"]] {
            let mut reader = EntryReader::new("");
            reader.tree_entries(&page(&keys, &[]));
            assert!(reader.finish().is_some(), "{keys:?}");
        }
    }
}
