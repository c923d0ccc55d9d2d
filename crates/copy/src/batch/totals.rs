//! Totals of a batch, and the exit class that follows from them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto::sizing::SocketBuffers;
use tune::limiter::Limiter;

use super::failure_cause::CauseCounts;
use super::measurement::{MeasurementSource, TransferMeasurement};
use crate::batch::why::BatchEvidence;
use crate::events::{CopyEvent, CopyObserver, CopySummary, SafeBytes};
use ftp::protection::NO_SECURITY;
use ftp::{Exit, Failure, FailureKind};

/// Totals so far.
#[derive(Debug, Default)]
pub(crate) struct BatchTotals {
    files: u64,
    failed: u64,
    skipped: u64,
    kept: u64,
    /// Files that an earlier run has copied.
    earlier: u64,
    deleted: u64,
    bytes: u64,
    streams_max: u64,
    buffer_max: u64,
    memory_max: u64,
    resent: u64,
    /// The requested buffer policy.
    requested_buffers: SocketBuffers,
    /// The policy in use. `None` before the first successful transfer, `Some(None)` when transfers
    /// differ.
    buffer_policy: Option<Option<&'static str>>,
    /// `None` before the first file, `Some(None)` when files differ.
    verified: Option<Option<String>>,
    /// Class of the failures. `Partial` when they differ.
    class: Option<Exit>,
    first_failure: Option<Failure>,
    causes: CauseCounts,
    /// Class of the failure for which nothing was copied.
    refused: Option<Exit>,
    evidence: BatchEvidence,
    /// Bytes that have moved, those of files in flight included, when this was last looked at.
    moved: u64,
    /// Those of them that are safe, and those of earlier runs, at the same time.
    safe: SafeBytes,
    /// The lines of the nodes that moved the files.
    node_whys: Vec<String>,
    is_interrupted: bool,
    /// A later run may do what this one could not.
    may_continue: bool,
}

/// One sample over all files in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BatchSample {
    /// Open streams.
    pub(crate) streams: u64,
    /// Largest buffer in its stream's direction, bytes.
    pub(crate) buffer: u64,
    /// Memory held by the streams' sockets, bytes.
    pub(crate) memory: u64,
    /// Limiter of the file that has the most streams.
    pub(crate) limiter: Option<Limiter>,
}

impl BatchTotals {
    /// Empty totals, with the requested buffer policy.
    pub(crate) fn new(requested: SocketBuffers) -> Self {
        Self {
            requested_buffers: requested,
            ..Self::default()
        }
    }

    /// Files that are complete, and bytes that have moved for files that have ended.
    pub(crate) fn files_and_bytes(&self) -> (u64, u64) {
        (self.files, self.bytes)
    }

    /// Files that are complete, were left alone, or failed.
    pub(crate) fn ended_files(&self) -> u64 {
        self.files + self.kept + self.failed
    }

    /// Notes how many bytes have moved, those of files in flight included, and how many are safe.
    pub(crate) fn note_moved(&mut self, moved: u64, safe: SafeBytes) {
        (self.moved, self.safe) = (moved, safe);
    }

    /// The batch ends before it is complete.
    pub(crate) fn set_interrupted(&mut self) {
        (self.is_interrupted, self.may_continue) = (true, true);
        // Files in flight have moved bytes, too, and will not report them.
        self.bytes = self.bytes.max(self.moved);
        let message = "interrupted; repeat the command to continue";
        self.first_failure = Some(Failure::new(FailureKind::Interrupted, message));
    }

    /// A file has got a further name.
    pub(crate) fn file_linked(&mut self) {
        self.files += 1;
    }

    /// A file is complete and in place.
    pub(crate) fn file_done(
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
        let elapsed = match measured.source {
            MeasurementSource::ThisEnd(evidence) => {
                self.evidence.add_transfer(&evidence);
                evidence.elapsed
            }
            MeasurementSource::ThirdParty(stats) => {
                self.evidence.add_third_party(&stats);
                stats.elapsed
            }
        };
        self.evidence.add_remarks(measured.remarks, elapsed);
        self.buffer_policy = Some(match self.buffer_policy {
            None => Some(measured.buffer_policy),
            Some(name) => name.filter(|name| *name == measured.buffer_policy),
        });
    }

