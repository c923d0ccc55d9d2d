//! Files with pages that the disk refused.
//!
//! A page that could not be written back stays in memory, marked clean (fsync(2), "errors"). Until
//! it is evicted, reads return bytes that the disk does not hold, and a checksum of them proves
//! nothing.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use proto::ranges::{ByteRange, RangeSet};
use rustix::io::Errno;

use crate::os::{disk, writeback};

/// Zeros written in one call if the file system cannot punch holes.
const ZERO_CHUNK: usize = 64 << 10;

/// Fails if pages of `file` could not be written back since the file was opened, or earlier without
/// a report. Waits for nothing: later errors are reported to the next sync. After an error the
/// pages are dropped from memory, so that later reads read the disk.
///
/// # Errors
/// The error of the disk: EIO, ENOSPC or EDQUOT. The kernel reports it once per open file.
pub fn check_written_back(file: &File) -> io::Result<()> {
    let checked = writeback::check_writeback_errors(file.as_fd());
    let refused = |error: &io::Error| {
        let number = error.raw_os_error();
        // Other errors concern the call and not the data.
        matches!(number, Some(libc::EIO | libc::ENOSPC | libc::EDQUOT))
    };
    match checked {
        Err(error) if refused(&error) => {
            forget_pages(file);
            Err(error)
        }
        // The file or the system does not support sync_file_range(2).
        _ => Ok(()),
    }
}

/// Removes `unsynced` from the file: truncates its end, if `alone`, and punches holes elsewhere.
/// Continues after an error, and returns the first.
pub(super) fn take_out(file: &File, unsynced: &RangeSet, alone: bool) -> io::Result<()> {
    let mut size = file.metadata()?.len();
    let mut ranges: Vec<ByteRange> = unsynced.iter().filter(|r| r.start < size).collect();
    // From the end, so that truncation shortens the file range by range.
    ranges.reverse();
    let mut result = Ok(());
    for range in ranges {
        if alone && range.end >= size && file.set_len(range.start).is_ok() {
            size = range.start;
            continue;
        }
        // A hole keeps the size of the file, which other writers may rely on.
        let punched = punch_hole(file, range.start, range.end.min(size));
        result = result.and(punched);
    }
    forget_pages(file);
    result
}

/// Makes a hole, without a change of the file's length; where the file system has none, writes zeros.
pub(super) fn punch_hole(file: &File, start: u64, end: u64) -> io::Result<()> {
    match disk::punch_hole(file, start, end) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, start, end),
        done => Ok(done?),
    }
}

fn write_zeros(file: &File, start: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; ZERO_CHUNK];
    let mut at = start;
    while at < end {
        let len = usize::try_from(end - at).map_or(ZERO_CHUNK, |left| left.min(ZERO_CHUNK));
        file.write_all_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

/// Drops clean pages from memory. The kernel keeps those that are mapped.
pub(super) fn forget_pages(file: &File) {
    if let Err(error) = disk::forget_pages(file) {
        tracing::debug!(%error, "cannot drop the pages of the file from memory");
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    fn ranges(text: &str) -> RangeSet {
        RangeSet::parse(text).unwrap()
    }

    fn file_of(len: usize) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![b'x'; len], 0).unwrap();
        file
    }

    /// Ranges of the file that are not zero, and its size.
    fn left(file: &File) -> (String, u64) {
        let size = file.metadata().unwrap().len();
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let mut set = RangeSet::new();
        for (at, _) in (0..).zip(&bytes).filter(|(_, byte)| **byte != 0) {
            set.insert(at, at + 1);
        }
        (set.to_string(), size)
    }

    #[test]
    fn unsynced_ranges_are_truncated_or_become_holes() {
        let file = file_of(30_000);
        take_out(&file, &ranges("5-10,8000-20000,25000-30000"), true).unwrap();
        assert_eq!(left(&file), ("0-5,10-8000,20000-25000".to_owned(), 25_000));
        // Other writers may still extend the file, so its size stays.
        let file = file_of(30_000);
        take_out(&file, &ranges("25000-30000,40000-50000"), false).unwrap();
        assert_eq!(left(&file), ("0-25000".to_owned(), 30_000));
    }

    #[test]
    fn an_end_that_cannot_be_truncated_becomes_a_hole() {
        let sealable = MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("sealed", sealable).unwrap());
        file.write_all_at(&[b'x'; 30_000], 0).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        take_out(&file, &ranges("10000-12000,25000-30000"), true).unwrap();
        assert_eq!(left(&file), ("0-10000,12000-25000".to_owned(), 30_000));
    }

    #[test]
    fn zeros_are_written_over_exactly_the_range() {
        let file = file_of(200_000);
        write_zeros(&file, 10, 190_000).unwrap();
        assert_eq!(left(&file), ("0-10,190000-200000".to_owned(), 200_000));
    }

    #[test]
    fn a_file_without_errors_passes() {
        check_written_back(&file_of(10)).unwrap();
        let (pipe, _end) = rustix::pipe::pipe().unwrap();
        check_written_back(&File::from(pipe)).unwrap();
    }
}
