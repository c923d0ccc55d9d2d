//! The attributes of a file as the program counts them: the system has them in integers of other sizes.

use rustix::fs::{Mode, Stat};

/// Device and inode number.
pub fn inode(stat: &Stat) -> (u64, u64) {
    (u64::from(stat.st_dev.cast_unsigned()), stat.st_ino)
}

/// Kind and permission bits.
pub fn mode(stat: &Stat) -> u32 {
    stat.st_mode.into()
}

/// Number of names.
pub fn link_count(stat: &Stat) -> u64 {
    stat.st_nlink.into()
}

/// Time of the last change of content: seconds since 1970, and nanoseconds.
pub fn modified(stat: &Stat) -> (i64, u64) {
    (
        stat.st_mtime,
        u64::try_from(stat.st_mtime_nsec).unwrap_or(0),
    )
}

/// Time of the last change of content or attributes: seconds since 1970, and nanoseconds.
pub fn changed(stat: &Stat) -> (i64, u64) {
    (
        stat.st_ctime,
        u64::try_from(stat.st_ctime_nsec).unwrap_or(0),
    )
}

/// Permission bits as calls take them.
pub fn permissions(bits: u32) -> Mode {
    Mode::from_raw_mode(u16::try_from(bits & 0o7777).unwrap_or(0))
}

/// Whether a device is that of /dev/null: major 3, minor 2.
pub fn is_null(device: u64) -> bool {
    device == (3 << 24 | 2)
}
