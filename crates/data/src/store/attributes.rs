//! Changes of attributes of files that are open or located (O_PATH): the file may have lost its name meanwhile.

use std::os::fd::{AsFd, AsRawFd};

use proto::timestamp::Timestamp;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

/// Sets the permission bits.
///
/// # Errors
/// Those of chmod(2). /proc is missing: ENOSYS.
pub fn set_mode(file: impl AsFd, mode: u32) -> Result<(), Errno> {
    // fchmod(2) refuses a descriptor opened with O_PATH.
    let mode = Mode::from_raw_mode(mode & 0o7777);
    let set = rustix::fs::chmodat(CWD, entry_of(&file), mode, AtFlags::empty());
    named(set)
}

/// Sets the modification time. The access time stays.
///
/// # Errors
/// Those of utimensat(2). /proc is missing before Linux 5.8: ENOSYS.
pub fn set_modified(file: impl AsFd, time: Timestamp) -> Result<(), Errno> {
    set_modified_to(file, time.0, 0)
}

/// As [`set_modified`], with the nanoseconds of the second.
pub(super) fn set_modified_to(
    file: impl AsFd,
    seconds: i64,
    nanoseconds: u64,
) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
        },
    };
    match rustix::fs::utimensat(&file, c"", &times, AtFlags::EMPTY_PATH) {
        // Linux before 5.8 refuses a descriptor opened with O_PATH.
        Err(Errno::INVAL) => {
            let set = rustix::fs::utimensat(CWD, entry_of(&file), &times, AtFlags::empty());
            named(set)
        }
        set => set,
    }
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
