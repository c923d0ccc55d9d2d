//! Conflicts between the files of a plan: two sources for one destination, a destination that is
//! the partial file or journal of another file, a destination that is also a source.
//!
//! Paths are compared as they are on disk: local directories by their canonical path with links to
//! files followed, remote paths by server, account and path.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::paths::{normalized_components, trim_trailing_slashes};
use super::{CopyPlan, PlannedFile};
use crate::location::{Location, Server};
use crate::partial::companion_names;
use crate::{CopyFailure, Exit};

/// Refuses a plan with a conflict. The message names both files.
pub(crate) fn check_conflicts(plan: &CopyPlan) -> Result<(), CopyFailure> {
    let items = &plan.items;
    let mut path_keys = PathKeyTable::default();
    let mut destinations_written: HashMap<DestinationKey, usize> = HashMap::new();
    for (n, item) in items.iter().enumerate() {
        let Some(key) = path_keys.key_of(&item.destination) else {
            continue;
        };
        if let Some(second) = destinations_written.insert(key, n) {
            return Err(same_destination_failure(&items[second], item));
        }
    }
    for directory in &plan.directories {
        let key = path_keys.key_of(directory);
        if let Some(n) = key.and_then(|key| destinations_written.get(&key)) {
            return Err(directory_and_file_failure(directory, &items[*n]));
        }
    }
    let sources_read = sources_beside_destinations(&mut path_keys, items);
    for (n, item) in items.iter().enumerate() {
        let Some(key) = path_keys.key_of(&item.destination) else {
            continue;
        };
        if let Some(second) = sources_read.get(&key).filter(|second| **second != n) {
            return Err(overwritten_source_failure(item, &items[*second]));
        }
        // Names beside a destination are taken too: its partial file, its journal, and the
        // journal's temporary file.
        for name in companion_names(&key.name) {
            let companion = DestinationKey { name, ..key };
            if let Some(second) = destinations_written.get(&companion) {
                let second = &items[*second];
                let (to, from) = (second.destination.display(), second.source.display());
                return Err(partial_name_taken_failure(
                    item,
                    &format!("{to} (the copy of {from})"),
                ));
            }
            if let Some(second) = sources_read.get(&companion) {
                return Err(partial_name_taken_failure(
                    item,
                    &items[*second].source.display(),
                ));
            }
        }
    }
    Ok(())
}

/// The sources that are on the same machine as their destinations, so that one copy could overwrite
/// another's source.
fn sources_beside_destinations(
    path_keys: &mut PathKeyTable,
    items: &[PlannedFile],
) -> HashMap<DestinationKey, usize> {
    let mut sources_read = HashMap::new();
    for (n, item) in items.iter().enumerate() {
        // Only on the same machine can a copy overwrite another source.
        let same_machine = match (&item.source, &item.destination) {
            (Location::Local(_), Location::Local(_)) => true,
            (Location::Remote { server: a, .. }, Location::Remote { server: b, .. }) => {
                account_key(a) == account_key(b)
            }
            _ => false,
        };
        if same_machine && let Some(key) = path_keys.key_of(&item.source) {
            sources_read.insert(key, n);
        }
    }
    sources_read
}

fn usage_failure(message: String) -> CopyFailure {
    CopyFailure::new(Exit::Usage, message)
}

fn same_destination_failure(first: &PlannedFile, second: &PlannedFile) -> CopyFailure {
    usage_failure(format!(
        "{} and {} would both become {}: copy them to different directories; nothing was copied",
        first.source.display(),
        second.source.display(),
        second.destination.display()
    ))
}

fn directory_and_file_failure(directory: &Location, item: &PlannedFile) -> CopyFailure {
    usage_failure(format!(
        "{} would be both a directory and the copy of {}: copy them to different directories; nothing \
         was copied",
        directory.display(),
        item.source.display()
    ))
}

fn overwritten_source_failure(item: &PlannedFile, second: &PlannedFile) -> CopyFailure {
    usage_failure(format!(
        "the copy of {} would replace {}, which is itself a source: copy them one at a time; \
         nothing was copied",
        item.source.display(),
        second.source.display()
    ))
}

/// `taken` is a name that the copy of `item` needs for its partial file or journal.
fn partial_name_taken_failure(item: &PlannedFile, taken: &str) -> CopyFailure {
    usage_failure(format!(
        "{taken} is the name under which the copy of {} is kept until it is complete: copy them one at a \
         time, or remove it if it is left from an earlier copy; nothing was copied",
        item.source.display()
    ))
}

/// A name in a directory, comparable between files of the plan.
#[derive(Clone, PartialEq, Eq, Hash)]
struct DestinationKey {
    /// Index of the directory in [`PathKeyTable`].
    directory: usize,
    name: Vec<u8>,
}

/// The directories seen so far.
#[derive(Default)]
struct PathKeyTable {
    numbers: HashMap<Vec<u8>, usize>,
    /// Local directories as written, with their canonical paths.
    canonical: HashMap<PathBuf, PathBuf>,
}

impl PathKeyTable {
    /// The key of a location. `None` for pipes and roots, which have no name.
    fn key_of(&mut self, at: &Location) -> Option<DestinationKey> {
        match at {
            Location::StandardStreams => None,
            Location::Local(path) => self.local_key(path),
            Location::Remote { server, path } => {
                let mut parts = normalized_components(trim_trailing_slashes(path));
                let name = parts.pop()?.to_vec();
                let directory = [account_key(server).as_bytes(), &parts.join(&b'/')].concat();
                Some(self.directory_key(directory, name))
            }
        }
    }

    fn local_key(&mut self, path: &Path) -> Option<DestinationKey> {
        let link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
        let target = if link {
            fs::canonicalize(path).ok()
        } else {
            None
        };
        let path = target.as_deref().unwrap_or(path);
        let name = match path.file_name() {
            Some(name) => name.as_bytes().to_vec(),
            // `.` and `..` have a name in their parent directory.
            None => return self.local_key(&fs::canonicalize(path).ok().filter(|p| p != path)?),
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = match self.canonical.get(parent) {
            Some(directory) => directory.clone(),
            None => {
                let directory = canonical(parent);
                self.canonical.insert(parent.to_owned(), directory.clone());
                directory
            }
        };
        Some(self.directory_key(directory.into_os_string().into_encoded_bytes(), name))
    }

    fn directory_key(&mut self, directory: Vec<u8>, name: Vec<u8>) -> DestinationKey {
        let next = self.numbers.len();
        let directory = *self.numbers.entry(directory).or_insert(next);
        DestinationKey { directory, name }
    }
}

/// Canonical path of a directory, part of which may not exist yet.
fn canonical(directory: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut existing = directory;
    loop {
        let candidate = match existing.as_os_str().is_empty() {
            true => Path::new("."),
            false => existing,
        };
        if let Ok(found) = fs::canonicalize(candidate) {
            let names = missing.into_iter().rev();
            return names.fold(found, |path, name| path.join(name));
        }
        if let Some(Component::Normal(name)) = existing.components().next_back() {
            missing.push(name);
        }
        let Some(parent) = existing.parent() else {
            return directory.to_owned();
        };
        existing = parent;
    }
}

/// Key of server and account. NUL separates the parts, because no path contains it.
fn account_key(server: &Server) -> String {
    // Host names are not case-sensitive (RFC 4343).
    let host = server.host.to_ascii_lowercase();
    format!(
        "{host}\0{}\0{}\0",
        server.port,
        server.credential.account_key()
    )
}
