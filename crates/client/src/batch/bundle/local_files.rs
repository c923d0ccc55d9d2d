//! The files of a bundle on this machine.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::store::bundle::BundleTarget;
use proto::bundle::partial_name;
use rustix::fs::OFlags;

use crate::location::Location;
use crate::partial::final_permissions;

/// A part of the names of unfinished files that no other copy uses.
pub(super) fn new_token() -> u64 {
    // Not a secret: O_EXCL decides whose name it is.
    RandomState::new().hash_one(std::process::id())
}

/// Local files by their position in a bundle.
#[derive(Clone)]
pub(super) struct LocalBundle {
    paths: Arc<[PathBuf]>,
    token: u64,
    /// Permissions that the files keep.
    modes: Arc<[Option<u32>]>,
}

impl LocalBundle {
    /// The files at these local locations.
    pub(super) fn new<'l>(locations: impl Iterator<Item = &'l Location>) -> Self {
        let path = |location: &Location| match location {
            Location::Local(path) => path.clone(),
            // `arrange` makes no such bundle. An empty path leads nowhere.
            Location::StandardStreams | Location::Remote { .. } => PathBuf::new(),
        };
        Self {
            paths: locations.map(path).collect(),
            token: new_token(),
            modes: Arc::default(),
        }
    }

    /// Part of the names of unfinished files.
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Files that get these permissions with their names; `None`: see [`final_permissions`].
    pub(super) fn with_modes(self, modes: Vec<Option<u32>>) -> Self {
        Self {
            modes: modes.into(),
            ..self
        }
    }

    /// Opens a source to read it. The open of a pipe that has taken the file's place does not wait for a writer.
    pub(super) fn open_source(&self, index: usize) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true);
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        options.open(&self.paths[index])
    }

    fn partial(&self, index: usize) -> PathBuf {
        let name = std::ffi::OsString::from_vec(partial_name(self.token, index));
        match self.paths[index].parent() {
            Some(directory) => directory.join(name),
            None => name.into(),
        }
    }
}

impl BundleTarget for LocalBundle {
    fn create(&self, index: usize) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // For its owner alone, until it is in place.
        options.write(true).create_new(true).mode(0o600);
        options.open(self.partial(index))
    }

    fn open(&self, index: usize) -> io::Result<File> {
        File::open(self.partial(index))
    }

    fn put_in_place(&self, index: usize) -> io::Result<()> {
        let path: &Path = &self.paths[index];
        // Links, pipes and devices have rules of their own, which a copy of this file alone follows.
        if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other("the destination is no regular file"));
        }
        let partial = self.partial(index);
        let kept = self.modes.get(index).copied().flatten();
        // Some file systems have no permissions.
        let _ = fs::set_permissions(&partial, final_permissions(kept, path));
        fs::rename(partial, path)
    }

    fn remove(&self, index: usize) {
        if let Err(error) = fs::remove_file(self.partial(index)) {
            tracing::debug!(%error, "a file of a bundle stays");
        }
    }
}
