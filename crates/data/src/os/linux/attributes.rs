//! Changes of attributes of files that are open or located (O_PATH): the file may have lost its name meanwhile.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{AtFlags, CWD, Gid, Uid};
use rustix::io::Errno;

use super::stat::permissions;
use crate::os::posix::attributes::modified_alone;

/// Sets the permission bits.
///
/// # Errors
/// Those of chmod(2). /proc is missing: ENOSYS.
pub fn set_mode(file: impl AsFd, mode: u32) -> Result<(), Errno> {
    // fchmod(2) refuses a descriptor opened with O_PATH.
    let mode = permissions(mode);
    let set = rustix::fs::chmodat(CWD, entry_of(&file), mode, AtFlags::empty());
    named(set)
}

/// Sets the modification time, seconds since 1970 and nanoseconds. The access time stays.
///
/// # Errors
/// Those of utimensat(2). /proc is missing before Linux 5.8: ENOSYS.
pub fn set_modified(file: impl AsFd, seconds: i64, nanoseconds: u64) -> Result<(), Errno> {
    let times = modified_alone(seconds, nanoseconds);
    match rustix::fs::utimensat(&file, c"", &times, AtFlags::EMPTY_PATH) {
        // Linux before 5.8 refuses a descriptor opened with O_PATH.
        Err(Errno::INVAL) => {
            let set = rustix::fs::utimensat(CWD, entry_of(&file), &times, AtFlags::empty());
            named(set)
        }
        set => set,
    }
}

/// Sets the user and the group; `None` leaves one as it is.
///
/// # Errors
/// Those of fchownat(2).
pub fn set_owner(file: impl AsFd, user: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
    rustix::fs::chownat(file, c"", user, group, AtFlags::EMPTY_PATH)
}

/// The entry in /proc that leads to an open file.
fn entry_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// The result of a call with such an entry.
fn named(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        // The file is open, so /proc is missing.
        Err(Errno::NOENT) => Err(Errno::NOSYS),
        result => result,
    }
}
