//! A file as the body of a request, sent over a connection on which the caller speaks its own protocol.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tune::Evidence;
use tune::limiter::Role;

use crate::dialer::Dialer;
use crate::error::DataError;
use crate::job::{TransferControl, TransferReport, TransferSettings};
use crate::locks::lock;
use crate::pull::ReaderContext;
use crate::sizing;
use crate::store::Source;
use crate::transfer::ActiveTransfer;
use crate::transfer_checksum::{StreamChecksum, TransferChecksum};

/// Which bytes of a source are the body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyRange {
    /// Where they begin in the source.
    pub offset: u64,
    /// How many; `None`: up to the source's end.
    pub length: Option<u64>,
}

/// Runs `send`, which sends the body that it is given to its end over a connection of `dialer`, in the
/// caller's thread.
///
/// # Errors
/// The store's error, else that of `send`; [`DataError::Aborted`] when it was stopped.
pub fn run<E: From<DataError>>(
    source: &dyn Source,
    extent: BodyRange,
    settings: &TransferSettings,
    (control, dialer): (&Arc<TransferControl>, &Dialer),
    send: impl FnOnce(&mut dyn Read) -> Result<(), E>,
) -> Result<TransferReport, E> {
    let transfer = ActiveTransfer::new(Role::Sender, settings, control)?;
    let sum = TransferChecksum::one_stream(settings.checksum);
    let failure = Mutex::new(None);
    dialer.join_transfer(ReaderContext {
        settings,
        control,
        stop: transfer.stop_wake(),
    });
    transfer.on_stream_start();
    let most = extent.length;
    let accounts = Mutex::new(Evidence::default());
    let sent = sizing::run_with_sizing(&transfer, settings, Role::Sender, most, || {
        transfer.check()?;
        let mut body = RequestBody {
            source,
            extent,
            done: 0,
            transfer: &transfer,
            tap: sum.stream_checksum(),
            in_store: Duration::ZERO,
            inside: Duration::ZERO,
        };
        let begun = Instant::now();
        if let Err(error) = send(&mut body) {
            *lock(&failure) = Some(error);
            transfer.fail(DataError::Aborted);
        }
        let mut accounts = lock(&accounts);
        accounts.store_time = body.in_store;
        accounts.wire_time = begun.elapsed().saturating_sub(body.inside);
        transfer.check()
    });
    let (mut of_kernel, of_thread) = (dialer.leave_transfer(), lock(&accounts));
    of_kernel.store_time += of_thread.store_time;
    of_kernel.wire_time += of_thread.wire_time;
    drop(of_thread);
    transfer.add_stream(&of_kernel);
    transfer.on_stream_end(0);
    let result = sent.map(|()| sum.finish());
    let failure = lock(&failure).take();
    match (transfer.finish(result), failure) {
        (Ok(report), _) => Ok(report),
        // What the store said comes first: it is why the request broke off.
        (Err(DataError::Aborted), Some(failure)) if !control.is_cancelled() => Err(failure),
        (Err(error), _) => Err(error.into()),
    }
}

/// The bytes of the body, in order.
struct RequestBody<'b> {
    source: &'b dyn Source,
    extent: BodyRange,
    done: u64,
    transfer: &'b ActiveTransfer,
    tap: StreamChecksum<'b>,
    /// How long the store was read, and how long the body was at work in all.
    in_store: Duration,
    inside: Duration,
}

impl RequestBody<'_> {
    fn next(&mut self, buf: &mut [u8]) -> Result<usize, DataError> {
        self.transfer.check()?;
        let left = self
            .extent
            .length
            .map_or(u64::MAX, |length| length - self.done);
        let room = usize::try_from(left).unwrap_or(usize::MAX);
        let room = room.min(buf.len()).min(self.transfer.step());
        if room == 0 {
            return Ok(0);
        }
        self.transfer.throttle(room)?;
        let at = self.extent.offset.saturating_add(self.done);
        let begun = Instant::now();
        let read = self.source.read_at(at, &mut buf[..room]);
        self.in_store += begun.elapsed();
        let n = read.map_err(|e| DataError::read(self.source, e))?;
        match (n, self.extent.length) {
            (0, Some(expected)) => Err(DataError::Shrunk {
                what: self.source.name(),
                at: self.done,
                expected,
            }),
            _ => {
                self.tap.add(self.done, &buf[..n]);
                self.done += n as u64;
                self.transfer.add_moved(n as u64);
                Ok(n)
            }
        }
    }
}

impl Read for RequestBody<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        let next = self.next(buf);
        self.inside += begun.elapsed();
        next.map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.transfer.fail(error);
            told
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
        send: impl FnOnce(&mut dyn Read) -> Result<(), DataError>,
    ) -> Result<TransferReport, DataError> {
        let settings = TransferSettings {
            checksum: Some(ChecksumAlgorithm::Md5),
            ..TransferSettings::default()
        };
        let control = Arc::new(TransferControl::new());
        let dialer = Dialer::new(&settings).unwrap();
        let source = MemorySource::new(b"hello, world".to_vec(), "memory");
        run(&source, extent, &settings, (&control, &dialer), send)
    }

    fn all(body: &mut dyn Read) -> Vec<u8> {
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_part_is_sent_counted_and_summed() {
        let mut came = Vec::new();
        let extent = BodyRange {
            offset: 7,
            length: Some(5),
        };
        let report = sent(extent, |body| {
            came = all(body);
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!((came.as_slice(), report.evidence.bytes), (&b"world"[..], 5));
        let md5_of_world = "7d793037a0760186574b0282f2f435e7";
        assert_eq!(report.checksum.as_deref(), Some(md5_of_world));
    }

    #[test]
    fn a_source_that_became_shorter_is_the_reason_whatever_the_request_says() {
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
    fn a_refusal_is_the_error() {
        let refused = sent(BodyRange::default(), |_| {
            Err(DataError::NoPeer { seconds: 7 })
        });
        assert!(matches!(refused, Err(DataError::NoPeer { seconds: 7 })));
    }
}
