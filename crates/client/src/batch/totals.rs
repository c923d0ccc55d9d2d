//! The sums of a batch and the outcome class that follows from them.

use std::time::Duration;

use proto::sizing::SocketBuffers;
use tune::limiter::Limiter;

use super::measurement::{MeasurementSource, TransferMeasurement};
use crate::why::BatchEvidence;
use crate::{CopyFailure, CopySummary, Exit};

/// What has happened so far.
#[derive(Debug, Default)]
pub(super) struct BatchTotals {
    files: u64,
    failed: u64,
    skipped: u64,
    kept: u64,
    bytes: u64,
    streams_max: u64,
    buffer_max: u64,
    memory_max: u64,
    /// Who was to size buffers.
    wanted: SocketBuffers,
    /// Who did: `None` before the first transfer that ended well, `Some(None)` when they differ.
    sized: Option<Option<&'static str>>,
    /// `None` before the first file, `Some(None)` when they differ.
    verified: Option<Option<String>>,
    /// Class of the failures, `PartialFile` when they differ.
    class: Option<Exit>,
    first_failure: Option<CopyFailure>,
    account: BatchEvidence,
    /// Limit of all transfers together, bytes per second.
    rate: Option<u64>,
}

/// What was seen at one moment of all files in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BatchSample {
    /// Streams open.
    pub(super) streams: u64,
    /// Largest buffer in its stream's direction, bytes.
    pub(super) buffer: u64,
    /// Memory that the streams' sockets held, bytes.
    pub(super) memory: u64,
    /// What limits the file that has the most streams.
    pub(super) limiter: Option<Limiter>,
}

impl BatchTotals {
    /// Nothing happened yet; buffers are `wanted` to be sized so.
    pub(super) fn new(wanted: SocketBuffers) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// All transfers together are limited to `rate` bytes per second.
    pub(super) fn limit(&mut self, rate: Option<u64>) {
        self.rate = rate;
    }

    /// A file is in place.
    pub(super) fn done(
        &mut self,
        bytes: u64,
        verified: &str,
        measured: Option<TransferMeasurement>,
    ) {
        self.files += 1;
        self.bytes += bytes;
        self.verified = Some(match self.verified.take() {
            None => Some(verified.to_owned()),
            Some(label) => label.filter(|label| label == verified),
        });
        let Some(measured) = measured else { return };
        let elapsed = match measured.seen {
            MeasurementSource::Here(evidence) => {
                self.account.add(&evidence);
                evidence.elapsed
            }
            MeasurementSource::Between(between) => {
                self.account.add_between(&between);
                between.elapsed
            }
        };
        self.account.note(measured.remarks, elapsed);
        self.sized = Some(match self.sized {
            None => Some(measured.buffers),
            Some(name) => name.filter(|name| *name == measured.buffers),
        });
    }

