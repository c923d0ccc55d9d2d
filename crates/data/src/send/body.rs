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
    let sending = BodyTransfer::begin(settings, control)?;
    // The connection of the request counts in the transfer from here on.
    let mut stream = sending.join(dialer);
    let mut failure = None;
    let sent = sending.run(extent.length, || {
        sending.transfer.check()?;
        if let Err(error) = stream.send(source, extent, 0, send) {
            failure = Some(error);
            // Any failure stops the transfer; the caller's own error is returned below.
            sending.transfer.fail(DataError::Aborted);
        }
        sending.transfer.check()
    });
    stream.leave();
    sending.finish(sent, failure)
}

/// Runs `work` for each of `streams` in a thread of its own, with the connections of the stream's dialer. `work` sends parts of
/// one file, each as a body, until none is left ([`BodyStream::send`]). The first error ends all of them. `bytes`: how many
/// are to be sent, if that is known.
///
/// # Errors
/// As [`run`].
pub fn run_parts<C: Send, E: From<DataError> + Send>(
    streams: Vec<(Arc<Dialer>, C)>,
    bytes: Option<u64>,
    settings: &TransferSettings,
    control: &Arc<TransferControl>,
    work: impl Fn(C, &mut BodyStream<'_>) -> Result<(), E> + Sync,
) -> Result<TransferReport, E> {
    let sending = BodyTransfer::begin(settings, control)?;
    let failure = Mutex::new(None);
    let run_stream = |(dialer, client): (Arc<Dialer>, C)| {
        let mut stream = sending.join(&dialer);
        if let Err(error) = work(client, &mut stream) {
            failure.lock().get_or_insert(error);
            sending.transfer.fail(DataError::Aborted);
        }
        stream.leave();
    };
    let run_stream = &run_stream;
    let sent = sending.run(bytes, || {
        sending.transfer.check()?;
        let mut streams = streams.into_iter();
        let first = streams.next();
        std::thread::scope(|scope| {
            for (n, stream) in streams.enumerate() {
                let started = std::thread::Builder::new()
                    .name(format!("body-{}", n + 1))
                    .spawn_scoped(scope, move || run_stream(stream));
                // The others send its parts.
                if let Err(error) = started {
                    tracing::debug!(%error, "one sending stream fewer");
                    break;
                }
            }
            if let Some(stream) = first {
                run_stream(stream);
            }
        });
        sending.transfer.check()
    });
    sending.finish(sent, failure.into_inner())
}

/// A transfer whose bytes are the bodies of requests.
struct BodyTransfer<'s> {
    transfer: ActiveTransfer,
    checksum: TransferChecksum,
    settings: &'s TransferSettings,
    control: &'s Arc<TransferControl>,
}

impl<'s> BodyTransfer<'s> {
    fn begin(
        settings: &'s TransferSettings,
        control: &'s Arc<TransferControl>,
    ) -> Result<Self, DataError> {
        Ok(Self {
            transfer: ActiveTransfer::new(Role::Sender, settings, control)?,
            checksum: TransferChecksum::one_stream(settings.checksum),
            settings,
            control,
        })
    }

    /// Begins a stream with the connections of `dialer`.
    fn join<'b>(&'b self, dialer: &'b Dialer) -> BodyStream<'b> {
        dialer.join_transfer(ReaderContext {
            settings: self.settings,
            control: self.control,
            stop: self.transfer.stop_wake(),
        });
        self.transfer.on_stream_start();
        BodyStream {
            transfer: &self.transfer,
            checksum: &self.checksum,
            dialer,
            evidence: Evidence::default(),
        }
    }

    fn run(
        &self,
        bytes: Option<u64>,
        work: impl FnOnce() -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        tuning::run_with_tuning(&self.transfer, self.settings, Role::Sender, bytes, work)
    }

    fn finish<E: From<DataError>>(
        self,
        sent: Result<(), DataError>,
        failure: Option<E>,
    ) -> Result<TransferReport, E> {
        let is_cancelled = self.control.is_cancelled();
        let result = sent.map(|()| self.checksum.finish());
        match (self.transfer.finish(result), failure) {
            (Ok(report), _) => Ok(report),
            // An error of the store comes first: it is why the request failed.
            (Err(DataError::Aborted), Some(failure)) if !is_cancelled => Err(failure),
            (Err(error), _) => Err(error.into()),
        }
    }
}

