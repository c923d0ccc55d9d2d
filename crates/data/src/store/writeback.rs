//! Write-back that is begun while bytes still arrive, so that the sync at the end finds little to do.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::locked;
use crate::os::writeback;

/// Write-back of so many new bytes is begun at a time.
const STRIDE: u64 = 16 << 20;
/// Most bytes whose write-back was begun and not awaited: the disk may lag behind the network by so
/// much (a quarter of a second at 1 GB/s), and the sync at the end has this much to wait for at most.
const WINDOW: u64 = 256 << 20;

/// Counts what is written to one file by all streams, and paces its write-back.
#[derive(Debug, Default)]
pub(super) struct Writeback {
    state: Mutex<State>,
    /// The file or the system has no sync_file_range(2).
    unavailable: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// First to last byte of what was written since write-back was last begun. One span, whatever the
    /// order in which bytes come: clean pages in between cost nothing.
    span: Option<(u64, u64)>,
    /// Bytes written since then.
    bytes: u64,
    /// Spans whose write-back was begun, oldest first, [`STRIDE`] new bytes each.
    begun: VecDeque<(u64, u64)>,
}

impl State {
    /// Books `len` bytes at `offset`. Returns the span to begin with, and one to wait for.
    fn book(&mut self, offset: u64, len: u64) -> Due {
        let end = offset.saturating_add(len);
        let (first, last) = self.span.unwrap_or((offset, end));
        self.span = Some((first.min(offset), last.max(end)));
        self.bytes = self.bytes.saturating_add(len);
        if self.bytes < STRIDE {
            return Due::default();
        }
        self.bytes = 0;
        let begin = self.span.take();
        self.begun.extend(begin);
        let full = self.begun.len() as u64 > WINDOW / STRIDE;
        let settle = if full { self.begun.pop_front() } else { None };
        Due { begin, settle }
    }
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
struct Due {
    begin: Option<(u64, u64)>,
    settle: Option<(u64, u64)>,
}

impl Writeback {
    /// `len` bytes at `offset` of `file` were written.
    pub(super) fn wrote(&self, file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
        if self.unavailable.load(Ordering::Relaxed) {
            return Ok(());
        }
        let due = locked(&self.state).book(offset, len);
        let length = |(start, end): (u64, u64)| end - start;
        let begun = due
            .begin
            .map_or(Ok(()), |span| writeback::begin(file, span.0, length(span)));
        let settled = begun.and_then(|()| {
            due.settle
                .map_or(Ok(()), |span| writeback::settle(file, span.0, length(span)))
        });
        settled.or_else(|error| self.judge(error))
    }

    /// Only what the disk says is an error of the write.
    fn judge(&self, error: io::Error) -> io::Result<()> {
        match error.raw_os_error() {
            Some(libc::EIO | libc::ENOSPC | libc::EDQUOT) => Err(error),
            _ => {
                tracing::debug!(%error, "no early write-back");
                self.unavailable.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_back_begins_every_stride_and_the_window_bounds_what_is_not_awaited() {
        let mut state = State::default();
        let (mut begun, mut settled) = (0, 0);
        for step in 0..1024_u64 {
            let due = state.book(step << 20, 1 << 20);
            begun += due.begin.map_or(0, |(start, end)| end - start);
            settled += due.settle.map_or(0, |(start, end)| end - start);
            assert!(begun - settled <= WINDOW);
        }
        assert_eq!(begun, 1024 << 20);
        assert_eq!(begun - settled, WINDOW);
    }

    #[test]
    fn bytes_in_any_order_are_one_span() {
        let mut state = State::default();
        assert_eq!(state.book(100 << 20, 8 << 20), Due::default());
        let due = state.book(0, 8 << 20);
        assert_eq!(due.begin, Some((0, 108 << 20)));
        assert_eq!(state.book(u64::MAX, 1), Due::default());
    }

    #[test]
    fn errors_of_the_disk_count_and_a_missing_call_does_not() {
        let writeback = Writeback::default();
        let error = |number| io::Error::from_raw_os_error(number);
        for number in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
            assert!(writeback.judge(error(number)).is_err());
        }
        assert!(writeback.judge(error(libc::ESPIPE)).is_ok());
        assert!(writeback.unavailable.load(Ordering::Relaxed));
    }
}
