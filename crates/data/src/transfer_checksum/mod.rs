//! The checksum of a transfer, computed while its bytes pass in any order.
//!
//! Three ways, depending on the algorithm and the store:
//! - checksums that combine (Adler-32, CRCs) are cheap: each stream computes them per run of bytes,
//!   and they are combined in offset order;
//! - others need the bytes in order and cost more than moving them: a follower reads the store's
//!   gapless beginning back, in its own thread, while the streams continue;
//! - without a store to read back, or for few bytes, they are computed as the bytes pass, in order.

mod follower;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::checksum::ChecksumAlgorithm;

use crate::checksum::{ChecksumHasher, PartialChecksum, PartialHasher};
use crate::store::Source;
use follower::ChecksumFollower;

/// Below this many bytes in one stream a follower thread costs more than it saves.
pub(crate) const MIN_FOLLOWER_BYTES: u64 = 4 << 20;

/// The checksum of one transfer. Offsets are wire offsets.
#[derive(Debug)]
pub(crate) enum TransferChecksum {
    /// None requested, or none possible.
    Off,
    /// Checksums that combine.
    Combined(Mutex<CombinedChecksum>),
    /// In order from 0.
    Sequential(Mutex<SequentialChecksum>),
    /// By reading back.
    Follower(ChecksumFollower),
}

impl TransferChecksum {
    /// For bytes that pass in one stream.
    pub(crate) fn one_stream(algorithm: Option<ChecksumAlgorithm>) -> Self {
        let Some(algorithm) = algorithm else {
            return Self::Off;
        };
        match PartialChecksum::empty(algorithm) {
            Some(empty) => Self::Combined(Mutex::new(CombinedChecksum::new(empty))),
            None => Self::Sequential(Mutex::new(SequentialChecksum {
                digest: ChecksumHasher::new(algorithm),
                next: Some(0),
            })),
        }
    }

    /// For bytes that can be read back from a store once they have passed. `origin` is the store
    /// offset of wire offset 0. Without `view`, as [`TransferChecksum::one_stream`].
    pub(crate) fn read_back(
        algorithm: Option<ChecksumAlgorithm>,
        view: Option<Arc<dyn Source>>,
        origin: u64,
    ) -> Self {
        match (algorithm, view) {
            (Some(algorithm), Some(view)) => {
                Self::Follower(ChecksumFollower::new(algorithm, view, origin))
            }
            _ => Self::one_stream(algorithm),
        }
    }

    /// Whether the bytes must pass through memory.
    pub(crate) fn needs_bytes(&self) -> bool {
        matches!(self, Self::Combined(_) | Self::Sequential(_))
    }

    /// The access of one stream.
    pub(crate) fn stream_checksum(&self) -> StreamChecksum<'_> {
        StreamChecksum {
            checksum: self,
            run: None,
            zeros: None,
        }
    }

    /// Runs `work`, and the follower, if there is one, in a thread of its own. The follower ends
    /// after `work`, or early when `go_on` returns false.
    pub(crate) fn run_with_follower<T>(
        &self,
        go_on: impl Fn() -> bool + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        let Self::Follower(follower) = self else {
            return work();
        };
        std::thread::scope(|scope| {
            scope.spawn(move || follower.run(go_on));
            // The follower must stop also when the work panics.
            let _end = FollowerStopGuard(follower);
            work()
        })
    }

    /// The result, once all streams have dropped their access and the follower has ended. `None` if
    /// runs that are combined overlap; otherwise, if the bytes have a gap or (without a follower)
    /// came out of order.
    pub(crate) fn finish(self) -> Option<String> {
        match self {
            Self::Off => None,
            Self::Combined(pieces) => pieces.into_inner().finish(),
            Self::Sequential(order) => {
                let order = order.into_inner();
                order.next.map(|_| order.digest.finish())
            }
            Self::Follower(follower) => follower.digest(),
        }
    }
}

/// Tells the follower, when dropped, that nothing more comes.
struct FollowerStopGuard<'f>(&'f ChecksumFollower);

impl Drop for FollowerStopGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// One stream's contribution to a [`TransferChecksum`].
#[derive(Debug)]
pub(crate) struct StreamChecksum<'s> {
    checksum: &'s TransferChecksum,
    /// The run of bytes that this stream still extends: its start and its checksum.
    run: Option<(u64, PartialHasher)>,
    /// The checksum of the last hole: most are as long as the piece of a reader.
    zeros: Option<PartialChecksum>,
}

impl StreamChecksum<'_> {
    /// Adds bytes that pass at `offset`.
    pub(crate) fn add(&mut self, offset: u64, bytes: &[u8]) {
        match self.checksum {
            TransferChecksum::Off | TransferChecksum::Follower(_) => {}
            TransferChecksum::Combined(pieces) => {
                // A jump ends the run; neighbouring runs are combined later.
                if !matches!(&self.run, Some((start, run)) if start + run.len() == offset) {
                    self.flush();
                }
                let empty = || (offset, PartialHasher::same_algorithm(pieces.lock().empty));
                self.run.get_or_insert_with(empty).1.update(bytes);
            }
            TransferChecksum::Sequential(order) => order.lock().pass(offset, bytes),
        }
    }

    /// Whether zeros need not pass through memory.
    pub(crate) fn knows_zeros(&self) -> bool {
        !matches!(self.checksum, TransferChecksum::Sequential(_))
    }

    /// Adds `len` zeros at `offset`, without a look at them.
    pub(crate) fn add_zeros(&mut self, offset: u64, len: u64) {
        self.flush();
        if let TransferChecksum::Combined(pieces) = self.checksum {
            let mut pieces = pieces.lock();
            let known = self.zeros.filter(|zeros| zeros.len == len);
            let zeros = known.unwrap_or_else(|| pieces.empty.zeros(len));
            self.zeros = Some(zeros);
            pieces.insert(offset, zeros);
        }
    }

    /// Reports that `start..end` can be read back from the store.
    pub(crate) fn stored(&mut self, start: u64, end: u64) {
        if let TransferChecksum::Follower(follower) = self.checksum {
            follower.stored(start, end);
        }
    }

    fn flush(&mut self) {
        if let (TransferChecksum::Combined(pieces), Some((start, run))) =
            (self.checksum, self.run.take())
        {
            pieces.lock().insert(start, run.finish());
        }
    }
}

