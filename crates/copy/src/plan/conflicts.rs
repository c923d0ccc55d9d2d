//! Conflicts between the files of a plan: two sources for one destination, a destination that is
//! the partial file or journal of another file, a destination that is also a source.
//!
//! Paths are compared as they are on disk: local directories by their canonical path, with links to
//! files followed where a copy follows them, remote paths by server, account and path.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::copy_plan::CopyPlan;
use super::entries::{PlannedEntry, PlannedFile};
use super::paths::{normalized_components, trim_trailing_slashes};
use super::reader::{NextEntry, PlanReader};
use crate::local::local_trees::LocalTrees;
use crate::local::partial::{companion_names, is_unfinished};
use ftp::Failure;
use ftp::failure::Sentence;
use ftp::location::{Location, Server};

/// Refuses a plan with a conflict. The message names both files. The plan is complete; it is read from its journal several
/// times, and only a hash of each name stands in memory.
/// `trees` says where links are followed.
pub(crate) fn check_conflicts(plan: &CopyPlan, trees: &Arc<LocalTrees>) -> Result<(), Failure> {
    let mut names = PlannedNames::default();
    names.keys.trees = Arc::clone(trees);
    for_each_name(plan, |entry| names.add(entry))?;
    for_each_name(plan, |entry| names.check_against_all(plan, entry))
}

