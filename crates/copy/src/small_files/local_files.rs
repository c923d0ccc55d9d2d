//! The files of a bundle on this machine.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::os::attributes;
use data::os::lookup::LOCATE_LINK;
use data::store::bundle::{BundleTarget, OpenDirectories};
use data::store::naming::{FileNode, NamingError};
use proto::bundle::partial_name;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use crate::local::local_name::directory_of;
use crate::local::local_trees::LocalTrees;
use crate::local::partial::permissions_over;
use crate::local::replacement::random_token;
use ftp::location::Location;

/// Local files by their position in a bundle.
#[derive(Clone)]
pub(crate) struct LocalBundle {
    paths: Arc<[PathBuf]>,
    trees: Arc<LocalTrees>,
    directories: Arc<OpenDirectories>,
    token: u64,
    /// Permissions that the files keep.
    modes: Arc<[Option<u32>]>,
}

impl LocalBundle {
    /// The files at these local locations, which are reached through `trees`.
    pub(crate) fn new<'l>(
        trees: &Arc<LocalTrees>,
        locations: impl Iterator<Item = &'l Location>,
    ) -> Self {
        let path = |location: &Location| match location {
            Location::Local(path) => path.clone(),
            // `arrange` makes no such bundle. An empty path leads nowhere.
            Location::StandardStreams | Location::Remote { .. } => PathBuf::new(),
        };
        Self {
            paths: locations.map(path).collect(),
            trees: Arc::clone(trees),
            directories: Arc::default(),
            token: random_token(),
            modes: Arc::default(),
        }
    }

    /// Part of the names of unfinished files.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Files that get these permissions with their names; `None`: see [`permissions_over`].
    pub(crate) fn with_modes(self, modes: Vec<Option<u32>>) -> Self {
        Self {
            modes: modes.into(),
            ..self
        }
    }

    /// Opens a source to read it. The open of a pipe that has taken the file's place does not wait for a writer.
    pub(crate) fn open_source(&self, index: usize) -> io::Result<File> {
        let (directory, name) = self.place(index)?;
        let link = match self.trees.follows(&self.paths[index]) {
            true => OFlags::empty(),
            false => OFlags::NOFOLLOW,
        };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | link;
        let opened = rustix::fs::openat(directory, name, flags, Mode::empty());
        Ok(opened.map(File::from)?)
    }

    /// The directory of a file, and its name there.
    fn place(&self, index: usize) -> io::Result<(Arc<OwnedFd>, &OsStr)> {
        let path: &Path = &self.paths[index];
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = directory_of(path).as_os_str().as_bytes();
        let directory = self.directories.get(parent, || self.trees.parent(path))?;
        Ok((directory, name))
    }

    fn partial(&self, index: usize) -> Vec<u8> {
        partial_name(self.token, index)
    }

    fn open_partial(&self, index: usize, flags: OFlags) -> io::Result<File> {
        let (directory, _) = self.place(index)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
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

    fn put_in_place(&self, index: usize, created: FileNode) -> io::Result<()> {
        let (directory, name) = self.place(index)?;
        let there = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let kind = there.map(|there| FileType::from_raw_mode(there.st_mode));
        let replaced = match kind {
            None => None,
            Some(FileType::RegularFile) => there.as_ref(),
            Some(FileType::Symlink) if !self.trees.follows(&self.paths[index]) => None,
            // A copy of this file alone follows the link, or tells what is there.
            Some(_) => return Err(io::Error::other("the destination is no regular file")),
        };
        let partial = self.partial(index);
        let kept = self.modes.get(index).copied().flatten();
        let permissions = permissions_over(kept, created.owner(), replaced);
        let flags = LOCATE_LINK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &*partial, flags, Mode::empty())?;
        if FileNode::of(&file)? != created {
            return Err(NamingError::Replaced.into());
        }
        // Some file systems have no permissions.
        let _ = attributes::set_mode(&file, permissions.mode());
        Ok(created.rename(directory, &partial, name.as_bytes(), true)?)
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
