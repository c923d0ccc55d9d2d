//! Checksums of the two ends of a copy, wherever they are.

use std::sync::Arc;

use data::store::Source;
use proto::checksum::Algorithm;
use proto::feature::Features;
use proto::ranges::{ByteRange, RangeSet};

use crate::Failure;
use crate::session::Session;
use crate::verify::sum_local;

/// Bytes at the end of each safe range that are compared before a copy is resumed.
const SPOT: u64 = 4 << 20;
/// Most ranges that are compared.
const SPOTS: usize = 16;

/// One end of a copy: bytes that can be summed. `origin` is where the copy's byte 0 is.
pub(super) enum End<'a> {
    /// Here.
    Local {
        /// An open file.
        source: Arc<dyn Source>,
        /// Offset of the part.
        origin: u64,
    },
    /// On a server.
    Remote {
        /// Idle.
        session: &'a mut Session,
        /// The file.
        path: &'a [u8],
        /// Offset of the part.
        origin: u64,
    },
}

/// Most sums of ranges that are asked of a server ahead of the answers, or of this machine...
const QUESTIONS: usize = 128;
/// ...and of a server that is asked one after the other, a round trip each.
const QUESTIONS_IN_TURN: usize = 32;

impl End<'_> {
    /// Most sums of ranges that are worth asking for.
    pub(super) fn questions(&self) -> usize {
        match self {
            Self::Remote { session, .. } if !session.takes_ahead() => QUESTIONS_IN_TURN,
            Self::Remote { .. } | Self::Local { .. } => QUESTIONS,
        }
    }

    /// The sums of ranges, in their order.
    pub(super) async fn sums(
        &mut self,
        algorithm: Algorithm,
        ranges: &[ByteRange],
    ) -> Result<Vec<String>, Failure> {
        let Self::Remote {
            session,
            path,
            origin,
        } = self
        else {
            let mut sums = Vec::with_capacity(ranges.len());
            for range in ranges {
                sums.push(self.sum(algorithm, *range).await?);
            }
            return Ok(sums);
        };
        let at = |range: &ByteRange| (*origin + range.start, range.len());
        let ranges: Vec<(u64, u64)> = ranges.iter().map(at).collect();
        session.checksums(algorithm, &ranges, path).await
    }

    async fn sum(&mut self, algorithm: Algorithm, range: ByteRange) -> Result<String, Failure> {
        match self {
            Self::Local { source, origin } => {
                let source = Arc::clone(source);
                sum_local(algorithm, source, *origin + range.start, Some(range.len())).await
            }
            Self::Remote {
                session,
                path,
                origin,
            } => {
                let offset = *origin + range.start;
                session
                    .checksum(algorithm, offset, Some(range.len()), path)
                    .await
            }
        }
    }
}

impl End<'_> {
    /// The sum from the origin on: of `length` bytes, or to the end. Servers that sum whole files
    /// only can do that, too.
    pub(super) async fn total(
        &mut self,
        algorithm: Algorithm,
        length: Option<u64>,
    ) -> Result<String, Failure> {
        match self {
            Self::Local { source, origin } => {
                sum_local(algorithm, Arc::clone(source), *origin, length).await
            }
            Self::Remote {
                session,
                path,
                origin,
            } => session.checksum(algorithm, *origin, length, path).await,
        }
    }
}

/// Compares the ends of the safe ranges (at most 4 MiB of each, at most 16 ranges, the last ones).
pub(super) async fn spots_agree(
    a: &mut End<'_>,
    b: &mut End<'_>,
    algorithm: Algorithm,
    safe: &RangeSet,
) -> Result<bool, Failure> {
    let skip = safe.count().saturating_sub(SPOTS);
    for range in safe.iter().skip(skip) {
        let spot = ByteRange {
            start: range.start.max(range.end.saturating_sub(SPOT)),
            end: range.end,
        };
        if !agree(a, b, algorithm, spot).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares one range.
pub(super) async fn agree(
    a: &mut End<'_>,
    b: &mut End<'_>,
    algorithm: Algorithm,
    range: ByteRange,
) -> Result<bool, Failure> {
    let (a, b) = tokio::join!(a.sum(algorithm, range), b.sum(algorithm, range));
    Ok(a?.eq_ignore_ascii_case(&b?))
}

/// The cheapest algorithm for parts of files that all servers have.
pub(super) fn partial_algorithm(servers: &[&Features]) -> Option<Algorithm> {
    Algorithm::CHEAPEST_FIRST
        .into_iter()
        .find(|a| servers.iter().all(|f| f.checksums.contains(a)))
}
