//! Starts write-back while bytes still arrive, so that the final sync has little to do.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::os::writeback;

/// Write-back starts after this many new bytes.
const STRIDE: u64 = 16 << 20;
/// Most strides whose write-back was started and not awaited: the disk may lag 256 MiB behind the
/// network (a quarter of a second at 1 GB/s), and the final sync waits for at most that much.
const MAX_WINDOW: usize = 16;
/// The least, for a slow disk: enough to keep it busy.
const MIN_WINDOW: usize = 2;
/// A stride that took longer than this halves the window: a peer must not take the final sync for a
/// stall.
const SLOW_WAIT: Duration = Duration::from_millis(200);

/// Counts the bytes that all streams write to one file, and paces its write-back.
#[derive(Debug, Default)]
pub(super) struct WritebackPacer {
    state: Mutex<WritebackState>,
    /// The file or the system does not support sync_file_range(2).
    unavailable: AtomicBool,
}

#[derive(Debug)]
struct WritebackState {
    /// First to last byte written since write-back was last started. One span for any order of
    /// arrival: clean pages in between cost nothing.
    span: Option<(u64, u64)>,
    /// Bytes written since then.
    bytes: u64,
    /// Spans whose write-back was started, oldest first, [`STRIDE`] new bytes each.
    started: VecDeque<(u64, u64)>,
    /// Most of them that are not awaited, [`MIN_WINDOW`] to [`MAX_WINDOW`].
    window: usize,
}

impl Default for WritebackState {
    fn default() -> Self {
        Self {
            span: None,
            bytes: 0,
            started: VecDeque::new(),
            window: MAX_WINDOW,
        }
    }
}

impl WritebackState {
    /// Records `len` bytes at `offset`. Returns the span to start, and the spans to wait for.
    fn record(&mut self, offset: u64, len: u64) -> DueWriteback {
        let end = offset.saturating_add(len);
        let (first, last) = self.span.unwrap_or((offset, end));
        self.span = Some((first.min(offset), last.max(end)));
        self.bytes = self.bytes.saturating_add(len);
        // Fewer, larger calls cost less and write larger extents.
        if self.bytes < STRIDE {
            return DueWriteback::default();
        }
        self.bytes = 0;
        let begin = self.span.take();
        self.started.extend(begin);
        // The oldest spans are awaited first; the disk has most likely written them.
        let excess = self.started.len().saturating_sub(self.window);
        let wait_for = self.started.drain(..excess).collect();
        DueWriteback { begin, wait_for }
    }

    /// Records how long a span was awaited.
    fn record_wait(&mut self, duration: Duration) {
        if duration > SLOW_WAIT {
            // Halved, never below the least window: the disk must stay busy.
            self.window = (self.window / 2).max(MIN_WINDOW);
        }
    }
}

/// The spans to start and to wait for now.
#[derive(Debug, Default, PartialEq, Eq)]
struct DueWriteback {
    begin: Option<(u64, u64)>,
    wait_for: Vec<(u64, u64)>,
}

impl WritebackPacer {
    /// Records that `len` bytes at `offset` of `file` were written.
    pub(super) fn note_written(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        if self.unavailable.load(Ordering::Relaxed) {
            return Ok(());
        }
        let due = self.state.lock().record(offset, len);
        self.issue(file, &due)
            .or_else(|error| self.filter_error(error))
    }

    fn issue(&self, file: BorrowedFd<'_>, due: &DueWriteback) -> io::Result<()> {
        if let Some((start, end)) = due.begin {
            // Started without waiting: only the spans above the window are awaited.
            writeback::start_writeback(file, start, end - start)?;
        }
        for (start, end) in &due.wait_for {
            let since = Instant::now();
            writeback::wait_writeback(file, *start, end - start)?;
            self.state.lock().record_wait(since.elapsed());
        }
        Ok(())
    }

    /// Only errors of the disk are errors of the write.
    fn filter_error(&self, error: io::Error) -> io::Result<()> {
        match error.raw_os_error() {
            Some(libc::EIO | libc::ENOSPC | libc::EDQUOT) => Err(error),
            _ => {
                tracing::debug!(%error, "early write-back is unavailable");
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
    fn write_back_starts_every_stride_within_the_window() {
        let mut state = WritebackState::default();
        let (mut started, mut settled) = (0, 0);
        for step in 0..1024_u64 {
            let due = state.record(step << 20, 1 << 20);
            started += due.begin.map_or(0, |(start, end)| end - start);
            settled += due.wait_for.iter().map(|(from, to)| to - from).sum::<u64>();
            assert!(started - settled <= MAX_WINDOW as u64 * STRIDE);
        }
        assert_eq!(started, 1024 << 20);
        assert_eq!(started - settled, MAX_WINDOW as u64 * STRIDE);
    }

    #[test]
    fn a_slow_disk_shrinks_the_window() {
        let mut state = WritebackState::default();
        for step in 0..MAX_WINDOW as u64 {
            assert!(state.record(step * STRIDE, STRIDE).wait_for.is_empty());
        }
        state.record_wait(SLOW_WAIT);
        assert_eq!(state.window, MAX_WINDOW);
        for _ in 0..9 {
            state.record_wait(2 * SLOW_WAIT);
        }
        let due = state.record(MAX_WINDOW as u64 * STRIDE, STRIDE);
        assert_eq!(due.wait_for.len(), MAX_WINDOW + 1 - MIN_WINDOW);
    }

    #[test]
    fn bytes_in_any_order_form_one_span() {
        let mut state = WritebackState::default();
        assert_eq!(state.record(100 << 20, 8 << 20), DueWriteback::default());
        let due = state.record(0, 8 << 20);
        assert_eq!(due.begin, Some((0, 108 << 20)));
        assert_eq!(state.record(u64::MAX, 1), DueWriteback::default());
    }

    #[test]
    fn disk_errors_are_returned_and_a_missing_call_is_not() {
        let writeback = WritebackPacer::default();
        let error = |number| io::Error::from_raw_os_error(number);
        for number in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
            assert!(writeback.filter_error(error(number)).is_err());
        }
        assert!(writeback.filter_error(error(libc::ESPIPE)).is_ok());
        assert!(writeback.unavailable.load(Ordering::Relaxed));
    }
}
