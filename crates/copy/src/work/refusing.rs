//! Destinations without free space, and directories that cannot be made. A batch does not go on with files for a full disk, or
//! below such a directory: each would fail in the same way, a million times in a large tree.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::plan::trim_trailing_slashes;
use ftp::Failure;
use ftp::location::{Location, StorageId};

/// Files in a row that find no space before no further one is begun. One alone may be too large, or above a limit for one file.
const MAX_IN_A_ROW: u32 = 8;

/// A storage; on this machine, one file system of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StoragePlace {
    storage: StorageId,
    device: Option<u64>,
}

/// Files for which a place had no space.
#[derive(Debug)]
struct NoSpaceFailures {
    in_a_row: u32,
    first: SharedFailure,
}

/// A failure for which others fail, too, or are not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedFailure {
    pub(crate) failure: Failure,
    pub(crate) cause: String,
}

impl SharedFailure {
    fn new(failure: &Failure) -> Self {
        Self {
            failure: failure.clone(),
            cause: failure.cause(),
        }
    }
}

/// The places where files of a batch found no space, and the directories that were not made.
#[derive(Debug, Default)]
pub(crate) struct RefusingDestinations {
    places: Mutex<HashMap<StoragePlace, NoSpaceFailures>>,
    /// Why the first directory was not made for which there was no space.
    no_directory: Mutex<Option<SharedFailure>>,
    /// Directories that cannot be made, by storage and path.
    unmade: Mutex<HashMap<StorageId, HashMap<Vec<u8>, SharedFailure>>>,
    /// There is one: most batches look no further.
    any: AtomicBool,
}

impl RefusingDestinations {
    /// Notes why the file for `destination` failed. Returns the cause: files that find no space at a place share that of the
    /// first, whatever their sizes.
    pub(crate) fn failed(&self, destination: &Location, failure: &Failure) -> String {
        if !failure.kind().is_disk_full() {
            return failure.cause();
        }
        self.any.store(true, Ordering::Relaxed);
        let of_directory = self.no_directory.lock().clone();
        let mut places = self.places.lock();
        let found = places
            .entry(place_of(destination))
            .or_insert_with(|| NoSpaceFailures {
                in_a_row: 0,
                first: of_directory.unwrap_or_else(|| SharedFailure::new(failure)),
            });
        found.in_a_row += 1;
        found.first.cause.clone()
    }

    /// Notes why a directory was not made: nothing below it is begun, unless another try may make it. Returns the cause.
    pub(crate) fn directory_failed(&self, at: &Location, failure: &Failure) -> String {
        let cause = self.cause_of_directory(failure);
        if !failure.may_retry() && !failure.is_lost() {
            self.any.store(true, Ordering::Relaxed);
            let shared = SharedFailure {
                failure: failure.clone(),
                cause: cause.clone(),
            };
            let path = trim_trailing_slashes(at.path()).to_vec();
            let mut unmade = self.unmade.lock();
            let at_storage = unmade.entry(at.storage_id()).or_default();
            at_storage.insert(path, shared);
        }
        cause
    }

    fn cause_of_directory(&self, failure: &Failure) -> String {
        if !failure.kind().is_disk_full() {
            return failure.cause();
        }
        let of_file = self
            .places
            .lock()
            .values()
            .next()
            .map(|files| files.first.clone());
        let mut no_directory = self.no_directory.lock();
        let first = no_directory
            .get_or_insert_with(|| of_file.unwrap_or_else(|| SharedFailure::new(failure)));
        first.cause.clone()
    }

    /// Notes that the file for `destination` is complete: there is some room.
    pub(crate) fn stored(&self, destination: &Location) {
        if self.any.load(Ordering::Relaxed)
            && let Some(found) = self.places.lock().get_mut(&place_of(destination))
            && found.in_a_row < MAX_IN_A_ROW
        {
            found.in_a_row = 0;
        }
    }

