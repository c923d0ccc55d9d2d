//! Forcing files to disk, holes in them, and their pages in memory.

use std::fs::File;
use std::io;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::Errno;

/// Forces the content of a file to disk, and the attributes that are needed to read it (fdatasync(2)).
///
/// # Errors
/// Those of fdatasync(2).
pub fn sync_content(file: &File) -> io::Result<()> {
    file.sync_data()
}

/// Forces a file or a directory to disk, with all attributes (fsync(2)).
///
/// # Errors
/// Those of fsync(2).
pub fn sync_all(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Forces the file system of a file to disk (syncfs(2)).
///
/// # Errors
/// Those of syncfs(2).
pub fn sync_file_system(file: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(file)?)
}

/// Makes a hole, without a change of the file's length.
///
/// # Errors
/// EOPNOTSUPP, ENOSYS: the file system has none.
pub fn punch_hole(file: &File, start: u64, end: u64) -> Result<(), Errno> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, hole, start, end - start)
}

/// Drops clean pages from memory. The kernel keeps those that are mapped.
///
/// # Errors
/// Those of posix_fadvise(2).
pub fn forget_pages(file: &File) -> Result<(), Errno> {
    fadvise(file, 0, None, Advice::DontNeed)
}
