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

use crate::stripes::{AliveTerms, LEASE};

/// How often a stream that waits for the lease looks whether it must stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time since the machine started, with the time that it slept.
pub(super) fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Until when, and how far, a part may write to its file. Each report of the node that its front end answers renews it, counted from the time of the report:
/// answers that have waited in a connection while this process was stopped renew nothing.
pub(super) struct WriteLease {
    terms: Mutex<LeaseTerms>,
    renewed: Condvar,
    /// Called when a write waits for a larger [`LeaseTerms::paid_to`].
    ask: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct LeaseTerms {
    /// By [`boot_time`].
    until: Duration,
    /// File offset up to which it may write.
    paid_to: u64,
    /// Up to which it waits to write.
    wants_to: u64,
}

impl std::fmt::Debug for WriteLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteLease")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

impl WriteLease {
    /// A lease that has ended. `ask` tells the front end that [`WriteLease::wants_to`] has grown; it must not wait.
    pub(super) fn new(ask: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            terms: Mutex::default(),
            renewed: Condvar::new(),
            ask: Box::new(ask),
        }
    }

    /// The front end has answered a report, whose time is by [`boot_time`].
    pub(super) fn renew(&self, answer: &AliveTerms) {
        let mut terms = self.terms.lock();
        // A front end cannot answer reports of the future.
        let until = answer.at.min(boot_time()).saturating_add(LEASE);
        terms.until = terms.until.max(until);
        terms.paid_to = terms.paid_to.max(answer.paid_to);
        self.renewed.notify_all();
    }

    /// Whether the part may write now.
    pub(super) fn is_valid(&self) -> bool {
        boot_time() < self.terms.lock().until
    }

    /// The file offset up to which writes wait; at most what is paid for if none waits.
    pub(super) fn wants_to(&self) -> u64 {
        self.terms.lock().wants_to
    }

    /// Waits until the part may write up to the file offset `end`.
    ///
    /// # Errors
    /// The transfer was stopped meanwhile.
    fn wait(&self, end: u64, control: &TransferControl) -> io::Result<()> {
        let mut terms = self.terms.lock();
        while boot_time() >= terms.until || end > terms.paid_to {
            if control.is_cancelled() {
                return Err(io::Error::other("the front end has not renewed the lease"));
            }
            if end > terms.paid_to.max(terms.wants_to) {
                terms.wants_to = end;
                (self.ask)();
            }
            self.renewed.wait_for(&mut terms, CHECK_INTERVAL);
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
        let end = offset.saturating_add(buf.len() as u64);
        self.lease.wait(end, &self.control)?;
        self.file.write_at(offset, buf)
    }

    fn leave_hole(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.lease.wait(offset.saturating_add(len), &self.control)?;
        self.file.leave_hole(offset, len)
    }

    fn begin(&self, end: u64) -> io::Result<()> {
        self.lease.wait(end, &self.control)?;
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
            lease: Arc::new(WriteLease::new(|| {})),
            control: Arc::new(TransferControl::new()),
        };
        (sink, file)
    }

    fn answer(at: Duration, paid_to: u64) -> AliveTerms {
        AliveTerms {
            at,
            paid_to,
            rate: None,
        }
    }

    #[test]
    fn nothing_is_written_without_a_lease() {
        let (sink, file) = leased();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| sink.write_at(0, b"late"));
            // An answer to a report from before this process was stopped.
            let before = boot_time().saturating_sub(LEASE);
            sink.lease.renew(&answer(before, u64::MAX));
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
            sink.lease.renew(&answer(boot_time(), 7));
            writing.join().unwrap().unwrap();
        });
        assert_eq!(std::fs::read(file.path()).unwrap(), b"in time");
        // The time of a report is that of this machine, and never in the future.
        sink.lease.renew(&answer(Duration::MAX, 7));
        assert!(sink.lease.terms.lock().until <= boot_time() + LEASE);
    }

    #[test]
    fn a_write_waits_until_the_quota_has_room_for_it() {
        let (asking, asked) = std::sync::mpsc::channel();
        let (mut sink, file) = leased();
        sink.lease = Arc::new(WriteLease::new(move || asking.send(()).unwrap()));
        sink.lease.renew(&answer(boot_time(), 4));
        sink.write_at(0, b"paid").unwrap();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| sink.write_at(4, b" for"));
            asked.recv().unwrap();
            assert_eq!(sink.lease.wants_to(), 8);
            assert_eq!(file.as_file().metadata().unwrap().len(), 4);
            sink.lease.renew(&answer(boot_time(), 8));
            writing.join().unwrap().unwrap();
        });
        assert_eq!(std::fs::read(file.path()).unwrap(), b"paid for");
    }
}
