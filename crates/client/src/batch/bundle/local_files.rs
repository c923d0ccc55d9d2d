//! The files of a bundle on this machine.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data::store::bundle::BundleTarget;
use proto::bundle::partial_name;
use rustix::fs::OFlags;

use crate::location::Location;

/// Local files by their position in a bundle.
pub(super) struct LocalBundle {
    paths: Vec<PathBuf>,
    token: u64,
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
            // Not a secret: O_EXCL decides whose name it is.
            token: RandomState::new().hash_one(std::process::id()),
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
        File::create_new(self.partial(index))
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
        fs::rename(self.partial(index), path)
    }

    fn remove(&self, index: usize) {
        if let Err(error) = fs::remove_file(self.partial(index)) {
            tracing::debug!(%error, "a file of a bundle stays");
        }
    }
}
