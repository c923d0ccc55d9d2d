//! One version of an object, read by a sender.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use data::job::{ReaderContext, TransferControl};
use data::os::wake::WakeEvent;
use data::pull::RangeOrigin;
use data::served::{ServedClient, ServedFile};
use data::store::Source;
use ftp::failure::Operation;
use ftp::{Failure, FailureKind};
use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};
use proto::server::FileError;

use super::access::{ATTEMPTS, BucketAccess, pause};
use super::failures::io_error;
use super::memory::TransferMemoryBudget;
use super::read_ahead::{PIECE, ReadAhead, own_bytes};
use crate::storage::http::facts::HttpFileFacts;
use crate::storage::http::ranges::HttpFile;

/// Most threads that fetch pieces of one object at a time, each over a connection of its own.
const MAX_FETCHERS: usize = 8;
/// Bytes that a fetch reads in one step.
const STEP: usize = 256 << 10;

/// An object that is open for reading.
#[derive(Debug)]
pub(super) struct BucketFile {
    facts: HttpFileFacts,
    size: u64,
    action: Operation,
    access: Arc<BucketAccess>,
    memory: Arc<TransferMemoryBudget>,
}

impl BucketFile {
    /// # Errors
    /// The server has told no length.
    pub(super) fn new(
        facts: HttpFileFacts,
        action: Operation,
        access: Arc<BucketAccess>,
        memory: &Arc<TransferMemoryBudget>,
    ) -> Result<Self, Failure> {
        let Some(size) = facts.size else {
            let reason = "the server does not say how long it is";
            return Err(action.failed(FailureKind::Protocol, reason));
        };
        Ok(Self {
            facts,
            size,
            action,
            access,
            memory: Arc::clone(memory),
        })
    }
}

impl ServedFile for BucketFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn version(&self) -> Option<&str> {
        self.facts.strong_etag()
    }

    fn checksum(&self, algorithm: ChecksumAlgorithm) -> Option<String> {
        let mut known = self.facts.checksums.iter();
        let (_, sum) = known.find(|(known, _)| *known == algorithm)?;
        Some(sum.clone())
    }

    fn piece(&self) -> u64 {
        PIECE
    }

    fn source(&self, wanted: &RangeSet, by: &ServedClient) -> Result<Arc<dyn Source>, FileError> {
        let memory = self
            .memory
            .begin(own_bytes(self.size, wanted, by.bytes), by)?;
        let ahead = ReadAhead::new(self.size, wanted, memory);
        Ok(Arc::new(BucketSource {
            size: self.size,
            control: Arc::clone(&by.control),
            fetchers: Mutex::new(0),
            fetching: Arc::new(Fetching {
                ahead,
                facts: self.facts.clone(),
                action: self.action.clone(),
                access: Arc::clone(&self.access),
                control: Arc::default(),
                stop: WakeEvent::new().map(Arc::new).ok(),
            }),
        }))
    }
}

/// A source whose bytes are fetched ahead. Dropping it ends the threads that fetch.
#[derive(Debug)]
struct BucketSource {
    size: u64,
    /// The transfer that reads.
    control: Arc<TransferControl>,
    /// Threads that were started.
    fetchers: Mutex<usize>,
    fetching: Arc<Fetching>,
}

