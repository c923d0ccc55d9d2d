//! Files of a plan that would be in each other's way: two sources for one destination, a destination
//! that is the partial file or journal of another item, a destination that is another item's source.
//!
//! Places are compared as they are on disk: local directories by their canonical path, links to files
//! followed; remote ones by server, account and path.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::paths::{normal, trimmed};
use super::{CopyPlan, PlannedFile};
use crate::location::{Location, Server};
use crate::partial::companion_names;
use crate::{CopyFailure, Exit};

/// Nothing, or which two are in each other's way.
pub(super) fn check(plan: &CopyPlan) -> Result<(), CopyFailure> {
    let items = &plan.items;
    let mut places = PathKeyTable::default();
    let mut written: HashMap<PathKey, usize> = HashMap::new();
    for (n, item) in items.iter().enumerate() {
        let Some(place) = places.of(&item.destination) else {
            continue;
        };
        if let Some(other) = written.insert(place, n) {
            return Err(both_to_one(&items[other], item));
        }
    }
    for directory in &plan.directories {
        let place = places.of(directory);
        if let Some(n) = place.and_then(|place| written.get(&place)) {
            return Err(directory_and_file(directory, &items[*n]));
        }
    }
    let read = sources(&mut places, items);
    for (n, item) in items.iter().enumerate() {
        let Some(place) = places.of(&item.destination) else {
            continue;
        };
        if let Some(other) = read.get(&place).filter(|other| **other != n) {
            return Err(over_a_source(item, &items[*other]));
        }
        for name in companion_names(&place.name) {
            let beside = PathKey { name, ..place };
            if let Some(other) = written.get(&beside) {
                let other = &items[*other];
                let (to, from) = (other.destination.display(), other.source.display());
                return Err(kept_there(item, &format!("{to} (the copy of {from})")));
            }
            if let Some(other) = read.get(&beside) {
                return Err(kept_there(item, &items[*other].source.display()));
            }
        }
    }
    Ok(())
}

/// The sources that are at the same end as their destinations, so that one may be written over.
fn sources(places: &mut PathKeyTable, items: &[PlannedFile]) -> HashMap<PathKey, usize> {
    let mut read = HashMap::new();
    for (n, item) in items.iter().enumerate() {
        let near = match (&item.source, &item.destination) {
            (Location::Local(_), Location::Local(_)) => true,
            (Location::Remote { server: a, .. }, Location::Remote { server: b, .. }) => {
                account(a) == account(b)
            }
            _ => false,
        };
        if near && let Some(place) = places.of(&item.source) {
            read.insert(place, n);
        }
    }
    read
}

fn refuse(message: String) -> CopyFailure {
    CopyFailure::new(Exit::Usage, message)
}

fn both_to_one(one: &PlannedFile, other: &PlannedFile) -> CopyFailure {
    refuse(format!(
        "{} and {} would both become {}: copy them to different directories; nothing was copied",
        one.source.display(),
        other.source.display(),
        other.destination.display()
    ))
}

fn directory_and_file(directory: &Location, item: &PlannedFile) -> CopyFailure {
    refuse(format!(
        "{} would be both a directory and the copy of {}: copy them to different directories; nothing \
         was copied",
        directory.display(),
        item.source.display()
    ))
}

fn over_a_source(item: &PlannedFile, other: &PlannedFile) -> CopyFailure {
    refuse(format!(
        "the copy of {} would replace {}, which is to be copied itself: copy them one at a time; \
         nothing was copied",
        item.source.display(),
        other.source.display()
    ))
}

/// `place` is named by another item.
fn kept_there(item: &PlannedFile, place: &str) -> CopyFailure {
    refuse(format!(
        "{place} is the name under which the copy of {} is kept until it is whole: copy them one at a \
         time, or remove it if it is left of an earlier copy; nothing was copied",
        item.source.display()
    ))
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PathKey {
    /// Number of the directory in [`PathKeyTable`].
    directory: usize,
    name: Vec<u8>,
}

/// The directories that were met.
#[derive(Default)]
struct PathKeyTable {
    numbers: HashMap<Vec<u8>, usize>,
    /// Local directories as written, with what they are.
    canonical: HashMap<PathBuf, PathBuf>,
}

impl PathKeyTable {
    /// `None` for what has no name: pipes, roots.
    fn of(&mut self, at: &Location) -> Option<PathKey> {
        match at {
            Location::StandardStreams => None,
            Location::Local(path) => self.local(path),
            Location::Remote { server, path } => {
                let mut parts = normal(trimmed(path));
                let name = parts.pop()?.to_vec();
                let directory = [account(server).as_bytes(), &parts.join(&b'/')].concat();
                Some(self.place(directory, name))
            }
        }
    }

    fn local(&mut self, path: &Path) -> Option<PathKey> {
        let link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
        let target = if link {
            fs::canonicalize(path).ok()
        } else {
            None
        };
        let path = target.as_deref().unwrap_or(path);
        let name = match path.file_name() {
            Some(name) => name.as_bytes().to_vec(),
            // `.` and `..` have names elsewhere.
            None => return self.local(&fs::canonicalize(path).ok().filter(|p| p != path)?),
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
        Some(self.place(directory.into_os_string().into_encoded_bytes(), name))
    }

    fn place(&mut self, directory: Vec<u8>, name: Vec<u8>) -> PathKey {
        let next = self.numbers.len();
        let directory = *self.numbers.entry(directory).or_insert(next);
        PathKey { directory, name }
    }
}

/// A directory that may not exist yet, as it is or will be.
fn canonical(directory: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut there = directory;
    loop {
        let looked_at = match there.as_os_str().is_empty() {
            true => Path::new("."),
            false => there,
        };
        if let Ok(found) = fs::canonicalize(looked_at) {
            let names = missing.into_iter().rev();
            return names.fold(found, |path, name| path.join(name));
        }
        if let Some(Component::Normal(name)) = there.components().next_back() {
            missing.push(name);
        }
        let Some(parent) = there.parent() else {
            return directory.to_owned();
        };
        there = parent;
    }
}

/// Server and account, with an end that no path has.
fn account(server: &Server) -> String {
    let host = server.host.to_ascii_lowercase();
    format!(
        "{host}\0{}\0{}\0",
        server.port,
        server.credential.account_key()
    )
}
