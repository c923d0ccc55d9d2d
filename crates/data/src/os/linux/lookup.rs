//! Names in directories that are open.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

pub(crate) use rustix::fs::{ResolveFlags, openat2};

/// Opens what names a file, and does not open it: rights to the file itself are not needed (O_PATH).
pub const LOCATE: OFlags = OFlags::PATH;

/// The same for a symbolic link itself, which [`LOCATE`] alone may follow.
pub const LOCATE_LINK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// Removes the name of anything but a directory, which is EISDIR.
///
/// # Errors
/// Those of unlinkat(2).
pub fn unlink(directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    rustix::fs::unlinkat(directory, name, AtFlags::empty())
}