    /// Why no file for `destination` is begun any more.
    pub(crate) fn refusal(&self, destination: &Location) -> Option<SharedFailure> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let place = place_of(destination);
        let places = self.places.lock();
        let full = places
            .get(&place)
            .filter(|found| found.in_a_row >= MAX_IN_A_ROW);
        full.map(|found| found.first.clone()).or_else(|| {
            let unmade = self.unmade.lock();
            let at_storage = unmade.get(&destination.storage_id())?;
            let path = destination.path();
            let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
            let mut above = slashes.filter_map(|end| at_storage.get(&path[..end]));
            above.next().cloned()
        })
    }
}

fn place_of(destination: &Location) -> StoragePlace {
    let device = match destination {
        Location::Local(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let known = path.ancestors().find_map(|above| fs::metadata(above).ok());
            known.map(|found| found.dev())
        }
        _ => None,
    };
    StoragePlace {
        storage: destination.storage_id(),
        device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftp::FailureKind;

    fn full() -> Failure {
        Failure::new(FailureKind::LocalDiskFull, "full")
    }

    /// The message of the failure for which a file is not begun.
    fn reason(places: &RefusingDestinations, destination: &Location) -> Option<String> {
        places
            .refusal(destination)
            .map(|shared| shared.failure.to_string())
    }

    #[test]
    fn a_place_is_full_after_some_files_in_a_row() {
        let places = RefusingDestinations::default();
        let here = Location::Local("/tmp/f".into());
        let there = Location::parse("ftp://h/f").unwrap();
        places.failed(&here, &Failure::local("another"));
        for _ in 0..MAX_IN_A_ROW {
            assert_eq!(reason(&places, &here), None);
            places.failed(&here, &full());
        }
        assert_eq!(reason(&places, &here), Some(full().to_string()));
        assert_eq!(reason(&places, &there), None);
    }

    #[test]
    fn files_below_a_directory_that_cannot_be_made_are_not_begun() {
        let places = RefusingDestinations::default();
        let at = |url: &str| Location::parse(url).unwrap();
        let refusal = |url: &str| reason(&places, &at(url));
        let lost = Failure::transient(FailureKind::Unreachable, "gone");
        places.directory_failed(&at("ftp://h/away"), &lost);
        assert_eq!(refusal("ftp://h/away/f"), None, "another try may make it");
        places.directory_failed(&at("ftp://h/d"), &Failure::refused("no"));
        assert_eq!(refusal("ftp://h/d/f"), Some("no".to_owned()));
        assert_eq!(refusal("ftp://h/d/e/f"), Some("no".to_owned()));
        for elsewhere in ["ftp://h/d", "ftp://h/df", "ftp://other/d/f", "/d/f"] {
            assert_eq!(refusal(elsewhere), None, "{elsewhere}");
        }
        places.directory_failed(&at("/no/such/directory"), &full());
        assert_eq!(refusal("/no/such/directory/f"), Some(full().to_string()));
        assert_eq!(refusal("/tmp/f"), None);
    }

    #[test]
    fn files_without_room_at_a_place_share_a_cause_and_those_elsewhere_do_not() {
        let places = RefusingDestinations::default();
        let cause = |at: &str, message: &str| {
            let at = Location::parse(at).unwrap();
            places.failed(&at, &Failure::new(FailureKind::ServerDiskFull, message))
        };
        let first = cause("ftp://h/a", "100 bytes announced for /a, 0 free");
        assert_eq!(
            first,
            cause("ftp://h/b", "200 bytes announced for /b, 0 free")
        );
        assert_ne!(
            first,
            cause("ftp://other/b", "300 bytes announced for /b, 0 free")
        );
    }

    #[test]
    fn a_file_that_is_too_large_for_its_place_does_not_stop_the_others() {
        let places = RefusingDestinations::default();
        let here = Location::Local("/tmp/f".into());
        for _ in 0..MAX_IN_A_ROW {
            places.failed(&here, &full());
            places.stored(&here);
        }
        assert_eq!(reason(&places, &here), None);
    }
}