    /// A file was left alone.
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
    }

    /// Counts a file whose destination was left alone.
    pub(super) fn keep(&mut self) {
        self.skipped += 1;
        self.kept += 1;
    }

    /// Bytes of a file that failed later.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// A file failed for good.
    pub(super) fn fail(&mut self, failure: &CopyFailure) {
        self.failed += 1;
        self.class = Some(match self.class {
            None => failure.exit,
            Some(class) if class == failure.exit => class,
            Some(_) => Exit::Partial,
        });
        self.first_failure.get_or_insert_with(|| failure.clone());
    }

    /// What was seen while files moved.
    pub(super) fn see(&mut self, seen: BatchSample) {
        self.streams_max = self.streams_max.max(seen.streams);
        self.buffer_max = self.buffer_max.max(seen.buffer);
        self.memory_max = self.memory_max.max(seen.memory);
    }

    /// Everything failed alike: that class; some did: partial.
    fn exit(&self) -> Exit {
        match self.class {
            None => Exit::Done,
            Some(_) if self.files + self.skipped > 0 => Exit::Partial,
            Some(class) => class,
        }
    }

    /// The share of the limit that one transfer had on an average of `elapsed`, when several shared it.
    fn rate_of_one(&self, elapsed: Duration) -> Option<u64> {
        let shared = self.account.evidence.elapsed.max(elapsed).as_nanos().max(1);
        let of_one = u128::from(self.rate?) * elapsed.as_nanos() / shared;
        u64::try_from(of_one).ok()
    }

    /// The end, `elapsed` after the beginning.
    pub(super) fn summary(&self, elapsed: Duration) -> CopySummary {
        let seconds = elapsed.as_secs_f64();
        let evidence = &self.account.evidence;
        let goodput_bps = self.bytes as f64 * 8.0 / seconds.max(1e-9);
        let finding = self.account.finding(self.rate_of_one(elapsed));
        CopySummary {
            bytes: self.bytes,
            seconds,
            goodput_bps,
            streams_max: self.streams_max.max(evidence.peak_streams),
            buffer: match self.sized {
                None => self.wanted.name(),
                Some(name) => name.unwrap_or("mixed"),
            },
            buffer_bytes_max: self.buffer_max.max(evidence.buffer_bytes),
            memory_bytes_max: self.memory_max.max(evidence.socket_memory_bytes),
            retransmits: evidence.retransmits,
            verified: match &self.verified {
                None => "none".to_owned(),
                Some(None) => "mixed".to_owned(),
                Some(Some(label)) => label.clone(),
            },
            limited_by: finding.name().to_owned(),
            why: self.account.line(goodput_bps, finding),
            files: self.files,
            failed: self.failed,
            skipped: self.skipped,
            kept: self.kept,
            exit: self.exit(),
            first_failure: self.first_failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tune::Evidence;
    use tune::limiter::Role;

    use super::*;

    fn tally(done: &[&str], failed: &[Exit]) -> CopySummary {
        let mut tally = BatchTotals::default();
        for label in done {
            tally.done(10, label, None);
        }
        for exit in failed {
            tally.fail(&CopyFailure::new(*exit, "x"));
        }
        tally.summary(Duration::from_secs(1))
    }

    #[test]
    fn classes() {
        assert_eq!(tally(&["md5"], &[]).exit, Exit::Done);
        assert_eq!(tally(&["md5"], &[Exit::NotFound]).exit, Exit::Partial);
        assert_eq!(tally(&[], &[Exit::NotFound]).exit, Exit::NotFound);
        let alike = [Exit::Refused, Exit::Refused];
        assert_eq!(tally(&[], &alike).exit, Exit::Refused);
        let mixed = [Exit::Refused, Exit::Local];
        assert_eq!(tally(&[], &mixed).exit, Exit::Partial);
    }

    #[test]
    fn labels() {
        assert_eq!(tally(&[], &[]).verified, "none");
        assert_eq!(tally(&["md5", "md5"], &[]).verified, "md5");
        assert_eq!(tally(&["md5", "size", "size"], &[]).verified, "mixed");
    }

    #[test]
    fn a_limit_that_several_files_share_is_what_limits_them() {
        let mut tally = BatchTotals::default();
        tally.limit(Some(4_000));
        for _ in 0..4 {
            let seen = MeasurementSource::Here(Box::new(Evidence {
                bytes: 10_000,
                elapsed: Duration::from_secs(10),
                ..Evidence::for_role(Role::Receiver)
            }));
            let measured = TransferMeasurement {
                seen,
                buffers: "auto",
                remarks: Vec::new(),
            };
            tally.done(10_000, "md5", Some(measured));
        }
        let limited_by = |seconds| tally.summary(Duration::from_secs(seconds)).limited_by;
        assert_eq!(limited_by(10), "rate limit");
        // One after the other, each had all of it and did not use it.
        assert_ne!(limited_by(40), "rate limit");
    }

    #[test]
    fn sums() {
        let summary = tally(&["md5", "md5"], &[Exit::Local]);
        assert_eq!((summary.files, summary.failed, summary.bytes), (2, 1, 20));
        assert_eq!(summary.goodput_bps, 160.0);
        assert_eq!(summary.first_failure.unwrap().exit, Exit::Local);
    }
}
