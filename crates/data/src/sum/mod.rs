//! The checksum of a transfer, made while its bytes pass in whatever order they come.
//!
//! Three ways, by what the algorithm and the store allow:
//! - sums that join (Adler-32, CRCs) cost little: they are made where the bytes pass, per run, and
//!   joined in offset order;
//! - others need the bytes in order and cost more than moving them: a follower reads the store's
//!   gapless beginning back, in its own thread, while the streams go on;
//! - without a store to read back, or for few bytes, they are made where the bytes pass, in order.

mod follow;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proto::checksum::Algorithm;

use crate::digest::{Digest, Piece, Run};
use crate::lock::{locked, unlocked};
use crate::store::Source;
use follow::Follow;

/// Below this many bytes in one stream another thread would cost more than it spares.
pub(crate) const WORTH_A_FOLLOWER: u64 = 4 << 20;

/// The sum of one transfer. Offsets are wire offsets.
#[derive(Debug)]
pub(crate) enum Sum {
    /// None wanted, or none possible.
    Off,
    /// Sums that join.
    Pieces(Mutex<Pieces>),
    /// In order from 0.
    InOrder(Mutex<InOrder>),
    /// By reading back.
    Follow(Follow),
}

impl Sum {
    /// For bytes that pass in one stream.
    pub(crate) fn one_stream(algorithm: Option<Algorithm>) -> Self {
        let Some(algorithm) = algorithm else {
            return Self::Off;
        };
        match Piece::empty(algorithm) {
            Some(empty) => Self::Pieces(Mutex::new(Pieces::new(empty))),
            None => Self::InOrder(Mutex::new(InOrder {
                digest: Digest::new(algorithm),
                next: Some(0),
            })),
        }
    }

    /// For bytes that can be read in a store, those of wire offset 0 at `origin`, once they have
    /// passed; without such a view as [`Sum::one_stream`].
    pub(crate) fn read_back(
        algorithm: Option<Algorithm>,
        view: Option<Arc<dyn Source>>,
        origin: u64,
    ) -> Self {
        match (algorithm, view) {
            (Some(algorithm), Some(view)) => Self::Follow(Follow::new(algorithm, view, origin)),
            _ => Self::one_stream(algorithm),
        }
    }

    /// Whether the passing bytes must be seen in memory.
    pub(crate) fn needs_bytes(&self) -> bool {
        matches!(self, Self::Pieces(_) | Self::InOrder(_))
    }

    /// One stream's access.
    pub(crate) fn tap(&self) -> Tap<'_> {
        Tap {
            sum: self,
            run: None,
        }
    }

    /// Runs `work` with the follower, if there is one, beside it in a thread of its own. The
    /// follower ends after `work` has, or early when `go_on` says no.
    pub(crate) fn beside<T>(&self, go_on: impl Fn() -> bool + Send, work: impl FnOnce() -> T) -> T {
        let Self::Follow(follow) = self else {
            return work();
        };
        std::thread::scope(|scope| {
            scope.spawn(move || follow.run(go_on));
            // The follower must hear of the end also when the work panics.
            let _end = End(follow);
            work()
        })
    }

    /// The result once all taps are dropped and the follower has ended; `None` if bytes were
    /// missing, came twice or (where order matters) out of order.
    pub(crate) fn digest(self) -> Option<String> {
        match self {
            Self::Off => None,
            Self::Pieces(pieces) => unlocked(pieces).finish(),
            Self::InOrder(order) => {
                let order = unlocked(order);
                order.next.map(|_| order.digest.finish())
            }
            Self::Follow(follow) => follow.digest(),
        }
    }
}

/// Tells the follower that nothing more comes, by being dropped.
struct End<'f>(&'f Follow);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// One stream's contribution to a [`Sum`].
#[derive(Debug)]
pub(crate) struct Tap<'s> {
    sum: &'s Sum,
    /// A run of bytes that this stream still extends: where it starts, and its sum.
    run: Option<(u64, Run)>,
}

