//! Adds up the chunks of a file to one attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use data::checksum::combine_checksums;
use data::job::TransferReport;
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::{ByteRange, RangeSet};
use tune::Evidence;

use crate::transfer::TransferAttempt;

/// Sum over the attempts at a file's chunks.
#[derive(Debug, Default)]
pub(in crate::transfer) struct ChunkTotals {
    attempt: TransferAttempt,
    /// Checksums of chunks: offset in the destination, length, checksum.
    chunk_checksums: Vec<(u64, u64, String)>,
    /// Streams of each session's last chunk.
    streams_by_session: BTreeMap<u32, u64>,
    /// At least one chunk has no checksum.
    checksum_missing: bool,
    /// At least one chunk used MODE S.
    stream_mode_used: bool,
}

impl ChunkTotals {
    /// Adds a chunk that session number `session` has stored in this range of the destination.
    pub(in crate::transfer) fn add_chunk(
        &mut self,
        session: u32,
        range: ByteRange,
        chunk: TransferAttempt,
    ) {
        let TransferAttempt {
            report,
            extended_mode: extended,
            streams,
            buffers,
            remarks,
            warnings,
        } = chunk;
        let total = &mut self.attempt;
        self.stream_mode_used |= !extended;
        self.streams_by_session.insert(session, streams);
        // Sessions run side by side: the streams of each one's last chunk are open together.
        let open_streams = self.streams_by_session.values().sum();
        total.streams = total.streams.max(open_streams);
        total.buffers = buffers;
        for remark in remarks {
            if !total.remarks.contains(&remark) {
                total.remarks.push(remark);
            }
        }
        total.warnings.extend(warnings);
        match report.checksum {
            Some(checksum) => self
                .chunk_checksums
                .push((range.start, range.len(), checksum)),
            None => self.checksum_missing = true,
        }
        let evidence = &mut total.report.evidence;
        evidence.add_transfer(&report.evidence);
        evidence.streams = total.streams.max(evidence.streams);
        evidence.peak_streams = total.streams.max(evidence.peak_streams);
        evidence.final_streams = open_streams;
        total.report.remark = report.remark.or(total.report.remark.take());
    }

    /// Notes a chunk of which only a part is stored, so that its checksum is unknown.
    pub(in crate::transfer) fn add_unfinished(&mut self) {
        self.checksum_missing = true;
    }

    /// The whole attempt, `elapsed` after it started. `algorithm` is that of the
    /// chunks' checksums.
    pub(in crate::transfer) fn finish(
        mut self,
        stored: RangeSet,
        elapsed: Duration,
        algorithm: Option<ChecksumAlgorithm>,
    ) -> TransferAttempt {
        let checksum = algorithm
            .filter(|_| !self.checksum_missing)
            .and_then(|algorithm| {
                self.chunk_checksums.sort_unstable();
                // Checksums can be combined only if the chunks cover the file from 0 without gaps.
                let from_the_start = self
                    .chunk_checksums
                    .first()
                    .is_some_and(|(start, ..)| *start == 0);
                let gapless = self
                    .chunk_checksums
                    .windows(2)
                    .all(|pair| pair[0].0 + pair[0].1 == pair[1].0);
                let checksums = self
                    .chunk_checksums
                    .iter()
                    .map(|(_, length, checksum)| (checksum.as_str(), *length));
                (from_the_start && gapless)
                    .then(|| combine_checksums(algorithm, checksums))
                    .flatten()
            });
        TransferAttempt {
            extended_mode: !self.stream_mode_used,
            report: TransferReport {
                stored,
                checksum,
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

    fn chunk(bytes: u64, checksum: Option<&str>) -> TransferAttempt {
        TransferAttempt {
            report: TransferReport {
                evidence: Evidence {
                    bytes,
                    congestion_control: Some("cubic".to_owned()),
                    ..Evidence::default()
                },
                checksum: checksum.map(str::to_owned),
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
        let checksum = Some(ChecksumAlgorithm::Adler32);
        outcome.finish(RangeSet::new(), Duration::from_secs(1), checksum)
    }

    /// Adler-32 of `Wiki` and of `pedia`.
    const SUMS: [&str; 2] = ["03da0195", "06280204"];

    #[test]
    fn chunks_add_up_in_any_order() {
        let mut outcome = ChunkTotals::default();
        outcome.add_chunk(1, range(4, 9), chunk(5, Some(SUMS[1])));
        outcome.add_chunk(0, range(0, 4), chunk(4, Some(SUMS[0])));
        let evidence = finish(outcome);
        // Two sessions side by side.
        assert_eq!(
            (
                evidence.report.evidence.bytes,
                evidence.streams,
                evidence.extended_mode
            ),
            (9, 9, true)
        );
        assert_eq!(evidence.report.checksum.as_deref(), Some("11e60398"));
        assert_eq!(
            evidence.report.evidence.congestion_control.as_deref(),
            Some("cubic")
        );
    }

    #[test]
    fn a_whole_checksum_needs_every_byte() {
        let mut gap = ChunkTotals::default();
        gap.add_chunk(0, range(0, 4), chunk(4, Some(SUMS[0])));
        gap.add_chunk(0, range(5, 10), chunk(5, Some(SUMS[1])));
        assert_eq!(finish(gap).report.checksum, None);
        let mut late = ChunkTotals::default();
        late.add_chunk(0, range(4, 9), chunk(5, Some(SUMS[1])));
        assert_eq!(finish(late).report.checksum, None);
        let mut without_checksum = ChunkTotals::default();
        without_checksum.add_chunk(0, range(0, 4), chunk(4, Some(SUMS[0])));
        without_checksum.add_chunk(0, range(4, 9), chunk(5, None));
        assert_eq!(finish(without_checksum).report.checksum, None);
    }

    #[test]
    fn one_chunk_in_stream_mode_clears_extended_mode() {
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
