//! Holes in files: runs of zeros that take no blocks. Those of a source are passed over, those of a file that is written are left.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::RwLock;
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;

use super::Source;
use super::unwritten_pages::punch_hole;

/// File systems allocate blocks of this size or smaller ones.
const PAGE: usize = 4096;
/// Shorter runs of zeros are written: each hole costs system calls, and splits the file on disk.
const MIN_HOLE: usize = 4 * PAGE;

/// Which zeros a file has as holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoleChoice {
    /// Those that are written, in a file that may also share the blocks of its source, with its holes.
    KeepThoseOfSource,
    /// All.
    All,
}

/// Writes bytes, and leaves holes when that is wanted.
#[derive(Debug, Default)]
pub(super) struct HoleWriter {
    /// 0: no holes; otherwise a choice.
    wanted: AtomicU8,
    /// Writers share it. Who extends the file has it alone: it would cut off what others write meanwhile.
    extension: RwLock<()>,
}

impl HoleWriter {
    /// Leaves holes from now on.
    pub(super) fn leave(&self, choice: HoleChoice) {
        let wanted = match choice {
            HoleChoice::KeepThoseOfSource => 1,
            HoleChoice::All => 2,
        };
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether bytes must come by [`HoleWriter::write`], which looks for zeros.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Whether a file that shares the blocks of its source has the holes that are wanted.
    pub(super) fn permits_clone(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) < 2
    }

    /// Writes all of `bytes`. Old bytes in the place of a hole are gone, as if the zeros were written.
    pub(super) fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for run in runs(bytes, offset) {
            let end = at + run.len() as u64;
            if zero_run(run, at) == run.len() {
                self.leave_hole(file, at, end)?;
            } else {
                let _shared = self.extension.read();
                file.write_all_at(run, at)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Leaves a hole, whatever was there before.
    pub(super) fn leave_hole(&self, file: &File, start: u64, end: u64) -> io::Result<()> {
        punch_hole(file, start, end)?;
        self.extend(file, end)
    }

    /// A hole at the end makes no file longer.
    fn extend(&self, file: &File, end: u64) -> io::Result<()> {
        let _alone = self.extension.write();
        match file.metadata()?.len() < end {
            true => file.set_len(end),
            false => Ok(()),
        }
    }
}

/// Whether a file has holes: it takes fewer blocks than its length.
pub fn has_holes(file: BorrowedFd<'_>) -> bool {
    /// Unit of `st_blocks` (stat(2)), bytes.
    const BLOCK: u64 = 512;
    fstat(file).is_ok_and(|stat| {
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(u64::MAX);
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        blocks.saturating_mul(BLOCK) < length
    })
}

/// Shorter holes of a source are read as zeros, bytes: a system call for each would cost more.
const MIN_PASSED: u64 = 64 << 10;

/// Length of the hole of a source that begins at `at`, at most `most`, bytes. 0: data is there, or a short hole, or nobody tells
/// (lseek(2), SEEK_DATA).
pub(crate) fn hole_of_source(source: &dyn Source, at: u64, most: u64) -> u64 {
    let Some(file) = source.fd() else {
        return 0;
    };
    let data = match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data,
        // No data follows: the hole ends where the file does.
        Err(Errno::NXIO) => source.len().ok().flatten().unwrap_or(0),
        Err(_) => 0,
    };
    let length = data.saturating_sub(at).min(most);
    if length < MIN_PASSED { 0 } else { length }
}

/// The parts of `bytes`, which belong at `offset`: runs of whole pages of zeros that are long enough for a hole, and what
/// is between them.
fn runs(bytes: &[u8], offset: u64) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    let mut at = offset;
    std::iter::from_fn(move || {
        let length = match zero_run(rest, at) {
            0 => rest.len().min(first_hole(rest, at)),
            zeros => zeros,
        };
        let (run, tail) = rest.split_at(length);
        rest = tail;
        at += length as u64;
        (!run.is_empty()).then_some(run)
    })
}

/// Bytes up to the next hole.
fn first_hole(bytes: &[u8], offset: u64) -> usize {
    let mut start = to_page(offset);
    while start < bytes.len() {
        if zero_run(&bytes[start..], offset + start as u64) > 0 {
            return start;
        }
        start += PAGE;
    }
    bytes.len()
}

/// Bytes of the hole that begins here; 0 if none does.
fn zero_run(bytes: &[u8], offset: u64) -> usize {
    if to_page(offset) != 0 {
        return 0;
    }
    let pages = bytes.chunks_exact(PAGE).take_while(|page| is_zero(page));
    match pages.count() * PAGE {
        zeros if zeros >= MIN_HOLE => zeros,
        _ => 0,
    }
}

/// Bytes to the next page.
fn to_page(offset: u64) -> usize {
    let over = offset % PAGE as u64;
    usize::try_from(over).map_or(0, |over| (PAGE - over) % PAGE)
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; PAGE] = [0; PAGE];
    bytes.chunks(PAGE).all(|page| page == &ZEROS[..page.len()])
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    /// Length of the test files, bytes.
    const LENGTH: usize = 1 << 20;

    fn read(file: &File) -> Vec<u8> {
        let length = file.metadata().unwrap().len();
        let mut bytes = vec![1; usize::try_from(length).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn zeros_become_holes_also_at_the_end_and_over_old_bytes() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[9; LENGTH], 0).unwrap();
        assert!(!has_holes(file.as_fd()));
        let mut bytes = vec![0; 2 * LENGTH];
        bytes[100_000] = 1;
        HoleWriter::default().write(&file, &bytes, 0).unwrap();
        assert!(read(&file) == bytes);
        assert!(has_holes(file.as_fd()));
    }

    #[test]
    fn threads_that_extend_the_file_cut_nothing_off() {
        let file = tempfile::tempfile().unwrap();
        let holes = HoleWriter::default();
        let block = |n: usize| vec![u8::from(n.is_multiple_of(3)); 64 << 10];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (file, holes) = (&file, &holes);
                scope.spawn(move || {
                    for n in (thread..64).step_by(4) {
                        let bytes = block(n);
                        let offset = (n * bytes.len()) as u64;
                        holes.write(file, &bytes, offset).unwrap();
                    }
                });
            }
        });
        let expected: Vec<u8> = (0..64).flat_map(block).collect();
        assert!(read(&file) == expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_file_has_the_bytes_that_were_written(
            writes in proptest::collection::vec((0_u64..200_000, 1_usize..150_000, any::<bool>(), 0_usize..150_000), 1..6)
        ) {
            let (file, plain) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
            let holes = HoleWriter::default();
            for (offset, length, zero, spot) in writes {
                let mut bytes = vec![u8::from(!zero); length];
                bytes[spot % length] = 7;
                holes.write(&file, &bytes, offset).unwrap();
                plain.write_all_at(&bytes, offset).unwrap();
            }
            prop_assert!(read(&file) == read(&plain));
        }
    }
}
