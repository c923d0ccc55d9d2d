//! Changes of attributes of files that are open: the file may have lost its name meanwhile.

use std::os::fd::AsFd;

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;

use super::stat::permissions;
use crate::os::posix::attributes::modified_alone;

/// Sets the permission bits.
///
/// # Errors
/// Those of fchmod(2).
pub fn set_mode(file: impl AsFd, mode: u32) -> Result<(), Errno> {
    rustix::fs::fchmod(file, permissions(mode))
}

/// Sets the modification time, seconds since 1970 and nanoseconds. The access time stays.
///
/// # Errors
/// Those of futimens(2).
pub fn set_modified(file: impl AsFd, seconds: i64, nanoseconds: u64) -> Result<(), Errno> {
    let times = modified_alone(seconds, nanoseconds);
    rustix::fs::futimens(file, &times)
}

/// Sets the user and the group; `None` leaves one as it is.
///
/// # Errors
/// Those of fchown(2).
pub fn set_owner(file: impl AsFd, user: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
    rustix::fs::fchown(file, user, group)
}
