//! Moving pages between files, pipes and sockets (splice(2)).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// A pipe that holds so many bytes: the end that is read, and the end that is written.
///
/// # Errors
/// The system grants only a small pipe (fs.pipe-user-pages-soft bounds all pipes of a user).
pub(crate) fn pipe_of(capacity: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    // The default is 64 KiB (pipe(7)): a system call for every 16 pages.
    fcntl_setpipe_size(&write, capacity)?;
    Ok((read, write))
}

/// Moves at most `len` bytes of a file from `offset` into an empty pipe.
///
/// # Errors
/// EINVAL: the file has no pages to move.
pub(crate) fn file_to_pipe(
    file: BorrowedFd<'_>,
    mut offset: u64,
    pipe: BorrowedFd<'_>,
    len: usize,
) -> Result<usize, Errno> {
    rustix::io::retry_on_intr(|| {
        let offset = Some(&mut offset);
        splice(file, offset, pipe, None, len, SpliceFlags::MOVE)
    })
}

/// Moves at most `len` bytes of a pipe that holds them to a file at `offset`. It may be interrupted (EINTR).
///
/// # Errors
/// EINVAL, ESPIPE: the file takes no pages.
pub(crate) fn pipe_to_file(
    pipe: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> Result<usize, Errno> {
    // splice(2) advances the offset that it is given.
    splice(pipe, None, file, Some(&mut offset), len, SpliceFlags::MOVE)
}

/// Moves at most `len` bytes of a pipe that holds them to a socket. With `more`, the kernel may wait for those that follow.
///
/// # Errors
/// `WouldBlock`: none fit now.
pub(crate) fn pipe_to_socket(
    pipe: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    len: usize,
    more: bool,
) -> io::Result<usize> {
    let more = match more {
        true => SpliceFlags::MORE,
        false => SpliceFlags::empty(),
    };
    // SPLICE_F_MOVE is only a hint, and current kernels ignore it (splice(2)).
    let flags = SpliceFlags::MOVE | more;
    Ok(splice(pipe, None, socket, None, len, flags)?)
}

/// Moves at most `len` bytes from a non-blocking socket into an empty pipe. Returns 0 at the peer's FIN.
///
/// # Errors
/// `WouldBlock`: there are none now.
pub(crate) fn socket_to_pipe(
    socket: BorrowedFd<'_>,
    pipe: BorrowedFd<'_>,
    len: usize,
) -> io::Result<usize> {
    // SPLICE_F_NONBLOCK concerns the pipe, which is empty here; the socket is non-blocking
    // anyway.
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(splice(socket, None, pipe, None, len, flags)?)
}