    /// Adds the line of a node that moved files: what held its transfers back.
    pub(crate) fn add_node_why(&mut self, why: String) {
        self.node_whys.push(why);
    }

    /// Sets the number of bytes that were moved again because they arrived wrong.
    pub(crate) fn set_resent(&mut self, bytes: u64) {
        self.resent = bytes;
    }

    /// A source was skipped.
    pub(crate) fn file_skipped(&mut self) {
        self.skipped += 1;
    }

    /// An existing destination was left alone.
    pub(crate) fn file_kept(&mut self) {
        self.skipped += 1;
        self.kept += 1;
    }

    /// A file or directory was deleted.
    pub(crate) fn path_deleted(&mut self) {
        self.deleted += 1;
    }

    /// Whether anything failed.
    pub(crate) fn has_failures(&self) -> bool {
        self.failed > 0
    }

    /// Files that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Files that an earlier run has copied are in place.
    pub(crate) fn set_earlier_files(&mut self, files: u64) {
        self.earlier = files;
    }

    /// Adds the bytes that were moved for a file that failed.
    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// A file failed permanently, for a cause that others may share.
    pub(crate) fn file_failed(&mut self, failure: &Failure, cause: &str) {
        let (kind, exit) = (failure.kind(), failure.exit());
        self.failed += 1;
        self.may_continue |= failure.may_retry() || kind.is_disk_full() || kind.is_unreachable();
        self.causes.add(cause);
        self.class = Some(match self.class {
            None => exit,
            Some(class) if class == exit => class,
            // Different failures have no common class.
            Some(_) => Exit::Partial,
        });
        self.first_failure.get_or_insert_with(|| failure.clone());
    }

    /// The whole batch is refused, whatever was skipped before: the class is that of `failure`, which is reported next.
    pub(crate) fn batch_refused(&mut self, failure: &Failure) {
        self.refused = Some(failure.exit());
    }

    /// Takes a sample of the files in flight.
    pub(crate) fn observe(&mut self, sample: BatchSample) {
        self.streams_max = self.streams_max.max(sample.streams);
        self.buffer_max = self.buffer_max.max(sample.buffer);
        self.memory_max = self.memory_max.max(sample.memory);
    }

    /// Exit class: `Partial` if some files succeeded or the failures differ, otherwise the class of
    /// the failures.
    fn exit(&self) -> Exit {
        if self.is_interrupted {
            return Exit::Interrupted;
        }
        if let Some(refused) = self.refused {
            return refused;
        }
        match self.class {
            None => Exit::Done,
            Some(_) if self.files + self.skipped + self.earlier > 0 => Exit::Partial,
            Some(class) => class,
        }
    }

    /// The summary of a batch that took `elapsed`.
    pub(crate) fn summary(&self, elapsed: Duration) -> CopySummary {
        let seconds = elapsed.as_secs_f64();
        let evidence = &self.evidence.own_evidence;
        // An empty batch may take no measurable time.
        let goodput_bps = self.bytes as f64 * 8.0 / seconds.max(1e-9);
        let finding = self.evidence.limiter_finding();
        CopySummary {
            bytes: self.bytes,
            seconds,
            goodput_bps,
            streams_max: self.streams_max.max(evidence.peak_streams),
            buffer: match self.buffer_policy {
                None => self.requested_buffers.name(),
                Some(name) => name.unwrap_or("mixed"),
            },
            buffer_bytes_max: self.buffer_max.max(evidence.buffer_bytes),
            memory_bytes_max: self.memory_max.max(evidence.socket_memory_bytes),
            retransmits: evidence.retransmits,
            resent_bytes: self.resent,
            verified: match &self.verified {
                None => "none".to_owned(),
                Some(None) => "mixed".to_owned(),
                Some(Some(label)) => label.clone(),
            },
            limited_by: finding.name().to_owned(),
            why: match self.node_whys.is_empty() {
                true => self.evidence.why_line(goodput_bps, finding),
                false => self.node_whys.join("; "),
            },
            security: NO_SECURITY.to_owned(),
            files: self.files,
            failed: self.failed,
            skipped: self.skipped,
            kept: self.kept,
            deleted: self.deleted,
            exit: self.exit(),
            first_failure: self.first_failure.clone(),
            safe: Some(self.safe).filter(|_| self.may_continue),
            most_failed_for: self.causes.most_frequent(),
        }
    }
}

