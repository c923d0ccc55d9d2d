//! Local files and pipes as the origin of a pull.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use tune::Evidence;

use super::{RangeOrigin, RangeReader};
use crate::error::DataError;
use crate::job::{TransferControl, TransferReport};
use crate::os::sharing::{self, is_unsupported};
use crate::store::holes::hole_of_source;
use crate::store::{Sink, Source};

/// A [`Source`] that several threads can read.
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

/// Reads one range of a source.
struct FileRangeReader<'s> {
    source: &'s dyn Source,
    at: u64,
    end: Option<u64>,
}

impl FileRangeReader<'_> {
    /// The part of `len` bytes that lies before the end of the range.
    fn max_len(&self, len: usize) -> usize {
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
        let max_len = self.max_len(buf.len());
        let n = self.source.read_at(self.at, &mut buf[..max_len])?;
        self.at += n as u64;
        Ok(n)
    }

    fn hole(&self, most: u64) -> u64 {
        let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.at));
        hole_of_source(self.source, self.at, left.min(most))
    }

    fn pass_hole(&mut self, len: u64) {
        self.at += len;
    }

    /// [`sharing::copy_range`]: the bytes stay within the file system if it supports that, and never
    /// pass through this process.
    fn copy_to_file(
        &mut self,
        to: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Option<io::Result<usize>> {
        let from = self.source.fd()?;
        let max_len = self.max_len(len);
        match sharing::copy_range(from, self.at, to, offset, max_len) {
            // Some file systems return 0 for files from which they cannot copy (procfs).
            Ok(0) if max_len > 0 => None,
            Ok(n) => {
                // The offset advances only on success, so a fallback reads the same bytes again.
                self.at += n as u64;
                Some(Ok(n))
            }
            Err(e) if is_unsupported(e) => None,
            Err(e) => Some(Err(e.into())),
        }
    }
}

/// Makes `to`, of `length` bytes, share the blocks of `from` without moving data, if the file
/// system supports it ([`sharing::share_blocks`]). Returns `Ok(None)`, with nothing
/// changed, if it does not, or if `from` has another length.
///
/// # Errors
/// [`DataError::Write`] for an error of the disk.
pub fn clone_file(
    from: &dyn Source,
    to: &dyn Sink,
    length: u64,
    control: &TransferControl,
) -> Result<Option<TransferReport>, DataError> {
    let (Some(source), Some(sink)) = (from.fd(), to.clone_target()) else {
        return Ok(None);
    };
    let started = Instant::now();
    // The call clones the whole source, so its length must be the expected one.
    if !to.is_seekable() || length == 0 || !from.len().is_ok_and(|len| len == Some(length)) {
        return Ok(None);
    }
    let written = |e| DataError::write(to, e);
    // Prepares the sink before the kernel writes into it.
    to.begin(length).map_err(written)?;
    match sharing::share_blocks(source, sink) {
        Ok(()) => {}
        Err(e) if is_unsupported(e) => return Ok(None),
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
            elapsed: started.elapsed(),
            ..Evidence::default()
        },
        ..TransferReport::default()
    }))
}
