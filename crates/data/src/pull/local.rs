//! A file of this machine, or a pipe into it, as what bytes are asked of.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

use super::{Origin, Reader};
use crate::store::{Sink, Source};

/// A [`Source`] to be read by several threads.
#[derive(Debug, Clone)]
pub struct Files(pub Arc<dyn Source>);

impl Origin for Files {
    fn name(&self) -> String {
        self.0.name()
    }

    fn reader(&self) -> io::Result<Box<dyn Reader + '_>> {
        Ok(Box::new(At {
            source: &*self.0,
            at: 0,
            end: None,
        }))
    }
}

/// A place in a source.
struct At<'s> {
    source: &'s dyn Source,
    at: u64,
    end: Option<u64>,
}

impl At<'_> {
    /// Of `len` bytes those before the end.
    fn room(&self, len: usize) -> usize {
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.at));
        usize::try_from(left).unwrap_or(usize::MAX).min(len)
    }
}

impl Reader for At<'_> {
    fn ask(&mut self, start: u64, end: Option<u64>) -> io::Result<()> {
        (self.at, self.end) = (start, end);
        Ok(())
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let room = self.room(buf.len());
        let n = self.source.read_at(self.at, &mut buf[..room])?;
        self.at += n as u64;
        Ok(n)
    }

    /// copy_file_range(2): within the file system where it can, and never through this process.
    fn hand_over(
        &mut self,
        to: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Option<io::Result<usize>> {
        let from = self.source.fd()?;
        let (mut at, mut offset, room) = (self.at, offset, self.room(len));
        match copy_file_range(from, Some(&mut at), to, Some(&mut offset), room) {
            // Some file systems say so of files that they cannot copy from (procfs).
            Ok(0) if room > 0 => None,
            Ok(n) => {
                self.at = at;
                Some(Ok(n))
            }
            Err(e) if cannot(e) => None,
            Err(e) => Some(Err(e.into())),
        }
    }
}

/// Whether the file system, or the kernel, has no such call for these two files (copy_file_range(2),
/// ioctl_ficlone(2)).
fn cannot(error: Errno) -> bool {
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

/// Makes the whole of `to` share the blocks of `from`, which takes no time, where the file system can
/// (FICLONE: Btrfs, XFS, bcachefs, OCFS2). `Ok(false)` where it cannot: nothing was changed.
///
/// # Errors
/// Those of the disk.
pub fn clone_whole(from: &dyn Source, to: &dyn Sink) -> io::Result<bool> {
    let (Some(source), Some(sink)) = (from.fd(), to.fd()) else {
        return Ok(false);
    };
    if !to.seekable() {
        return Ok(false);
    }
    match ioctl_ficlone(sink.as_fd(), source.as_fd()) {
        Ok(()) => {
            let len = from.len()?.unwrap_or(0);
            to.spliced(0, len)?;
            Ok(true)
        }
        Err(e) if cannot(e) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
