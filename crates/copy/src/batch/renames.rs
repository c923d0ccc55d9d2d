//! Knowledge of a batch about renames at storages: where files cannot get their names when they are complete.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::storage::contract::Storage;
use crate::storage::entry_names::directory_of;
use ftp::Failure;
use ftp::answers::RefusedRenameStep;
use ftp::location::StorageId;

/// A storage, or one directory of it.
type RefusingPlace = (StorageId, Option<Vec<u8>>);

/// The storages of a batch, and directories of them, that were asked, or have shown it.
#[derive(Debug, Default)]
pub(crate) struct KnownRenames {
    /// Directories in which files are renamed, or nothing speaks against it.
    permitted: Mutex<HashSet<(StorageId, Vec<u8>)>>,
    /// Why files in a place are stored under their final names.
    refused: Mutex<HashMap<RefusingPlace, Failure>>,
}

impl KnownRenames {
    /// The storage renames files in the directory of `path`. Other directories may differ.
    pub(crate) fn permitted(&self, id: &StorageId, path: &[u8]) {
        self.permitted
            .lock()
            .insert((id.clone(), directory_of(path).to_vec()));
    }

    /// The storage has no rename.
    pub(crate) fn unsupported(&self, id: &StorageId, reason: &Failure) {
        self.refused
            .lock()
            .insert((id.clone(), None), reason.clone());
    }

    /// The storage permits none in the directory of `path`, or no partial name. Other directories may differ.
    pub(crate) fn refused_beside(&self, id: &StorageId, path: &[u8], reason: &Failure) {
        let place = (id.clone(), Some(directory_of(path).to_vec()));
        self.refused.lock().insert(place, reason.clone());
    }

    /// Why a file in the directory of `path` cannot be renamed, if that is known.
    pub(crate) fn refusal(&self, id: &StorageId, path: &[u8]) -> Option<Failure> {
        let refused = self.refused.lock();
        let everywhere = refused.get(&(id.clone(), None));
        everywhere
            .or_else(|| refused.get(&(id.clone(), Some(directory_of(path).to_vec()))))
            .cloned()
    }

    /// Why files beside `path` could not be renamed; asks the storage if nothing is known of their directory.
    ///
    /// # Errors
    /// The session is lost.
    pub(crate) async fn find_refusal(
        &self,
        id: &StorageId,
        session: &mut dyn Storage,
        path: &[u8],
    ) -> Result<Option<Failure>, Failure> {
        let known = self.refusal(id, path);
        let place = (id.clone(), directory_of(path).to_vec());
        if known.is_some() || self.permitted.lock().contains(&place) {
            return Ok(known);
        }
        let Some(refused) = session.refuses_renames(path).await? else {
            self.permitted(id, path);
            return Ok(None);
        };
        match refused.refused_step {
            RefusedRenameStep::Unsupported => self.unsupported(id, &refused.failure),
            _ => self.refused_beside(id, path, &refused.failure),
        }
        Ok(Some(refused.failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftp::location::Location;

    #[test]
    fn a_refusal_is_about_its_directory_and_a_missing_command_about_the_server() {
        let renames = KnownRenames::default();
        let id = |url| Location::parse(url).unwrap().storage_id();
        let (here, there) = (id("ftp://h/"), id("ftp://other/"));
        let reason = Failure::refused("not here");
        renames.refused_beside(&here, b"/in/f", &reason);
        assert_eq!(renames.refusal(&here, b"/in/g"), Some(reason.clone()));
        assert_eq!(renames.refusal(&here, b"/in/d/g"), None);
        renames.unsupported(&here, &reason);
        assert_eq!(renames.refusal(&here, b"/g"), Some(reason));
        assert_eq!(renames.refusal(&there, b"/in/f"), None);
    }
}
