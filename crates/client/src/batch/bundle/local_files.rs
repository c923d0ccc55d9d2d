//! The files of a bundle on this machine.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::store::bundle::{BundleTarget, OpenDirectories};
use proto::bundle::partial_name;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use crate::location::Location;
use crate::partial::permissions_over;

/// A part of the names of unfinished files that no other copy uses.
pub(super) fn new_token() -> u64 {
    // Not a secret: O_EXCL decides whose name it is.
    RandomState::new().hash_one(std::process::id())
}

/// Local files by their position in a bundle.
#[derive(Clone)]
pub(super) struct LocalBundle {
    paths: Arc<[PathBuf]>,
    directories: Arc<OpenDirectories>,
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
            directories: Arc::default(),
            token: new_token(),
            modes: Arc::default(),
        }
    }

    /// Part of the names of unfinished files.
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Files that get these permissions with their names; `None`: see [`permissions_over`].
    pub(super) fn with_modes(self, modes: Vec<Option<u32>>) -> Self {
        Self {
            modes: modes.into(),
            ..self
        }
    }

    /// Opens a source to read it. The open of a pipe that has taken the file's place does not wait for a writer.
    pub(super) fn open_source(&self, index: usize) -> io::Result<File> {
        let (directory, name) = self.place(index)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty());
        Ok(opened.map(File::from)?)
    }

    /// The directory of a file, and its name there.
    fn place(&self, index: usize) -> io::Result<(Arc<OwnedFd>, &OsStr)> {
        let path: &Path = &self.paths[index];
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(CWD, parent, flags, Mode::empty());
        let directory = self.directories.get(parent.as_os_str().as_bytes(), open)?;
        Ok((directory, name))
    }

    fn partial(&self, index: usize) -> Vec<u8> {
        partial_name(self.token, index)
    }

    fn open_partial(&self, index: usize, flags: OFlags) -> io::Result<File> {
        let (directory, _) = self.place(index)?;
        let flags = flags | OFlags::CLOEXEC;
        // For its owner alone, until it is in place.
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = rustix::fs::openat(directory, self.partial(index), flags, mode);
        Ok(opened.map(File::from)?)
    }
}

impl BundleTarget for LocalBundle {
    fn create(&self, index: usize) -> io::Result<File> {
        self.open_partial(index, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&self, index: usize) -> io::Result<File> {
        self.open_partial(index, OFlags::RDONLY)
    }

    fn put_in_place(&self, index: usize) -> io::Result<()> {
        let (directory, name) = self.place(index)?;
        let there = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        // Links, pipes and devices have rules of their own, which a copy of this file alone follows.
        if there.is_some_and(|there| !FileType::from_raw_mode(there.st_mode).is_file()) {
            return Err(io::Error::other("the destination is no regular file"));
        }
        let partial = self.partial(index);
        let kept = self.modes.get(index).copied().flatten();
        let permissions = permissions_over(kept, there.map(|there| there.st_mode));
        let mode = Mode::from_raw_mode(permissions.mode());
        // Some file systems have no permissions.
        let _ = rustix::fs::chmodat(&directory, partial.as_slice(), mode, AtFlags::empty());
        let renamed = rustix::fs::renameat(&directory, partial.as_slice(), &directory, name);
        Ok(renamed?)
    }

    fn remove(&self, index: usize) {
        let removed = self.place(index).and_then(|(directory, _)| {
            let flags = AtFlags::empty();
            Ok(rustix::fs::unlinkat(directory, self.partial(index), flags)?)
        });
        if let Err(error) = removed {
            tracing::debug!(%error, "a file of a bundle stays");
        }
    }
}
