//! The attributes of a file as the program counts them: the system has them in integers of other sizes elsewhere.

use rustix::fs::{Mode, Stat};

/// Device and inode number.
pub fn inode(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Kind and permission bits.
pub fn mode(stat: &Stat) -> u32 {
    stat.st_mode
}

/// Number of names.
pub fn link_count(stat: &Stat) -> u64 {
    #[allow(clippy::useless_conversion, reason = "32 bits on arm64, 64 on x86-64")]
    u64::from(stat.st_nlink)
}

/// Time of the last change of content: seconds since 1970, and nanoseconds.
pub fn modified(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}

/// Time of the last change of content or attributes: seconds since 1970, and nanoseconds.
pub fn changed(stat: &Stat) -> (i64, u64) {
    (stat.st_ctime, stat.st_ctime_nsec)
}

/// Permission bits as calls take them.
pub fn permissions(bits: u32) -> Mode {
    Mode::from_raw_mode(bits & 0o7777)
}

/// Whether a device is that of /dev/null: major 1, minor 3.
pub fn is_null(device: u64) -> bool {
    device == rustix::fs::makedev(1, 3)
}
