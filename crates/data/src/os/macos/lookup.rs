//! Names in directories that are open.

use std::ops::BitOr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Opens a file to look at it or what is in it. There is no O_PATH: the file must be readable, a directory as well. It is not
/// waited for the other end of a pipe.
pub const LOCATE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The same for a symbolic link itself (O_SYMLINK), which [`LOCATE`] alone may follow.
pub const LOCATE_LINK: OFlags = LOCATE.union(OFlags::SYMLINK);

/// How openat2(2) of Linux follows links: not at all here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResolveFlags;

impl ResolveFlags {
    pub(crate) const BENEATH: Self = Self;
    pub(crate) const IN_ROOT: Self = Self;
    pub(crate) const NO_MAGICLINKS: Self = Self;
    pub(crate) const NO_SYMLINKS: Self = Self;
    pub(crate) const NO_XDEV: Self = Self;

    pub(crate) const fn union(self, _other: Self) -> Self {
        self
    }
}

impl BitOr for ResolveFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// # Errors
/// ENOSYS, as on a Linux before 5.6: trees are entered component by component, and no link is followed.
pub(crate) fn openat2(
    _directory: impl AsFd,
    _path: impl Arg,
    _flags: OFlags,
    _mode: Mode,
    _resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// Removes the name of anything but a directory, which is EISDIR.
///
/// # Errors
/// Those of unlinkat(2).
pub fn unlink(directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let directory = directory.as_fd();
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        // A directory is EPERM here, as is much else.
        Err(Errno::PERM) => {
            let there = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(there.st_mode) {
                FileType::Directory => Err(Errno::ISDIR),
                _ => Err(Errno::PERM),
            }
        }
        result => result,
    }
}
