//! Copies within a file system, whose bytes never pass through this process.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// Copies at most `len` bytes at `from_offset` of one file to `to_offset` of another (copy_file_range(2)). Returns their
/// number.
///
/// # Errors
/// Those of copy_file_range(2): see [`is_unsupported`].
pub fn copy_range(
    from: BorrowedFd<'_>,
    mut from_offset: u64,
    to: BorrowedFd<'_>,
    mut to_offset: u64,
    len: usize,
) -> Result<usize, Errno> {
    let offsets = (Some(&mut from_offset), Some(&mut to_offset));
    rustix::fs::copy_file_range(from, offsets.0, to, offsets.1, len)
}

/// Makes `to` share all blocks of `from` (FICLONE: Btrfs, XFS, bcachefs, OCFS2).
///
/// # Errors
/// Those of ioctl_ficlone(2): see [`is_unsupported`].
pub fn share_blocks(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::ioctl_ficlone(to, from)
}

/// Whether the file system or the kernel does not support the call for these two files
/// (copy_file_range(2), ioctl_ficlone(2)).
pub fn is_unsupported(error: Errno) -> bool {
    matches!(
        error,
        Errno::XDEV
            | Errno::INVAL
            | Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::PERM
            | Errno::BADF
            | Errno::ISDIR
            | Errno::NOTTY
            | Errno::TXTBSY
            | Errno::INTR
    )
}
