//! A file of this machine, or a pipe into it, as what bytes are asked of.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::Errno;
use tune::Evidence;

use super::{RangeOrigin, RangeReader};
use crate::error::DataError;
use crate::job::{TransferControl, TransferReport};
use crate::store::{Sink, Source};

/// A [`Source`] to be read by several threads.
#[derive(Debug, Clone)]
pub struct FileOrigin(pub Arc<dyn Source>);

impl RangeOrigin for FileOrigin {
    fn name(&self) -> String {
        self.0.name()
    }

    fn reader(&self) -> io::Result<Box<dyn RangeReader + '_>> {
        Ok(Box::new(FileRangeReader {
            source: &*self.0,
            at: 0,
            end: None,
        }))
    }
}

/// A place in a source.
struct FileRangeReader<'s> {
    source: &'s dyn Source,
    at: u64,
    end: Option<u64>,
}

impl FileRangeReader<'_> {
    /// Of `len` bytes those before the end.
    fn room(&self, len: usize) -> usize {
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.at));
        usize::try_from(left).unwrap_or(usize::MAX).min(len)
    }
}

impl RangeReader for FileRangeReader<'_> {
    fn request(&mut self, start: u64, end: Option<u64>) -> io::Result<()> {
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
    fn copy_to_file(
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

/// Makes the whole of `to`, of `length` bytes, share the blocks of `from`, which takes no time, where the
/// file system can (FICLONE: Btrfs, XFS, bcachefs, OCFS2). `Ok(None)` where it cannot, or where `from`
/// has another length: nothing was changed then.
///
/// # Errors
/// [`DataError::Write`] for what the disk says.
pub fn clone_file(
    from: &dyn Source,
    to: &dyn Sink,
    length: u64,
    control: &TransferControl,
) -> Result<Option<TransferReport>, DataError> {
    let (Some(source), Some(sink)) = (from.fd(), to.fd()) else {
        return Ok(None);
    };
    let begun = Instant::now();
    if !to.is_seekable() || length == 0 || !from.len().is_ok_and(|len| len == Some(length)) {
        return Ok(None);
    }
    let written = |e| DataError::write(to, e);
    to.begin().map_err(written)?;
    match ioctl_ficlone(sink, source) {
        Ok(()) => {}
        Err(e) if cannot(e) => return Ok(None),
        Err(e) => return Err(written(e.into())),
    }
    to.spliced(0, length).map_err(written)?;
    control.add_stored(0, length);
    control.add_bytes(length);
    Ok(Some(TransferReport {
        stored: control.stored(),
        shares_blocks: true,
        evidence: Evidence {
            bytes: length,
            elapsed: begun.elapsed(),
            ..Evidence::default()
        },
        ..TransferReport::default()
    }))
}
