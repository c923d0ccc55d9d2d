//! Outcome of the chunks of a file, as one attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use data::digest::join_sums;
use data::job::Report;
use proto::checksum::Algorithm;
use proto::ranges::{ByteRange, RangeSet};
use tune::Evidence;

use crate::transfer::Attempt;

/// The attempts at a file's chunks, added up.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    attempt: Attempt,
    /// Sums of chunks: where in the destination they begin, how long they are.
    sums: Vec<(u64, u64, String)>,
    /// Streams of each session's last chunk.
    open: BTreeMap<u32, u64>,
    /// A chunk came without a sum.
    unsummed: bool,
    /// One chunk at least was not in MODE E.
    plain: bool,
}

impl Outcome {
    /// Session number `session` has brought the chunk that belongs to these bytes of the destination.
    pub(super) fn add(&mut self, session: u32, range: ByteRange, chunk: Attempt) {
        let Attempt {
            report,
            extended,
            streams,
            buffers,
            remarks,
            warnings,
        } = chunk;
        let all = &mut self.attempt;
        self.plain |= !extended;
        self.open.insert(session, streams);
        let open = self.open.values().sum();
        all.streams = all.streams.max(open);
        all.buffers = buffers;
        for remark in remarks {
            if !all.remarks.contains(&remark) {
                all.remarks.push(remark);
            }
        }
        all.warnings.extend(warnings);
        match report.digest {
            Some(sum) => self.sums.push((range.start, range.len(), sum)),
            None => self.unsummed = true,
        }
        let whole = &mut all.report.evidence;
        whole.add_transfer(&report.evidence);
        // Of all sessions, side by side.
        whole.streams = all.streams.max(whole.streams);
        whole.streams_most = all.streams.max(whole.streams_most);
        whole.streams_last = open;
        all.report.remark = report.remark.or(all.report.remark.take());
    }

    /// The whole, `elapsed` after it began; `sum`: what its chunks were summed with.
    pub(super) fn finish(
        mut self,
        stored: RangeSet,
        elapsed: Duration,
        sum: Option<Algorithm>,
    ) -> Attempt {
        let digest = sum.filter(|_| !self.unsummed).and_then(|algorithm| {
            self.sums.sort_unstable();
            let from_the_start = self.sums.first().is_some_and(|(start, ..)| *start == 0);
            let gapless = self.sums.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0);
            let pieces = self
                .sums
                .iter()
                .map(|(_, length, sum)| (sum.as_str(), *length));
            (from_the_start && gapless)
                .then(|| join_sums(algorithm, pieces))
                .flatten()
        });
        Attempt {
            extended: !self.plain,
            report: Report {
                stored,
                digest,
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

    fn chunk(bytes: u64, sum: Option<&str>) -> Attempt {
        Attempt {
            report: Report {
                evidence: Evidence {
                    bytes,
                    congestion: Some("cubic".to_owned()),
                    ..Evidence::default()
                },
                digest: sum.map(str::to_owned),
                ..Report::default()
            },
            extended: true,
            streams: bytes % 7,
            ..Attempt::default()
        }
    }

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn finish(outcome: Outcome) -> Attempt {
        let sum = Some(Algorithm::Adler32);
        outcome.finish(RangeSet::new(), Duration::from_secs(1), sum)
    }

    /// Adler-32 of `Wiki` and of `pedia`.
    const SUMS: [&str; 2] = ["03da0195", "06280204"];

    #[test]
    fn chunks_add_up_in_whatever_order_they_end() {
        let mut outcome = Outcome::default();
        outcome.add(1, range(4, 9), chunk(5, Some(SUMS[1])));
        outcome.add(0, range(0, 4), chunk(4, Some(SUMS[0])));
        let whole = finish(outcome);
        // Two sessions side by side.
        assert_eq!(
            (whole.report.evidence.bytes, whole.streams, whole.extended),
            (9, 9, true)
        );
        assert_eq!(whole.report.digest.as_deref(), Some("11e60398"));
        assert_eq!(whole.report.evidence.congestion.as_deref(), Some("cubic"));
    }

    #[test]
    fn a_sum_needs_every_byte() {
        let mut gap = Outcome::default();
        gap.add(0, range(0, 4), chunk(4, Some(SUMS[0])));
        gap.add(0, range(5, 10), chunk(5, Some(SUMS[1])));
        assert_eq!(finish(gap).report.digest, None);
        let mut late = Outcome::default();
        late.add(0, range(4, 9), chunk(5, Some(SUMS[1])));
        assert_eq!(finish(late).report.digest, None);
        let mut unsummed = Outcome::default();
        unsummed.add(0, range(0, 4), chunk(4, Some(SUMS[0])));
        unsummed.add(0, range(4, 9), chunk(5, None));
        assert_eq!(finish(unsummed).report.digest, None);
    }

    #[test]
    fn one_plain_chunk_makes_it_plain() {
        let mut outcome = Outcome::default();
        outcome.add(0, range(0, 4), chunk(4, None));
        let plain = Attempt {
            extended: false,
            ..chunk(5, None)
        };
        outcome.add(0, range(4, 9), plain);
        assert!(!finish(outcome).extended);
    }
}
