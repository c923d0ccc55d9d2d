//! Destinations without room. A batch does not go on with files for a full disk: each would fail in the same way, a million
//! times in a large tree.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::lock;
use crate::CopyFailure;
use crate::local_name::directory_of;
use crate::location::{Location, StorageId};

/// Files in a row that find no room before no further one is begun. One alone may be too large, or above a limit for one file.
const MAX_IN_A_ROW: u32 = 8;

/// A storage; on this machine, one file system of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StoragePlace {
    storage: StorageId,
    device: Option<u64>,
}

/// Files that found no room at a place.
#[derive(Debug)]
struct RoomlessFiles {
    in_a_row: u32,
    first: CopyFailure,
}

/// The places where files of a batch found no room.
#[derive(Debug, Default)]
pub(super) struct FullPlaces {
    places: Mutex<HashMap<StoragePlace, RoomlessFiles>>,
    /// Why the first directory was not made for which there was no room.
    no_directory: Mutex<Option<CopyFailure>>,
    /// There is one: most batches look no further.
    any: AtomicBool,
}

impl FullPlaces {
    /// Notes why the file for `destination` failed. Returns whether the user must be told: the first failure of a place
    /// speaks for the next ones.
    pub(super) fn failed(&self, destination: &Location, failure: &CopyFailure) -> bool {
        if !failure.no_room {
            return true;
        }
        self.any.store(true, Ordering::Relaxed);
        let mut places = lock(&self.places);
        let mut is_first = false;
        let found = places.entry(place_of(destination)).or_insert_with(|| {
            is_first = true;
            RoomlessFiles {
                in_a_row: 0,
                first: failure.clone(),
            }
        });
        found.in_a_row += 1;
        is_first && lock(&self.no_directory).is_none()
    }

    /// Notes why a directory was not made. Returns whether the user must be told.
    pub(super) fn directory_failed(&self, failure: &CopyFailure) -> bool {
        if !failure.no_room {
            return true;
        }
        let is_known = self.any.swap(true, Ordering::Relaxed);
        lock(&self.no_directory).get_or_insert_with(|| failure.clone());
        !is_known
    }

    /// Notes that the file for `destination` is complete: there is some room.
    pub(super) fn stored(&self, destination: &Location) {
        if self.any.load(Ordering::Relaxed)
            && let Some(found) = lock(&self.places).get_mut(&place_of(destination))
            && found.in_a_row < MAX_IN_A_ROW
        {
            found.in_a_row = 0;
        }
    }

    /// Why no file for `destination` is begun any more.
    pub(super) fn refusal(&self, destination: &Location) -> Option<CopyFailure> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let place = place_of(destination);
        let places = lock(&self.places);
        let full = places
            .get(&place)
            .filter(|found| found.in_a_row >= MAX_IN_A_ROW);
        full.map(|found| found.first.clone()).or_else(|| {
            // Only this machine can tell at once.
            let Location::Local(path) = destination else {
                return None;
            };
            let is_missing = !directory_of(path).exists();
            lock(&self.no_directory).clone().filter(|_| is_missing)
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
    use crate::Exit;

    fn full() -> CopyFailure {
        CopyFailure {
            no_room: true,
            ..CopyFailure::new(Exit::Local, "full")
        }
    }

    #[test]
    fn a_place_is_full_after_some_files_in_a_row_and_its_first_failure_is_told() {
        let places = FullPlaces::default();
        let here = Location::Local("/tmp/f".into());
        let there = Location::parse("ftp://h/f").unwrap();
        assert!(places.failed(&here, &CopyFailure::new(Exit::Local, "another")));
        for n in 0..MAX_IN_A_ROW {
            assert_eq!(places.refusal(&here), None);
            assert_eq!(places.failed(&here, &full()), n == 0);
        }
        assert_eq!(places.refusal(&here), Some(full()));
        assert_eq!(places.refusal(&there), None);
        assert!(places.failed(&there, &full()));
    }

    #[test]
    fn a_directory_without_room_is_told_once_and_its_files_are_not_begun() {
        let places = FullPlaces::default();
        let missing = Location::Local("/no/such/directory/f".into());
        assert!(places.directory_failed(&CopyFailure::new(Exit::Local, "another")));
        assert_eq!(places.refusal(&missing), None);
        assert!(places.directory_failed(&full()));
        assert!(!places.directory_failed(&full()));
        assert_eq!(places.refusal(&missing), Some(full()));
        assert_eq!(places.refusal(&Location::Local("/tmp/f".into())), None);
    }

    #[test]
    fn a_file_that_is_too_large_for_its_place_does_not_stop_the_others() {
        let places = FullPlaces::default();
        let here = Location::Local("/tmp/f".into());
        for _ in 0..MAX_IN_A_ROW {
            places.failed(&here, &full());
            places.stored(&here);
        }
        assert_eq!(places.refusal(&here), None);
    }
}
