//! A file as the body of a request, sent over a connection on which the caller runs its own
//! protocol.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tune::Evidence;
use tune::limiter::Role;

use crate::dialer::Dialer;
use crate::error::DataError;
use crate::job::{ReaderContext, TransferControl, TransferReport, TransferSettings};
use crate::store::Source;
use crate::transfer::ActiveTransfer;
use crate::transfer_checksum::{StreamChecksum, TransferChecksum};
use crate::tuning;

/// The part of a source that is the body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyRange {
    /// Offset of its first byte in the source.
    pub offset: u64,
    /// Length, bytes; `None`: up to the end of the source.
    pub length: Option<u64>,
}

/// Runs `send` in the caller's thread. `send` sends the whole body that it is given over a
/// connection of `dialer`.
///
/// # Errors
/// The error of the store, else that of `send`; [`DataError::Aborted`] when stopped.
pub fn run<E: From<DataError>>(
    source: &dyn Source,
    extent: BodyRange,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
    dialer: &Dialer,
    send: impl FnOnce(&mut RequestBody<'_>) -> Result<(), E>,
) -> Result<TransferReport, E> {
    let transfer = ActiveTransfer::new(Role::Sender, settings, control)?;
    let checksum = TransferChecksum::one_stream(settings.checksum);
    let failure = Mutex::new(None);
    // The connection of the request counts in the transfer from here on.
    dialer.join_transfer(ReaderContext {
        settings,
        control,
        stop: transfer.stop_wake(),
    });
    transfer.on_stream_start();
    let max_bytes = extent.length;
    let thread_evidence = Mutex::new(Evidence::default());
    let sent = tuning::run_with_tuning(&transfer, settings, Role::Sender, max_bytes, || {
        transfer.check()?;
        let mut body = RequestBody {
            source,
            extent,
            done: 0,
            transfer: &transfer,
            checksum_part: checksum.stream_checksum(),
            store_time: Duration::ZERO,
            in_reader: Duration::ZERO,
        };
        let started = Instant::now();
        if let Err(error) = send(&mut body) {
            *failure.lock() = Some(error);
            // Any failure stops the transfer; the caller's own error is returned below.
            transfer.fail(DataError::Aborted);
        }
        let mut thread_evidence = thread_evidence.lock();
        thread_evidence.store_time = body.store_time;
        thread_evidence.wire_time = started.elapsed().saturating_sub(body.in_reader);
        transfer.check()
    });
    let (mut evidence, thread_times) = (dialer.leave_transfer(), thread_evidence.lock());
    evidence.store_time += thread_times.store_time;
    evidence.wire_time += thread_times.wire_time;
    drop(thread_times);
    transfer.add_stream(&evidence);
    transfer.on_stream_end(0);
    let result = sent.map(|()| checksum.finish());
    let failure = failure.lock().take();
    match (transfer.finish(result), failure) {
        (Ok(report), _) => Ok(report),
        // An error of the store comes first: it is why the request failed.
        (Err(DataError::Aborted), Some(failure)) if !control.is_cancelled() => Err(failure),
        (Err(error), _) => Err(error.into()),
    }
}

/// Reads the bytes of the body in order.
pub struct RequestBody<'b> {
    source: &'b dyn Source,
    extent: BodyRange,
    done: u64,
    transfer: &'b ActiveTransfer,
    checksum_part: StreamChecksum<'b>,
    /// Time spent in reads of the store, and time spent in this reader in total.
    store_time: Duration,
    in_reader: Duration,
}

impl RequestBody<'_> {
    /// Passes over bytes that the receiver has. They are not read, and do not count as moved.
    pub fn skip(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
    }

    fn next(&mut self, buf: &mut [u8]) -> Result<usize, DataError> {
        self.transfer.check()?;
        // Without a length the source decides where the body ends.
        let left = self
            .extent
            .length
            .map_or(u64::MAX, |length| length.saturating_sub(self.done));
        let room = usize::try_from(left).unwrap_or(usize::MAX);
        let room = room.min(buf.len()).min(self.transfer.step());
        if room == 0 {
            return Ok(0);
        }
        // The rate limit counts what is about to be sent; a short read only makes it stricter.
        self.transfer.throttle(room)?;
        let at = self.extent.offset.saturating_add(self.done);
        let started = Instant::now();
        let read = self.source.read_at(at, &mut buf[..room]);
        self.store_time += started.elapsed();
        let n = read.map_err(|e| DataError::read(self.source, e))?;
        // The request has already announced the length, so a short body cannot be repaired.
        match (n, self.extent.length) {
            (0, Some(expected)) => Err(DataError::Shrunk {
                what: self.source.name(),
                at: self.done,
                expected,
            }),
            _ => {
                self.checksum_part.add(self.done, &buf[..n]);
                self.done += n as u64;
                self.transfer.add_moved(n as u64);
                Ok(n)
            }
        }
    }
}

impl Read for RequestBody<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let started = Instant::now();
        let next = self.next(buf);
        self.in_reader += started.elapsed();
        next.map_err(|error| {
            let returned = io::Error::other(error.to_string());
            self.transfer.fail(error);
            returned
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemorySource;
    use proto::checksum::ChecksumAlgorithm;

    fn sent(
        extent: BodyRange,
        send: impl FnOnce(&mut RequestBody<'_>) -> Result<(), DataError>,
    ) -> Result<TransferReport, DataError> {
        let settings = TransferSettings {
            checksum: Some(ChecksumAlgorithm::Md5),
            ..TransferSettings::default()
        };
        let control = Arc::new(TransferControl::new());
        let dialer = Dialer::new(&settings).unwrap();
        let source = MemorySource::new(b"hello, world".to_vec(), "memory");
        run(&source, extent, &settings, &control, &dialer, send)
    }

    fn read_all(body: &mut dyn Read) -> Vec<u8> {
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_range_is_sent_counted_and_checksummed() {
        let mut received = Vec::new();
        let extent = BodyRange {
            offset: 7,
            length: Some(5),
        };
        let report = sent(extent, |body| {
            received = read_all(body);
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(
            (received.as_slice(), report.evidence.bytes),
            (&b"world"[..], 5)
        );
        let md5_of_world = "7d793037a0760186574b0282f2f435e7";
        assert_eq!(report.checksum.as_deref(), Some(md5_of_world));
    }

    #[test]
    fn skipped_bytes_do_not_count() {
        let mut received = Vec::new();
        let report = sent(BodyRange::default(), |body| {
            body.skip(7);
            received = read_all(body);
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!(
            (received.as_slice(), report.evidence.bytes),
            (&b"world"[..], 5)
        );
        assert_eq!(report.checksum, None);
    }

    #[test]
    fn a_shrunk_source_takes_precedence_over_the_request_error() {
        let extent = BodyRange {
            offset: 0,
            length: Some(100),
        };
        let failed = sent(extent, |body| {
            let broken = io::copy(body, &mut io::sink());
            broken.map_err(|_| DataError::NoPeer { seconds: 1 })?;
            Ok(())
        });
        assert!(
            matches!(failed, Err(DataError::Shrunk { at: 12, .. })),
            "{failed:?}"
        );
    }

    #[test]
    fn a_refused_request_returns_its_error() {
        let refused = sent(BodyRange::default(), |_| {
            Err(DataError::NoPeer { seconds: 7 })
        });
        assert!(matches!(refused, Err(DataError::NoPeer { seconds: 7 })));
    }
}
