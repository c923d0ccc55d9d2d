//! Forcing files to disk, holes in them, and their pages in memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

/// `FSYNC_VOLUME_FULLSYNC | SYNC_VOLUME_WAIT` of unistd.h: the cache of the disk, too, and not before it is done.
const WHOLE_VOLUME: libc::c_int = 0x01 | 0x02;

unsafe extern "C" {
    /// Of unistd.h, since macOS 10.8; libc has no name for it.
    fn fsync_volume_np(fd: libc::c_int, flags: libc::c_int) -> libc::c_int;
}

/// Forces a file to disk, as [`sync_all`]: there is no less.
///
/// # Errors
/// As there.
pub fn sync_content(file: &File) -> io::Result<()> {
    sync_all(file)
}

/// Forces a file or a directory to disk, with all attributes, and through the cache of the disk (F_FULLFSYNC, fcntl(2)). A
/// file system that has this not, of another machine mostly, does its fsync(2).
///
/// # Errors
/// Those of the disk.
pub fn sync_all(file: &File) -> io::Result<()> {
    // The standard library asks for F_FULLFSYNC.
    match file.sync_all() {
        Err(error) if is_unsupported(&error) => Ok(rustix::fs::fsync(file)?),
        synced => synced,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOTSUP | libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL)
    )
}

/// Forces the file system of a file to disk.
///
/// # Errors
/// Those of the disk.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and no memory is passed.
    match unsafe { fsync_volume_np(file.as_raw_fd(), WHOLE_VOLUME) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Errors
/// ENOSYS: a hole here (F_PUNCHHOLE) must have the borders of blocks, and zeros are written instead.
pub fn punch_hole(_file: &File, _start: u64, _end: u64) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// # Errors
/// ENOSYS: the system keeps the pages of a file as it sees fit.
pub fn forget_pages(_file: &File) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}
