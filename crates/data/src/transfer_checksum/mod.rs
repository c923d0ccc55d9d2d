//! The checksum of a transfer, made while its bytes pass in whatever order they come.
//!
//! Three ways, by what the algorithm and the store allow:
//! - sums that join (Adler-32, CRCs) cost little: they are made where the bytes pass, per run, and
//!   joined in offset order;
//! - others need the bytes in order and cost more than moving them: a follower reads the store's
//!   gapless beginning back, in its own thread, while the streams go on;
//! - without a store to read back, or for few bytes, they are made where the bytes pass, in order.

mod follower;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proto::checksum::ChecksumAlgorithm;

use crate::checksum::{ChecksumHasher, PartialChecksum, PartialHasher};
use crate::locks::{into_unlocked, lock};
use crate::store::Source;
use follower::ChecksumFollower;

/// Below this many bytes in one stream another thread would cost more than it spares.
pub(crate) const MIN_FOLLOWER_BYTES: u64 = 4 << 20;

/// The sum of one transfer. Offsets are wire offsets.
#[derive(Debug)]
pub(crate) enum TransferChecksum {
    /// None wanted, or none possible.
    Off,
    /// Sums that join.
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

    /// For bytes that can be read in a store, those of wire offset 0 at `origin`, once they have
    /// passed; without such a view as [`TransferChecksum::one_stream`].
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

    /// Whether the passing bytes must be seen in memory.
    pub(crate) fn needs_bytes(&self) -> bool {
        matches!(self, Self::Combined(_) | Self::Sequential(_))
    }

    /// One stream's access.
    pub(crate) fn stream_checksum(&self) -> StreamChecksum<'_> {
        StreamChecksum {
            sum: self,
            run: None,
        }
    }

    /// Runs `work` with the follower, if there is one, beside it in a thread of its own. The
    /// follower ends after `work` has, or early when `go_on` says no.
    pub(crate) fn run_with_follower<T>(
        &self,
        go_on: impl Fn() -> bool + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        let Self::Follower(follow) = self else {
            return work();
        };
        std::thread::scope(|scope| {
            scope.spawn(move || follow.run(go_on));
            // The follower must hear of the end also when the work panics.
            let _end = FollowerStopGuard(follow);
            work()
        })
    }

    /// The result once all taps are dropped and the follower has ended; `None` if bytes were
    /// missing, came twice or (where order matters) out of order.
    pub(crate) fn finish(self) -> Option<String> {
        match self {
            Self::Off => None,
            Self::Combined(pieces) => into_unlocked(pieces).finish(),
            Self::Sequential(order) => {
                let order = into_unlocked(order);
                order.next.map(|_| order.digest.finish())
            }
            Self::Follower(follow) => follow.digest(),
        }
    }
}

/// Tells the follower that nothing more comes, by being dropped.
struct FollowerStopGuard<'f>(&'f ChecksumFollower);

impl Drop for FollowerStopGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// One stream's contribution to a [`TransferChecksum`].
#[derive(Debug)]
pub(crate) struct StreamChecksum<'s> {
    sum: &'s TransferChecksum,
    /// A run of bytes that this stream still extends: where it starts, and its sum.
    run: Option<(u64, PartialHasher)>,
}

impl StreamChecksum<'_> {
    /// These bytes pass at `offset`.
    pub(crate) fn add(&mut self, offset: u64, bytes: &[u8]) {
        match self.sum {
            TransferChecksum::Off | TransferChecksum::Follower(_) => {}
            TransferChecksum::Combined(pieces) => {
                if !matches!(&self.run, Some((start, run)) if start + run.len() == offset) {
                    self.flush();
                }
                let empty = || (offset, PartialHasher::same_algorithm(lock(pieces).empty));
                self.run.get_or_insert_with(empty).1.update(bytes);
            }
            TransferChecksum::Sequential(order) => lock(order).pass(offset, bytes),
        }
    }

    /// `start..end` can be read back from the store now.
    pub(crate) fn stored(&mut self, start: u64, end: u64) {
        if let TransferChecksum::Follower(follow) = self.sum {
            follow.stored(start, end);
        }
    }

    fn flush(&mut self) {
        if let (TransferChecksum::Combined(pieces), Some((start, run))) =
            (self.sum, self.run.take())
        {
            lock(pieces).insert(start, run.finish());
        }
    }
}

impl Drop for StreamChecksum<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// In-order sum; `next` is `None` once the order was broken.
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
            self.next = None;
        }
    }
}

/// Sums of disjoint runs by offset, neighbours joined.
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
        self.overlap |= below.is_some_and(|(at, run)| at + run.len > start)
            || above.is_some_and(|(at, _)| at < end);
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
        fn pieces_in_any_order_over_any_taps_give_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 1..5000),
            size in 1usize..700,
            order in any::<u64>(),
        ) {
            let sum = TransferChecksum::one_stream(Some(ChecksumAlgorithm::Crc32c));
            let mut blocks: Vec<_> = bytes.chunks(size).enumerate().collect();
            blocks.sort_by_key(|(i, _)| (*i as u64 + 1).wrapping_mul(order | 1));
            let mut taps = [sum.stream_checksum(), sum.stream_checksum(), sum.stream_checksum()];
            for (n, (i, block)) in blocks.into_iter().enumerate() {
                taps[n % 3].add((i * size) as u64, block);
            }
            drop(taps);
            prop_assert_eq!(sum.finish(), Some(reference(ChecksumAlgorithm::Crc32c, &bytes)));
        }
    }

    #[test]
    fn an_overlap_voids_the_sum() {
        for second in [0, 4, 9] {
            let sum = TransferChecksum::one_stream(Some(ChecksumAlgorithm::Adler32));
            sum.stream_checksum().add(0, &[1; 10]);
            sum.stream_checksum().add(second, &[1; 10]);
            assert_eq!(sum.finish(), None);
        }
    }

    #[test]
    fn gaps_are_skipped_by_sums_that_join_and_void_others() {
        let bytes = b"abcdef";
        for (algorithm, expected) in [
            (
                ChecksumAlgorithm::Crc32,
                Some(reference(ChecksumAlgorithm::Crc32, b"abef")),
            ),
            (ChecksumAlgorithm::Md5, None),
        ] {
            let sum = TransferChecksum::one_stream(Some(algorithm));
            let mut tap = sum.stream_checksum();
            tap.add(0, &bytes[..2]);
            tap.add(4, &bytes[4..]);
            drop(tap);
            assert_eq!(sum.finish(), expected);
        }
    }

    #[test]
    fn nothing_passed_is_the_sum_of_nothing() {
        for algorithm in ChecksumAlgorithm::CHEAPEST_FIRST {
            let sum = TransferChecksum::one_stream(Some(algorithm));
            assert_eq!(sum.finish(), Some(reference(algorithm, b"")));
        }
        assert_eq!(TransferChecksum::one_stream(None).finish(), None);
    }
}
