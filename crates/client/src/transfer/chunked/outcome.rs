//! Outcome of the chunks of a file, as one attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use data::checksum::combine_checksums;
use data::job::TransferReport;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};
use tune::Evidence;

use crate::transfer::TransferAttempt;

/// The attempts at a file's chunks, added up.
#[derive(Debug, Default)]
pub(super) struct ChunkTotals {
    attempt: TransferAttempt,
    /// Sums of chunks: where in the destination they begin, how long they are.
    chunk_checksums: Vec<(u64, u64, String)>,
    /// Streams of each session's last chunk.
    streams_by_session: BTreeMap<u32, u64>,
    /// A chunk came without a sum.
    checksum_missing: bool,
    /// One chunk at least was not in MODE E.
    stream_mode_used: bool,
}

impl ChunkTotals {
    /// Session number `session` has brought the chunk that belongs to these bytes of the destination.
    pub(super) fn add_chunk(&mut self, session: u32, range: ByteRange, chunk: TransferAttempt) {
        let TransferAttempt {
            report,
            extended_mode: extended,
            streams,
            buffers,
            remarks,
            warnings,
        } = chunk;
        let all = &mut self.attempt;
        self.stream_mode_used |= !extended;
        self.streams_by_session.insert(session, streams);
        let open = self.streams_by_session.values().sum();
        all.streams = all.streams.max(open);
        all.buffers = buffers;
        for remark in remarks {
            if !all.remarks.contains(&remark) {
                all.remarks.push(remark);
            }
        }
        all.warnings.extend(warnings);
        match report.checksum {
            Some(sum) => self.chunk_checksums.push((range.start, range.len(), sum)),
            None => self.checksum_missing = true,
        }
        let whole = &mut all.report.evidence;
        whole.add_transfer(&report.evidence);
        // Of all sessions, side by side.
        whole.streams = all.streams.max(whole.streams);
        whole.peak_streams = all.streams.max(whole.peak_streams);
        whole.final_streams = open;
        all.report.remark = report.remark.or(all.report.remark.take());
    }

    /// The whole, `elapsed` after it began; `sum`: what its chunks were summed with.
    pub(super) fn finish(
        mut self,
        stored: RangeSet,
        elapsed: Duration,
        sum: Option<ChecksumAlgorithm>,
    ) -> TransferAttempt {
        let digest = sum
            .filter(|_| !self.checksum_missing)
            .and_then(|algorithm| {
                self.chunk_checksums.sort_unstable();
                let from_the_start = self
                    .chunk_checksums
                    .first()
                    .is_some_and(|(start, ..)| *start == 0);
                let gapless = self
                    .chunk_checksums
                    .windows(2)
                    .all(|w| w[0].0 + w[0].1 == w[1].0);
                let pieces = self
                    .chunk_checksums
                    .iter()
                    .map(|(_, length, sum)| (sum.as_str(), *length));
                (from_the_start && gapless)
                    .then(|| combine_checksums(algorithm, pieces))
                    .flatten()
            });
        TransferAttempt {
            extended_mode: !self.stream_mode_used,
            report: TransferReport {
                stored,
                checksum: digest,
                evidence: Evidence {
                    elapsed,
                    ..self.attempt.report.evidence
                },
                ..self.attempt.report
            },
            ..self.attempt
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: u64, sum: Option<&str>) -> TransferAttempt {
        TransferAttempt {
            report: TransferReport {
                evidence: Evidence {
                    bytes,
                    congestion_control: Some("cubic".to_owned()),
                    ..Evidence::default()
                },
                checksum: sum.map(str::to_owned),
                ..TransferReport::default()
            },
            extended_mode: true,
            streams: bytes % 7,
            ..TransferAttempt::default()
        }
    }

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn finish(outcome: ChunkTotals) -> TransferAttempt {
        let sum = Some(ChecksumAlgorithm::Adler32);
        outcome.finish(RangeSet::new(), Duration::from_secs(1), sum)
    }

    /// Adler-32 of `Wiki` and of `pedia`.
    const SUMS: [&str; 2] = ["03da0195", "06280204"];

    #[test]
    fn chunks_add_up_in_whatever_order_they_end() {
        let mut outcome = ChunkTotals::default();
        outcome.add_chunk(1, range(4, 9), chunk(5, Some(SUMS[1])));
        outcome.add_chunk(0, range(0, 4), chunk(4, Some(SUMS[0])));
        let whole = finish(outcome);
        // Two sessions side by side.
        assert_eq!(
            (
                whole.report.evidence.bytes,
                whole.streams,
                whole.extended_mode
            ),
            (9, 9, true)
        );
        assert_eq!(whole.report.checksum.as_deref(), Some("11e60398"));
        assert_eq!(
            whole.report.evidence.congestion_control.as_deref(),
            Some("cubic")
        );
    }

    #[test]
    fn a_sum_needs_every_byte() {
        let mut gap = ChunkTotals::default();
        gap.add_chunk(0, range(0, 4), chunk(4, Some(SUMS[0])));
        gap.add_chunk(0, range(5, 10), chunk(5, Some(SUMS[1])));
        assert_eq!(finish(gap).report.checksum, None);
        let mut late = ChunkTotals::default();
        late.add_chunk(0, range(4, 9), chunk(5, Some(SUMS[1])));
        assert_eq!(finish(late).report.checksum, None);
        let mut unsummed = ChunkTotals::default();
        unsummed.add_chunk(0, range(0, 4), chunk(4, Some(SUMS[0])));
        unsummed.add_chunk(0, range(4, 9), chunk(5, None));
        assert_eq!(finish(unsummed).report.checksum, None);
    }

    #[test]
    fn one_plain_chunk_makes_it_plain() {
        let mut outcome = ChunkTotals::default();
        outcome.add_chunk(0, range(0, 4), chunk(4, None));
        let plain = TransferAttempt {
            extended_mode: false,
            ..chunk(5, None)
        };
        outcome.add_chunk(0, range(4, 9), plain);
        assert!(!finish(outcome).extended_mode);
    }
}