impl BucketSource {
    /// Starts threads, as many as are worth it.
    fn start_fetchers(&self) -> io::Result<()> {
        let mut running = self.fetchers.lock();
        let wanted = self.fetching.ahead.piece_count().min(MAX_FETCHERS);
        while *running < wanted {
            let fetching = Arc::clone(&self.fetching);
            let started = std::thread::Builder::new()
                .name(format!("bucket-{running}"))
                .spawn(move || fetching.run());
            match started {
                Ok(_) => *running += 1,
                // The others fetch its pieces.
                Err(_) if *running > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Source for BucketSource {
    fn name(&self) -> String {
        self.fetching.action.to_string()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if *self.fetchers.lock() == 0 {
            self.start_fetchers()?;
        }
        let is_cancelled = || self.control.is_cancelled();
        self.fetching.ahead.read(offset, buf, &is_cancelled)
    }

    fn len(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.size))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn will_not_read(&self, ranges: &RangeSet) {
        self.fetching.ahead.forgo(ranges);
    }

    fn will_read(&self, ranges: &RangeSet) {
        self.fetching.ahead.want(ranges);
        if *self.fetchers.lock() > 0 {
            // Those that run fetch all of it.
            let _ = self.start_fetchers();
        }
    }
}

impl Drop for BucketSource {
    fn drop(&mut self) {
        self.fetching.ahead.end();
        self.fetching.control.cancel();
        if let Some(stop) = &self.fetching.stop {
            stop.wake();
        }
    }
}

/// The state that the threads share which fetch.
#[derive(Debug)]
struct Fetching {
    ahead: ReadAhead,
    facts: HttpFileFacts,
    action: Operation,
    access: Arc<BucketAccess>,
    /// Of the connections with the bucket.
    control: Arc<TransferControl>,
    /// Ends the waits on them. `None`: no descriptor was left, and nothing can be fetched.
    stop: Option<Arc<WakeEvent>>,
}

impl Fetching {
    fn run(&self) {
        while let Some(range) = self.ahead.next_piece() {
            match self.fetch(range) {
                Ok(bytes) => self.ahead.supply(range, bytes),
                Err(failure) => return self.ahead.fail(&io_error(&failure)),
            }
        }
    }

    /// Fetches a range, and goes on where a lost connection has ended.
    fn fetch(&self, range: ByteRange) -> Result<Vec<u8>, Failure> {
        let length = usize::try_from(range.len()).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(length);
        let mut attempt = 1;
        loop {
            let before = bytes.len();
            match self.fetch_rest(range, length, &mut bytes) {
                Ok(()) => return Ok(bytes),
                Err(failure) if self.control.is_cancelled() => return Err(failure),
                // An attempt that brought something is no failure of the server.
                Err(failure)
                    if failure.may_retry() && (attempt < ATTEMPTS || bytes.len() > before) =>
                {
                    attempt = match bytes.len() > before {
                        true => 1,
                        false => attempt + 1,
                    };
                    tracing::debug!(%failure, "a range of an object is asked for again");
                    std::thread::sleep(pause(attempt, None));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn fetch_rest(
        &self,
        range: ByteRange,
        length: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let Some(stop) = &self.stop else {
            return Err(Failure::local("no descriptor is left"));
        };
        let current = self.access.current()?;
        let settings = &self.access.transfer;
        let (facts, action) = (self.facts.clone(), self.action.clone());
        let origin = current.origin.clone();
        let file = HttpFile::object(origin, settings, facts, action, current.client()?);
        let mut reader = file.reader().map_err(|error| self.failure(&error))?;
        reader.join_transfer(ReaderContext {
            settings,
            control: &self.control,
            stop,
        });
        let start = range.start + bytes.len() as u64;
        let mut read = reader.request(start, Some(range.end));
        while read.is_ok() && bytes.len() < length {
            let done = bytes.len();
            bytes.resize((done + STEP).min(length), 0);
            read = match reader.read(&mut bytes[done..]) {
                Ok(n) => {
                    bytes.truncate(done + n);
                    match n {
                        0 => Err(io::ErrorKind::UnexpectedEof.into()),
                        _ => Ok(()),
                    }
                }
                Err(error) => {
                    bytes.truncate(done);
                    Err(error)
                }
            };
        }
        let _ = reader.leave_transfer();
        drop(reader);
        current.keep(file.into_clients());
        read.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let own = error
            .get_ref()
            .and_then(|own| own.downcast_ref::<Failure>());
        own.cloned().unwrap_or_else(|| {
            let reason = format_args!("the connection was lost: {error}");
            self.action
                .failed(FailureKind::Unreachable, reason)
                .retried(true)
        })
    }
}
