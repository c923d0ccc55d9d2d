//! Names, forced to disk.

use std::fs::File;

use proto::path::VPath;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Root, StoreError};
use crate::store::durability::sync_names;

impl Root {
    /// The directory that holds `path`'s last component, open to be synced. `None` where it may be
    /// written but not read (mode `-wx`): nothing can be synced there.
    ///
    /// # Errors
    /// The directory is gone, or the system refuses.
    pub fn directory_of(&self, path: &VPath) -> Result<Option<File>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match self.resolve(&path.parent(), flags, Mode::empty()) {
            Ok(directory) => Ok(Some(directory.into())),
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(errno) => Err(StoreError::new("open the directory of", path, errno)),
        }
    }

    /// Forces the names in the directory of `path` to disk: that it was made, renamed, or removed.
    ///
    /// # Errors
    /// As [`Root::directory_of`], and what the disk says.
    pub fn sync_name(&self, path: &VPath) -> Result<(), StoreError> {
        let Some(directory) = self.directory_of(path)? else {
            return Ok(());
        };
        sync_names(&directory)
            .map_err(|error| StoreError::from_io("sync the name of", path, &error))
    }
}