impl Drop for StreamChecksum<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A checksum in order. `next` is `None` once the order was broken.
#[derive(Debug)]
pub(crate) struct SequentialChecksum {
    digest: ChecksumHasher,
    next: Option<u64>,
}

impl SequentialChecksum {
    fn pass(&mut self, offset: u64, bytes: &[u8]) {
        if self.next == Some(offset) {
            self.digest.update(bytes);
            self.next = Some(offset + bytes.len() as u64);
        } else {
            // The order stays broken: earlier bytes cannot be added later.
            self.next = None;
        }
    }
}

/// Checksums of disjoint runs by offset; neighbours are combined.
#[derive(Debug)]
pub(crate) struct CombinedChecksum {
    empty: PartialChecksum,
    runs: BTreeMap<u64, PartialChecksum>,
    overlap: bool,
}

impl CombinedChecksum {
    fn new(empty: PartialChecksum) -> Self {
        Self {
            empty,
            runs: BTreeMap::new(),
            overlap: false,
        }
    }

    fn insert(&mut self, mut start: u64, mut piece: PartialChecksum) {
        if piece.len == 0 {
            return;
        }
        let end = start + piece.len;
        let below = self.runs.range(..=start).next_back();
        let below = below.map(|(at, run)| (*at, *run));
        let above = self.runs.range(start..).next().map(|(at, run)| (*at, *run));
        // Overlapping runs would count bytes twice.
        self.overlap |= below.is_some_and(|(at, run)| at + run.len > start)
            || above.is_some_and(|(at, _)| at < end);
        // The checksum is already void, so memory for runs is no longer needed.
        if self.overlap {
            return;
        }
        if let Some((at, run)) = below.filter(|(at, run)| at + run.len == start) {
            self.runs.remove(&at);
            piece = run.combine(piece);
            start = at;
        }
        if let Some((at, run)) = above.filter(|(at, _)| *at == end) {
            self.runs.remove(&at);
            piece = piece.combine(run);
        }
        self.runs.insert(start, piece);
    }

    fn finish(self) -> Option<String> {
        let whole = self
            .runs
            .into_values()
            .fold(self.empty, PartialChecksum::combine);
        (!self.overlap).then(|| whole.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
        let mut digest = ChecksumHasher::new(algorithm);
        digest.update(bytes);
        digest.finish()
    }

    proptest! {
        #[test]
        fn parts_in_any_order_over_several_streams_give_the_checksum_of_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 1..5000),
            size in 1usize..700,
            order in any::<u64>(),
        ) {
            let checksum = TransferChecksum::one_stream(Some(ChecksumAlgorithm::Crc32c));
            let mut blocks: Vec<_> = bytes.chunks(size).enumerate().collect();
            blocks.sort_by_key(|(i, _)| (*i as u64 + 1).wrapping_mul(order | 1));
            let mut parts = [checksum.stream_checksum(), checksum.stream_checksum(), checksum.stream_checksum()];
            for (n, (i, block)) in blocks.into_iter().enumerate() {
                parts[n % 3].add((i * size) as u64, block);
            }
            drop(parts);
            prop_assert_eq!(checksum.finish(), Some(reference(ChecksumAlgorithm::Crc32c, &bytes)));
        }
    }

    #[test]
    fn an_overlap_voids_the_checksum() {
        for second in [0, 4, 9] {
            let checksum = TransferChecksum::one_stream(Some(ChecksumAlgorithm::Adler32));
            checksum.stream_checksum().add(0, &[1; 10]);
            checksum.stream_checksum().add(second, &[1; 10]);
            assert_eq!(checksum.finish(), None);
        }
    }

    #[test]
    fn gaps_are_skipped_by_checksums_that_combine_and_void_others() {
        let bytes = b"abcdef";
        for (algorithm, expected) in [
            (
                ChecksumAlgorithm::Crc32,
                Some(reference(ChecksumAlgorithm::Crc32, b"abef")),
            ),
            (ChecksumAlgorithm::Md5, None),
        ] {
            let checksum = TransferChecksum::one_stream(Some(algorithm));
            let mut part = checksum.stream_checksum();
            part.add(0, &bytes[..2]);
            part.add(4, &bytes[4..]);
            drop(part);
            assert_eq!(checksum.finish(), expected);
        }
    }

    #[test]
    fn no_bytes_give_the_checksum_of_nothing() {
        for algorithm in ChecksumAlgorithm::CHEAPEST_FIRST {
            let checksum = TransferChecksum::one_stream(Some(algorithm));
            assert_eq!(checksum.finish(), Some(reference(algorithm, b"")));
        }
        assert_eq!(TransferChecksum::one_stream(None).finish(), None);
    }
}
