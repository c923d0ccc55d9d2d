//! Summing a store's gapless beginning while it grows.

use std::sync::{Arc, Condvar, Mutex};

use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;

use crate::buffer::PageBuffer;
use crate::checksum::ChecksumHasher;
use crate::locks::{lock, wait_notified};
use crate::store::Source;

/// Bytes read back at a time.
const READ: usize = 1 << 20;

/// A follower: [`Follow::run`] in its own thread, [`Follow::stored`] from the streams,
/// [`Follow::end`] when they are done.
#[derive(Debug)]
pub(crate) struct ChecksumFollower {
    view: Arc<dyn Source>,
    /// Store offset of wire offset 0.
    origin: u64,
    state: Mutex<FollowerState>,
    grown: Condvar,
    sum: Mutex<Option<ChecksumHasher>>,
}

#[derive(Debug, Default)]
struct FollowerState {
    stored: RangeSet,
    summed: u64,
    ended: bool,
}

impl ChecksumFollower {
    pub(crate) fn new(algorithm: ChecksumAlgorithm, view: Arc<dyn Source>, origin: u64) -> Self {
        Self {
            view,
            origin,
            state: Mutex::default(),
            grown: Condvar::new(),
            sum: Mutex::new(Some(ChecksumHasher::new(algorithm))),
        }
    }

    /// `start..end` (wire offsets) can be read.
    pub(crate) fn stored(&self, start: u64, end: u64) {
        lock(&self.state).stored.insert(start, end);
        self.grown.notify_one();
    }

    /// Nothing more will be stored.
    pub(crate) fn end(&self) {
        lock(&self.state).ended = true;
        self.grown.notify_one();
    }

    /// Sums until the end; returns early when the store cannot be read, and there is no digest
    /// then. `go_on` is asked before each read.
    pub(crate) fn run(&self, go_on: impl Fn() -> bool) {
        let Some(mut digest) = lock(&self.sum).take() else {
            return;
        };
        let mut buffer = PageBuffer::new(READ);
        while let Some((from, to)) = self.next() {
            let want = usize::try_from(to - from).unwrap_or(READ).min(READ);
            let buf = &mut buffer.as_mut()[..want];
            match self.view.read_at(self.origin + from, buf) {
                Ok(n) if n > 0 && go_on() => {
                    digest.update(&buf[..n]);
                    lock(&self.state).summed += n as u64;
                }
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(file = self.view.name(), %error, "cannot read back to sum");
                    return;
                }
            }
        }
        *lock(&self.sum) = Some(digest);
    }

    /// The next bytes to sum; waits for them. `None` at the end.
    fn next(&self) -> Option<(u64, u64)> {
        let mut state = lock(&self.state);
        loop {
            let prefix = state.stored.prefix_len();
            if prefix > state.summed {
                return Some((state.summed, prefix));
            }
            if state.ended {
                return None;
            }
            state = wait_notified(&self.grown, state);
        }
    }

    /// The digest, if everything stored was gapless from 0 on and could be read.
    pub(crate) fn digest(self) -> Option<String> {
        let state = lock(&self.state);
        let whole = state.stored.end() == state.summed;
        let digest = lock(&self.sum).take();
        digest.filter(|_| whole).map(ChecksumHasher::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemorySource;

    fn follow(bytes: &[u8], ranges: &[(u64, u64)]) -> Option<String> {
        let view = Arc::new(MemorySource::new([b"--", bytes].concat(), "m"));
        let follow = ChecksumFollower::new(ChecksumAlgorithm::Md5, view, 2);
        std::thread::scope(|scope| {
            scope.spawn(|| follow.run(|| true));
            for (start, end) in ranges {
                follow.stored(*start, *end);
            }
            follow.end();
        });
        follow.digest()
    }

    #[test]
    fn sums_the_whole_whatever_the_order() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 % 253) as u8).collect();
        let mut digest = ChecksumHasher::new(ChecksumAlgorithm::Md5);
        digest.update(&bytes);
        let ranges = [
            (2_000_000, 3_000_000),
            (0, 10),
            (1_000_000, 2_000_000),
            (10, 1_000_000),
        ];
        assert_eq!(follow(&bytes, &ranges), Some(digest.finish()));
    }

    #[test]
    fn a_gap_or_a_short_store_gives_none() {
        assert_eq!(follow(b"abcdef", &[(0, 2), (4, 6)]), None);
        assert_eq!(follow(b"abc", &[(0, 6)]), None);
        assert!(follow(b"", &[]).is_some());
    }
}
