//! Computes the checksum of a store's gapless beginning while it grows.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use proto::checksum::ChecksumAlgorithm;
use proto::ranges::RangeSet;

use crate::buffer::PageBuffer;
use crate::checksum::ChecksumHasher;
use crate::store::Source;

/// Bytes read back in one call.
const READ_SIZE: usize = 1 << 20;

/// A follower. [`ChecksumFollower::run`] is called in its own thread, [`ChecksumFollower::stored`]
/// by the streams, [`ChecksumFollower::end`] when they have ended.
#[derive(Debug)]
pub(crate) struct ChecksumFollower {
    source: Arc<dyn Source>,
    /// Store offset of wire offset 0.
    origin: u64,
    state: Mutex<FollowerState>,
    grown: Condvar,
    hasher: Mutex<Option<ChecksumHasher>>,
}

#[derive(Debug, Default)]
struct FollowerState {
    stored: RangeSet,
    summed: u64,
    ended: bool,
}

impl ChecksumFollower {
    pub(crate) fn new(algorithm: ChecksumAlgorithm, source: Arc<dyn Source>, origin: u64) -> Self {
        Self {
            source,
            origin,
            state: Mutex::default(),
            grown: Condvar::new(),
            hasher: Mutex::new(Some(ChecksumHasher::new(algorithm))),
        }
    }

    /// Reports that `start..end` (wire offsets) can be read.
    pub(crate) fn stored(&self, start: u64, end: u64) {
        self.state.lock().stored.insert(start, end);
        self.grown.notify_one();
    }

    /// Reports that nothing more will be stored.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.grown.notify_one();
    }

    /// Computes the checksum until the end. Returns early, without a checksum, if the store cannot
    /// be read. `go_on` is called before each read.
    pub(crate) fn run(&self, go_on: impl Fn() -> bool) {
        let Some(mut digest) = self.hasher.lock().take() else {
            return;
        };
        let mut buffer = PageBuffer::new(READ_SIZE);
        while let Some((from, to)) = self.next() {
            let want = usize::try_from(to - from)
                .unwrap_or(READ_SIZE)
                .min(READ_SIZE);
            let buf = &mut buffer.as_mut()[..want];
            match self.source.read_at(self.origin + from, buf) {
                // The follower stops with the transfer, also while data keeps arriving.
                Ok(n) if n > 0 && go_on() => {
                    digest.update(&buf[..n]);
                    self.state.lock().summed += n as u64;
                }
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(file = self.source.name(), %error, "cannot read the stored bytes for the checksum");
                    return;
                }
            }
        }
        *self.hasher.lock() = Some(digest);
    }

    /// The next bytes to read; waits for them. `None` at the end.
    fn next(&self) -> Option<(u64, u64)> {
        let mut state = self.state.lock();
        loop {
            // Only the gapless beginning can be checksummed in order.
            let prefix = state.stored.prefix_len();
            if prefix > state.summed {
                return Some((state.summed, prefix));
            }
            if state.ended {
                return None;
            }
            self.grown.wait(&mut state);
        }
    }

    /// The checksum, if everything stored was gapless from 0 on and could be read.
    pub(crate) fn digest(self) -> Option<String> {
        let state = self.state.lock();
        // A gap or a short store leaves bytes without a checksum.
        let whole = state.stored.end() == state.summed;
        let digest = self.hasher.lock().take();
        digest.filter(|_| whole).map(ChecksumHasher::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemorySource;

    fn follower(bytes: &[u8], ranges: &[(u64, u64)]) -> Option<String> {
        let source = Arc::new(MemorySource::new([b"--", bytes].concat(), "m"));
        let follower = ChecksumFollower::new(ChecksumAlgorithm::Md5, source, 2);
        std::thread::scope(|scope| {
            scope.spawn(|| follower.run(|| true));
            for (start, end) in ranges {
                follower.stored(*start, *end);
            }
            follower.end();
        });
        follower.digest()
    }

    #[test]
    fn ranges_in_any_order_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 % 253) as u8).collect();
        let mut digest = ChecksumHasher::new(ChecksumAlgorithm::Md5);
        digest.update(&bytes);
        let ranges = [
            (2_000_000, 3_000_000),
            (0, 10),
            (1_000_000, 2_000_000),
            (10, 1_000_000),
        ];
        assert_eq!(follower(&bytes, &ranges), Some(digest.finish()));
    }

    #[test]
    fn a_gap_or_a_short_store_gives_no_checksum() {
        assert_eq!(follower(b"abcdef", &[(0, 2), (4, 6)]), None);
        assert_eq!(follower(b"abc", &[(0, 6)]), None);
        assert!(follower(b"", &[]).is_some());
    }
}
