//! The places of entries in a batch journal: roots (storages), tops, directories.

use super::paths::entry_path;
use crate::plan::batch_journal::{PlaceInRoot, PlanRecord};
use ftp::answers::SourceFacts;
use ftp::location::Location;

/// The storages of a plan. In the journal they are texts without passwords.
#[derive(Debug, Default)]
pub(crate) struct PlanRoots {
    /// With the path `/`.
    known: Vec<(Vec<u8>, Location)>,
    /// Roots in the order of their records.
    recorded: Vec<Vec<u8>>,
}

impl PlanRoots {
    /// The storages of these locations.
    pub(crate) fn of(locations: &[Location]) -> Self {
        let mut roots = Self::default();
        for at in locations {
            roots.learn(at);
        }
        roots
    }

    fn learn(&mut self, at: &Location) {
        let text = root_text(at);
        if !self.known.iter().any(|(known, _)| *known == text) {
            self.known.push((text, at.with_path(b"/".to_vec())));
        }
    }

    /// The location of a root.
    pub(crate) fn location(&self, text: &[u8]) -> Option<Location> {
        let found = self.known.iter().find(|(known, _)| known == text);
        found.map(|(_, location)| location.clone())
    }

    /// The number of a location's root in the current listing, and its text if it is a new one.
    pub(crate) fn number_of(&mut self, at: &Location) -> (u32, Option<Vec<u8>>) {
        let text = root_text(at);
        let found = self.recorded.iter().position(|known| *known == text);
        let number = found.unwrap_or(self.recorded.len());
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        if found.is_some() {
            return (number, None);
        }
        self.learn(at);
        self.recorded.push(text.clone());
        (number, Some(text))
    }
}

/// The storage of a location as text, without a password. The query of a URL belongs to it as a hash: it may be a secret.
pub(crate) fn root_text(at: &Location) -> Vec<u8> {
    let mut text = at.with_path(b"/".to_vec()).identity_key().into_bytes();
    if let Some(query) = at.server().and_then(|server| server.query.as_ref()) {
        text.extend_from_slice(crate::local::partial::name_hash(query.as_bytes()).as_bytes());
    }
    text
}

/// Facts by which an entry is known as the one that was copied.
#[derive(Clone, Copy)]
pub(crate) enum EntryContent<'e> {
    Directory,
    File(SourceFacts),
    /// The content of a symbolic link.
    Link(&'e [u8]),
}

/// A key that two entries share only if they are the same copy of the same source: places, kind and content of a link; size,
/// time, version.
pub(crate) type EntryIdentity = (Vec<u8>, Option<u64>, Option<i64>, Option<u64>);

/// The key of an entry at a path relative to its top. `None`: a file whose time is unknown may be another one each time.
pub(crate) fn entry_identity(
    source: (&[u8], &[u8]),
    destination: (&[u8], &[u8]),
    relative: &[u8],
    content: EntryContent<'_>,
) -> Option<EntryIdentity> {
    let (kind, target, facts) = match content {
        EntryContent::Directory => (b"d", &b""[..], SourceFacts::default()),
        EntryContent::File(facts) if facts.modified.is_none() => return None,
        EntryContent::File(facts) => (b"f", &b""[..], facts),
        EntryContent::Link(target) => (b"l", target, SourceFacts::default()),
    };
    // No path contains NUL.
    let text = [
        source.0,
        source.1,
        destination.0,
        destination.1,
        relative,
        kind,
        target,
    ]
    .join(&0);
    let modified = facts.modified.map(|time| time.0);
    Some((text, facts.size, modified, facts.version))
}

/// Follows the records of a journal, to know where each entry is.
#[derive(Debug, Default)]
pub(crate) struct RecordedPlaces {
    roots: Vec<Vec<u8>>,
    top: Option<(PlaceInRoot, PlaceInRoot)>,
    directory: Vec<u8>,
}

impl RecordedPlaces {
    /// Takes the next record.
    pub(crate) fn follow(&mut self, record: &PlanRecord) {
        match record {
            PlanRecord::Relist => *self = Self::default(),
            PlanRecord::Root(text) => self.roots.push(text.clone()),
            PlanRecord::Top {
                source,
                destination,
            } => {
                self.top = Some((source.clone(), destination.clone()));
                self.directory.clear();
            }
            PlanRecord::Directory(path) | PlanRecord::NewDirectory { path, .. } => {
                self.directory.clone_from(path);
            }
            _ => {}
        }
    }

    /// Both roots and both paths of the top, and the directory below it.
    pub(crate) fn here(&self) -> Option<RecordedPlace<'_>> {
        let (source, destination) = self.top.as_ref()?;
        Some(RecordedPlace {
            source: (self.roots.get(source.root as usize)?, &source.path),
            destination: (
                self.roots.get(destination.root as usize)?,
                &destination.path,
            ),
            directory: &self.directory,
        })
    }

    /// [`entry_identity`] of the entry that was followed last. `None`: it has none, or a later listing adds it anew.
    pub(crate) fn identity(&self, record: &PlanRecord) -> Option<EntryIdentity> {
        let here = self.here()?;
        let (name, content) = match record {
            PlanRecord::File { name, facts } => (&name[..], EntryContent::File(*facts)),
            PlanRecord::Link { name, target } => (&name[..], EntryContent::Link(target)),
            PlanRecord::NewDirectory { .. } => (&b""[..], EntryContent::Directory),
            _ => return None,
        };
        let relative = entry_path(here.directory, name);
        let entry = (relative.as_slice(), content);
        entry_identity(here.source, here.destination, entry.0, entry.1)
    }
}

/// Where an entry is: storages, paths of the top, and the directory below it.
pub(crate) struct RecordedPlace<'r> {
    pub(crate) source: (&'r [u8], &'r [u8]),
    pub(crate) destination: (&'r [u8], &'r [u8]),
    pub(crate) directory: &'r [u8],
}

impl RecordedPlace<'_> {
    /// The source and the destination of the top. `None`: nothing is known of a root.
    pub(crate) fn locate(&self, roots: &PlanRoots) -> Option<(Location, Location)> {
        let at = |(root, path): (&[u8], &[u8])| {
            let root = roots.location(root)?;
            Some(root.with_path(path.to_vec()))
        };
        Some((at(self.source)?, at(self.destination)?))
    }
}