/// One stream of a transfer: it sends bodies one after the other.
pub struct BodyStream<'b> {
    transfer: &'b ActiveTransfer,
    checksum: &'b TransferChecksum,
    dialer: &'b Dialer,
    /// Times in the store and on the wire.
    evidence: Evidence,
}

impl BodyStream<'_> {
    /// Runs `send` with the bytes `extent` of a source, which are those from `at` on of what the transfer moves.
    ///
    /// # Errors
    /// Those of `send`. An error of the store stops the transfer, and is its error.
    pub fn send<E>(
        &mut self,
        source: &dyn Source,
        extent: BodyRange,
        at: u64,
        send: impl FnOnce(&mut RequestBody<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut body = RequestBody {
            source,
            extent,
            at,
            done: 0,
            transfer: self.transfer,
            checksum_part: self.checksum.stream_checksum(),
            store_time: Duration::ZERO,
            in_reader: Duration::ZERO,
        };
        let started = Instant::now();
        let sent = send(&mut body);
        self.evidence.store_time += body.store_time;
        self.evidence.wire_time += started.elapsed().saturating_sub(body.in_reader);
        sent
    }

    /// Fails if the transfer must stop.
    ///
    /// # Errors
    /// [`DataError::Aborted`]
    pub fn check(&self) -> Result<(), DataError> {
        self.transfer.check()
    }

    fn leave(self) {
        let mut evidence = self.dialer.leave_transfer();
        evidence.store_time += self.evidence.store_time;
        evidence.wire_time += self.evidence.wire_time;
        self.transfer.add_stream(&evidence);
        self.transfer.on_stream_end(0);
    }
}

/// Reads the bytes of the body in order.
pub struct RequestBody<'b> {
    source: &'b dyn Source,
    extent: BodyRange,
    /// Offset of the body's first byte in what the transfer moves.
    at: u64,
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
                self.checksum_part
                    .add(self.at.saturating_add(self.done), &buf[..n]);
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
    fn parts_over_several_streams_are_one_transfer() {
        let settings = TransferSettings {
            checksum: Some(ChecksumAlgorithm::Crc32c),
            ..TransferSettings::default()
        };
        let control = Arc::new(TransferControl::new());
        let source = MemorySource::new(b"123456789".to_vec(), "memory");
        let parts = Mutex::new(vec![(0, 4), (4, 4), (8, 1)]);
        let streams = (0..2)
            .map(|n| (Dialer::new(&settings).unwrap(), n))
            .collect();
        let received = Mutex::new(Vec::new());
        let work = |_: i32, stream: &mut BodyStream<'_>| {
            loop {
                let Some((offset, length)) = parts.lock().pop() else {
                    return Ok::<_, DataError>(());
                };
                let extent = BodyRange {
                    offset,
                    length: Some(length),
                };
                stream.send(&source, extent, offset, |body| {
                    received.lock().push((offset, read_all(body)));
                    Ok(())
                })?;
            }
        };
        let report = run_parts(streams, Some(9), &settings, &control, work).unwrap();
        let mut received = received.into_inner();
        received.sort();
        let bytes: Vec<u8> = received.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert_eq!(bytes, b"123456789");
        assert_eq!((report.evidence.bytes, report.evidence.streams), (9, 2));
        // The check value of the algorithm.
        assert_eq!(report.checksum.as_deref(), Some("e3069283"));
    }

    #[test]
    fn a_refused_part_ends_the_transfer_with_its_error() {
        let settings = TransferSettings::default();
        let control = Arc::new(TransferControl::new());
        let streams = vec![(Dialer::new(&settings).unwrap(), ())];
        let refused = |(), _: &mut BodyStream<'_>| Err(DataError::NoPeer { seconds: 7 });
        let failed = run_parts(streams, None, &settings, &control, refused);
        assert!(matches!(failed, Err(DataError::NoPeer { seconds: 7 })));
    }

    #[test]
    fn a_refused_request_returns_its_error() {
        let refused = sent(BodyRange::default(), |_| {
            Err(DataError::NoPeer { seconds: 7 })
        });
        assert!(matches!(refused, Err(DataError::NoPeer { seconds: 7 })));
    }
}
