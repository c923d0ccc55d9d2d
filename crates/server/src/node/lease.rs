//! The right of a data node to write: it ends by itself, so that a front end that cannot reach a node knows when the node has stopped writing.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use data::job::TransferControl;
use data::store::file::FileSink;
use data::store::{Sink, Source};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

use crate::stripes::LEASE;

/// How often a stream that waits for the lease looks whether it must stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time since the machine started, with the time that it slept.
pub(super) fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Until when a part may write to its file. Each report of the node that its front end answers renews it, counted from the time of the report:
/// answers that have waited in a connection while this process was stopped renew nothing.
#[derive(Debug, Default)]
pub(super) struct WriteLease {
    /// By [`boot_time`].
    until: Mutex<Duration>,
    renewed: Condvar,
}

impl WriteLease {
    /// The front end has answered the report that was made at `reported`, by [`boot_time`].
    pub(super) fn renew(&self, reported: Duration) {
        let mut until = self.until.lock();
        // A front end cannot answer reports of the future.
        *until = (*until).max(reported.min(boot_time()).saturating_add(LEASE));
        self.renewed.notify_all();
    }

    /// Whether the part may write now.
    pub(super) fn is_valid(&self) -> bool {
        boot_time() < *self.until.lock()
    }

    /// Waits until the part may write.
    ///
    /// # Errors
    /// The transfer was stopped meanwhile.
    fn wait(&self, control: &TransferControl) -> io::Result<()> {
        let mut until = self.until.lock();
        while boot_time() >= *until {
            if control.is_cancelled() {
                return Err(io::Error::other("the front end has not renewed the lease"));
            }
            self.renewed.wait_for(&mut until, CHECK_INTERVAL);
        }
        Ok(())
    }
}

/// A file that is written only under a [`WriteLease`].
#[derive(Debug)]
pub(super) struct LeasedSink {
    pub(super) file: FileSink,
    pub(super) lease: Arc<WriteLease>,
    pub(super) control: Arc<TransferControl>,
}

impl Sink for LeasedSink {
    fn name(&self) -> String {
        self.file.name()
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.lease.wait(&self.control)?;
        self.file.write_at(offset, buf)
    }

    fn leave_hole(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.lease.wait(&self.control)?;
        self.file.leave_hole(offset, len)
    }

    fn begin(&self, end: u64) -> io::Result<()> {
        self.lease.wait(&self.control)?;
        self.file.begin(end)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.fd()
    }

    fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_seekable(&self) -> bool {
        self.file.is_seekable()
    }

    fn open_reader(&self) -> Option<Arc<dyn Source>> {
        self.file.open_reader()
    }

    fn spliced(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.spliced(offset, len)
    }

    fn is_durable(&self) -> bool {
        self.file.is_durable()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leased() -> (LeasedSink, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sink = LeasedSink {
            file: FileSink::new(file.reopen().unwrap(), "f").unwrap(),
            lease: Arc::default(),
            control: Arc::new(TransferControl::new()),
        };
        (sink, file)
    }

    #[test]
    fn nothing_is_written_without_a_lease() {
        let (sink, file) = leased();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| sink.write_at(0, b"late"));
            // An answer to a report from before this process was stopped.
            sink.lease.renew(boot_time().saturating_sub(LEASE));
            assert!(!sink.lease.is_valid());
            sink.control.cancel();
            writing.join().unwrap().unwrap_err();
        });
        sink.begin(4).unwrap_err();
        sink.leave_hole(0, 4).unwrap_err();
        assert_eq!(file.as_file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_write_goes_on_when_the_lease_is_renewed() {
        let (sink, file) = leased();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| sink.write_at(0, b"in time"));
            sink.lease.renew(boot_time());
            writing.join().unwrap().unwrap();
        });
        assert_eq!(std::fs::read(file.path()).unwrap(), b"in time");
        // The time of a report is that of this machine, and never in the future.
        sink.lease.renew(Duration::MAX);
        assert!(*sink.lease.until.lock() <= boot_time() + LEASE);
    }
}