impl Tap<'_> {
    /// These bytes pass at `offset`.
    pub(crate) fn pass(&mut self, offset: u64, bytes: &[u8]) {
        match self.sum {
            Sum::Off | Sum::Follow(_) => {}
            Sum::Pieces(pieces) => {
                if !matches!(&self.run, Some((start, run)) if start + run.len() == offset) {
                    self.flush();
                }
                let empty = || (offset, Run::like(locked(pieces).empty));
                self.run.get_or_insert_with(empty).1.update(bytes);
            }
            Sum::InOrder(order) => locked(order).pass(offset, bytes),
        }
    }

    /// `start..end` can be read back from the store now.
    pub(crate) fn stored(&mut self, start: u64, end: u64) {
        if let Sum::Follow(follow) = self.sum {
            follow.stored(start, end);
        }
    }

    fn flush(&mut self) {
        if let (Sum::Pieces(pieces), Some((start, run))) = (self.sum, self.run.take()) {
            locked(pieces).insert(start, run.end());
        }
    }
}

impl Drop for Tap<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// In-order sum; `next` is `None` once the order was broken.
#[derive(Debug)]
pub(crate) struct InOrder {
    digest: Digest,
    next: Option<u64>,
}

impl InOrder {
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
pub(crate) struct Pieces {
    empty: Piece,
    runs: BTreeMap<u64, Piece>,
    overlap: bool,
}

impl Pieces {
    fn new(empty: Piece) -> Self {
        Self {
            empty,
            runs: BTreeMap::new(),
            overlap: false,
        }
    }

    fn insert(&mut self, mut start: u64, mut piece: Piece) {
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
            piece = run.join(piece);
            start = at;
        }
        if let Some((at, run)) = above.filter(|(at, _)| *at == end) {
            self.runs.remove(&at);
            piece = piece.join(run);
        }
        self.runs.insert(start, piece);
    }

    fn finish(self) -> Option<String> {
        let whole = self.runs.into_values().fold(self.empty, Piece::join);
        (!self.overlap).then(|| whole.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(algorithm: Algorithm, bytes: &[u8]) -> String {
        let mut digest = Digest::new(algorithm);
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
            let sum = Sum::one_stream(Some(Algorithm::Crc32c));
            let mut blocks: Vec<_> = bytes.chunks(size).enumerate().collect();
            blocks.sort_by_key(|(i, _)| (*i as u64 + 1).wrapping_mul(order | 1));
            let mut taps = [sum.tap(), sum.tap(), sum.tap()];
            for (n, (i, block)) in blocks.into_iter().enumerate() {
                taps[n % 3].pass((i * size) as u64, block);
            }
            drop(taps);
            prop_assert_eq!(sum.digest(), Some(reference(Algorithm::Crc32c, &bytes)));
        }
    }

    #[test]
    fn an_overlap_voids_the_sum() {
        for second in [0, 4, 9] {
            let sum = Sum::one_stream(Some(Algorithm::Adler32));
            sum.tap().pass(0, &[1; 10]);
            sum.tap().pass(second, &[1; 10]);
            assert_eq!(sum.digest(), None);
        }
    }

    #[test]
    fn gaps_are_skipped_by_sums_that_join_and_void_others() {
        let bytes = b"abcdef";
        for (algorithm, expected) in [
            (Algorithm::Crc32, Some(reference(Algorithm::Crc32, b"abef"))),
            (Algorithm::Md5, None),
        ] {
            let sum = Sum::one_stream(Some(algorithm));
            let mut tap = sum.tap();
            tap.pass(0, &bytes[..2]);
            tap.pass(4, &bytes[4..]);
            drop(tap);
            assert_eq!(sum.digest(), expected);
        }
    }

    #[test]
    fn nothing_passed_is_the_sum_of_nothing() {
        for algorithm in Algorithm::CHEAPEST_FIRST {
            let sum = Sum::one_stream(Some(algorithm));
            assert_eq!(sum.digest(), Some(reference(algorithm, b"")));
        }
        assert_eq!(Sum::one_stream(None).digest(), None);
    }
}