/// Counts and reports a file that failed for good.
pub(crate) fn report_failure(
    observer: &Arc<dyn CopyObserver>,
    totals: &Mutex<BatchTotals>,
    source: String,
    failure: Failure,
) {
    let cause = failure.cause();
    report_shared(observer, totals, source, failure, cause);
}

/// Like [`report_failure`], with a cause that is known.
pub(crate) fn report_shared(
    observer: &Arc<dyn CopyObserver>,
    totals: &Mutex<BatchTotals>,
    source: String,
    failure: Failure,
    cause: String,
) {
    totals.lock().file_failed(&failure, &cause);
    observer.on_event(CopyEvent::Failed {
        source,
        failure,
        cause,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(labels: &[&str], kinds: &[FailureKind]) -> CopySummary {
        let mut totals = BatchTotals::default();
        for label in labels {
            totals.file_done(10, label, None);
        }
        for kind in kinds {
            totals.file_failed(&Failure::new(*kind, "x"), "x");
        }
        totals.summary(Duration::from_secs(1))
    }

    #[test]
    fn the_exit_class_is_that_of_the_failures_or_partial() {
        assert_eq!(totals(&["md5"], &[]).exit, Exit::Done);
        assert_eq!(
            totals(&["md5"], &[FailureKind::NotFound]).exit,
            Exit::Partial
        );
        assert_eq!(totals(&[], &[FailureKind::NotFound]).exit, Exit::NotFound);
        let alike = [FailureKind::Refused, FailureKind::LoginLimit];
        assert_eq!(totals(&[], &alike).exit, Exit::Refused);
        let mixed = [FailureKind::Refused, FailureKind::Local];
        assert_eq!(totals(&[], &mixed).exit, Exit::Partial);
    }

    #[test]
    fn the_verification_label_is_mixed_when_files_differ() {
        assert_eq!(totals(&[], &[]).verified, "none");
        assert_eq!(totals(&["md5", "md5"], &[]).verified, "md5");
        assert_eq!(totals(&["md5", "size", "size"], &[]).verified, "mixed");
    }

    #[test]
    fn an_interrupted_batch_counts_the_bytes_in_flight_and_says_how_to_continue() {
        let mut totals = BatchTotals::default();
        totals.file_done(10, "md5", None);
        totals.file_failed(&Failure::new(FailureKind::NotFound, "x"), "x");
        let safe = SafeBytes {
            bytes: 20,
            of: Some(100),
        };
        totals.note_moved(25, safe);
        assert_eq!(totals.summary(Duration::from_secs(1)).safe, None);
        totals.set_interrupted();
        let summary = totals.summary(Duration::from_secs(1));
        assert_eq!((summary.bytes, summary.files, summary.failed), (25, 1, 1));
        assert_eq!(summary.exit, Exit::Interrupted);
        let message = summary.first_failure.unwrap().to_string();
        assert!(message.contains("repeat the command"), "{message}");
        assert_eq!(summary.safe, Some(safe));
    }

    #[test]
    fn totals_add_up_files_failures_and_bytes() {
        let summary = totals(&["md5", "md5"], &[FailureKind::Local]);
        assert_eq!((summary.files, summary.failed, summary.bytes), (2, 1, 20));
        assert_eq!(summary.goodput_bps, 160.0);
        assert_eq!(summary.first_failure.unwrap().exit(), Exit::Local);
    }
}
