//! Summing a store's gapless beginning while it grows.

use std::sync::{Arc, Condvar, Mutex};

use proto::checksum::Algorithm;
use proto::ranges::RangeSet;

use crate::buffer::PageBuffer;
use crate::digest::Digest;
use crate::lock::{locked, notified};
use crate::store::Source;

/// Bytes read back at a time.
const READ: usize = 1 << 20;

/// A follower: [`Follow::run`] in its own thread, [`Follow::stored`] from the streams,
/// [`Follow::end`] when they are done.
#[derive(Debug)]
pub(crate) struct Follow {
    view: Arc<dyn Source>,
    /// Store offset of wire offset 0.
    origin: u64,
    state: Mutex<State>,
    grown: Condvar,
    sum: Mutex<Option<Digest>>,
}

#[derive(Debug, Default)]
struct State {
    stored: RangeSet,
    summed: u64,
    ended: bool,
}

impl Follow {
    pub(crate) fn new(algorithm: Algorithm, view: Arc<dyn Source>, origin: u64) -> Self {
        Self {
            view,
            origin,
            state: Mutex::default(),
            grown: Condvar::new(),
            sum: Mutex::new(Some(Digest::new(algorithm))),
        }
    }

    /// `start..end` (wire offsets) can be read.
    pub(crate) fn stored(&self, start: u64, end: u64) {
        locked(&self.state).stored.insert(start, end);
        self.grown.notify_one();
    }

    /// Nothing more will be stored.
    pub(crate) fn end(&self) {
        locked(&self.state).ended = true;
        self.grown.notify_one();
    }

    /// Sums until the end; returns early when the store cannot be read, and there is no digest
    /// then. `go_on` is asked before each read.
    pub(crate) fn run(&self, go_on: impl Fn() -> bool) {
        let Some(mut digest) = locked(&self.sum).take() else {
            return;
        };
        let mut buffer = PageBuffer::new(READ);
        while let Some((from, to)) = self.next() {
            let want = usize::try_from(to - from).unwrap_or(READ).min(READ);
            let buf = &mut buffer.as_mut()[..want];
            match self.view.read_at(self.origin + from, buf) {
                Ok(n) if n > 0 && go_on() => {
                    digest.update(&buf[..n]);
                    locked(&self.state).summed += n as u64;
                }
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(file = self.view.name(), %error, "cannot read back to sum");
                    return;
                }
            }
        }
        *locked(&self.sum) = Some(digest);
    }

    /// The next bytes to sum; waits for them. `None` at the end.
    fn next(&self) -> Option<(u64, u64)> {
        let mut state = locked(&self.state);
        loop {
            let prefix = state.stored.prefix();
            if prefix > state.summed {
                return Some((state.summed, prefix));
            }
            if state.ended {
                return None;
            }
            state = notified(&self.grown, state);
        }
    }

    /// The digest, if everything stored was gapless from 0 on and could be read.
    pub(crate) fn digest(self) -> Option<String> {
        let state = locked(&self.state);
        let whole = state.stored.end() == state.summed;
        let digest = locked(&self.sum).take();
        digest.filter(|_| whole).map(Digest::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemorySource;

    fn follow(bytes: &[u8], ranges: &[(u64, u64)]) -> Option<String> {
        let view = Arc::new(MemorySource::new([b"--", bytes].concat(), "m"));
        let follow = Follow::new(Algorithm::Md5, view, 2);
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
        let mut digest = Digest::new(Algorithm::Md5);
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
