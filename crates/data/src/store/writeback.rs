//! Write-back that is begun while bytes still arrive, so that the sync at the end finds little to do.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::locks::lock;
use crate::os::writeback;

/// Write-back of so many new bytes is begun at a time.
const STRIDE: u64 = 16 << 20;
/// Most strides whose write-back was begun and not awaited: the disk may lag behind the network by 256
/// MiB (a quarter of a second at 1 GB/s), and the sync at the end has this much to wait for at most.
const MOST: usize = 16;
/// The least, for a slow disk: enough to keep it busy.
const LEAST: usize = 2;
/// A stride that had to be awaited for so long halves the window: a peer must not take the sync at the
/// end for a stall.
const SLOW: Duration = Duration::from_millis(200);

/// Counts what is written to one file by all streams, and paces its write-back.
#[derive(Debug, Default)]
pub(super) struct WritebackPacer {
    state: Mutex<WritebackState>,
    /// The file or the system has no sync_file_range(2).
    unavailable: AtomicBool,
}

#[derive(Debug)]
struct WritebackState {
    /// First to last byte of what was written since write-back was last begun. One span, whatever the
    /// order in which bytes come: clean pages in between cost nothing.
    span: Option<(u64, u64)>,
    /// Bytes written since then.
    bytes: u64,
    /// Spans whose write-back was begun, oldest first, [`STRIDE`] new bytes each.
    begun: VecDeque<(u64, u64)>,
    /// Most of them that are not awaited, [`LEAST`] to [`MOST`].
    window: usize,
}

impl Default for WritebackState {
    fn default() -> Self {
        Self {
            span: None,
            bytes: 0,
            begun: VecDeque::new(),
            window: MOST,
        }
    }
}

impl WritebackState {
    /// Books `len` bytes at `offset`. Returns the span to begin with, and those to wait for.
    fn book(&mut self, offset: u64, len: u64) -> DueWriteback {
        let end = offset.saturating_add(len);
        let (first, last) = self.span.unwrap_or((offset, end));
        self.span = Some((first.min(offset), last.max(end)));
        self.bytes = self.bytes.saturating_add(len);
        if self.bytes < STRIDE {
            return DueWriteback::default();
        }
        self.bytes = 0;
        let begin = self.span.take();
        self.begun.extend(begin);
        let over = self.begun.len().saturating_sub(self.window);
        let settle = self.begun.drain(..over).collect();
        DueWriteback { begin, settle }
    }

    /// A span was awaited for so long.
    fn waited(&mut self, long: Duration) {
        if long > SLOW {
            self.window = (self.window / 2).max(LEAST);
        }
    }
}

/// The calls that are due now.
#[derive(Debug, Default, PartialEq, Eq)]
struct DueWriteback {
    begin: Option<(u64, u64)>,
    settle: Vec<(u64, u64)>,
}

impl WritebackPacer {
    /// `len` bytes at `offset` of `file` were written.
    pub(super) fn wrote(&self, file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
        if self.unavailable.load(Ordering::Relaxed) {
            return Ok(());
        }
        let due = lock(&self.state).book(offset, len);
        self.carry_out(file, &due)
            .or_else(|error| self.judge(error))
    }

    fn carry_out(&self, file: BorrowedFd<'_>, due: &DueWriteback) -> io::Result<()> {
        if let Some((start, end)) = due.begin {
            writeback::start_writeback(file, start, end - start)?;
        }
        for (start, end) in &due.settle {
            let since = Instant::now();
            writeback::wait_writeback(file, *start, end - start)?;
            lock(&self.state).waited(since.elapsed());
        }
        Ok(())
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
        let mut state = WritebackState::default();
        let (mut begun, mut settled) = (0, 0);
        for step in 0..1024_u64 {
            let due = state.book(step << 20, 1 << 20);
            begun += due.begin.map_or(0, |(start, end)| end - start);
            settled += due.settle.iter().map(|(from, to)| to - from).sum::<u64>();
            assert!(begun - settled <= MOST as u64 * STRIDE);
        }
        assert_eq!(begun, 1024 << 20);
        assert_eq!(begun - settled, MOST as u64 * STRIDE);
    }

    #[test]
    fn a_slow_disk_is_given_less_to_lag_behind() {
        let mut state = WritebackState::default();
        for step in 0..MOST as u64 {
            assert!(state.book(step * STRIDE, STRIDE).settle.is_empty());
        }
        state.waited(SLOW);
        assert_eq!(state.window, MOST);
        for _ in 0..9 {
            state.waited(2 * SLOW);
        }
        let due = state.book(MOST as u64 * STRIDE, STRIDE);
        assert_eq!(due.settle.len(), MOST + 1 - LEAST);
    }

    #[test]
    fn bytes_in_any_order_are_one_span() {
        let mut state = WritebackState::default();
        assert_eq!(state.book(100 << 20, 8 << 20), DueWriteback::default());
        let due = state.book(0, 8 << 20);
        assert_eq!(due.begin, Some((0, 108 << 20)));
        assert_eq!(state.book(u64::MAX, 1), DueWriteback::default());
    }

    #[test]
    fn errors_of_the_disk_count_and_a_missing_call_does_not() {
        let writeback = WritebackPacer::default();
        let error = |number| io::Error::from_raw_os_error(number);
        for number in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
            assert!(writeback.judge(error(number)).is_err());
        }
        assert!(writeback.judge(error(libc::ESPIPE)).is_ok());
        assert!(writeback.unavailable.load(Ordering::Relaxed));
    }
}