/// A name that a plan writes.
#[derive(Clone, Copy)]
enum PlannedName<'e> {
    Directory(&'e Location),
    File(&'e PlannedFile),
}

/// Calls `visit` with each directory and file of the plan.
fn for_each_name(
    plan: &CopyPlan,
    mut visit: impl FnMut(PlannedName<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // Also those that an earlier run has copied.
    let mut reader = PlanReader::of_all(plan);
    loop {
        let next = reader
            .next(plan)
            .map_err(|error| Failure::local(format!("the batch journal: {error}")))?;
        match next {
            NextEntry::Entry(PlannedEntry::Directory { at, .. }) => {
                visit(PlannedName::Directory(&at))?;
            }
            NextEntry::Entry(PlannedEntry::File(item)) => visit(PlannedName::File(&item))?,
            NextEntry::Entry(PlannedEntry::HardLink(link)) => {
                visit(PlannedName::File(&link.file))?;
            }
            NextEntry::Entry(PlannedEntry::Link(_) | PlannedEntry::Unlisted { .. }) => {}
            NextEntry::Pending | NextEntry::End => return Ok(()),
        }
    }
}

/// Hashes of the names of a plan.
#[derive(Default)]
struct PlannedNames {
    keys: PathKeyTable,
    written: HashSet<u64>,
    /// Of sources that are on the same machine as their destinations, so that one copy could overwrite another's source.
    read: HashSet<u64>,
    /// Entry of the first file whose destination an earlier one has.
    repeated: Option<u32>,
}

impl PlannedNames {
    fn add(&mut self, name: PlannedName<'_>) -> Result<(), Failure> {
        let PlannedName::File(item) = name else {
            return Ok(());
        };
        if let Some(key) = self.keys.key_of(&item.destination)
            && !self.written.insert(self.keys.hash(&key))
        {
            self.repeated.get_or_insert(item.entry);
        }
        if is_one_machine(&item.source, &item.destination)
            && let Some(key) = self.keys.key_of(&item.source)
        {
            self.read.insert(self.keys.hash(&key));
        }
        Ok(())
    }

    /// Looks for a conflict of one name with those of the whole plan.
    fn check_against_all(&mut self, plan: &CopyPlan, name: PlannedName<'_>) -> Result<(), Failure> {
        let item = match name {
            PlannedName::Directory(at) => {
                let Some(key) = self.keys.key_of(at) else {
                    return Ok(());
                };
                return match self.written.contains(&self.keys.hash(&key)) {
                    true => self
                        .find(plan, |keys, other| {
                            keys.key_of(&other.destination) == Some(key.clone())
                        })?
                        .map_or(Ok(()), |other| Err(directory_and_file_failure(at, &other))),
                    false => Ok(()),
                };
            }
            PlannedName::File(item) => item,
        };
        let Some(key) = self.keys.key_of(&item.destination) else {
            return Ok(());
        };
        if self.repeated == Some(item.entry) {
            let same = self.find(plan, |keys, other| {
                other.entry < item.entry && keys.key_of(&other.destination).as_ref() == Some(&key)
            })?;
            if let Some(first) = same {
                return Err(same_destination_failure(&first, item));
            }
        }
        if self.read.contains(&self.keys.hash(&key))
            && let Some(other) = self.find_source(plan, &key, Some(item.entry))?
        {
            return Err(overwritten_source_failure(item, &other));
        }
        // Names beside a destination are taken too: its partial file, its journal, and the
        // journal's temporary file.
        for name in companion_names(&key.name) {
            let companion = DestinationKey {
                name,
                directory: key.directory,
            };
            let hash = self.keys.hash(&companion);
            if self.written.contains(&hash) {
                let other = self.find(plan, |keys, other| {
                    keys.key_of(&other.destination).as_ref() == Some(&companion)
                })?;
                if let Some(other) = other {
                    let (to, from) = (other.destination.display(), other.source.display());
                    let taken = format!("{to} (the copy of {from})");
                    return Err(partial_name_taken_failure(item, &taken));
                }
            }
            if self.read.contains(&hash)
                && let Some(other) = self.find_source(plan, &companion, None)?
            {
                return Err(partial_name_taken_failure(item, &other.source.display()));
            }
        }
        Ok(())
    }

    /// The file, other than `but`, whose source has this name.
    fn find_source(
        &mut self,
        plan: &CopyPlan,
        key: &DestinationKey,
        but: Option<u32>,
    ) -> Result<Option<PlannedFile>, Failure> {
        self.find(plan, |keys, other| {
            Some(other.entry) != but
                && is_one_machine(&other.source, &other.destination)
                && keys.key_of(&other.source).as_ref() == Some(key)
        })
    }

    /// The first file that `wanted` accepts: equal hashes are no proof.
    fn find(
        &mut self,
        plan: &CopyPlan,
        mut wanted: impl FnMut(&mut PathKeyTable, &PlannedFile) -> bool,
    ) -> Result<Option<PlannedFile>, Failure> {
        let mut found = None;
        let keys = &mut self.keys;
        for_each_name(plan, |name| {
            if let PlannedName::File(other) = name
                && found.is_none()
                && wanted(keys, other)
            {
                found = Some(other.clone());
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Whether the source is on the machine of the destination.
fn is_one_machine(source: &Location, destination: &Location) -> bool {
    match (source, destination) {
        (Location::Local(_), Location::Local(_)) => true,
        (Location::Remote { server: a, .. }, Location::Remote { server: b, .. }) => {
            account_key(a) == account_key(b)
        }
        _ => false,
    }
}

/// The names of a copy, while its sources are still listed. Of two files in conflict, the later one is refused.
#[derive(Default)]
pub(crate) struct StreamedNames {
    keys: PathKeyTable,
    written: HashSet<u64>,
    directories: HashSet<u64>,
    /// Of sources that are on the same machine as their destinations.
    read: HashSet<u64>,
}

impl StreamedNames {
    /// No names. `trees` says where links are followed.
    pub(crate) fn of(trees: &Arc<LocalTrees>) -> Self {
        let mut names = Self::default();
        names.keys.trees = Arc::clone(trees);
        names
    }

    /// Adds a directory to create.
    ///
    /// # Errors
    /// `Usage`: an earlier file has its name.
    pub(crate) fn add_directory(&mut self, at: &Location) -> Result<(), Failure> {
        let Some(key) = self.keys.key_of(at) else {
            return Ok(());
        };
        let key = self.keys.hash(&key);
        if self.written.contains(&key) {
            return Err(taken_failure("a directory", at));
        }
        self.directories.insert(key);
        Ok(())
    }

    /// Adds a file.
    ///
    /// # Errors
    /// `Usage`: an earlier file has its destination, or reads it, or writes its source.
    pub(crate) fn add_file(
        &mut self,
        source: &Location,
        destination: &Location,
    ) -> Result<(), Failure> {
        let Some(to) = self.keys.key_of(destination) else {
            return Ok(());
        };
        let shown = source.display();
        // A tree has no such names. Those of other files could be the names of their partial files.
        if is_unfinished(&to.name) {
            let reason = Sentence::about(&shown)
                .words(": a partial file or journal could have the name of ")
                .name(destination.display());
            return Err(Failure::usage(
                reason.words(": copy it alone; it was not copied"),
            ));
        }
        let to = self.keys.hash(&to);
        if self.read.contains(&to) || self.directories.contains(&to) {
            return Err(taken_failure(&shown, destination));
        }
        if is_one_machine(source, destination)
            && let Some(from) = self.keys.key_of(source)
        {
            let is_partial = is_unfinished(&from.name);
            let from = self.keys.hash(&from);
            if is_partial || self.written.contains(&from) {
                return Err(Failure::usage(Sentence::about(&shown).words(
                    " may be replaced by another file of this copy: copy it alone; it was not copied",
                )));
            }
            self.read.insert(from);
        }
        match self.written.insert(to) {
            true => Ok(()),
            false => Err(taken_failure(&shown, destination)),
        }
    }

    /// Adds a symbolic link to create.
    ///
    /// # Errors
    /// `Usage`: an earlier entry has its path, or reads it.
    pub(crate) fn add_link(&mut self, source: &Location, path: &Location) -> Result<(), Failure> {
        let Some(to) = self.keys.key_of_link(path) else {
            return Ok(());
        };
        let to = self.keys.hash(&to);
        let is_taken = self.read.contains(&to) || self.directories.contains(&to);
        match !is_taken && self.written.insert(to) {
            true => Ok(()),
            false => Err(taken_failure(&source.display(), path)),
        }
    }
}

fn taken_failure(source: &str, destination: &Location) -> Failure {
    Failure::usage(
        Sentence::from("an earlier file of this copy has or becomes ")
            .name(destination.display())
            .words(", which ")
            .name(source)
            .words(" would become: it was not copied"),
    )
}

fn same_destination_failure(first: &PlannedFile, second: &PlannedFile) -> Failure {
    Failure::usage(format!(
        "{} and {} would both become {}: copy them to different directories; nothing was copied",
        first.source.display(),
        second.source.display(),
        second.destination.display()
    ))
}

fn directory_and_file_failure(directory: &Location, item: &PlannedFile) -> Failure {
    Failure::usage(format!(
        "{} would be both a directory and the copy of {}: copy them to different directories; nothing \
         was copied",
        directory.display(),
        item.source.display()
    ))
}

fn overwritten_source_failure(item: &PlannedFile, second: &PlannedFile) -> Failure {
    Failure::usage(format!(
        "the copy of {} would replace {}, which is itself a source: copy them one at a time; \
         nothing was copied",
        item.source.display(),
        second.source.display()
    ))
}

/// `taken` is a name that the copy of `item` needs for its partial file or journal.
fn partial_name_taken_failure(item: &PlannedFile, taken: &str) -> Failure {
    Failure::usage(format!(
        "{taken} is the name under which the copy of {} is kept until it is complete: copy them one at a \
         time, or remove it if it is left from an earlier copy; nothing was copied",
        item.source.display()
    ))
}

/// Local directories whose canonical paths are remembered at a time.
const MAX_REMEMBERED: usize = 10_000;

/// A name in a directory, comparable between files of the plan.
#[derive(Clone, PartialEq, Eq, Hash)]
struct DestinationKey {
    /// Hash of the directory.
    directory: u64,
    name: Vec<u8>,
}

/// A local directory as it was when it was first looked at.
#[derive(Clone)]
struct LocalDirectory {
    canonical: PathBuf,
    /// It was missing: what is in it by now is from this copy, which makes links at its end.
    was_missing: bool,
}

/// Makes keys of locations.
#[derive(Default)]
struct PathKeyTable {
    /// Its keys are secret, so that nobody can choose names of one hash.
    hasher: RandomState,
    /// Local directories as written.
    directories: HashMap<PathBuf, LocalDirectory>,
    trees: Arc<LocalTrees>,
}

impl PathKeyTable {
    fn hash(&self, key: &DestinationKey) -> u64 {
        self.hasher.hash_one(key)
    }

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

    /// The key of a link itself: one that is there is replaced, not followed.
    fn key_of_link(&mut self, at: &Location) -> Option<DestinationKey> {
        match at {
            Location::Local(path) => {
                let name = path.file_name()?.as_bytes().to_vec();
                Some(self.key_in_directory(path, name))
            }
            other => self.key_of(other),
        }
    }

    fn local_key(&mut self, path: &Path) -> Option<DestinationKey> {
        if let Some(name) = path.file_name() {
            let directory = self.local_directory(path);
            if directory.was_missing {
                let directory = directory.canonical.clone();
                return Some(self.directory_key(into_bytes(directory), name.as_bytes().to_vec()));
            }
        }
        let is_link = || fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
        let follows = self.trees.follows(path) && is_link();
        let target = follows.then(|| fs::canonicalize(path).ok()).flatten();
        let path = target.as_deref().unwrap_or(path);
        let name = match path.file_name() {
            Some(name) => name.as_bytes().to_vec(),
            // `.` and `..` have a name in their parent directory.
            None => return self.local_key(&fs::canonicalize(path).ok().filter(|p| p != path)?),
        };
        Some(self.key_in_directory(path, name))
    }

    fn key_in_directory(&mut self, path: &Path, name: Vec<u8>) -> DestinationKey {
        let directory = self.local_directory(path).canonical.clone();
        self.directory_key(into_bytes(directory), name)
    }

    /// The directory of `path`.
    fn local_directory(&mut self, path: &Path) -> &LocalDirectory {
        let parent = path.parent().unwrap_or(Path::new(""));
        if !self.directories.contains_key(parent) && self.directories.len() >= MAX_REMEMBERED {
            self.directories.clear();
        }
        self.directories
            .entry(parent.to_owned())
            .or_insert_with(|| canonical(parent))
    }

    fn directory_key(&self, directory: Vec<u8>, name: Vec<u8>) -> DestinationKey {
        DestinationKey {
            directory: self.hasher.hash_one(directory),
            name,
        }
    }
}

fn into_bytes(path: PathBuf) -> Vec<u8> {
    path.into_os_string().into_encoded_bytes()
}

/// A directory, part of which may not exist yet.
fn canonical(directory: &Path) -> LocalDirectory {
    let mut missing = Vec::new();
    let mut existing = directory;
    loop {
        let candidate = match existing.as_os_str().is_empty() {
            true => Path::new("."),
            false => existing,
        };
        if let Ok(found) = fs::canonicalize(candidate) {
            let was_missing = !missing.is_empty();
            let names = missing.into_iter().rev();
            return LocalDirectory {
                canonical: names.fold(found, |path, name| path.join(name)),
                was_missing,
            };
        }
        if let Some(Component::Normal(name)) = existing.components().next_back() {
            missing.push(name);
        }
        let Some(parent) = existing.parent() else {
            return LocalDirectory {
                canonical: directory.to_owned(),
                was_missing: false,
            };
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
